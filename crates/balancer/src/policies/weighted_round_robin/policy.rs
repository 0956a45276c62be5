//! The policy: collects reports, calculates the weights periodically, and gives them to the picker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::Time;
use proxyless_sans_io::metrics::PlaceId;

use super::config::{NAME, WeightedRoundRobinConfig};
use super::metrics::Metrics;
use super::picker::WeightedPicker;
use super::report::{Formula, PerCall, Reports};
use super::scheduler::Scheduler;
use super::weight::{Periods, Weight};
use crate::api::{
    BackendMetrics, ChildIndex, ConnectivityState, Cx, Detail, Picker, PolicyView, SubchannelHandle,
    SubchannelSpec, Timer, TreeEvent, TreePathBuf,
};
use crate::petiole::{Applied, Change, EndpointKey, Member, Spread, SpreadPolicy};
use crate::policies::round_robin::position::Position;

/// The policy `weighted_round_robin_experimental`.
pub(super) type WeightedRoundRobin = SpreadPolicy<Weighted>;

/// The weights of the endpoints.
#[derive(Default)]
pub(super) struct Weighted {
    formula: Arc<Formula>,
    periods: Periods,
    update_period: Duration,
    oob: Oob,
    per_call: PerCall,
    endpoints: BTreeMap<ChildIndex, EndpointWeight>,
    /// The time at which the per-call reports of all endpoints were last collected.
    collected: Time,
    position: Option<Arc<Position>>,
    /// Runs while there is a picker.
    timer: Option<Timer>,
    metrics: Metrics,
}

/// Out-of-band reports.
#[derive(Default)]
struct Oob {
    /// The interval, if they are enabled.
    interval: Option<Duration>,
    /// Whether the subchannels have to learn of a new interval.
    changed: bool,
}

struct EndpointWeight {
    reports: Arc<Reports>,
    weight: Weight,
}

impl Spread for Weighted {
    const NAME: &'static str = NAME;
    type Config = WeightedRoundRobinConfig;
    type Picker = WeightedPicker;

    fn configure(&mut self, config: &WeightedRoundRobinConfig, _: &mut dyn Cx) -> Applied {
        let interval = config.oob_interval();
        let formula = Formula::of(config);
        let is_new = *self.formula != formula;
        if is_new {
            self.formula = Arc::new(formula);
        }
        // A58-13: either per-call or out-of-band reports are used.
        if is_new || interval.is_none() == self.per_call.load().is_none() {
            self.per_call.store(interval.is_none().then(|| Arc::clone(&self.formula)));
        }
        self.oob.changed |= self.oob.interval != interval;
        self.oob.interval = interval;
        self.periods =
            Periods { blackout: config.blackout_period, expiration: config.weight_expiration_period };
        if self.update_period != config.update_period() {
            self.update_period = config.update_period();
            self.timer = None;
        }
        // A58-15: other parameters apply with the picker of this update.
        Applied::NewPicker
    }

    fn located(&mut self, place: PlaceId) {
        self.metrics.locate(place);
    }

    fn updated(&mut self, members: &[Member], cx: &mut dyn Cx) -> Applied {
        let mut old = std::mem::take(&mut self.endpoints);
        self.endpoints = members.iter().filter_map(|member| old.remove_entry(&member.index())).collect();
        if std::mem::take(&mut self.oob.changed) {
            // A58-14, A58-24: the connections stay.
            let interval = self.oob.interval;
            let mut watch = |subchannel: &SubchannelHandle| cx.watch_load(subchannel, interval);
            members.iter().for_each(|member| member.subchannels(&mut watch));
        }
        Applied::SamePicker
    }

    fn create_subchannel(
        &mut self,
        endpoint: ChildIndex,
        mut spec: SubchannelSpec,
        cx: &mut dyn Cx,
    ) -> SubchannelHandle {
        let known = self.endpoints.entry(endpoint);
        let per_call = &self.per_call;
        let known = known
            .or_insert_with(|| EndpointWeight { reports: Reports::new(per_call), weight: Weight::default() });
        spec.trackers.add(Arc::clone(&known.reports) as _);
        let subchannel = cx.create_subchannel(spec);
        if self.oob.interval.is_some() {
            cx.watch_load(&subchannel, self.oob.interval);
        }
        subchannel
    }

    fn changed(&mut self, member: &Member, change: Change, now: Time) {
        let is_ready = change.now == ConnectivityState::Ready && change.was != ConnectivityState::Ready;
        let received = self.latest_receipt(now);
        if let Some(known) = self.endpoints.get_mut(&member.index()).filter(|_| is_ready) {
            // Reports of the lost connection do not begin the blackout period.
            known.collect(received);
            known.weight.on_ready();
        }
    }

    fn on_load(&mut self, endpoint: ChildIndex, metrics: &BackendMetrics, now: Time) {
        if self.oob.interval.is_some()
            && let Some(known) = self.endpoints.get_mut(&endpoint)
            && let Some(weight) = self.formula.weight(metrics)
        {
            known.weight.update(weight, now);
        }
    }

    fn on_event(&mut self, _: TreeEvent<'_>, _: &[Member], picker: Option<&WeightedPicker>, cx: &mut dyn Cx) {
        self.timer = None;
        self.collect(cx.now());
        if let Some(picker) = picker {
            picker.reschedule(self.schedule(picker.endpoints(), cx));
            self.start_timer(cx);
        }
    }

    fn picker(
        &mut self,
        ready: &[&Member],
        children: Vec<Arc<dyn Picker>>,
        cx: &mut dyn Cx,
    ) -> Arc<WeightedPicker> {
        self.start_timer(cx);
        let endpoints: Vec<_> = ready.iter().map(|member| member.index()).collect();
        let scheduler = self.schedule(&endpoints, cx);
        // A random start, so that clients do not all start with the same endpoint.
        let position = self.position.get_or_insert_with(|| Position::starting_at(cx.rng().next_u64()));
        WeightedPicker::new(children, endpoints, scheduler, Arc::clone(position))
    }

    fn describe(&self, now: Time, members: &[Member], node: &mut PolicyView) {
        let weights = members.iter().filter_map(|member| {
            let weight = &self.endpoints.get(&member.index())?.weight;
            let age = weight.age(now)?;
            let used = (weight.usable(now, self.periods) * 1000.0).round() / 1000.0;
            let of = EndpointKey::of(member.endpoint()).to_string();
            Some(Detail::new("weight", of).with("used", used).with_seconds("reported_seconds_ago", age))
        });
        node.details.extend(weights);
    }
}

impl Weighted {
    /// A58-10: recalculates the weights periodically.
    fn start_timer(&mut self, cx: &mut dyn Cx) {
        let period = self.update_period;
        self.timer.get_or_insert_with(|| cx.set_timer(TreePathBuf::default(), period, 0));
    }

    /// Takes the latest per-call report of each endpoint.
    fn collect(&mut self, now: Time) {
        let received = self.latest_receipt(now);
        self.endpoints.values_mut().for_each(|known| known.collect(received));
        self.collected = now;
    }

    /// A58-04: the time that counts as the receipt of reports which are collected now. Without a picker no timer runs,
    /// and a report may have waited since the last collection: it must not seem newer than it can be at most.
    fn latest_receipt(&self, now: Time) -> Time {
        now.min(self.collected + self.update_period)
    }

    /// A scheduler for the weights of these endpoints.
    fn schedule(&mut self, endpoints: &[ChildIndex], cx: &dyn Cx) -> Scheduler {
        let now = cx.now();
        self.collect(now);
        let periods = self.periods;
        if cx.meter().is_enabled() {
            let known = endpoints.iter().map(|endpoint| Some(&self.endpoints.get(endpoint)?.weight));
            self.metrics.record(known, now, periods, cx.meter());
        }
        let weights: Vec<f64> = endpoints
            .iter()
            .map(|endpoint| {
                let known = self.endpoints.get_mut(endpoint);
                known.map_or(0.0, |known| known.weight.look_up(now, periods))
            })
            .collect();
        Scheduler::new(&weights)
    }
}

impl EndpointWeight {
    /// Takes the latest per-call report.
    fn collect(&mut self, received: Time) {
        if let Some(weight) = self.reports.take() {
            self.weight.update(weight, received);
        }
    }
}
