//! DNS: the pending queries of a channel, and the names that have been answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proxyless_mesh::dns::QueryId;

/// The queries of one channel.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    queries: BTreeMap<QueryId, Arc<str>>,
    answered: BTreeSet<Arc<str>>,
}

impl Resolver {
    /// Begins a query; returns false if its id is in use.
    pub(crate) fn ask(&mut self, query: QueryId, host: &Arc<str>) -> bool {
        self.queries.insert(query, Arc::clone(host)).is_none()
    }

    /// Ends a query, answered or cancelled; returns its host if it was pending.
    pub(crate) fn end(&mut self, query: QueryId) -> Option<Arc<str>> {
        let host = self.queries.remove(&query)?;
        self.answered.insert(Arc::clone(&host));
        Some(host)
    }

    /// Forgets the names that the channel no longer resolves.
    pub(crate) fn retain(&mut self, is_known: impl Fn(&str) -> bool) {
        self.answered.retain(|host| is_known(host));
    }

    /// Whether a name has had its first answer. A query that timed out counts.
    pub(crate) fn has_answered(&self, host: &str) -> bool {
        self.answered.contains(host)
    }

    /// The number of pending queries.
    pub(crate) fn under_way(&self) -> usize {
        self.queries.len()
    }
}
