//! The metrics of the client (gRFC A78), by the targets of the channels that use it.
//!
//! A client may be shared by several targets: a resource counts for the targets that watch it. Counters are recorded as
//! responses and failures arrive; gauges are read from the state of the core on request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proxyless_sans_io::metrics::instruments::{
    XDS_CONNECTED, XDS_RESOURCES, XDS_SERVER_FAILURE, XDS_UPDATES_INVALID, XDS_UPDATES_VALID,
};
use proxyless_sans_io::metrics::{BoundSeries, Instrument, Label, LabelValue, Meter, PlaceId};

use super::core::XdsCore;
use super::dump::{ResourceStatus, UpdateCounts};
use super::ids::{ServerId, WatcherId};
use super::resource_state::ResourceState;
use super::response::{Judged, ResourceOutcome, Verdict};
use crate::resource::ResourceType;

/// The label of names without an authority (A78).
const OLD_STYLE: &str = "#old";

/// The meters of the targets.
#[derive(Debug, Default)]
pub(super) struct ClientMetrics {
    targets: BTreeMap<Arc<str>, TargetMetrics>,
    of_watcher: BTreeMap<WatcherId, Arc<str>>,
}

/// The series of a target. A79: if several channels have it, those of the recorders of the first.
#[derive(Debug)]
struct TargetMetrics {
    meter: Meter,
    watchers: usize,
    /// Valid and invalid updates.
    updates: BTreeMap<(ServerId, ResourceType), [BoundSeries; 2]>,
}

/// The resources of a response, by target.
type Counts = BTreeMap<Arc<str>, UpdateCounts>;

impl ClientMetrics {
    fn join(&mut self, watcher: WatcherId, meter: &Meter) {
        if !meter.is_enabled() {
            return;
        }
        let target: Arc<str> = meter.target().into();
        let new = || TargetMetrics { meter: meter.clone(), watchers: 0, updates: BTreeMap::new() };
        self.targets.entry(Arc::clone(&target)).or_insert_with(new).watchers += 1;
        self.of_watcher.insert(watcher, target);
    }

    pub(super) fn leave(&mut self, watcher: WatcherId) {
        let Some(target) = self.of_watcher.remove(&watcher) else { return };
        let Some(metrics) = self.targets.get_mut(&target) else { return };
        metrics.watchers -= 1;
        if metrics.watchers == 0 {
            self.targets.remove(&target);
        }
    }

    fn is_enabled(&self) -> bool {
        !self.targets.is_empty()
    }

    /// The targets that watch a resource.
    fn watching(&self, state: &ResourceState) -> BTreeSet<&Arc<str>> {
        state.watchers.keys().filter_map(|watch| self.of_watcher.get(&watch.watcher)).collect()
    }
}

impl XdsCore {
    /// Records the metrics of a watcher with this meter, until it leaves.
    pub fn meter(&mut self, watcher: WatcherId, meter: &Meter) {
        self.metrics.join(watcher, meter);
    }

    /// Counts the resources of a response. A78: unchanged ones, too. A resource that nobody watches, or whose name is
    /// unreadable, counts for all targets that use the server.
    pub(super) fn count_updates(&mut self, server: ServerId, of: ResourceType, verdict: &Verdict) {
        let good =
            |judged: &&Judged| matches!(judged.outcome, ResourceOutcome::Valid(_) | ResourceOutcome::Unasked);
        let counts = self.updates.entry(of).or_default();
        counts.valid += (verdict.unchanged.len() + verdict.outcomes.values().filter(good).count()) as u64;
        counts.invalid += verdict.faults.count();
        if !self.metrics.is_enabled() {
            return;
        }
        let (mut counts, mut others) = (Counts::new(), UpdateCounts::default());
        let mut faults = verdict.faults.count();
        let valid = UpdateCounts { valid: 1, invalid: 0 };
        let count = |(name, judged): (_, &Judged)| match judged.outcome {
            ResourceOutcome::Valid(_) | ResourceOutcome::Unasked => Some((name, valid)),
            ResourceOutcome::Invalid(_) => Some((name, UpdateCounts { valid: 0, invalid: 1 })),
            ResourceOutcome::Heartbeat | ResourceOutcome::Reported { .. } => None,
        };
        let unchanged = verdict.unchanged.iter().map(|name| (name, valid));
        for (name, one) in unchanged.chain(verdict.outcomes.iter().filter_map(count)) {
            faults = faults.saturating_sub(one.invalid);
            let state = self.cache.get(of, name);
            let state = state.filter(|state| self.authorities.is_active(state.authority, server));
            match state.filter(|state| !state.watchers.is_empty()) {
                Some(state) => {
                    for target in self.metrics.watching(state) {
                        *counts.entry(Arc::clone(target)).or_default() += one;
                    }
                }
                None => others += one,
            }
        }
        others.invalid += faults;
        if others != UpdateCounts::default() {
            for target in self.targets_of(server) {
                *counts.entry(target).or_default() += others;
            }
        }
        self.record_updates(server, of, &counts);
    }

    fn record_updates(&mut self, server: ServerId, of: ResourceType, counts: &Counts) {
        let Some(uri) = self.server(server).map(|server| Arc::clone(&server.uri)) else { return };
        for (target, count) in counts {
            let Some(TargetMetrics { meter, updates, .. }) = self.metrics.targets.get_mut(target) else {
                continue;
            };
            let [valid, invalid] = updates.entry((server, of)).or_insert_with(|| {
                let labels =
                    [(Label::XdsServer, uri.clone()), (Label::XdsResourceType, of.full_name().into())];
                [&XDS_UPDATES_VALID, &XDS_UPDATES_INVALID]
                    .map(|instrument| meter.bind(instrument, PlaceId::default(), &labels))
            });
            for (series, count) in [(valid, count.valid), (invalid, count.invalid)] {
                if count > 0 {
                    series.record(count as f64);
                }
            }
        }
    }

    /// A78: a server went from healthy to unhealthy.
    pub(super) fn count_failure(&self, server: ServerId) {
        if !self.metrics.is_enabled() {
            return;
        }
        let Some(uri) = self.server(server).map(|server| &server.uri) else { return };
        let label = (Label::XdsServer, Arc::clone(uri));
        for target in self.targets_of(server) {
            if let Some(metrics) = self.metrics.targets.get(&target) {
                let labels = std::slice::from_ref(&label);
                metrics.meter.bind(&XDS_SERVER_FAILURE, PlaceId::default(), labels).record(1.0);
            }
        }
    }

    /// The targets with a watch that uses the server.
    fn targets_of(&self, server: ServerId) -> BTreeSet<Arc<str>> {
        let watches = self.watches.iter();
        let using = watches.filter(|(_, watched)| {
            watched.as_ref().is_some_and(|(authority, ..)| self.authorities.uses(*authority, server))
        });
        using.filter_map(|(watch, _)| self.metrics.of_watcher.get(&watch.watcher).cloned()).collect()
    }

    /// The gauges of a target.
    pub fn gauges(
        &self,
        target: &Arc<str>,
        observe: &mut dyn FnMut(&'static Instrument, &[LabelValue], f64),
    ) {
        let own = |watcher: &WatcherId| self.metrics.of_watcher.get(watcher) == Some(target);
        let target_label = (Label::Target, Arc::clone(target));
        let mut servers = BTreeMap::new();
        let mut resources = BTreeMap::<_, u64>::new();
        for (of, _, state) in self.cache.iter() {
            if !state.watchers.keys().any(|watch| own(&watch.watcher)) {
                continue;
            }
            *resources.entry((state.authority, cache_state(state), of)).or_default() += 1;
            for server in self.in_use(state.authority) {
                // A78: 1 from the creation of the stream; 0 after a failure without a response, until the next response.
                servers.insert(&server.uri, server.unreachable.is_none());
            }
        }
        for (uri, connected) in servers {
            let labels = [target_label.clone(), (Label::XdsServer, Arc::clone(uri))];
            observe(&XDS_CONNECTED, &labels, if connected { 1.0 } else { 0.0 });
        }
        for ((authority, cache_state, of), count) in resources {
            let labels = [
                target_label.clone(),
                (Label::XdsAuthority, self.authorities.name(authority).unwrap_or(OLD_STYLE).into()),
                (Label::XdsCacheState, cache_state.into()),
                (Label::XdsResourceType, of.full_name().into()),
            ];
            observe(&XDS_RESOURCES, &labels, count as f64);
        }
    }
}

/// The label of a resource's state (A78, A88).
fn cache_state(state: &ResourceState) -> &'static str {
    match (state.status(), state.data.is_some()) {
        (ResourceStatus::Requested, _) => "requested",
        (ResourceStatus::DoesNotExist, false) => "does_not_exist",
        (ResourceStatus::DoesNotExist, true) => "does_not_exist_but_cached",
        (ResourceStatus::Acked, _) => "acked",
        (ResourceStatus::Nacked, false) => "nacked",
        (ResourceStatus::Nacked, true) => "nacked_but_cached",
        (ResourceStatus::ReceivedError, false) => "received_error",
        (ResourceStatus::ReceivedError, true) => "received_error_but_cached",
        (ResourceStatus::Timeout, _) => "timeout",
    }
}
