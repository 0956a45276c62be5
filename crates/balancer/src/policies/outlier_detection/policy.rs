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
    subchannels: Subchannels,
    /// Whether the child's subchannels are tracked: true once detection has been enabled.
    follows: bool,
    detection: EjectionSettings,
    endpoints: Option<Endpoints>,
    sweep: Option<Sweep>,
    /// The cluster, for metrics.
    place: PlaceId,
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
        let config: &OutlierDetectionConfig = config_of(NAME, &update.config)?;
        self.place = update.place;
        self.watch(&config.detection, &update.endpoints);
        self.detection.clone_from(&config.detection);
        self.schedule(cx);
        // Without detection, subchannels cost nothing here. To track them the child is rebuilt, and takes over the
        // connections before the old one drops them.
        if self.detection.is_enabled() && !std::mem::replace(&mut self.follows, true) {
            below.replace();
        }
        let update = Update { config: Arc::clone(&config.child), ..update.clone() };
        let result = below.update(&update, self, cx);
        self.tell_child(below, cx);
        result
    }

    /// The sweep timer.
    fn on_event(&mut self, _: TreeEvent<'_>, below: &mut Below, cx: &mut dyn Cx) {
        let now = cx.now();
        let (events, detected) = self.subchannels.watched.sweep(&self.detection, now, cx.rng());
        events.into_iter().for_each(|event| cx.record(event));
        metrics::record(&detected, self.place, cx.meter());
        // A50: the next interval starts when the timer fires.
        self.sweep = Some(self.timer(now, cx));
        self.tell_child(below, cx);
    }

    fn on_subchannel<'a>(
        &mut self,
        event: &'a SubchannelEvent,
        _: &mut dyn Cx,
    ) -> Option<Cow<'a, SubchannelEvent>> {
        Some(self.subchannels.seen_by_child(event))
    }

    fn create_subchannel(&mut self, mut spec: SubchannelSpec, cx: &mut dyn Cx) -> SubchannelHandle {
        if !self.follows {
            return cx.create_subchannel(spec);
        }
        let Subchannels { watched, lent, .. } = &mut self.subchannels;
        // The tracker is added even while nothing is counted: detection may be enabled later.
        spec.trackers.add(watched.subchannel_made(spec.address));
        let seen = Seen { path: spec.path.share(None), event: None, ejected: false };
        lent.lend(cx.create_subchannel(spec), seen)
    }

    /// Releases the subchannels that the child has dropped.
    fn finish(&mut self, _: &mut dyn Cx) {
        for (subchannel, seen) in self.subchannels.lent.take_returned() {
            self.subchannels.seen_ejected -= usize::from(seen.ejected);
            self.subchannels.watched.subchannel_gone(subchannel.target().address);
        }
    }

    fn describe(&self, now: Time, node: &mut PolicyView) {
        if self.detection.is_enabled() {
            let watched = &self.subchannels.watched;
            node.counters.insert("endpoints_ejected".to_owned(), watched.ejected() as u64);
            node.counters.insert("ejections".to_owned(), watched.ejections());
            node.details = watched.describe(&self.detection, now);
        }
        if let Some(sweep) = &self.sweep {
            let next = (sweep.started + self.detection.interval).since(now);
            node.details.push(Detail::new("sweep", "").with_seconds("next_in_seconds", next));
        }
    }
}

impl OutlierDetection {
    fn watch(&mut self, detection: &EjectionSettings, endpoints: &Endpoints) {
        if !detection.is_enabled() {
            if self.endpoints.take().is_some() {
                self.subchannels.watched.clear();
            }
        } else if self.endpoints.as_ref() != Some(endpoints) {
            let last = self.endpoints.replace(endpoints.clone());
            self.subchannels.watched.watch(endpoints, last.as_ref());
        }
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

    /// Repeats the last event of each subchannel whose ejection has changed.
    fn tell_child(&mut self, below: &mut Below, cx: &mut dyn Cx) {
        for (path, event) in self.subchannels.changed() {
            let event = self.subchannels.seen_by_child(&event);
            below.on_event(path.path(), TreeEvent::Subchannel(&event), self, cx);
        }
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
