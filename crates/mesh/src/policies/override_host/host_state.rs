//! The state of one address shared by the policy and pickers: atomics, written by the policy and read by picks.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use proxyless_balancer::api::{ConnectivityState, PickTarget};
use proxyless_sans_io::Time;
use proxyless_sans_io::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// The state of one address.
pub(super) struct HostState {
    state: AtomicU8,
    target: ArcSwapOption<PickTarget>,
    /// In whole seconds since the epoch, rounded up; [`NEVER`] if no session has used it.
    last_used: AtomicU64,
    /// The number of the last failed attempt; 0 if there was none.
    last_failure: AtomicU64,
    /// Whether a pick waits for a state change.
    awaited: AtomicBool,
    /// Whether a connection request is pending at the policy.
    requested: AtomicBool,
}

const NO_SUBCHANNEL: u8 = u8::MAX;
const NEVER: u64 = u64::MAX;

impl Default for HostState {
    fn default() -> Self {
        Self {
            state: AtomicU8::new(NO_SUBCHANNEL),
            target: ArcSwapOption::default(),
            last_used: AtomicU64::new(NEVER),
            last_failure: AtomicU64::new(0),
            awaited: AtomicBool::new(false),
            requested: AtomicBool::new(false),
        }
    }
}

impl HostState {
    /// The state of the subchannel; `None` if there is none.
    pub(super) fn state(&self) -> Option<ConnectivityState> {
        use ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
        // SeqCst here, in `set_state` and in `await_change`: see there.
        match self.state.load(Ordering::SeqCst) {
            0 => Some(Idle),
            1 => Some(Connecting),
            2 => Some(Ready),
            3 => Some(TransientFailure),
            _ => None,
        }
    }

    /// Records a failed attempt by its number. Must precede the state change.
    pub(super) fn failed(&self, number: u64) {
        self.last_failure.store(number, Ordering::SeqCst);
    }

    /// Whether an attempt failed after the one with this number.
    pub(super) fn has_failed_since(&self, number: u64) -> bool {
        self.last_failure.load(Ordering::SeqCst) > number
    }

    /// The target for calls.
    pub(super) fn target(&self) -> Option<Arc<PickTarget>> {
        self.target.load_full()
    }

    /// Sets or removes the subchannel of the address. Returns true if a pick waits for this.
    pub(super) fn set_target(&self, target: Option<&Arc<PickTarget>>) -> bool {
        let old = self.target.swap(target.cloned());
        match (target, self.state()) {
            (Some(_), None) => self.set_state(Some(ConnectivityState::Idle)),
            // A29-09: of another connection, because it is secured differently.
            (Some(new), Some(_)) if old.is_some_and(|old| !Arc::ptr_eq(&old.slot, &new.slot)) => {
                let connected = new.slot.is_connected();
                self.set_state(Some(if connected {
                    ConnectivityState::Ready
                } else {
                    ConnectivityState::Idle
                }))
            }
            (None, Some(_)) => self.set_state(None),
            _ => false,
        }
    }

    /// Changes the state. Returns true if a pick waits for this: then queued RPCs must pick again.
    pub(super) fn set_state(&self, state: Option<ConnectivityState>) -> bool {
        let state = match state {
            Some(ConnectivityState::Idle) => 0,
            Some(ConnectivityState::Connecting) => 1,
            Some(ConnectivityState::Ready) => 2,
            Some(ConnectivityState::TransientFailure) => 3,
            None => NO_SUBCHANNEL,
        };
        // SeqCst: of this store and the swap below, and the store and load of a pick that starts to wait, at least one
        // side sees the other. So either the pick sees the new state or it is woken.
        self.state.swap(state, Ordering::SeqCst) != state && self.awaited.swap(false, Ordering::SeqCst)
    }

    /// Announces that a pick will wait for a state change. It must read the state once more after this.
    pub(super) fn await_change(&self) {
        self.awaited.store(true, Ordering::SeqCst);
    }

    /// Requests a connection; returns true if no request is pending.
    pub(super) fn request(&self) -> bool {
        !self.requested.swap(true, Ordering::AcqRel)
    }

    /// The policy takes the request.
    pub(super) fn take_request(&self) {
        self.requested.store(false, Ordering::Release);
    }

    /// A75-36: records the use by a session. Written only when the second changed, so that the cache line stays shared.
    pub(super) fn used(&self, now: Time) {
        let now = now.since_epoch();
        // Rounded up: nothing expires early.
        let second = now.as_secs() + u64::from(now.subsec_nanos() > 0);
        // Relaxed: the value orders nothing else.
        if self.last_used.load(Ordering::Relaxed) != second {
            self.last_used.store(second, Ordering::Relaxed);
        }
    }

    /// A75-24: the time of the last use by a session.
    pub(super) fn last_used(&self) -> Option<Time> {
        let second = self.last_used.load(Ordering::Relaxed);
        (second != NEVER).then(|| Time::from_epoch(Duration::from_secs(second)))
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;

#[cfg(test)]
mod tests {
    use proxyless_balancer::api::{ConnectionSlot, Endpoint, Trackers};
    use proxyless_sans_io::metrics::{BoundSeries, PlaceId};

    use super::*;

    #[test]
    fn a75_24_last_use_is_kept_to_the_second_and_never_early() {
        let host = HostState::default();
        assert_eq!(host.last_used(), None);
        let at = |millis| Time::from_epoch(Duration::from_millis(millis));
        host.used(at(0));
        assert_eq!(host.last_used(), Some(at(0)));
        host.used(at(1));
        assert_eq!(host.last_used(), Some(at(1000)));
        host.used(at(1000));
        assert_eq!(host.last_used(), Some(at(1000)));
    }

    fn target(slot: &Arc<ConnectionSlot>) -> Arc<PickTarget> {
        let address = ([127, 0, 0, 1], 1).into();
        let (endpoint, slot) = (Arc::new(Endpoint::new(address)), Arc::clone(slot));
        Arc::new(PickTarget {
            address,
            endpoint,
            slot,
            trackers: Trackers::default(),
            place: PlaceId::default(),
            durations: BoundSeries::default(),
        })
    }

    #[test]
    fn a29_09_a_target_of_another_connection_has_its_state() {
        let host = HostState::default();
        let (old, idle, connected) = (Arc::default(), Arc::default(), Arc::<ConnectionSlot>::default());
        connected.store(Some(Arc::new(())));
        host.set_target(Some(&target(&old)));
        assert_eq!(host.state(), Some(ConnectivityState::Idle));
        host.set_state(Some(ConnectivityState::Ready));
        // Another target of the same connection.
        host.await_change();
        assert!(!host.set_target(Some(&target(&old))));
        assert_eq!(host.state(), Some(ConnectivityState::Ready));
        // A connection that is secured differently, and not there yet: picks that wait look again.
        assert!(host.set_target(Some(&target(&idle))));
        assert_eq!(host.state(), Some(ConnectivityState::Idle));
        host.await_change();
        assert!(host.set_target(Some(&target(&connected))));
        assert_eq!(host.state(), Some(ConnectivityState::Ready));
        assert!(host.target().is_some_and(|target| Arc::ptr_eq(&target.slot, &connected)));
        host.set_target(None);
        assert_eq!(host.state(), None);
    }

    #[test]
    fn a_change_wakes_waiters_once() {
        let host = HostState::default();
        let idle = Some(ConnectivityState::Idle);
        assert!(!host.set_state(idle), "nobody waits");
        host.await_change();
        assert!(!host.set_state(idle), "no change");
        assert!(host.set_state(Some(ConnectivityState::Connecting)));
        assert!(!host.set_state(idle), "nobody waits any more");
    }
}
