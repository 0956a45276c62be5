//! RPCs: they are routed, picked for, wait, run and end as in the data path.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_balancer::api::{
    BackendMetrics, CallAttributes, CallTicket, Code, HostWait, Pick, PickArgs, PickError, PickResult,
    PickTarget, WaitingCall,
};
use proxyless_balancer::tree::SubchannelId;
use proxyless_mesh::channel_core::DataPlane;
use proxyless_mesh::cluster_claim::RpcClaim;
use proxyless_mesh::route_table::Fault;
use proxyless_sans_io::{Rng, Time};
use proxyless_xds::lrs::LoadStore;

use crate::clients::sessions::Wait;
use crate::laws::faults::Injection;
use crate::laws::ledger::{Ledger, LoadKey};
use crate::script::CallSpec;

/// The connection in a connection slot of the simulator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    /// The attempt that made the connection.
    pub(crate) attempt: u64,
    /// Its subchannel, which may have several.
    pub(crate) subchannel: SubchannelId,
}

/// The result of routing and picking.
#[derive(Debug)]
pub(crate) enum Picked {
    /// The call has a connection.
    Started {
        /// The call.
        flight: Flight,
        /// The attempt that made the connection.
        attempt: u64,
        /// The backend.
        address: SocketAddr,
    },
    /// The call has a connection and waits for a stream.
    Held {
        /// The pick, which counts in the circuit breaker.
        pick: Pick,
        /// The attempt that made the oldest connection.
        attempt: u64,
        /// The subchannel.
        subchannel: SubchannelId,
        /// The backend.
        address: SocketAddr,
    },
    /// The call waits for the next snapshot.
    Waits,
    /// The call fails, unless it is wait-for-ready.
    Fails(String),
    /// The call fails.
    Dropped(String),
}

impl Picked {
    /// A short description.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Started { address, .. } => format!("to {address}"),
            Self::Held { address, .. } => format!("waits for a stream to {address}"),
            Self::Waits => "waits".into(),
            Self::Fails(why) => format!("fails: {why}"),
            Self::Dropped(why) => format!("is dropped: {why}"),
        }
    }
}

/// A call that was sent, and the stores that count it.
#[derive(Debug)]
pub(crate) struct Flight {
    ticket: CallTicket,
    key: Option<LoadKey>,
    /// The number of load reports when it began.
    reports: u64,
}

impl Flight {
    /// Sends a call.
    pub(crate) fn start(pick: Pick) -> Self {
        Self { ticket: CallTicket::start(pick), key: None, reports: 0 }
    }

    pub(crate) fn target(&self) -> &PickTarget {
        self.ticket.target()
    }

    /// Records the stores that count it.
    pub(crate) fn count_in(&mut self, key: LoadKey, ledger: &mut Ledger) {
        ledger.issued(&key);
        self.key = Some(key);
        self.reports = ledger.reports;
    }

    /// The call ended by itself.
    pub(crate) fn finish(self, code: Code, ledger: &mut Ledger) {
        let metrics = self.ticket.wants_metrics().then(|| metrics_of(self.ticket.target().address));
        self.ticket.finish_with(code, metrics);
        if let Some(key) = self.key {
            if code == Code::Ok { ledger.succeeded(&key) } else { ledger.failed(&key) }
        }
    }

    /// The caller cancelled the call, which counts as a failure.
    pub(crate) fn give_up(self, ledger: &mut Ledger) {
        drop(self.ticket);
        if let Some(key) = self.key {
            ledger.failed(&key);
        }
    }

    /// The call was not sent after all: nothing counts it.
    pub(crate) fn withdraw(self, ledger: &mut Ledger) {
        self.ticket.unsent();
        if let Some(key) = self.key {
            ledger.withdrawn(&key, self.reports);
        }
    }
}

/// The load that a backend reports with its calls.
fn metrics_of(backend: SocketAddr) -> BackendMetrics {
    let SocketAddr::V4(address) = backend else { return BackendMetrics::default() };
    let [.., n] = address.ip().octets();
    let application_utilization = 0.1 * f64::from(1 + n % 9);
    BackendMetrics { rps: 100.0, application_utilization, ..Default::default() }
}

/// Chooses the cluster of an RPC, unless it was chosen before: the choice is final (gRFC A31).
///
/// # Errors
/// If no route matches.
pub(crate) fn route(
    plane: &DataPlane,
    chosen: Option<RpcClaim>,
    path: &str,
    rng: &mut Rng,
) -> Result<RpcClaim, String> {
    chosen.map_or_else(|| route_with_fault(plane, path, rng).map(|(cluster, _)| cluster), Ok)
}

/// Chooses the cluster of an RPC, and its fault (gRFC A33).
///
/// # Errors
/// If no route matches.
pub(crate) fn route_with_fault(
    plane: &DataPlane,
    path: &str,
    rng: &mut Rng,
) -> Result<(RpcClaim, Option<Fault>), String> {
    let table = plane.routes.as_ref().map_err(|error| error.message.clone())?;
    let headers = HeaderMap::new();
    let selection = table.select(path, &headers, rng).map_err(|error| PickError::from(error).message)?;
    // Listeners have at most one of these filters.
    let fault = selection.faults.iter().find_map(|filter| filter.decide(&headers, rng));
    Ok((selection.cluster.hold(), fault))
}

/// Calls the picker; the returned attributes include those that it wrote.
pub(crate) fn ask(
    plane: &DataPlane,
    path: &str,
    attributes: CallAttributes,
    rng: &mut Rng,
) -> (PickResult, CallAttributes) {
    let headers = HeaderMap::new();
    let mut args = PickArgs { path, headers: &headers, attributes, rng };
    let result = plane.picker.pick(&mut args);
    (result, args.attributes)
}

/// Starts the call if its connection has room for a stream.
pub(crate) fn start(result: PickResult, has_room: impl Fn(u64, SocketAddr) -> bool) -> Picked {
    match result {
        PickResult::Queue => Picked::Waits,
        PickResult::Fail(error) => Picked::Fails(error.message.clone()),
        PickResult::Drop(error) => Picked::Dropped(error.message.clone()),
        PickResult::Complete(pick) => {
            let address = pick.target.address;
            let wire = pick.target.slot.read(|oldest, newer| {
                let wires =
                    || [oldest].into_iter().chain(newer).filter_map(|live| live.downcast_ref::<Wire>());
                // A105-20: the oldest with a free stream.
                wires().find(|wire| has_room(wire.attempt, address)).or_else(|| wires().next()).copied()
            });
            // The connection closed after the pick: a new snapshot is on its way.
            let Some(Wire { attempt, subchannel }) = wire else { return Picked::Waits };
            match has_room(attempt, address) {
                true => Picked::Started { flight: Flight::start(pick), attempt, address },
                false => Picked::Held { pick, attempt, subchannel, address },
            }
        }
    }
}

/// The calls that have not ended.
#[derive(Debug, Default)]
pub struct Calls {
    live: BTreeMap<u64, Call>,
    begun: u64,
    /// Calls that waited for a stream.
    pub turns: u64,
    /// Calls that an injected fault delayed or aborted.
    pub faults: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// The error of the last failed call.
    pub last_failure: Option<String>,
    /// The calls made and the load reported.
    pub(crate) ledger: Ledger,
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its parameters.
    pub(crate) spec: CallSpec,
    /// The epoch of its channel.
    pub(crate) epoch: u64,
    /// Its cluster, once chosen; the claim keeps the cluster alive as long as the call lives.
    pub(crate) cluster: Option<RpcClaim>,
    /// Its cookie: that of its session when its cluster was chosen.
    pub(crate) cookie: Option<Arc<[SocketAddr]>>,
    /// Attributes that its picks share.
    pub(crate) waiting: Option<HostWait>,
    /// The start of its wait, while its cluster has not changed.
    pub(crate) wait: Option<Wait>,
    /// Whether there is a snapshot that it has not seen yet.
    pub(crate) woken: bool,
    /// Its fault, while that is active.
    pub(crate) injection: Option<Injection>,
    /// The subchannel on which it waits for a stream.
    pub(crate) held: Option<Held>,
    /// The connection on which it runs.
    pub(crate) running: Option<Running>,
    /// The number of times that it was sent.
    pub(crate) sent: u32,
    /// The start of its current or last wait.
    pub(crate) waits_since: Time,
    /// The part of its deadline that passed before that wait, in an injected delay.
    pub(crate) delayed: Duration,
    /// Whether its last pick failed and it is wait-for-ready.
    pub(crate) out_of_luck: bool,
}

/// A call that waits for a stream.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) pick: Pick,
    pub(crate) subchannel: SubchannelId,
    pub(crate) address: SocketAddr,
    /// The stores of the channel since the pick.
    pub(crate) loads: Vec<Arc<LoadStore>>,
    /// Counts it in policies.
    _waiting: WaitingCall,
    /// Its position in the queue.
    turn: u64,
}

/// The connection of a running call.
#[derive(Debug)]
pub(crate) struct Running {
    /// The call itself.
    pub(crate) flight: Flight,
    /// The attempt that made the connection.
    pub(crate) attempt: u64,
    /// The backend.
    pub(crate) address: SocketAddr,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With OK.
    Well,
    /// With this error.
    Badly(String),
    /// Cancelled by the caller.
    GivenUp,
}

impl Calls {
    /// Adds a call, which waits.
    pub(crate) fn begin(&mut self, spec: CallSpec, epoch: u64, now: Time) -> u64 {
        self.begun += 1;
        let call = Call {
            spec,
            epoch,
            cluster: None,
            cookie: None,
            waiting: None,
            wait: None,
            woken: false,
            injection: None,
            held: None,
            running: None,
            sent: 0,
            waits_since: now,
            delayed: Duration::ZERO,
            out_of_luck: false,
        };
        self.live.insert(self.begun, call);
        self.begun
    }

    /// A call that has not ended.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Call> {
        self.live.get_mut(&id)
    }

    /// A call that has not ended.
    pub(crate) fn get(&self, id: u64) -> Option<&Call> {
        self.live.get(&id)
    }

    /// The waiting calls of a channel that have seen the latest snapshot.
    pub(crate) fn waiting_for_news(&self, epoch: u64) -> impl Iterator<Item = (u64, &Call)> {
        self.waiting(epoch).filter(|(_, call)| !call.woken)
    }

    /// The waiting calls of a channel.
    pub(crate) fn waiting(&self, epoch: u64) -> impl Iterator<Item = (u64, &Call)> {
        let waiting = self.live.iter().map(|(&id, call)| (id, call));
        waiting.filter(move |(_, call)| {
            let waits = call.running.is_none() && call.held.is_none() && call.injection.is_none();
            call.epoch == epoch && waits
        })
    }

    /// The calls of a channel on a connection.
    pub(crate) fn on_connection(&self, epoch: u64, attempt: u64) -> Vec<u64> {
        let is_there =
            |call: &Call| call.epoch == epoch && call.running.as_ref().is_some_and(|r| r.attempt == attempt);
        self.live.iter().filter(|(_, call)| is_there(call)).map(|(&id, _)| id).collect()
    }

    /// A call starts to wait for a stream.
    pub(crate) fn hold(
        &mut self,
        id: u64,
        (pick, subchannel, address): (Pick, SubchannelId, SocketAddr),
        loads: Vec<Arc<LoadStore>>,
    ) {
        self.turns += 1;
        if let Some(call) = self.live.get_mut(&id) {
            let waiting = WaitingCall::start(&pick.target);
            call.held = Some(Held { pick, subchannel, address, loads, _waiting: waiting, turn: self.turns });
        }
    }

    /// A channel registers a load store: its calls that wait for a stream may count there too, even if it is
    /// unregistered by then.
    pub(crate) fn load_is_counted(&mut self, epoch: u64, store: &Arc<LoadStore>) {
        let of_channel = self.live.values_mut().filter(|call| call.epoch == epoch);
        for held in of_channel.filter_map(|call| call.held.as_mut()) {
            held.loads.push(Arc::clone(store));
        }
    }

    /// The calls that wait for a stream, with their channel and subchannel, in order.
    pub(crate) fn held(&self) -> Vec<(u64, u64, SubchannelId, SocketAddr)> {
        let held = |(&id, call): (&u64, &Call)| {
            call.held.as_ref().map(|held| (held.turn, id, call.epoch, held.subchannel, held.address))
        };
        let mut line: Vec<_> = self.live.iter().filter_map(held).collect();
        line.sort_unstable();
        line.into_iter().map(|(_, id, epoch, subchannel, address)| (id, epoch, subchannel, address)).collect()
    }

    /// The calls of a channel.
    pub(crate) fn of_channel(&self, epoch: u64) -> Vec<u64> {
        self.live.iter().filter(|(_, call)| call.epoch == epoch).map(|(&id, _)| id).collect()
    }

    /// The clusters that the calls of a channel have chosen.
    pub(crate) fn clusters(&self, epoch: u64) -> impl Iterator<Item = Arc<str>> {
        let calls = self.live.values().filter(move |call| call.epoch == epoch);
        calls.filter_map(|call| call.cluster.as_ref()).map(|cluster| Arc::clone(cluster.name()))
    }

    /// The number of calls with a connection, including those that wait for a stream.
    #[must_use]
    pub fn running(&self) -> usize {
        self.live.values().filter(|call| call.running.is_some() || call.held.is_some()).count()
    }

    /// The number of calls with an active fault.
    pub(crate) fn injections(&self) -> usize {
        self.live.values().filter(|call| call.injection.is_some()).count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// A call ends.
    pub(crate) fn end(&mut self, id: u64, end: End) {
        let Some(call) = self.live.remove(&id) else { return };
        let flight = call.running.map(|running| running.flight);
        match end {
            End::Well => {
                self.succeeded += 1;
                if let Some(flight) = flight {
                    flight.finish(Code::Ok, &mut self.ledger);
                }
            }
            End::Badly(why) => {
                self.failed += 1;
                self.last_failure = Some(why);
                if let Some(flight) = flight {
                    flight.finish(Code::Unavailable, &mut self.ledger);
                }
            }
            End::GivenUp => {
                self.failed += 1;
                if let Some(flight) = flight {
                    flight.give_up(&mut self.ledger);
                }
            }
        }
    }

    /// All callers cancel.
    pub(crate) fn end_all(&mut self) {
        for id in self.live.keys().copied().collect::<Vec<_>>() {
            self.end(id, End::GivenUp);
        }
    }

    /// A call was not sent after all: it waits again.
    pub(crate) fn withdraw(&mut self, id: u64, now: Time) {
        let Some(call) = self.live.get_mut(&id) else { return };
        if let Some(running) = call.running.take() {
            (call.waits_since, call.delayed) = (now, Duration::ZERO);
            call.out_of_luck = false;
            (call.waiting, call.wait) = (None, None);
            running.flight.withdraw(&mut self.ledger);
        }
    }
}
