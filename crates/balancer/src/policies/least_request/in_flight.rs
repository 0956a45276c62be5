//! The number of calls in flight on an endpoint.

use proxyless_sans_io::sync::atomic::{AtomicU64, Ordering};

use crate::api::{CallOutcome, CallTracker, Padded};

/// The calls in flight on one endpoint of one policy. Every call writes it, so it has a cache line of its own.
#[derive(Default)]
pub(super) struct InFlight(Padded<AtomicU64>);

impl InFlight {
    /// The number of calls in flight now.
    pub(super) fn count(&self) -> u64 {
        // Relaxed throughout: the counters order nothing else, and A48 accepts outdated values.
        self.0.0.load(Ordering::Relaxed)
    }

    fn begin(&self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CallTracker for InFlight {
    /// A48-11: counted when its stream is created, and while it waits for one.
    fn started(&self) {
        self.begin();
    }

    fn waiting(&self) {
        self.begin();
    }

    fn waited(&self) {
        self.end();
    }

    /// A48-12: regardless of the status.
    fn finished(&self, _: &CallOutcome) {
        self.end();
    }

    fn withdrawn(&self) {
        self.end();
    }
}
