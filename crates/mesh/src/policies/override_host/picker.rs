//! The picker of xds_override_host: sends an RPC with a session to its endpoint, which it may ask the policy
//! to connect; the child's picker decides about all others.

use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_balancer::api::{
    ActualHost, ConnectivityState, Failures, HostWait, OverrideHost, Pick, PickArgs, PickPurpose, PickResult,
    PickTarget, Picker, SignalRaiser,
};
use proxyless_sans_io::sync::atomic::{Ordering, fence};
use proxyless_sans_io::sync::mpsc::Sender;

use super::host_state::HostState;

/// Sends RPCs of sessions to their endpoints, and passes all others to the child's picker.
pub(super) struct OverrideHostPicker {
    pub(super) hosts: Arc<HostTable>,
    pub(super) requests: Arc<ConnectRequests>,
    pub(super) child: Arc<dyn Picker>,
}

/// Every known address, sorted.
#[derive(Default)]
pub(super) struct HostTable {
    pub(super) rows: Box<[Row]>,
    /// Numbers the failures of all addresses.
    pub(super) failures: Arc<Failures>,
}

/// One address of an endpoint.
pub(super) struct Row {
    pub(super) address: SocketAddr,
    /// All addresses of the endpoint.
    pub(super) addresses: Arc<[SocketAddr]>,
    /// Whether its health allows sessions.
    pub(super) usable: bool,
    pub(super) shared: Arc<HostState>,
}

/// A75-55: the connection requests of picks to the policy.
pub(super) struct ConnectRequests {
    pub(super) raiser: Arc<SignalRaiser>,
    pub(super) queue: Sender<SocketAddr>,
}

/// The result of evaluating the cookie.
enum HostChoice<'a> {
    Ready(&'a Row, Arc<PickTarget>),
    /// Connect it, or create a subchannel for it, and wait.
    Connect(&'a Row),
    Wait,
    Child,
}

impl Picker for OverrideHostPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        // A75-43, A75-37: without a session the child picks, and nothing is recorded.
        let Some(session) = &mut args.attributes.override_host else { return self.child.pick(args) };
        match self.hosts.choose_or_wait(session) {
            HostChoice::Child => self.pick_of_child(args),
            other => self.answer(other, args),
        }
    }
}

impl OverrideHostPicker {
    /// The result for a choice that is not the child's.
    fn answer(&self, choice: HostChoice<'_>, args: &mut PickArgs<'_>) -> PickResult {
        match choice {
            HostChoice::Ready(row, target) => {
                // A75-48: the filter gets the whole address list.
                row.note_use(args);
                PickResult::Complete(Pick::new(target))
            }
            HostChoice::Connect(row) => {
                self.requests.send(row);
                PickResult::Queue
            }
            HostChoice::Wait | HostChoice::Child => PickResult::Queue,
        }
    }

    fn pick_of_child(&self, args: &mut PickArgs<'_>) -> PickResult {
        // A75-54: other results of the child are passed on unchanged.
        let result = self.child.pick(args);
        match &result {
            // A75-53: the filter learns the endpoint that the child picked, if it is known.
            PickResult::Complete(pick) => {
                if let Some(row) = self.hosts.row(pick.target.address) {
                    row.note_use(args);
                }
            }
            // The RPC waits for the child, but one of its hosts may become READY first.
            PickResult::Queue | PickResult::Fail(_) => {
                if let Some(session) = &mut args.attributes.override_host {
                    match self.hosts.await_change(session) {
                        HostChoice::Child => {}
                        other => return self.answer(other, args),
                    }
                }
            }
            PickResult::Drop(_) => {}
        }
        result
    }
}

impl HostTable {
    /// Like [`Self::choose`], but an RPC that waits is sure to be woken.
    fn choose_or_wait(&self, session: &mut OverrideHost) -> HostChoice<'_> {
        let since = session.waiting.as_ref().and_then(|waiting| waiting.since(&self.failures));
        let choice = self.choose(&session.cookie_addresses, since.unwrap_or(u64::MAX));
        if matches!(choice, HostChoice::Ready(..) | HostChoice::Child) {
            return choice;
        }
        self.await_change(session)
    }

    /// Registers the RPC to be woken when one of its hosts changes, then chooses again: an earlier change woke nobody.
    fn await_change(&self, session: &mut OverrideHost) -> HostChoice<'_> {
        let since = session.waiting.as_ref().and_then(|waiting| waiting.since(&self.failures));
        let since = since.unwrap_or_else(|| {
            let waiting = session.waiting.insert(HostWait::begin(&self.failures));
            waiting.since(&self.failures).unwrap_or(u64::MAX)
        });
        self.usable(&session.cookie_addresses).for_each(|row| row.shared.await_change());
        self.choose(&session.cookie_addresses, since)
    }

    /// A75's pseudo-code, in order, for an RPC that has seen the failures up to number `since`.
    fn choose(&self, cookie: &[SocketAddr], since: u64) -> HostChoice<'_> {
        let (mut idle, mut connecting, mut without_subchannel) = (None, false, None);
        // A75-44: in cookie order.
        for row in self.usable(cookie) {
            match row.shared.state() {
                Some(ConnectivityState::Ready) => match row.shared.target() {
                    // A75-47: the first READY one, even after others.
                    Some(target) => return HostChoice::Ready(row, target),
                    None => without_subchannel = without_subchannel.or(Some(row)),
                },
                // A75-52: the attempt that the RPC waited for has failed. An attempt may last longer than its backoff,
                // so the next one may have started before the RPC could see TRANSIENT_FAILURE.
                _ if row.shared.has_failed_since(since) => {}
                Some(ConnectivityState::Idle) => idle = idle.or(Some(row)),
                Some(ConnectivityState::Connecting) => connecting = true,
                // A75-52: skipped.
                Some(ConnectivityState::TransientFailure) => {}
                None => without_subchannel = without_subchannel.or(Some(row)),
            }
        }
        match (idle, connecting, without_subchannel) {
            // A75-49: none is READY: connect the first IDLE one and wait.
            (Some(row), ..) => HostChoice::Connect(row),
            // A75-50: wait for those that are CONNECTING.
            (None, true, _) => HostChoice::Wait,
            // A75-51: request a subchannel for the first that has none.
            (None, false, Some(row)) => HostChoice::Connect(row),
            (None, false, None) => HostChoice::Child,
        }
    }

    /// A75-45, A75-46: the addresses of the cookie that are known and whose health allows sessions.
    fn usable(&self, cookie: &[SocketAddr]) -> impl Iterator<Item = &Row> {
        cookie.iter().filter_map(|&address| self.row(address)).filter(|row| row.usable)
    }

    fn row(&self, address: SocketAddr) -> Option<&Row> {
        let place = self.rows.binary_search_by_key(&address, |row| row.address).ok()?;
        self.rows.get(place)
    }
}

impl Row {
    /// A75-36: records the use of the address by a session.
    fn note_use(&self, args: &mut PickArgs<'_>) {
        let Some(session) = &mut args.attributes.override_host else { return };
        if args.attributes.purpose == PickPurpose::Call {
            self.shared.used(session.now);
        }
        session.actual = Some(ActualHost { address: self.address, addresses: Arc::clone(&self.addresses) });
    }
}

impl ConnectRequests {
    /// Sends a request to the policy, unless one is pending.
    pub(super) fn send(&self, row: &Row) {
        // The receiver is dropped only when sessions end, and then this picker is superseded.
        if row.shared.request() && self.queue.send(row.address).is_ok() {
            // Pairs with the fence in the policy: either the policy finds the request in the queue, or the signal is
            // raised.
            fence(Ordering::SeqCst);
            self.raiser.raise();
        }
    }
}
