//! The number of faults that are injected at the same time, and its limit (gRFC A33).

use std::sync::atomic::{AtomicU32, Ordering};

use super::Fault;

/// A counter of active faults: those whose delay or abort has not ended.
#[derive(Debug, Default)]
pub struct ActiveFaults(AtomicU32);

impl ActiveFaults {
    /// A counter of no faults.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Makes a fault active. A33-03: not if its filter's limit is reached, which the result tells.
    #[must_use]
    pub fn begin(&self, fault: &Fault) -> bool {
        let limit = fault.max_active_faults.unwrap_or(u32::MAX);
        let next = |active: u32| (active < limit).then_some(active + 1);
        // Relaxed here and below: the counter orders nothing else.
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Ends a fault that was made active.
    pub fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
