//! Counts the calls of a cluster by locality (gRFC A27, A37), if its load is reported.

use std::sync::{Arc, Weak};

use proxyless_balancer::api::{
    CallOutcome, CallTracker, Code, Detail, Locality, StripedTracker, SubchannelSpec, TrackerSlot,
};
use proxyless_sans_io::SmallMap;
use proxyless_xds::lrs::{LoadStore, LoadStripe, LoadView, LocalityLoad};

use super::config::{ClusterImplConfig, LoadReporting};
use super::load_registry::LoadRegistration;

/// The load counters of a cluster.
///
/// Each subchannel has the slot of its locality for its whole life; the content of the slots follows the configuration.
/// So a change affects live connections, while calls in flight are counted to the end where they started. A slot, with
/// its reference to the locality's counters, is dropped with its last subchannel.
#[derive(Default)]
pub(super) struct ClusterLoad {
    key: Option<StoreKey>,
    registration: Option<LoadRegistration>,
    slots: SmallMap<Arc<Locality>, Weak<TrackerSlot>>,
}

/// The properties that identify a store.
#[derive(PartialEq)]
struct StoreKey {
    cluster: Arc<str>,
    eds_service_name: Option<Arc<str>>,
    reporting: LoadReporting,
}

impl ClusterLoad {
    /// Applies a configuration.
    pub(super) fn configure(&mut self, config: &ClusterImplConfig) {
        // Drops localities that the last update removed.
        self.slots.retain(|_, slot| slot.strong_count() > 0);
        // A37-51, A27-47: without an LRS server nothing is counted.
        let key = config.load_reporting.as_ref().map(|reporting| StoreKey {
            cluster: Arc::clone(&config.cluster),
            eds_service_name: config.eds_service_name.clone(),
            reporting: reporting.clone(),
        });
        if key == self.key {
            return;
        }
        let registration = key.as_ref().map(|StoreKey { cluster, eds_service_name, reporting }| {
            let store =
                LoadStore::new(Arc::clone(cluster), eds_service_name.clone(), reporting.metrics.clone());
            reporting.registry.register(store)
        });
        self.key = key;
        self.registration = registration;
        for (locality, slot) in self.slots.iter() {
            if let Some(slot) = slot.upgrade() {
                slot.store(trackers(self.registration.as_ref(), locality));
            }
        }
    }

    /// The store that counts drops, if load is reported.
    pub(super) fn store(&self) -> Option<&Arc<LoadStore>> {
        self.registration.as_deref()
    }

    /// The counts by locality and of drops; empty if load is not reported.
    pub(super) fn describe(&self) -> Vec<Detail> {
        let Some(store) = self.store() else { return Vec::new() };
        let LoadView { localities, categories, uncategorized } = store.view();
        let localities = localities.iter().map(|(locality, totals)| {
            Detail::new("load", locality.to_string())
                .with("issued", totals.issued)
                .with("succeeded", totals.succeeded)
                .with("failed", totals.failed)
                .with("in_progress", totals.in_progress())
        });
        let dropped = |category: &str, count: u64| Detail::new("dropped", category).with("requests", count);
        let categories = categories.iter().map(|(category, &count)| dropped(category, count));
        let circuit = (uncategorized > 0).then(|| dropped("by the circuit breaker", uncategorized));
        localities.chain(categories).chain(circuit).collect()
    }

    /// Tracks the calls on a new subchannel. The locality is that of the endpoint; without one (A37-32: a DNS leaf) its
    /// names are empty.
    pub(super) fn track(&mut self, spec: &mut SubchannelSpec) {
        let locality = spec.endpoint.locality.clone().unwrap_or_default();
        let known = self.slots.get(&locality).and_then(Weak::upgrade);
        let slot = known.unwrap_or_else(|| {
            let slot = Arc::new(TrackerSlot::default());
            slot.store(trackers(self.registration.as_ref(), &locality));
            self.slots.insert(locality, Arc::downgrade(&slot));
            slot
        });
        spec.trackers.add_slot(slot);
    }
}

fn trackers(registration: Option<&LoadRegistration>, locality: &Arc<Locality>) -> Option<StripedTracker> {
    let load = registration?.locality(locality);
    Some(StripedTracker::new(move |stripe| {
        Arc::new(LocalityTracker { load: Arc::clone(&load), stripe, _rest: [0; 4] })
    }))
}

/// Counts the calls of one stripe of threads. One cache line from the reference counts in front of it to its end, so that
/// the counts of two stripes are on different lines, whatever their alignment.
struct LocalityTracker {
    load: Arc<LocalityLoad>,
    stripe: usize,
    _rest: [u64; 4],
}

impl LocalityTracker {
    fn stripe(&self) -> &LoadStripe {
        self.load.stripe(self.stripe)
    }
}

impl CallTracker for LocalityTracker {
    fn started(&self) {
        self.stripe().started();
    }

    fn finished(&self, outcome: &CallOutcome) {
        // Before the end is counted, so that both are in the same report.
        if let Some(metrics) = &outcome.metrics {
            self.load.record(metrics);
        }
        // A call that was cancelled after sending is an error too: its code says so.
        if outcome.code == Code::Ok { self.stripe().succeeded() } else { self.stripe().failed() }
    }

    fn withdrawn(&self) {
        self.stripe().withdrawn();
    }

    fn wants_metrics(&self) -> bool {
        self.load.wants_metrics()
    }
}
