//! Flattening of aggregate clusters (gRFC A37, A74, A99), as a pure function.
//!
//! [`resolve`] walks from each root through aggregates to their leaves, asking `lookup` what is known of each cluster
//! now. Every root is walked with its own set of visited clusters: what one root has seen takes nothing from another,
//! and depth is counted from each root. A walk costs one step per edge, however the graph is knotted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proxyless_xds::resource::AggregateClusterConfig;

use crate::listing::listing;

/// A37-17: levels in a tree of clusters, the leaf's included.
pub const MAX_DEPTH: usize = 16;

/// What is known of a cluster.
#[derive(Clone, Debug)]
pub enum Node {
    /// Its Cluster, or the ClusterConfig that it names, has not come yet.
    Loading,
    /// It cannot be used, and why.
    Missing(Arc<str>),
    /// It has endpoints.
    Leaf(LeafData),
    /// It stands for other clusters.
    Aggregate {
        /// Which ones, in order.
        children: Arc<AggregateClusterConfig>,
        /// Trouble that did not cost the list, for RPC errors.
        note: Option<Arc<str>>,
    },
}

/// What is known of a leaf's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafData {
    /// Nothing yet.
    Loading,
    /// None that could serve: an error, or an assignment without endpoints.
    Empty,
    /// At least one that could serve.
    Usable,
}

/// What [`resolve`] found.
#[derive(Clone, Debug, Default)]
pub struct Resolution {
    /// One entry for each root.
    pub roots: BTreeMap<Arc<str>, Root>,
    /// Every cluster seen: what is to be watched.
    pub visited: BTreeSet<Arc<str>>,
    /// Clusters below an aggregate that cannot be used, and why.
    pub missing: BTreeMap<Arc<str>, Arc<str>>,
    /// How many edges (and roots) were looked at.
    pub steps: usize,
}

/// What a root is.
#[derive(Clone, Debug, PartialEq)]
pub enum Root {
    /// Not known yet.
    Loading,
    /// Unusable, and why.
    Failed(Arc<str>),
    /// A leaf itself.
    Leaf(LeafData),
    /// An aggregate.
    Aggregate(Flattened),
}

/// An aggregate's leaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flattened {
    /// In order of preference, without duplicates. A cluster of which nothing is known yet takes the place where its
    /// leaf or leaves will be. Never empty.
    pub leaves: Vec<(Arc<str>, LeafData)>,
    /// Children that were passed over, and other trouble on the way.
    pub notes: Vec<Arc<str>>,
}

impl Flattened {
    /// Whether RPCs can be decided on: the first leaf that could serve has its data, and so have all before it. Leaves
    /// after it are not waited for (decision "when does an aggregate start serving").
    #[must_use]
    pub fn can_start(&self) -> bool {
        let first = self.leaves.iter().find(|(_, data)| *data != LeafData::Empty);
        first.is_none_or(|(_, data)| *data == LeafData::Usable)
    }

    /// Whether no leaf waits for anything.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.leaves.iter().all(|(_, data)| *data != LeafData::Loading)
    }
}

/// Flattens each root.
pub fn resolve<'a>(
    roots: impl IntoIterator<Item = &'a Arc<str>>,
    lookup: impl Fn(&Arc<str>) -> Node,
) -> Resolution {
    let mut resolution = Resolution::default();
    for name in roots {
        resolution.add(name, &lookup);
    }
    resolution
}

impl Resolution {
    /// Flattens one more root.
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
            // A37-12: what was seen before counts only there. This ends loops, too.
            if !self.seen.insert(Arc::clone(&child)) {
                continue;
            }
            // A37-17, A37-18: too deep a tree fails its root, and nothing else.
            if self.path.len() == MAX_DEPTH {
                return Root::Failed(self.too_deep(&child));
            }
            self.resolution.visited.insert(Arc::clone(&child));
            match (self.lookup)(&child) {
                Node::Loading => found.leaves.push((child, LeafData::Loading)),
                Node::Leaf(data) => found.leaves.push((child, data)),
                // A74 (instead of A37-19): a child that does not exist is passed over.
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
        match found.leaves.is_empty() {
            false => Root::Aggregate(found),
            // A74: fail if no leaf is left.
            true if found.notes.is_empty() => {
                Root::Failed(format!("aggregate cluster {root}: no cluster with endpoints below it").into())
            }
            true => {
                let notes = listing(found.notes.iter().map(|note| &**note), "; ");
                Root::Failed(
                    format!("aggregate cluster {root}: no cluster with endpoints below it: {notes}").into(),
                )
            }
        }
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
