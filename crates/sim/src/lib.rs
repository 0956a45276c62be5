//! The simulator: the real cores of proxyless in a made-up world, on virtual time, from one seed.
//!
//! A [`script::Script`] says what happens when: configurations change, streams are cut, endpoints die, RPCs begin. The
//! [`world::World`] carries it out around one real `XdsCore`, one real `LrsCore` and some real `ChannelCore`s, and
//! delivers every message after a random delay. The [`invariants`] hold after every event; when all is calm, the
//! [`oracle`] says from the configuration alone where each RPC must go; at the end, what was reported of the calls must
//! be what they did (the [`ledger`]). [`run::run`] does all of that for one script, and [`minimise`] finds the few steps
//! of a script that a failure needs; [`explain`] says it to people.
//!
//! No clock, no thread and no socket: the same script gives the same effects, every time.
#![forbid(unsafe_code)]

pub use self::clients::endpoints::Behaviour;
pub use self::laws::invariants::Violation;
pub use self::servers::load_server::Wish;

mod clients;
mod laws;
pub mod run;
pub mod script;
mod servers;
pub mod world;
