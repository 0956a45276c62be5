//! A human-readable view of a store's counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::locality::Totals;
use crate::resource::Locality;

/// The counters of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadView {
    /// Calls by locality.
    pub localities: BTreeMap<Locality, LocalityView>,
    /// Drops by category.
    pub categories: BTreeMap<Arc<str>, u64>,
    /// Drops without a category.
    pub uncategorized: u64,
}

/// The counters of one locality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalityView {
    /// Calls that were sent.
    pub issued: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls in progress.
    pub in_progress: u64,
}

impl From<Totals> for LocalityView {
    fn from(totals: Totals) -> Self {
        let Totals { issued, succeeded, failed } = totals;
        Self { issued, succeeded, failed, in_progress: totals.in_progress() }
    }
}
