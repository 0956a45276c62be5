//! The clusters in use by routes or RPCs in flight, and their ids (gRFC A31).

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use proxyless_balancer::api::{ClusterId, Wake};
use proxyless_sans_io::SmallMap;

use crate::cluster_claim::{ClusterClaim, ReleasedClusters};

/// All claimed clusters. A cluster keeps its id while there are claims on it, and until the core has processed the
/// release.
pub(super) struct ClusterClaims {
    by_id: SmallMap<ClusterId, Claimed>,
    ids: SmallMap<Arc<str>, ClusterId>,
    free: BTreeSet<ClusterId>,
    /// Greater after each change of the claimed clusters or their ids.
    revision: u64,
    released: Arc<ReleasedClusters>,
    wake: Arc<dyn Wake>,
}

struct Claimed {
    name: Arc<str>,
    claim: Weak<ClusterClaim>,
}

impl ClusterClaims {
    pub(super) fn new(wake: Arc<dyn Wake>) -> Self {
        Self {
            by_id: SmallMap::new(),
            ids: SmallMap::new(),
            free: BTreeSet::new(),
            revision: 1,
            released: Arc::default(),
            wake,
        }
    }

    /// Claims a cluster; calls `new` if the cluster had no id before.
    pub(super) fn claim(&mut self, name: &Arc<str>, new: impl FnOnce(&Arc<str>)) -> Arc<ClusterClaim> {
        let id = self.ids.get(name).copied();
        if let Some(claim) = id.and_then(|id| self.by_id.get(&id)).and_then(|claimed| claimed.claim.upgrade())
        {
            return claim;
        }
        // A cluster whose release has not been processed yet continues unchanged.
        let id = id.unwrap_or_else(|| {
            new(name);
            self.revision += 1;
            self.smallest_free_id()
        });
        let claim = Arc::new(ClusterClaim::new(id, Arc::clone(name), &self.released, Arc::clone(&self.wake)));
        self.ids.insert(Arc::clone(name), id);
        self.by_id.insert(id, Claimed { name: Arc::clone(name), claim: Arc::downgrade(&claim) });
        claim
    }

    /// Removes the clusters without claims.
    pub(super) fn take_released(&mut self) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for id in self.released.take() {
            let gone = self.by_id.get(&id).is_some_and(|claimed| claimed.claim.strong_count() == 0);
            if let Some(claimed) = gone.then(|| self.by_id.remove(&id)).flatten() {
                self.ids.remove(&claimed.name);
                self.free.insert(id);
                self.revision += 1;
                names.push(claimed.name);
            }
        }
        names
    }

    /// The id of a claimed cluster.
    pub(super) fn id(&self, name: &str) -> Option<ClusterId> {
        self.ids.get(name).copied()
    }

    /// Greater than before if the clusters or their ids have changed.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Ids and names of all claimed clusters.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClusterId, &Arc<str>)> {
        self.by_id.iter().map(|(&id, claimed)| (id, &claimed.name))
    }

    /// Pickers index by id, so ids stay small: ids of removed clusters are reused.
    fn smallest_free_id(&mut self) -> ClusterId {
        let next = || self.by_id.keys().next_back().map_or(0, |id| id.0 + 1);
        self.free.pop_first().unwrap_or_else(|| ClusterId(next()))
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;

#[cfg(test)]
mod tests {
    use proxyless_balancer::testing::NoWake;

    use super::*;

    fn names(clusters: &ClusterClaims) -> Vec<(u32, &str)> {
        clusters.iter().map(|(id, name)| (id.0, &**name)).collect()
    }

    #[test]
    fn a31_a_claim_renewed_before_its_release_was_seen_stays() {
        let mut clusters = ClusterClaims::new(Arc::new(NoWake));
        let mut new = Vec::new();
        let claim = clusters.claim(&"a".into(), |name| new.push(Arc::clone(name)));
        let id = claim.id();
        drop(claim);
        let again = clusters.claim(&"a".into(), |name| new.push(Arc::clone(name)));
        assert_eq!((again.id(), new.len()), (id, 1), "one claim serves both");
        assert!(clusters.take_released().is_empty());
        assert_eq!(names(&clusters), [(id.0, "a")]);
        drop(again);
        assert_eq!(clusters.take_released(), ["a".into()]);
        assert!(clusters.take_released().is_empty());
    }

    #[test]
    fn a31_an_id_is_free_only_after_its_release_was_seen() {
        let mut clusters = ClusterClaims::new(Arc::new(NoWake));
        let (a, b) = (clusters.claim(&"a".into(), |_| ()), clusters.claim(&"b".into(), |_| ()));
        drop(a);
        let c = clusters.claim(&"c".into(), |_| ());
        assert_eq!(names(&clusters), [(0, "a"), (1, "b"), (2, "c")]);
        assert_eq!(clusters.take_released(), ["a".into()]);
        let d = clusters.claim(&"d".into(), |_| ());
        assert_eq!(names(&clusters), [(0, "d"), (1, "b"), (2, "c")]);
        drop((b, c, d));
        assert_eq!(clusters.take_released().len(), 3);
    }
}
