//! DNS: which queries of a channel are under way, and which names have had an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The queries of one channel.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    queries: BTreeMap<u64, Arc<str>>,
    answered: BTreeSet<Arc<str>>,
}

impl Resolver {
    /// Begins a query; false if its number is in use.
    pub(crate) fn ask(&mut self, query: u64, host: &Arc<str>) -> bool {
        self.queries.insert(query, Arc::clone(host)).is_none()
    }

    /// Ends a query, by its answer or because the channel gave it up; its host, if it was under way.
    pub(crate) fn end(&mut self, query: u64) -> Option<Arc<str>> {
        let host = self.queries.remove(&query)?;
        self.answered.insert(Arc::clone(&host));
        Some(host)
    }

    /// Forgets the names that the channel has forgotten.
    pub(crate) fn retain(&mut self, is_known: impl Fn(&str) -> bool) {
        self.answered.retain(|host| is_known(host));
    }

    /// Whether a name has had its first answer. A query that was given up at its deadline has one.
    pub(crate) fn has_answered(&self, host: &str) -> bool {
        self.answered.contains(host)
    }

    /// How many queries are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.queries.len()
    }
}
