//! Flattening of aggregate clusters (gRFC A37, A74, A99), as a pure function.
//!
//! [`Resolution::add`] walks from a root through aggregates to their leaves, calling `lookup` for the current state of
//! each cluster. Every root has its own set of visited clusters, and depth is counted from each root, so that roots do not
//! affect each other. A walk takes one step per edge, even in graphs with loops.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proxyless_xds::resource::AggregateClusterConfig;

use crate::listing::listing;

/// A37-17: the maximum number of levels in a tree of clusters, including the leaf.
pub const MAX_DEPTH: usize = 16;

/// The state of a cluster.
#[derive(Clone, Debug)]
pub enum Node {
    /// Its Cluster, or the ClusterConfig that it names, is loading.
    Loading,
    /// Unusable, with the reason.
    Missing(Arc<str>),
    /// A leaf, which has endpoints.
    Leaf(LeafData),
    /// An aggregate.
    Aggregate {
        /// Its children, in order.
        children: Arc<AggregateClusterConfig>,
        /// A problem that leaves the list in use, for RPC errors.
        note: Option<Arc<str>>,
    },
}

/// The state of a leaf's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafData {
    /// Still loading.
    Loading,
    /// No endpoint could serve: an error, or an assignment without endpoints.
    Empty,
    /// At least one endpoint could serve.
    Usable,
}

/// The flattened roots.
#[derive(Clone, Debug, Default)]
pub struct Resolution {
    /// One entry per root.
    pub roots: BTreeMap<Arc<str>, Root>,
    /// Every cluster visited: those to watch.
    pub visited: BTreeSet<Arc<str>>,
    /// Unusable clusters below an aggregate, with the reasons.
    pub missing: BTreeMap<Arc<str>, Arc<str>>,
    /// The number of edges (and roots) visited.
    pub steps: usize,
}

/// The result for a root.
#[derive(Clone, Debug, PartialEq)]
pub enum Root {
    /// Still loading.
    Loading,
    /// Unusable, with the reason.
    Failed(Arc<str>),
    /// A leaf itself.
    Leaf(LeafData),
    /// An aggregate.
    Aggregate(Flattened),
}

/// The leaves of an aggregate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flattened {
    /// In order of preference, without duplicates. A cluster that is still loading takes the position of its future
    /// leaves. Never empty.
    pub leaves: Vec<(Arc<str>, LeafData)>,
    /// Children that were skipped, and other problems.
    pub notes: Vec<Arc<str>>,
}

impl Flattened {
    /// Whether RPCs can be decided: all leaves up to the first that could serve have arrived. Later leaves are not
    /// waited for (see "When does an aggregate start serving?" in docs/design-decisions.md).
    #[must_use]
    pub fn can_start(&self) -> bool {
        let first = self.leaves.iter().find(|(_, data)| *data != LeafData::Empty);
        first.is_none_or(|(_, data)| *data == LeafData::Usable)
    }

    /// Whether all leaves have arrived.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.leaves.iter().all(|(_, data)| *data != LeafData::Loading)
    }
}

impl Resolution {
    /// Flattens another root.
    pub fn add(&mut self, root: &Arc<str>, lookup: impl Fn(&Arc<str>) -> Node) {
        self.steps += 1;
        self.visited.insert(Arc::clone(root));
        let found = match lookup(root) {
            Node::Loading => Root::Loading,
            Node::Missing(why) => Root::Failed(why),
            Node::Leaf(data) => Root::Leaf(data),
            Node::Aggregate { children, note } => {
                let walk =
                    Walk { lookup: &lookup, resolution: self, seen: BTreeSet::new(), path: Vec::new() };
                walk.flatten(root, children, note)
            }
        };
        self.roots.insert(Arc::clone(root), found);
    }
}

/// The walk from one root.
struct Walk<'a, L> {
    lookup: &'a L,
    resolution: &'a mut Resolution,
    seen: BTreeSet<Arc<str>>,
    /// The aggregates from the root to here, each with the index of its next child.
    path: Vec<(Arc<str>, Arc<AggregateClusterConfig>, usize)>,
}

impl<L: Fn(&Arc<str>) -> Node> Walk<'_, L> {
    fn flatten(
        mut self,
        root: &Arc<str>,
        children: Arc<AggregateClusterConfig>,
        note: Option<Arc<str>>,
    ) -> Root {
        let mut found = Flattened { leaves: Vec::new(), notes: note.into_iter().collect() };
        self.seen.insert(Arc::clone(root));
        self.path.push((Arc::clone(root), children, 0));
        // A37-09, A37-10: depth first, left to right.
        while let Some((_, children, next)) = self.path.last_mut() {
            let Some(child) = children.clusters.get(*next).cloned() else {
                self.path.pop();
                continue;
            };
            *next += 1;
            self.resolution.steps += 1;
            // A37-12: only the first occurrence of a cluster counts. This also ends loops.
            if !self.seen.insert(Arc::clone(&child)) {
                continue;
            }
            // A37-17, A37-18: a tree that is too deep fails its root, and nothing else.
            if self.path.len() == MAX_DEPTH {
                return Root::Failed(self.too_deep(&child));
            }
            self.resolution.visited.insert(Arc::clone(&child));
            match (self.lookup)(&child) {
                Node::Loading => found.leaves.push((child, LeafData::Loading)),
                Node::Leaf(data) => found.leaves.push((child, data)),
                // A74 (instead of A37-19): a missing child is skipped.
                Node::Missing(why) => {
                    found.notes.push(Arc::clone(&why));
                    self.resolution.missing.insert(child, why);
                }
                Node::Aggregate { children, note } => {
                    found.notes.extend(note);
                    self.path.push((child, children, 0));
                }
            }
        }
        if !found.leaves.is_empty() {
            return Root::Aggregate(found);
        }
        // A74: fail if no leaf is left.
        let why = format!("aggregate cluster {root}: no cluster with endpoints below it");
        let notes = listing(found.notes.iter().map(|note| &**note), "; ");
        Root::Failed(if notes.is_empty() { why.into() } else { format!("{why}: {notes}").into() })
    }

    fn too_deep(&self, child: &str) -> Arc<str> {
        let root = self.path.first().map_or(child, |(name, ..)| name);
        let path: Vec<&str> = self.path.iter().map(|(name, ..)| &**name).chain([child]).collect();
        let path = path.join(" -> ");
        format!("aggregate cluster {root}: more than {MAX_DEPTH} levels of clusters: {path}").into()
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
