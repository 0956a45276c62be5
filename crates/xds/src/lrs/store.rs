//! [`LoadStore`]: all counters of one cluster, and how much of them was reported.

use std::sync::{Arc, PoisonError};

use proxyless_sans_io::SmallMap;
use proxyless_sans_io::sync::atomic::{AtomicU64, Ordering};
use proxyless_sans_io::sync::{Mutex, MutexGuard};

use super::locality::{LocalityLoad, Totals};
use super::report::{ClusterLoad, LocalityCounts};
use super::view::LoadView;
use crate::resource::{Locality, MetricSelection};

/// The load that one user of a cluster generates: calls by locality, and drops.
///
/// Users look up a counter once ([`Self::locality`], [`Self::category`]) and keep it: the list of counters is locked by
/// lookups and reports, never by a call.
#[derive(Debug)]
pub struct LoadStore {
    cluster: Arc<str>,
    eds_service_name: Option<Arc<str>>,
    selection: MetricSelection,
    uncategorized: DropCounter,
    counters: Mutex<Counters>,
}

/// A counter of dropped calls.
#[derive(Debug, Default)]
pub struct DropCounter(AtomicU64);

impl DropCounter {
    /// Counts a dropped call.
    pub fn dropped(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Counters {
    localities: SmallMap<Arc<Locality>, Counted<LocalityLoad, Totals>>,
    categories: SmallMap<Arc<str>, Counted<DropCounter, u64>>,
    uncategorized_reported: u64,
}

/// A counter, and how much of it was reported.
#[derive(Debug)]
struct Counted<C, R> {
    counter: Arc<C>,
    reported: R,
}

impl LoadStore {
    /// Creates a store without load.
    #[must_use]
    pub fn new(cluster: Arc<str>, eds_service_name: Option<Arc<str>>, selection: MetricSelection) -> Self {
        Self {
            cluster,
            eds_service_name,
            selection,
            uncategorized: DropCounter::default(),
            counters: Mutex::default(),
        }
    }

    /// The cluster's name.
    #[must_use]
    pub fn cluster(&self) -> &Arc<str> {
        &self.cluster
    }

    /// The EDS service name, if CDS has one (A37-53).
    #[must_use]
    pub fn eds_service_name(&self) -> Option<&Arc<str>> {
        self.eds_service_name.as_ref()
    }

    /// The counters of a locality.
    #[must_use]
    pub fn locality(&self, locality: &Arc<Locality>) -> Arc<LocalityLoad> {
        let mut counters = self.lock();
        if let Some(known) = counters.localities.get(locality) {
            return Arc::clone(&known.counter);
        }
        // Unused counters with nothing to report are dropped now, because the next report may never come.
        counters.localities.retain(|_, counted| {
            Arc::get_mut(&mut counted.counter).is_none() || counted.counter.totals() != counted.reported
        });
        let counter = Arc::new(LocalityLoad::new(self.selection.clone()));
        let counted = Counted { counter: Arc::clone(&counter), reported: Totals::default() };
        counters.localities.insert(Arc::clone(locality), counted);
        counter
    }

    /// The counter of a drop category.
    #[must_use]
    pub fn category(&self, category: &Arc<str>) -> Arc<DropCounter> {
        let mut counters = self.lock();
        let counted = counters
            .categories
            .get_or_insert_with(Arc::clone(category), || Counted { counter: Arc::default(), reported: 0 });
        Arc::clone(&counted.counter)
    }

    /// The counter of drops without a category (X-13: circuit breaking).
    #[must_use]
    pub fn uncategorized(&self) -> &DropCounter {
        &self.uncategorized
    }

    /// Everything counted so far, reported or not, in counters that are in use or unreported.
    #[must_use]
    pub fn view(&self) -> LoadView {
        let counters = self.lock();
        let localities = counters.localities.iter();
        let categories = counters.categories.iter();
        LoadView {
            localities: localities
                .map(|(locality, of)| ((**locality).clone(), of.counter.totals()))
                .collect(),
            categories: categories.map(|(category, of)| (Arc::clone(category), of.counter.count())).collect(),
            uncategorized: self.uncategorized.count(),
        }
    }

    /// Takes the increase since the last call, and drops counters that are no longer in use.
    pub(super) fn take(&self) -> ClusterLoad {
        let counters = &mut *self.lock();
        let mut load = ClusterLoad::default();
        counters.localities.retain(|locality, counted| {
            // Checked first: an unused counter no longer changes.
            let held = Arc::get_mut(&mut counted.counter).is_none();
            let counts = counted.take();
            if !counts.is_zero() {
                load.localities.insert((**locality).clone(), counts);
            }
            held
        });
        counters.categories.retain(|category, counted| {
            let held = Arc::get_mut(&mut counted.counter).is_none();
            let dropped = new_since(&mut counted.reported, counted.counter.count());
            if dropped > 0 {
                load.categories.insert(Arc::clone(category), dropped);
            }
            held
        });
        load.uncategorized = new_since(&mut counters.uncategorized_reported, self.uncategorized.count());
        load
    }

    /// Discards everything counted so far: the server does not request it. If it requests the cluster later, counting
    /// starts over: calls in progress are then reported as issued, so that their ends match.
    pub(super) fn discard(&self) {
        let _ = self.take();
        for counted in self.lock().localities.values_mut() {
            counted.reported.issued = counted.reported.finished();
        }
    }

    /// Whether the caller holds the only reference to the store and its counters, so that its numbers are final.
    pub(super) fn is_final(store: &mut Arc<Self>) -> bool {
        let Some(store) = Arc::get_mut(store) else { return false };
        let counters = store.counters.get_mut().unwrap_or_else(PoisonError::into_inner);
        counters.localities.values_mut().all(|counted| Arc::get_mut(&mut counted.counter).is_some())
            && counters.categories.values_mut().all(|counted| Arc::get_mut(&mut counted.counter).is_some())
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        // The list is consistent whenever the lock is free, even if a holder panicked.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted<LocalityLoad, Totals> {
    fn take(&mut self) -> LocalityCounts {
        let Totals { issued, succeeded, failed } = self.counter.totals();
        let in_progress = Totals { issued, succeeded, failed }.in_progress();
        LocalityCounts {
            issued: new_since(&mut self.reported.issued, issued),
            succeeded: new_since(&mut self.reported.succeeded, succeeded),
            failed: new_since(&mut self.reported.failed, failed),
            in_progress,
            metrics: self.counter.take_metrics(),
        }
    }
}

/// The increase since `reported`. A counter that decreased (a call reported as issued was withdrawn) has no increase
/// until it exceeds the reported value again.
fn new_since(reported: &mut u64, now: u64) -> u64 {
    let new = now.saturating_sub(*reported);
    *reported = now.max(*reported);
    new
}
