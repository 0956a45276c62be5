//! A human-readable view of a store's counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::locality::Totals;
use crate::resource::Locality;

/// The counters of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadView {
    /// Calls by locality.
    pub localities: BTreeMap<Locality, Totals>,
    /// Drops by category.
    pub categories: BTreeMap<Arc<str>, u64>,
    /// Drops without a category.
    pub uncategorized: u64,
}
