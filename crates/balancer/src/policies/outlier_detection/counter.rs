//! The call statistics of an endpoint: atomics that calls write and sweeps read.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use proxyless_sans_io::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::api::{CallTracker, Code, Outcome};

/// A50: two buckets; one counts while the other is evaluated.
#[derive(Default)]
pub(super) struct IntervalCounter {
    buckets: [Bucket; 2],
    active: AtomicUsize,
}

#[derive(Default)]
struct Bucket {
    successes: AtomicU64,
    failures: AtomicU64,
}

/// The calls of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) successes: u64,
    pub(super) failures: u64,
}

impl Counts {
    pub(super) fn total(self) -> u64 {
        self.successes + self.failures
    }
}

impl IntervalCounter {
    /// Starts an interval and returns the counts of the previous one.
    pub(super) fn swap(&self) -> Counts {
        // Relaxed throughout: nothing else is ordered. A call that ends just now may still be added to the bucket of the
        // interval that ends; it stays there, and counts when that bucket has had its next turn.
        let active = self.active.load(Ordering::Relaxed) & 1;
        let [first, second] = &self.buckets;
        let ended = if active == 0 { first } else { second };
        self.active.store(1 - active, Ordering::Relaxed);
        Counts {
            successes: ended.successes.swap(0, Ordering::Relaxed),
            failures: ended.failures.swap(0, Ordering::Relaxed),
        }
    }

    fn count(&self, code: Code) {
        let [first, second] = &self.buckets;
        let bucket = if self.active.load(Ordering::Relaxed) & 1 == 0 { first } else { second };
        let counter = if code == Code::Ok { &bucket.successes } else { &bucket.failures };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The tracker of an address: counts for the endpoint that the address currently belongs to.
#[derive(Default)]
pub(super) struct AddressTracker(ArcSwapOption<IntervalCounter>);

impl AddressTracker {
    /// Sets the endpoint to count for; `None` if calls are not counted or the address is not listed.
    pub(super) fn count_for(&self, counter: Option<&Arc<IntervalCounter>>) {
        self.0.store(counter.cloned());
    }
}

impl CallTracker for AddressTracker {
    fn started(&self) {}

    fn finished(&self, outcome: &Outcome) {
        // Any status but OK is a failure, including cancellation after sending.
        if let Some(counter) = &*self.0.load() {
            counter.count(outcome.code);
        }
    }

    /// A call that was never sent says nothing about its endpoint.
    fn withdrawn(&self) {}
}

#[cfg(all(test, proxyless_loom))]
mod models;
