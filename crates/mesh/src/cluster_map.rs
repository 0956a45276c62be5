//! [`ClusterMap`]: the clusters of a configuration by name. Configurations share what they have in common, so that one
//! with another cluster costs neither a copy of the others nor a comparison with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use proxyless_sans_io::Chunks;

use crate::xds_config::{ClusterEntry, ClusterState};

/// The clusters by name.
#[derive(Clone, Default)]
pub struct ClusterMap {
    entries: Chunks<(Arc<str>, ClusterEntry)>,
    /// The aggregates above each leaf.
    above: Arc<BTreeMap<Arc<str>, Vec<Arc<str>>>>,
}

impl ClusterMap {
    /// The entry of a cluster.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ClusterEntry> {
        self.get_key_value(name).map(|(_, entry)| entry)
    }

    /// The name in the map and the entry of a cluster.
    #[must_use]
    pub fn get_key_value(&self, name: &str) -> Option<(&Arc<str>, &ClusterEntry)> {
        self.entries.get(self.place(name)?).map(|(name, entry)| (name, entry))
    }

    /// Names and entries, in the order of names.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Arc<str>, &ClusterEntry)> {
        self.entries.iter().map(|(name, entry)| (name, entry))
    }

    /// The names, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.iter().map(|(name, _)| name)
    }

    /// The entries, in the order of names.
    pub fn values(&self) -> impl Iterator<Item = &ClusterEntry> {
        self.iter().map(|(_, entry)| entry)
    }

    /// The number of clusters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no clusters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Replaces the entry of a cluster that is not an aggregate, and does not become one.
    pub(crate) fn renew_leaf(&mut self, name: &str, entry: ClusterEntry) {
        if let Some(at) = self.place(name)
            && let Some((name, _)) = self.entries.get(at)
        {
            self.entries.set(at, (Arc::clone(name), entry));
        }
    }

    /// The clusters that differ from those in `old`, directly or by their leaves, and those in only one of both.
    pub(crate) fn changed_since(&self, old: &Self) -> BTreeSet<Arc<str>> {
        let mut changed = self.renewed_since(old).unwrap_or_else(|| {
            let same = |(name, new): &(&Arc<str>, &ClusterEntry)| {
                old.get(name).is_some_and(|old| entry_ptr_eq(new, old))
            };
            let gone = old.keys().filter(|name| self.place(name).is_none());
            let other = self.iter().filter(|entry| !same(entry)).map(|(name, _)| name);
            other.chain(gone).cloned().collect()
        });
        let above: Vec<_> =
            changed.iter().filter_map(|name| self.above.get(name)).flatten().cloned().collect();
        changed.extend(above);
        changed
    }

    /// Whether both have the same clusters, by name and pointer.
    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        self.renewed_since(other).is_some_and(|changed| changed.is_empty())
    }

    /// The clusters whose own entries differ from those in `old`; `None` if the names differ. Costs a pointer comparison
    /// per chunk, if most are shared.
    fn renewed_since(&self, old: &Self) -> Option<BTreeSet<Arc<str>>> {
        if self.len() != old.len() {
            return None;
        }
        let mut renewed = BTreeSet::new();
        for at in self.entries.differences(&old.entries) {
            let ((name, new), (old_name, old)) = (self.entries.get(at)?, old.entries.get(at)?);
            if !Arc::ptr_eq(name, old_name) && name != old_name {
                return None;
            }
            if !entry_ptr_eq(new, old) {
                renewed.insert(Arc::clone(name));
            }
        }
        Some(renewed)
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.entries.binary_search_by(|(known, _)| (**known).cmp(name)).ok()
    }
}

impl From<BTreeMap<Arc<str>, ClusterEntry>> for ClusterMap {
    fn from(clusters: BTreeMap<Arc<str>, ClusterEntry>) -> Self {
        let mut above: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, entry) in &clusters {
            for leaf in leaves(entry) {
                above.entry(Arc::clone(leaf)).or_default().push(Arc::clone(name));
            }
        }
        Self { entries: clusters.into_iter().collect(), above: Arc::new(above) }
    }
}

#[cfg(test)]
impl std::ops::Index<&str> for ClusterMap {
    type Output = ClusterEntry;

    fn index(&self, name: &str) -> &ClusterEntry {
        self.get(name).unwrap_or_else(|| panic!("no cluster {name}"))
    }
}

impl fmt::Debug for ClusterMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

fn entry_ptr_eq(a: &ClusterEntry, b: &ClusterEntry) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
        (Err(a), Err(b)) => a == b,
        _ => false,
    }
}

/// The leaves of an aggregate.
pub(crate) fn leaves(entry: &ClusterEntry) -> &[Arc<str>] {
    match entry.as_ref().map(|cluster| &cluster.state) {
        Ok(ClusterState::Aggregate { leaf_clusters, .. }) => leaf_clusters,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::fixtures::{aggregate, eds_cluster, leaf};
    use crate::xds_config::EndpointsState;

    fn map(entries: impl IntoIterator<Item = ClusterEntry>) -> ClusterMap {
        let named = |entry: ClusterEntry| (Arc::clone(&entry.as_ref().unwrap().name), entry);
        entries.into_iter().map(named).collect::<BTreeMap<_, _>>().into()
    }

    fn eds(name: &str) -> ClusterEntry {
        Ok(leaf(name, eds_cluster(), EndpointsState::Missing))
    }

    fn changed(new: &ClusterMap, old: &ClusterMap) -> Vec<String> {
        new.changed_since(old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn renewed_leaf_changes_the_aggregates_above_it() {
        let leaves = (0..1000).map(|n| eds(&format!("leaf-{n:03}")));
        let above = [("above", "leaf-500"), ("beside", "leaf-501")];
        let above = above.map(|(name, leaf)| Ok(aggregate(name, &[leaf, "leaf-999"])));
        let old = map(leaves.chain(above));
        let mut new = old.clone();
        assert!(new.ptr_eq(&old) && changed(&new, &old).is_empty());
        new.renew_leaf("leaf-500", eds("leaf-500"));
        assert_eq!(changed(&new, &old), ["above", "leaf-500"]);
        assert!(!new.ptr_eq(&old));
        new.renew_leaf("unknown", eds("unknown"));
        assert_eq!(new.len(), old.len());
    }

    #[test]
    fn clusters_in_only_one_map_have_changed() {
        let (a, b, c) = (eds("a"), eds("b"), eds("c"));
        let old = map([a.clone(), b.clone(), Ok(aggregate("over", &["b"]))]);
        let new = map([a.clone(), c, old["over"].clone()]);
        assert_eq!(changed(&new, &old), ["b", "c", "over"]);
        assert_eq!(changed(&map([a.clone()]), &map([a, b])), ["b"]);
    }
}
