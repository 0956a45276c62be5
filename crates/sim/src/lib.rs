//! The simulator: the real cores of proxyless in a simulated world, on virtual time, from one seed.
//!
//! A [`script::Script`] lists external events: resources change, streams break, endpoints die, RPCs begin. The
//! [`world::World`] executes it around a real `XdsCore`, a real `LrsCore` and several real `ChannelCore`s, and delivers
//! every message after a random delay. [`run::run`] runs one script and checks the `laws`; for a failing seed,
//! [`run::explain`] finds and prints the few steps and resources that break the rule.
//!
//! There is no clock, thread or socket: a script has the same effects in every run.
//!
//! | module | contents |
//! |---|---|
//! | [`script`] | the steps, the resources of the control plane as plain values (`config`), the generator (`generate`) |
//! | [`world`] | virtual time and the event queue; the drivers of the cores and the network between client and servers |
//! | `servers` | the control plane, a model of the ADS protocol that checks the client, the LRS server, the resolver |
//! | `clients` | channels, their connections to backends, RPCs and their sessions |
//! | `laws` | the rules: some hold after every event, some when the world is at rest |
//! | [`planes`] | a world of its own: several management servers, their outages, and the laws of A47 and A71 |
//! | [`run`] | one script from start to shutdown, the minimiser, the text of a failure |
//! | `command` | the binary: many seeds on several threads, or one with its log |
//!
//! The rules in `laws`:
//!
//! | module | rule |
//! |---|---|
//! | `invariants` | calls wait only for pending events, the pool knows every connection, nothing is left after shutdown |
//! | `in_use` | each RPC obeys the configuration in use: endpoints, circuit breaker, load stores |
//! | `kept` | a serving cluster keeps serving unless the control plane says otherwise |
//! | `ledger` | load reports add up to the calls that were made |
//! | `expected`, `oracle` | at rest, each RPC goes where the mesh says, and exactly the needed resources are watched |
//! | `shares` | at rest, clusters, localities and endpoints get RPCs by weight |
//! | `faults` | injected faults (gRFC A33) have their shares and limits, and no call is both aborted and sent |
//! | `fresh` | at rest, the client behaves like one that has just started |
//! | `liveness` | recovery takes no longer than the sum of the timers involved |
//! | `outliers` | the number, duration and effect of ejections (gRFC A50) |
//! | `owners` | at rest, no subchannel is held without a reason |
#![forbid(unsafe_code)]

pub use self::clients::endpoints::Behaviour;
pub use self::laws::invariants::Violation;
pub use self::servers::load_server::LoadReportRequest;

mod clients;
mod laws;
pub mod planes;
pub mod run;
pub mod script;
mod servers;
pub mod world;
