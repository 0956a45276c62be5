//! The numbers of a store, for people and tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::locality::Totals;
use crate::resource::Locality;

/// What a store has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadView {
    /// Calls by locality.
    pub localities: BTreeMap<Locality, LocalityView>,
    /// Drops by category.
    pub categories: BTreeMap<Arc<str>, u64>,
    /// Drops without category.
    pub uncategorized: u64,
}

/// What was counted in one locality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalityView {
    /// Calls that were sent.
    pub issued: u64,
    /// Calls that ended well.
    pub succeeded: u64,
    /// Calls that did not.
    pub failed: u64,
    /// Calls that have not ended.
    pub in_progress: u64,
}

impl From<Totals> for LocalityView {
    fn from(totals: Totals) -> Self {
        let Totals { issued, succeeded, failed } = totals;
        Self { issued, succeeded, failed, in_progress: totals.in_progress() }
    }
}
