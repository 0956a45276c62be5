//! The counters of one locality, updated by RPCs.

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign};
use std::sync::PoisonError;

use proxyless_sans_io::stripes::{LazyStriped, Padded};
use proxyless_sans_io::sync::atomic::{AtomicU64, Ordering};
use proxyless_sans_io::sync::{Mutex, MutexGuard};
use proxyless_sans_io::values::BackendMetrics;

use crate::resource::MetricSelection;

/// The maximum number of metric names chosen by backends per locality: each is kept until the next report, which may
/// never be sent.
const MAX_NAMES: usize = 100;
/// The maximum number for all users of the locality together.
const MAX_MERGED: usize = 1000;
/// The maximum length of such a name in bytes.
const MAX_NAME: usize = 256;

/// The load on one locality of one cluster. Counters only grow; the reader remembers how much was reported.
#[derive(Debug, Default)]
pub struct LocalityLoad {
    stripes: LazyStriped<Box<Padded<LoadStripe>>>,
    selection: MetricSelection,
    /// Locked only by calls whose backend sent a requested report, and by the reader.
    metrics: Mutex<MetricSums>,
}

impl LocalityLoad {
    pub(super) fn new(selection: MetricSelection) -> Self {
        Self { selection, ..Self::default() }
    }

    /// The counters of a stripe of threads. A call is counted in one of them from its start to its end.
    #[must_use]
    pub fn stripe(&self, stripe: usize) -> &LoadStripe {
        &self.stripes.at_or(stripe, |_| Box::default()).0
    }

    /// Whether [`Self::record`] would record anything.
    #[must_use]
    pub fn wants_metrics(&self) -> bool {
        !self.selection.is_empty()
    }

    /// Adds the metrics that a backend reported with a call.
    pub fn record(&self, report: &BackendMetrics) {
        self.lock_metrics().record(&self.selection, report);
    }

    /// The current counters.
    pub(super) fn totals(&self) -> Totals {
        self.stripes.iter().fold(Totals::default(), |sum, stripe| sum + stripe.0.totals())
    }

    pub(super) fn take_metrics(&self) -> MetricSums {
        std::mem::take(&mut *self.lock_metrics())
    }

    fn lock_metrics(&self) -> MutexGuard<'_, MetricSums> {
        // The sums are consistent whenever the lock is free, even if a holder panicked.
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calls that the threads of one stripe have started: no other thread writes their cache line, unless a call ends on
/// another thread than it started on.
#[derive(Debug, Default)]
pub struct LoadStripe {
    started: AtomicU64,
    withdrawn: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl LoadStripe {
    /// Counts a call that was sent.
    pub fn started(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that succeeded.
    pub fn succeeded(&self) {
        // Release, as below: a reader that sees the end of a call must also see its start.
        self.succeeded.fetch_add(1, Ordering::Release);
    }

    /// Counts a call that failed or was cancelled.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Release);
    }

    /// Undoes [`Self::started`]: the call was not sent after all.
    pub fn withdrawn(&self) {
        self.withdrawn.fetch_add(1, Ordering::Release);
    }

    fn totals(&self) -> Totals {
        // Acquire, and the start last: the start of each end counted here is counted too, so that differences are never
        // negative, whatever runs concurrently.
        let succeeded = self.succeeded.load(Ordering::Acquire);
        let failed = self.failed.load(Ordering::Acquire);
        let withdrawn = self.withdrawn.load(Ordering::Acquire);
        let issued = self.started.load(Ordering::Relaxed).saturating_sub(withdrawn);
        Totals { issued, succeeded, failed }
    }
}

/// The number of calls of a locality so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Calls that were sent.
    pub issued: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            issued: self.issued + other.issued,
            succeeded: self.succeeded + other.succeeded,
            failed: self.failed + other.failed,
        }
    }
}

impl Totals {
    pub(super) fn finished(self) -> u64 {
        self.succeeded + self.failed
    }

    /// Calls in progress.
    #[must_use]
    pub fn in_progress(self) -> u64 {
        self.issued.saturating_sub(self.finished())
    }
}

/// Metrics of backends, added up over calls (gRFC A64, "Aggregation").
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MetricSums {
    pub(super) cpu_utilization: Sum,
    pub(super) mem_utilization: Sum,
    pub(super) application_utilization: Sum,
    /// By the name in the report.
    pub(super) named: BTreeMap<String, Sum>,
}

/// The sum of one metric and the number of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) requests: u64,
    pub(super) total: f64,
}

impl MetricSums {
    pub(super) fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    fn record(&mut self, selection: &MetricSelection, report: &BackendMetrics) {
        let listed = match selection {
            // A64: all named metrics, under their own names.
            MetricSelection::AllNamed => {
                report.named_metrics.iter().for_each(|(name, &value)| self.add_bounded(name, value));
                return;
            }
            MetricSelection::Listed(listed) => listed,
        };
        if listed.cpu_utilization {
            self.cpu_utilization += Sum::one(report.cpu_utilization);
        }
        if listed.mem_utilization {
            self.mem_utilization += Sum::one(report.mem_utilization);
        }
        if listed.application_utilization {
            self.application_utilization += Sum::one(report.application_utilization);
        }
        let named = report.named_metrics.iter();
        for (name, &value) in named.filter(|(name, _)| listed.all_named || listed.named.contains(*name)) {
            // A85: the prefix names the source of the metric.
            let reported = format!("named_metrics.{name}");
            if listed.all_named {
                self.add_bounded(&reported, value);
            } else {
                // The server chose these names.
                *self.named.entry(reported).or_default() += Sum::one(value);
            }
        }
    }

    /// Adds to a metric whose name a backend chose, unless there are too many.
    fn add_bounded(&mut self, name: &str, value: f64) {
        if let Some(known) = self.named.get_mut(name) {
            *known += Sum::one(value);
        } else if self.named.len() < MAX_NAMES && name.len() <= MAX_NAME {
            self.named.insert(name.to_owned(), Sum::one(value));
        }
    }
}

impl AddAssign for MetricSums {
    fn add_assign(&mut self, other: Self) {
        self.cpu_utilization += other.cpu_utilization;
        self.mem_utilization += other.mem_utilization;
        self.application_utilization += other.application_utilization;
        for (name, sum) in other.named {
            // Unsent reports are merged again and again, with new names each time.
            if self.named.len() < MAX_MERGED || self.named.contains_key(&name) {
                *self.named.entry(name).or_default() += sum;
            }
        }
    }
}

impl Sum {
    fn one(value: f64) -> Self {
        Self { requests: 1, total: value }
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.total += other.total;
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
