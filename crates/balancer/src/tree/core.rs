//! The state that the tree keeps for its policies, and the root's context.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::metrics::instruments::ENDPOINT_DURATION;
use proxyless_sans_io::metrics::{BoundSeries, Label, Meter, PlaceId};
use proxyless_sans_io::{Rng, SmallMap, Time};

use super::{LoadEvent, LoadStreamId, SubchannelId, TreeConfig, TreeStats};
use crate::api::{
    Child, ConnectivityState, Cx, HandleId, PickTarget, Picker, PolicyEvent, Releases, SharedTreePath,
    Signal, SignalQueue, SubchannelHandle, SubchannelSpec, Timer, TreeEvent, TreePathBuf, Wake,
};
use crate::pool::{Pool, PoolKey};
use crate::targets;

/// The maximum number of recorded events.
const KEPT_EVENTS: usize = 64;

/// The tree without its policies.
pub(super) struct Core {
    pub(super) now: Time,
    pub(super) pool: Pool,
    pub(super) signals: SignalQueue,
    pub(super) reresolution_requested: bool,
    /// Whether a policy requested that queued RPCs pick again.
    pub(super) bumped: bool,
    /// Decisions of policies that have not been taken yet.
    pub(super) events: VecDeque<PolicyEvent>,
    /// Signals deferred to the end of the input.
    deferred: VecDeque<HandleId>,
    pub(super) meter: Meter,
    rng: Rng,
    held: SmallMap<HandleId, Held>,
    /// The last stored path: the next one often leads to a sibling.
    last_path: Option<SharedTreePath>,
    timers: SmallMap<(Time, HandleId), ()>,
    releases: Arc<Releases>,
    next_id: u64,
}

/// An object that a policy holds a handle of, and the path to that policy.
struct Held {
    kind: HeldKind,
    path: SharedTreePath,
}

enum HeldKind {
    Subchannel { subchannel: SubchannelId },
    Timer { at: Time, tag: u32 },
    Signal { tag: u32 },
}

/// A message for the policy at the end of a path.
pub(super) struct Message {
    pub(super) tag: u32,
    pub(super) path: SharedTreePath,
}

impl Core {
    pub(super) fn new(config: TreeConfig, seed: u64, wake: Arc<dyn Wake>) -> Self {
        Self {
            now: Time::ZERO,
            pool: Pool::new(config, Arc::clone(&wake)),
            signals: SignalQueue::new(wake),
            reresolution_requested: false,
            events: VecDeque::new(),
            bumped: false,
            deferred: VecDeque::new(),
            meter: Meter::default(),
            rng: Rng::new(seed),
            held: SmallMap::new(),
            last_path: None,
            timers: SmallMap::new(),
            releases: Releases::new(),
            next_id: 0,
        }
    }

    /// Passes an event from the root to the policy at the end of the path.
    pub(super) fn pass_down(
        &mut self,
        root: Option<&mut Child>,
        path: &SharedTreePath,
        event: TreeEvent<'_>,
    ) {
        // The first step leads to the root.
        if let (Some(root), Some((_, path))) = (root, path.path().next()) {
            root.on_event(path, event, self);
        }
    }

    /// Handles an event of a stream of load reports.
    pub(super) fn on_load(&mut self, subchannel: SubchannelId, stream: LoadStreamId, event: LoadEvent) {
        let missing = self.pool.on_load(self.now, subchannel, stream, event, &mut self.rng);
        if let Some(address) = missing {
            // A51-13: an event of the channel, and an error in the log.
            tracing::error!(target: targets::SUBCHANNEL, %address,
                "the server does not report its load out of band (UNIMPLEMENTED)");
            self.record(PolicyEvent::NoLoadReports { address });
        }
    }

    /// Ends the input for the connections.
    pub(super) fn finish_pool(&mut self) {
        self.pool.finish(self.now, &mut self.rng);
    }

    /// Processes dropped handles.
    pub(super) fn drain_releases(&mut self) {
        for id in self.releases.drain() {
            match self.held.remove(&id).map(|held| held.kind) {
                Some(HeldKind::Subchannel { subchannel }) => self.pool.release(subchannel, id),
                Some(HeldKind::Timer { at, .. }) => {
                    self.timers.remove(&(at, id));
                }
                Some(HeldKind::Signal { .. }) | None => {}
            }
        }
    }

    /// The path to the owner of a subchannel, if it still exists.
    pub(super) fn path_to(&self, subchannel: HandleId) -> Option<SharedTreePath> {
        self.held.get(&subchannel).map(|held| held.path.clone())
    }

    /// The next raised signal whose handle still exists.
    pub(super) fn next_signal(&mut self) -> Option<Message> {
        std::iter::from_fn(|| self.signals.next()).find_map(|id| signal(&self.held, id))
    }

    /// The next deferred signal whose handle still exists.
    pub(super) fn next_deferred(&mut self) -> Option<Message> {
        std::iter::from_fn(|| self.deferred.pop_front()).find_map(|id| signal(&self.held, id))
    }

    pub(super) fn next_timer(&self) -> Option<Time> {
        self.timers.keys().next().map(|&(at, _)| at)
    }

    /// Takes the earliest timer that is due and was set before `limit`.
    pub(super) fn expire_timer(&mut self, limit: HandleId) -> Option<Message> {
        let is_due = |(at, _): &&(Time, HandleId)| *at <= self.now;
        let due = *self.timers.keys().take_while(is_due).find(|(_, id)| *id < limit)?;
        self.timers.remove(&due);
        match self.held.remove(&due.1)? {
            Held { kind: HeldKind::Timer { tag, .. }, path } => Some(Message { tag, path }),
            _ => None,
        }
    }

    /// Returns a new id, greater than all previous ones.
    pub(super) fn new_id(&mut self) -> HandleId {
        self.next_id += 1;
        HandleId(self.next_id - 1)
    }

    pub(super) fn stats(&self) -> TreeStats {
        let mut stats = TreeStats { subchannels: self.pool.len(), ..TreeStats::default() };
        for held in self.held.values() {
            match held.kind {
                HeldKind::Subchannel { .. } => stats.owners += 1,
                HeldKind::Timer { .. } => stats.timers += 1,
                HeldKind::Signal { .. } => stats.signals += 1,
            }
        }
        stats
    }

    fn hold(&mut self, id: HandleId, kind: HeldKind, path: &TreePathBuf) {
        let path = path.share(self.last_path.as_ref());
        self.last_path = Some(path.clone());
        self.held.insert(id, Held { kind, path });
    }
}

/// The message of a signal, if its handle still exists.
fn signal(held: &SmallMap<HandleId, Held>, id: HandleId) -> Option<Message> {
    match held.get(&id)? {
        Held { kind: HeldKind::Signal { tag }, path } => Some(Message { tag: *tag, path: path.clone() }),
        _ => None,
    }
}

impl Core {
    /// The durations of attempts on an endpoint, if they are recorded.
    fn durations(&self, place: PlaceId, address: SocketAddr) -> BoundSeries {
        if !self.meter.records(&ENDPOINT_DURATION) {
            return BoundSeries::default();
        }
        self.meter.bind(&ENDPOINT_DURATION, place, &[(Label::Endpoint, address.to_string().into())])
    }
}

impl Cx for Core {
    fn now(&self) -> Time {
        self.now
    }

    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn create_subchannel(&mut self, spec: SubchannelSpec) -> SubchannelHandle {
        let SubchannelSpec { address, endpoint, trackers, connection_limit, place, path } = spec;
        let id = self.new_id();
        let key = PoolKey { address, security: endpoint.security.clone(), proxy: endpoint.proxy().cloned() };
        let (subchannel, slot) = self.pool.acquire(key, id, connection_limit);
        if self.meter.is_enabled() {
            self.pool.locate(subchannel, place);
        }
        self.hold(id, HeldKind::Subchannel { subchannel }, &path);
        let durations = self.durations(place, address);
        let target = Arc::new(PickTarget { address, endpoint, slot, trackers, place, durations });
        SubchannelHandle::new(id, target, Arc::clone(&self.releases))
    }

    fn connect(&mut self, subchannel: &SubchannelHandle) {
        let held = self.held.get(&subchannel.id()).map(|held| &held.kind);
        if let Some(HeldKind::Subchannel { subchannel }) = held {
            self.pool.connect(self.now, *subchannel, &mut self.rng);
        }
    }

    fn watch_load(&mut self, subchannel: &SubchannelHandle, interval: Option<Duration>) {
        let held = self.held.get(&subchannel.id()).map(|held| &held.kind);
        if let Some(HeldKind::Subchannel { subchannel: id }) = held {
            self.pool.watch_load(*id, subchannel.id(), interval);
        }
    }

    fn connection_limits_changed(&mut self) {
        self.pool.limits_changed();
    }

    fn set_timer(&mut self, path: TreePathBuf, delay: Duration, tag: u32) -> Timer {
        let id = self.new_id();
        let at = self.now + delay;
        self.timers.insert((at, id), ());
        self.hold(id, HeldKind::Timer { at, tag }, &path);
        Timer::new(id, Arc::clone(&self.releases))
    }

    fn create_signal(&mut self, path: TreePathBuf, tag: u32) -> Signal {
        let id = self.new_id();
        self.hold(id, HeldKind::Signal { tag }, &path);
        self.signals.signal(id, Arc::clone(&self.releases))
    }

    fn defer(&mut self, signal: &Signal) {
        self.deferred.push_back(signal.id());
    }

    /// The root publishes into its own slot (it is a [`Child`](crate::api::Child)), so this is never called.
    fn publish(&mut self, _: ConnectivityState, _: Arc<dyn Picker>) {}

    fn bump(&mut self) {
        self.bumped = true;
    }

    fn request_reresolution(&mut self) {
        self.reresolution_requested = true;
    }

    fn record(&mut self, event: PolicyEvent) {
        // If events are not taken, only the latest are kept.
        if self.events.len() == KEPT_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}
