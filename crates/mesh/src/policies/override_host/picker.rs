use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::Sender;

use proxyless_balancer::api::{
    ActualHost, ConnectivityState, Pick, PickArgs, PickResult, PickTarget, Picker, SignalRaiser,
};
use proxyless_sans_io::Time;

use super::live::Live;

/// Sends RPCs of sessions to their endpoints, and all others to where the child says.
pub(super) struct OverrideHostPicker {
    pub(super) hosts: Arc<HostTable>,
    pub(super) wishes: Arc<Wishes>,
    pub(super) child: Arc<dyn Picker>,
}

/// Every known address, sorted.
#[derive(Default)]
pub(super) struct HostTable(pub(super) Box<[Row]>);

/// One address of an endpoint.
pub(super) struct Row {
    pub(super) address: SocketAddr,
    /// All addresses of the endpoint.
    pub(super) addresses: Arc<[SocketAddr]>,
    /// Whether its health lets it serve sessions.
    pub(super) usable: bool,
    pub(super) live: Arc<Live>,
}

/// A75-55: the way from picks to the policy.
pub(super) struct Wishes {
    pub(super) raiser: Arc<SignalRaiser>,
    pub(super) queue: Sender<SocketAddr>,
}

/// What the cookie comes to.
enum Choice<'a> {
    Ready(&'a Row, Arc<PickTarget>),
    /// Connect it, or make a subchannel for it, and wait.
    Wish(&'a Row),
    Wait,
    Child,
}

impl Picker for OverrideHostPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        // A75-43, A75-37: without a session the child is asked at once, and nothing is noted.
        let Some(session) = &mut args.attributes.override_host else { return self.child.pick(args) };
        let now = session.now;
        match self.choose_or_wait(&session.cookie_addresses) {
            Choice::Ready(row, target) => {
                // A75-48: the whole address list goes to the filter.
                session.actual = Some(row.used(now));
                return PickResult::Complete(Pick::new(target));
            }
            Choice::Wish(row) => {
                self.wishes.send(row);
                return PickResult::Queue;
            }
            Choice::Wait => return PickResult::Queue,
            Choice::Child => {}
        }
        // A75-54: whatever else the child says is passed on as it is.
        let result = self.child.pick(args);
        // A75-53: the filter learns the endpoint that the child picked, if it is a known one.
        if let PickResult::Complete(pick) = &result
            && let Some(row) = self.hosts.row(pick.target.address)
            && let Some(session) = &mut args.attributes.override_host
        {
            session.actual = Some(row.used(now));
        }
        result
    }
}

impl OverrideHostPicker {
    /// Like [`HostTable::choose`], but what is to wait is sure to be woken.
    fn choose_or_wait(&self, cookie: &[SocketAddr]) -> Choice<'_> {
        let choice = self.hosts.choose(cookie);
        if matches!(choice, Choice::Ready(..) | Choice::Child) {
            return choice;
        }
        self.hosts.usable(cookie).for_each(|row| row.live.await_change());
        // A state that changed before the line above woke nobody, so look again.
        self.hosts.choose(cookie)
    }
}

impl HostTable {
    /// A75's pseudo-code, in its order.
    fn choose(&self, cookie: &[SocketAddr]) -> Choice<'_> {
        let (mut idle, mut connecting, mut without_subchannel) = (None, false, None);
        // A75-44: in the order of the cookie.
        for row in self.usable(cookie) {
            match row.live.state() {
                Some(ConnectivityState::Ready) => match row.live.target() {
                    // A75-47: the first READY one, even after others.
                    Some(target) => return Choice::Ready(row, target),
                    None => without_subchannel = without_subchannel.or(Some(row)),
                },
                Some(ConnectivityState::Idle) => idle = idle.or(Some(row)),
                Some(ConnectivityState::Connecting) => connecting = true,
                // A75-52: counts for nothing.
                Some(ConnectivityState::TransientFailure) => {}
                None => without_subchannel = without_subchannel.or(Some(row)),
            }
        }
        match (idle, connecting, without_subchannel) {
            // A75-49: none is READY: connect the first IDLE one and wait.
            (Some(row), ..) => Choice::Wish(row),
            // A75-50: wait for those that are CONNECTING.
            (None, true, _) => Choice::Wait,
            // A75-51: have a subchannel made for the first that has none.
            (None, false, Some(row)) => Choice::Wish(row),
            (None, false, None) => Choice::Child,
        }
    }

    /// A75-45, A75-46: the addresses of the cookie that are known and whose health will do.
    fn usable(&self, cookie: &[SocketAddr]) -> impl Iterator<Item = &Row> {
        cookie.iter().filter_map(|&address| self.row(address)).filter(|row| row.usable)
    }

    fn row(&self, address: SocketAddr) -> Option<&Row> {
        let place = self.0.binary_search_by_key(&address, |row| row.address).ok()?;
        self.0.get(place)
    }
}

impl Row {
    /// A75-36: notes the use of the address for a session.
    fn used(&self, now: Time) -> ActualHost {
        self.live.used(now);
        ActualHost { address: self.address, addresses: Arc::clone(&self.addresses) }
    }
}

impl Wishes {
    /// Asks the policy, once until it has acted.
    fn send(&self, row: &Row) {
        // The receiver is gone only when the policy is, and then this picker is superseded.
        if row.live.wish() && self.queue.send(row.address).is_ok() {
            // With its partner in the policy: either the policy finds the wish in the queue, or the signal is raised.
            fence(Ordering::SeqCst);
            self.raiser.raise();
        }
    }
}
