//! Fault injection (gRFC A33): the number of active faults of the process, and the faults of a channel.

use std::sync::atomic::{AtomicU64, Ordering};

use proxyless_mesh::route_table::{ActiveFaults, Fault};

use crate::inspect::FaultsView;

/// A33-03: the limit is one of the whole process.
static ACTIVE: ActiveFaults = ActiveFaults::new();

/// The faults injected into the RPCs of a channel. Only RPCs with a fault touch it.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    active: AtomicU64,
    delayed: AtomicU64,
    aborted: AtomicU64,
}

impl Faults {
    /// Makes a fault active, and counts it; `None` if too many are active.
    pub(crate) fn begin(&self, fault: &Fault) -> Option<ActiveFault<'_>> {
        if !ACTIVE.begin(fault) {
            return None;
        }
        // Relaxed here and below: the counters order nothing else.
        self.active.fetch_add(1, Ordering::Relaxed);
        self.delayed.fetch_add(fault.delay.is_some().into(), Ordering::Relaxed);
        Some(ActiveFault(self))
    }

    /// Counts an abort.
    pub(crate) fn aborted(&self) {
        self.aborted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn view(&self) -> FaultsView {
        FaultsView {
            active: self.active.load(Ordering::Relaxed),
            delayed: self.delayed.load(Ordering::Relaxed),
            aborted: self.aborted.load(Ordering::Relaxed),
        }
    }
}

/// A fault from the start of its delay to the end of its delay or abort. Dropped with the RPC if that is cancelled.
pub(crate) struct ActiveFault<'a>(&'a Faults);

impl Drop for ActiveFault<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
        ACTIVE.end();
    }
}
