//! The target of a completed pick, and the trackers of calls.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

#[cfg(not(proxyless_loom))]
use arc_swap::ArcSwapOption;

use proxyless_sans_io::metrics::{BoundSeries, PlaceId};

use super::{
    BackendMetrics, CallCounter, Code, ConnectionSlot, Endpoint, LazyStriped, Pick, PickPermit, TargetRef,
};

#[cfg(proxyless_loom)]
type ArcSwapOption<T> = proxyless_sans_io::sync::Stepped<arc_swap::ArcSwapOption<T>>;

/// One tree position of one connection: the target of a completed pick.
pub struct PickTarget {
    /// The address of the connection.
    pub address: SocketAddr,
    /// The endpoint that the address belongs to.
    pub endpoint: Arc<Endpoint>,
    /// The slot of the connection.
    pub slot: Arc<ConnectionSlot>,
    /// The trackers of calls on this target.
    pub trackers: Trackers,
    /// The cluster and the locality, for metrics.
    pub place: PlaceId,
    /// The durations of attempts on this endpoint; usually not recorded.
    pub durations: BoundSeries,
}

impl fmt::Debug for PickTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PickTarget")
            .field("address", &self.address)
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

/// The trackers of calls on a target, installed when its subchannel was created.
#[derive(Clone, Default)]
pub struct Trackers {
    fixed: Box<[Arc<dyn CallTracker>]>,
    slot: Option<Arc<TrackerSlot>>,
}

impl Trackers {
    /// Adds a tracker.
    pub fn add(&mut self, tracker: Arc<dyn CallTracker>) {
        // Rarely more than one, in very many targets: without room for others.
        self.fixed = std::mem::take(&mut self.fixed).into_iter().chain([tracker]).collect();
    }

    /// The trackers without the one in the slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn CallTracker> {
        self.fixed.iter().map(|tracker| &**tracker)
    }

    /// Adds a slot: the tracker in the slot when a call starts tracks that call. A target has at most one slot; a
    /// second one replaces the first.
    pub fn add_slot(&mut self, slot: Arc<TrackerSlot>) {
        self.slot = Some(slot);
    }
}

/// A slot for a tracker that changes while calls are in flight: each call is tracked to its end by the tracker that was
/// in the slot when it started.
#[derive(Default)]
pub struct TrackerSlot(ArcSwapOption<StripedTracker>);

/// A tracker per stripe, because each call holds a reference to its own.
pub struct StripedTracker {
    stripes: LazyStriped<Arc<dyn CallTracker>>,
    make: Box<dyn Fn(usize) -> Arc<dyn CallTracker> + Send + Sync>,
}

impl StripedTracker {
    /// The trackers that `make` returns for the number of a stripe, when a thread of the stripe starts its first call.
    pub fn new(make: impl Fn(usize) -> Arc<dyn CallTracker> + Send + Sync + 'static) -> Self {
        Self { stripes: LazyStriped::default(), make: Box::new(make) }
    }

    fn own(&self) -> &Arc<dyn CallTracker> {
        self.stripes.own_or(&self.make)
    }
}

impl TrackerSlot {
    /// The tracker of calls that this thread starts now.
    #[must_use]
    pub fn load(&self) -> Option<Arc<dyn CallTracker>> {
        self.0.load().as_deref().map(|trackers| Arc::clone(trackers.own()))
    }

    /// Sets the trackers of calls that start from now on, or removes them.
    pub fn store(&self, trackers: Option<StripedTracker>) {
        self.0.store(trackers.map(Arc::new));
    }
}

impl fmt::Debug for TrackerSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.load().is_some() { "TrackerSlot(counting)" } else { "TrackerSlot(empty)" })
    }
}

/// Tracks calls: endpoint statistics, locality load, requests in flight. Runs on the data path: atomics only.
pub trait CallTracker: Send + Sync {
    /// A picked call waits because all streams of the connection are in use.
    fn waiting(&self) {}

    /// The call does not wait any longer: it has a stream, or was given up. Called once for each `waiting`.
    fn waited(&self) {}

    /// A call was passed to the connection.
    fn started(&self);

    /// The call ended. Called exactly once for each `started`, unless `withdrawn` is.
    fn finished(&self, outcome: &CallOutcome);

    /// No server has started to process the call: it is as if it had never started. Called instead of `finished`.
    fn withdrawn(&self);

    /// Whether the tracker uses [`CallOutcome::metrics`]; otherwise the backend's report is not decoded.
    fn wants_metrics(&self) -> bool {
        false
    }
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallOutcome {
    /// The status, from the trailers or the lack of them.
    pub code: Code,
    /// Whether the caller cancelled the call.
    pub cancelled: bool,
    /// The metrics that the backend reported with the call, if a tracker uses them.
    pub metrics: Option<BackendMetrics>,
}

/// A call in flight on a target. Finishing or dropping it (which means cancellation) notifies the trackers once.
pub struct CallTicket {
    target: TargetRef,
    /// The tracker in the target's slot when the call started.
    slotted: Option<Arc<dyn CallTracker>>,
    told: bool,
    /// The counter of the connection, if the subchannel has others.
    connection: Option<Arc<CallCounter>>,
    _permit: Option<PickPermit>,
}

impl CallTicket {
    /// Turns a pick into a call, which is tracked from now on.
    #[must_use]
    pub fn start(pick: Pick) -> Self {
        let slotted = pick.target.trackers.slot.as_ref().and_then(|slot| slot.load());
        let ticket =
            Self { target: pick.target, slotted, told: false, connection: None, _permit: pick.permit };
        ticket.trackers().for_each(|tracker| tracker.started());
        ticket
    }

    /// The target of the call.
    #[must_use]
    pub fn target(&self) -> &TargetRef {
        &self.target
    }

    /// Counts the end of the call on its connection too, not only on its subchannel.
    #[must_use]
    pub fn on_connection(mut self, calls: Option<Arc<CallCounter>>) -> Self {
        self.connection = calls;
        self
    }

    /// Whether a tracker uses the backend's metrics.
    #[must_use]
    pub fn wants_metrics(&self) -> bool {
        self.trackers().any(|tracker| tracker.wants_metrics())
    }

    /// The call ended with this status.
    pub fn finish(self, code: Code) {
        self.finish_with(code, None);
    }

    /// The call ended with this status and these backend metrics.
    pub fn finish_with(mut self, code: Code, metrics: Option<BackendMetrics>) {
        self.tell(&CallOutcome { code, cancelled: false, metrics });
    }

    /// The call did not reach a server that would process it, and will be sent again: it is not counted.
    pub fn unsent(mut self) {
        self.told = true;
        self.trackers().for_each(|tracker| tracker.withdrawn());
    }

    fn tell(&mut self, outcome: &CallOutcome) {
        if !std::mem::replace(&mut self.told, true) {
            let count = |calls: &CallCounter| match outcome.code {
                Code::Ok => calls.succeeded(),
                _ => calls.failed(),
            };
            count(self.target.slot.calls());
            if let Some(calls) = &self.connection {
                count(calls);
            }
            self.trackers().for_each(|tracker| tracker.finished(outcome));
        }
    }

    fn trackers(&self) -> impl Iterator<Item = &dyn CallTracker> {
        self.target.trackers.fixed.iter().chain(&self.slotted).map(|tracker| &**tracker)
    }
}

impl Drop for CallTicket {
    fn drop(&mut self) {
        self.tell(&CallOutcome { code: Code::Cancelled, cancelled: true, metrics: None });
    }
}

impl fmt::Debug for CallTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTicket").field("target", &self.target).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);

    impl Log {
        fn note(&self, what: impl Into<String>) {
            self.0.lock().unwrap().push(what.into());
        }

        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl CallTracker for Log {
        fn started(&self) {
            self.note("started");
        }

        fn finished(&self, outcome: &CallOutcome) {
            let cancelled = if outcome.cancelled { " cancelled" } else { "" };
            self.note(format!("{:?}{cancelled}", outcome.code));
        }

        fn withdrawn(&self) {
            self.note("withdrawn");
        }
    }

    fn pick(trackers: Trackers) -> Pick {
        let address = crate::testing::address(1);
        let (endpoint, slot) = (Arc::new(Endpoint::new(address)), Arc::default());
        let (place, durations) = (PlaceId::default(), BoundSeries::default());
        Pick::new(Arc::new(PickTarget { address, endpoint, slot, trackers, place, durations }))
    }

    #[test]
    fn trackers_hear_of_the_end_once() {
        let log = Arc::new(Log::default());
        let mut trackers = Trackers::default();
        trackers.add(Arc::clone(&log) as _);
        CallTicket::start(pick(trackers.clone())).finish(Code::Ok);
        assert_eq!(log.take(), ["started", "Ok"]);
        drop(CallTicket::start(pick(trackers.clone())));
        assert_eq!(log.take(), ["started", "Cancelled cancelled"]);
        CallTicket::start(pick(trackers)).unsent();
        assert_eq!(log.take(), ["started", "withdrawn"]);
    }

    #[test]
    fn a_call_stays_with_the_tracker_that_it_started_with() {
        let (old, new) = (Arc::new(Log::default()), Arc::new(Log::default()));
        let slot = Arc::new(TrackerSlot::default());
        let mut trackers = Trackers::default();
        trackers.add_slot(Arc::clone(&slot));
        let nobodys = CallTicket::start(pick(trackers.clone()));
        let tracker = Arc::clone(&old);
        slot.store(Some(StripedTracker::new(move |_| Arc::clone(&tracker) as _)));
        let olds = CallTicket::start(pick(trackers.clone()));
        let tracker = Arc::clone(&new);
        slot.store(Some(StripedTracker::new(move |_| Arc::clone(&tracker) as _)));
        nobodys.finish(Code::Ok);
        olds.finish(Code::Internal);
        assert_eq!(old.take(), ["started", "Internal"]);
        assert_eq!(new.take(), [""; 0]);
        CallTicket::start(pick(trackers)).finish(Code::Ok);
        assert_eq!(new.take(), ["started", "Ok"]);
        assert_eq!(old.take(), [""; 0]);
    }
}
