//! The call statistics of an endpoint: atomics that calls write and sweeps read.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use proxyless_sans_io::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::api::{CallCounts, CallOutcome, CallTracker, Code, Padded, Striped};

/// A50: two buckets; one counts while the other is evaluated. Each thread counts in its stripe of both.
#[derive(Default)]
pub(super) struct IntervalCounter {
    stripes: Striped<Box<Padded<[Bucket; 2]>>>,
    active: AtomicUsize,
}

#[derive(Default)]
struct Bucket {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl IntervalCounter {
    /// Starts an interval and returns the counts of the previous one.
    pub(super) fn swap(&self) -> CallCounts {
        // Relaxed throughout: nothing else is ordered. A call that ends just now may still be added to the bucket of the
        // interval that ends; it stays there, and counts when that bucket has had its next turn.
        let active = self.active.load(Ordering::Relaxed) & 1;
        self.active.store(1 - active, Ordering::Relaxed);
        let ended = self.stripes.iter().map(|stripe| Bucket::at(&stripe.0, active));
        ended.fold(CallCounts::default(), |sum, ended| sum + ended.take())
    }

    fn count(&self, code: Code) {
        let bucket = Bucket::at(&self.stripes.own().0, self.active.load(Ordering::Relaxed));
        let counter = if code == Code::Ok { &bucket.succeeded } else { &bucket.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bucket {
    fn at([first, second]: &[Self; 2], index: usize) -> &Self {
        if index & 1 == 0 { first } else { second }
    }

    fn take(&self) -> CallCounts {
        CallCounts {
            succeeded: self.succeeded.swap(0, Ordering::Relaxed),
            failed: self.failed.swap(0, Ordering::Relaxed),
        }
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

    fn finished(&self, outcome: &CallOutcome) {
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
