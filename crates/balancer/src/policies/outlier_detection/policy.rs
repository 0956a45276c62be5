//! The policy: sweeps on a timer, counts in between, and reports ejections to its child as health.

use std::sync::Arc;

use proxyless_sans_io::Time;

use super::EjectionSettings;
use super::config::{NAME, OutlierDetectionConfig};
use super::endpoints::Watched;
use crate::api::{
    Child, ChildIndex, ConfigError, ConnectivityState, Cx, Detail, Endpoints, Intercept, InterceptCx, Lent,
    PickError, Policy, PolicyNode, SharedTreePath, Subchannel, SubchannelEvent, SubchannelSpec, Timer,
    TreePath, TreePathBuf, Update, config_of,
};

/// The policy `outlier_detection`.
#[derive(Default)]
pub struct OutlierDetection {
    child: Option<Child>,
    /// The child from before subchannels were tracked. It serves RPCs until its replacement can.
    before: Option<Child>,
    children_made: u32,
    subchannels: Subchannels,
    /// Whether the child's subchannels are tracked: true once detection has been enabled.
    follows: bool,
    detection: EjectionSettings,
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

impl Policy for OutlierDetection {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &OutlierDetectionConfig = config_of(NAME, &update.config)?;
        self.watch(&config.detection, &update.endpoints);
        self.detection.clone_from(&config.detection);
        self.schedule(cx);
        // Without detection, subchannels cost nothing here. To track them the child is rebuilt, and takes over the
        // connections before the old one drops them.
        if self.detection.is_enabled() && !std::mem::replace(&mut self.follows, true) {
            self.before = self.child.take();
        }
        let update = Update { config: Arc::clone(&config.child), ..update.clone() };
        if self.child.is_none() {
            self.child = Some(Child::new(ChildIndex(self.children_made), &config.child));
            self.children_made += 1;
        }
        let result = self.call(cx, |child, cx| child.update(&update, cx)).unwrap_or(Ok(()));
        self.before.take_if(|before| before.update(&update, cx).is_err());
        self.tell_child(cx);
        self.finish(cx);
        result
    }

    fn on_subchannel(&mut self, path: TreePath<'_>, event: &SubchannelEvent, cx: &mut dyn Cx) {
        let event = self.subchannels.seen_by_child(event);
        self.descend(path, cx, |child, path, cx| child.on_subchannel(path, &event, cx));
    }

    fn on_timer(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        if path.next().is_some() {
            return self.descend(path, cx, |child, path, cx| child.on_timer(path, tag, cx));
        }
        let now = cx.now();
        for event in self.subchannels.watched.sweep(&self.detection, now, cx.rng()) {
            cx.record(event);
        }
        // A50: the next interval starts when the timer fires.
        self.sweep = Some(self.timer(now, cx));
        self.tell_child(cx);
        self.finish(cx);
    }

    fn on_signal(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        self.descend(path, cx, |child, path, cx| child.on_signal(path, tag, cx));
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        self.call(cx, |child, cx| child.exit_idle(cx));
        if let Some(before) = &mut self.before {
            before.exit_idle(cx);
        }
        self.finish(cx);
    }

    fn describe(&self, now: Time) -> PolicyNode {
        let mut node = PolicyNode::above(self.child.as_ref().map(|child| child.describe(now)));
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
        node
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

    fn descend(
        &mut self,
        path: TreePath<'_>,
        cx: &mut dyn Cx,
        f: impl FnOnce(&mut Child, TreePath<'_>, &mut dyn Cx),
    ) {
        // An event for a removed child is ignored.
        if let Some((index, rest)) = path.next() {
            if let Some(before) = self.before.as_mut().filter(|before| before.index() == index) {
                f(before, rest, cx);
            } else if self.child.as_ref().is_some_and(|child| child.index() == index) {
                self.call(cx, |child, cx| f(child, rest, cx));
            }
        }
        self.finish(cx);
    }

    /// Calls the child, intercepting the subchannels that it creates if they are tracked.
    fn call<R>(&mut self, cx: &mut dyn Cx, f: impl FnOnce(&mut Child, &mut dyn Cx) -> R) -> Option<R> {
        let child = self.child.as_mut()?;
        Some(match self.follows {
            true => f(child, &mut InterceptCx { cx, by: &mut self.subchannels }),
            false => f(child, cx),
        })
    }

    /// Repeats the last event of each subchannel whose ejection has changed.
    fn tell_child(&mut self, cx: &mut dyn Cx) {
        for (path, event) in self.subchannels.changed() {
            let event = self.subchannels.seen_by_child(&event);
            if let Some((_, rest)) = path.path().next() {
                self.call(cx, |child, cx| child.on_subchannel(rest, &event, cx));
            }
        }
    }

    /// After every call of the child: releases its dropped subchannels, and publishes its output.
    fn finish(&mut self, cx: &mut dyn Cx) {
        for (subchannel, seen) in self.subchannels.lent.take_returned() {
            self.subchannels.seen_ejected -= usize::from(seen.ejected);
            self.subchannels.watched.subchannel_gone(subchannel.target().address);
        }
        let Some(child) = &mut self.child else { return };
        // Also one in TRANSIENT_FAILURE: RPCs that fail at once must not begin to wait because detection is turned on.
        let is_needed = |before: &Child| {
            matches!(before.output().state, ConnectivityState::Ready | ConnectivityState::TransientFailure)
                && child.output().state == ConnectivityState::Connecting
        };
        let replaced = self.before.take_if(|before| !is_needed(before)).is_some();
        let shown = self.before.as_mut().unwrap_or(child);
        if shown.take_dirty() || replaced {
            cx.publish(shown.output().state, Arc::clone(&shown.output().picker));
        }
    }
}

impl Subchannels {
    /// The event as the child sees it. A61: ejection affects health only; connectivity is unchanged.
    fn seen_by_child(&mut self, event: &SubchannelEvent) -> SubchannelEvent {
        let Some((subchannel, seen)) = self.lent.get_mut(event.subchannel) else { return event.clone() };
        let address = subchannel.target().address;
        seen.event = Some(event.clone());
        self.seen_ejected -= usize::from(seen.ejected);
        seen.ejected = event.state == ConnectivityState::Ready && self.watched.is_ejected(address);
        self.seen_ejected += usize::from(seen.ejected);
        if !seen.ejected {
            return event.clone();
        }
        let error = PickError::unavailable(format!("{address}: ejected by outlier detection"));
        SubchannelEvent { health: ConnectivityState::TransientFailure, error: Some(error), ..event.clone() }
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

impl Intercept for Subchannels {
    fn create_subchannel(&mut self, mut spec: SubchannelSpec, cx: &mut dyn Cx) -> Subchannel {
        // The tracker is added even while nothing is counted: detection may be enabled later.
        spec.trackers.add(self.watched.subchannel_made(spec.address));
        let seen = Seen { path: spec.path.share(None), event: None, ejected: false };
        self.lent.lend(cx.create_subchannel(spec), seen)
    }
}
