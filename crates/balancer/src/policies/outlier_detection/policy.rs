//! The policy: sweeps on a timer, counts in between, and reports ejections to its child as health.

use std::borrow::Cow;
use std::sync::Arc;

use proxyless_sans_io::Time;
use proxyless_sans_io::metrics::PlaceId;

use super::EjectionSettings;
use super::config::{NAME, OutlierDetectionConfig};
use super::endpoints::Watched;
use super::metrics;
use crate::api::{
    Below, ConfigError, ConnectivityState, Cx, Detail, Endpoints, Layer, Lent, PickError, PolicyView,
    SharedTreePath, SubchannelEvent, SubchannelHandle, SubchannelSpec, Timer, TreeEvent, TreePathBuf, Update,
    config_of,
};

/// The policy `outlier_detection`.
#[derive(Default)]
pub struct OutlierDetection {
    /// Exists once detection has been enabled; most clusters never enable it.
    tracking: Option<Box<Tracking>>,
    /// The cluster, for metrics.
    place: PlaceId,
}

/// The state of detection: the child's subchannels are tracked.
struct Tracking {
    detection: Arc<EjectionSettings>,
    subchannels: Subchannels,
    endpoints: Option<Endpoints>,
    sweep: Option<Sweep>,
}

/// The timer of the next sweep, and the start of the interval.
struct Sweep {
    started: Time,
    _timer: Timer,
}

/// The subchannels of the child, and their endpoints.
#[derive(Default)]
struct Subchannels {
    watched: Watched,
    lent: Lent<Seen>,
    /// The number of subchannels that the child sees as ejected.
    seen_ejected: usize,
}

/// The last event of a subchannel that the child has seen.
struct Seen {
    path: SharedTreePath,
    /// The event, as received from above.
    event: Option<SubchannelEvent>,
    /// Whether the child saw it as an ejection.
    ejected: bool,
}

impl Layer for OutlierDetection {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let OutlierDetectionConfig { detection, child } = config_of(NAME, &update.config)?;
        self.place = update.place;
        // Without detection, subchannels cost nothing here. To track them the child is rebuilt, and takes over the
        // connections before the old one drops them.
        if self.tracking.is_none() && detection.is_enabled() {
            self.tracking = Some(Box::new(Tracking::new(detection)));
            below.replace();
        }
        if let Some(tracking) = &mut self.tracking {
            tracking.configure(detection, &update.endpoints, cx);
        }
        let update = Update { config: Arc::clone(child), ..update.clone() };
        let result = below.update(&update, self, cx);
        self.tell_child(below, cx);
        result
    }

    /// The sweep timer.
    fn on_event(&mut self, _: TreeEvent<'_>, below: &mut Below, cx: &mut dyn Cx) {
        if let Some(tracking) = &mut self.tracking {
            tracking.sweep(self.place, cx);
        }
        self.tell_child(below, cx);
    }

    fn on_subchannel<'a>(
        &mut self,
        event: &'a SubchannelEvent,
        _: &mut dyn Cx,
    ) -> Option<Cow<'a, SubchannelEvent>> {
        Some(match &mut self.tracking {
            Some(tracking) => tracking.subchannels.seen_by_child(event),
            None => Cow::Borrowed(event),
        })
    }

    fn create_subchannel(&mut self, mut spec: SubchannelSpec, cx: &mut dyn Cx) -> SubchannelHandle {
        let Some(tracking) = &mut self.tracking else { return cx.create_subchannel(spec) };
        let Subchannels { watched, lent, .. } = &mut tracking.subchannels;
        // The tracker is added even while nothing is counted: detection may be enabled again.
        spec.trackers.add(watched.subchannel_made(spec.address));
        let seen = Seen { path: spec.path.share(None), event: None, ejected: false };
        lent.lend(cx.create_subchannel(spec), seen)
    }

    /// Releases the subchannels that the child has dropped.
    fn finish(&mut self, _: &mut dyn Cx) {
        let Some(Tracking { subchannels, .. }) = self.tracking.as_deref_mut() else { return };
        for (subchannel, seen) in subchannels.lent.take_returned() {
            subchannels.seen_ejected -= usize::from(seen.ejected);
            subchannels.watched.subchannel_gone(subchannel.target().address);
        }
    }

    fn describe(&self, now: Time, node: &mut PolicyView) {
        let Some(Tracking { detection, subchannels, sweep, .. }) = self.tracking.as_deref() else { return };
        if detection.is_enabled() {
            let watched = &subchannels.watched;
            node.counters.insert("endpoints_ejected".to_owned(), watched.ejected() as u64);
            node.counters.insert("ejections".to_owned(), watched.ejections());
            node.details = watched.describe(detection, now);
        }
        if let Some(sweep) = sweep {
            let next = (sweep.started + detection.interval).since(now);
            node.details.push(Detail::new("sweep", "").with_seconds("next_in_seconds", next));
        }
    }
}

impl OutlierDetection {
    /// Repeats the last event of each subchannel whose ejection has changed.
    fn tell_child(&mut self, below: &mut Below, cx: &mut dyn Cx) {
        let changed = self.tracking.as_ref().map(|tracking| tracking.subchannels.changed());
        for (path, event) in changed.into_iter().flatten() {
            let Some(tracking) = &mut self.tracking else { return };
            let event = tracking.subchannels.seen_by_child(&event);
            below.on_event(path.path(), TreeEvent::Subchannel(&event), self, cx);
        }
    }
}

impl Tracking {
    fn new(detection: &Arc<EjectionSettings>) -> Self {
        let detection = Arc::clone(detection);
        Self { detection, subchannels: Subchannels::default(), endpoints: None, sweep: None }
    }

    /// Applies an update.
    fn configure(&mut self, detection: &Arc<EjectionSettings>, endpoints: &Endpoints, cx: &mut dyn Cx) {
        self.detection = Arc::clone(detection);
        self.watch(endpoints);
        self.schedule(cx);
    }

    fn watch(&mut self, endpoints: &Endpoints) {
        if !self.detection.is_enabled() {
            if self.endpoints.take().is_some() {
                self.subchannels.watched.clear();
            }
        } else if self.endpoints.as_ref() != Some(endpoints) {
            let last = self.endpoints.replace(endpoints.clone());
            self.subchannels.watched.watch(endpoints, last.as_ref());
        }
    }

    fn sweep(&mut self, place: PlaceId, cx: &mut dyn Cx) {
        let now = cx.now();
        let (events, detected) = self.subchannels.watched.sweep(&self.detection, now, cx.rng());
        events.into_iter().for_each(|event| cx.record(event));
        metrics::record(&detected, place, cx.meter());
        // A50: the next interval starts when the timer fires.
        self.sweep = Some(self.timer(now, cx));
    }

    /// A50: sweeps run only while an algorithm is enabled. A changed interval applies from the start of the current
    /// one.
    fn schedule(&mut self, cx: &mut dyn Cx) {
        self.sweep = self.detection.is_enabled().then(|| {
            let started = self.sweep.as_ref().map_or(cx.now(), |sweep| sweep.started);
            self.timer(started, cx)
        });
    }

    fn timer(&self, started: Time, cx: &mut dyn Cx) -> Sweep {
        let delay = self.detection.interval.saturating_sub(cx.now().since(started));
        Sweep { started, _timer: cx.set_timer(TreePathBuf::default(), delay, 0) }
    }
}

impl Subchannels {
    /// The event as the child sees it. A61: ejection affects health only; connectivity is unchanged.
    fn seen_by_child<'a>(&mut self, event: &'a SubchannelEvent) -> Cow<'a, SubchannelEvent> {
        let Some((subchannel, seen)) = self.lent.get_mut(event.subchannel) else {
            return Cow::Borrowed(event);
        };
        let address = subchannel.target().address;
        seen.event = Some(event.clone());
        self.seen_ejected -= usize::from(seen.ejected);
        seen.ejected = event.state == ConnectivityState::Ready && self.watched.is_ejected(address);
        self.seen_ejected += usize::from(seen.ejected);
        if !seen.ejected {
            return Cow::Borrowed(event);
        }
        let error = PickError::unavailable(format!("{address}: ejected by outlier detection"));
        let health = ConnectivityState::TransientFailure;
        Cow::Owned(SubchannelEvent { health, error: Some(error), ..event.clone() })
    }

    /// The events that the child would now see differently.
    fn changed(&self) -> Vec<(SharedTreePath, SubchannelEvent)> {
        if self.seen_ejected == 0 && self.watched.ejected() == 0 {
            return Vec::new();
        }
        let changed = self.lent.iter().filter_map(|(subchannel, seen)| {
            let event = seen.event.as_ref().filter(|event| event.state == ConnectivityState::Ready)?;
            let ejected = self.watched.is_ejected(subchannel.target().address);
            (ejected != seen.ejected).then(|| (seen.path.clone(), event.clone()))
        });
        changed.collect()
    }
}
