//! The walk: from resources to effects and, if the channel's configuration changed, an update.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::clusters::{Patience, PendingLeaf, decides};
use super::resources::Wanted;
use super::routing::{Routes, Routing};
use super::{DependencyEffect, DependencyManager, Stage, notes};
use crate::graph::{Flattened, LeafData, Resolution, Root};
use crate::xds_config::{ClusterChildren, ClusterConfig, EndpointsState, XdsConfig};

/// What the channel was told to use.
#[derive(Debug)]
pub(super) enum Published {
    /// Nothing yet.
    Nothing,
    /// Fail RPCs with this text.
    Failed(Arc<str>),
    /// A configuration.
    Config(Current),
}

/// A published configuration.
#[derive(Clone, Debug)]
pub(super) struct Current {
    config: Arc<XdsConfig>,
    /// The resources that it depends on, watched while it is in use.
    wanted: Wanted,
    /// The clusters of its routes.
    routed: Arc<BTreeSet<Arc<str>>>,
}

/// The clusters of a configuration.
type Clusters = BTreeMap<Arc<str>, Result<Arc<ClusterConfig>, Arc<str>>>;

/// Which parts of a new configuration are those of the old one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Nothing,
    SomeLeafLists,
}

impl DependencyManager {
    /// Brings effects and update up to date with the inputs.
    pub(super) fn settle(&mut self) {
        if self.stage != Stage::Dirty {
            return self.renew_endpoints();
        }
        self.stage = Stage::Settled;
        self.new_endpoints.clear();
        self.by_eds = None;
        let mut wanted = Wanted::default();
        let routing = self.route(&mut wanted);
        let of_routes = Arc::new(match &routing {
            Routing::Ready(routes) => routes.clusters(),
            Routing::Loading | Routing::Failed(_) => BTreeSet::new(),
        });
        let roots: BTreeSet<_> = of_routes.iter().chain(self.subscriptions.keys()).collect();
        let mut resolution = Resolution::default();
        for root in roots {
            let patience = self.patience(root, &routing);
            resolution.add(root, |name| self.node(patience, name));
        }
        for name in &resolution.visited {
            self.want_cluster(name, &mut wanted);
        }
        match routing {
            Routing::Failed(why) => self.fail(why),
            Routing::Loading => self.refresh(&mut wanted),
            Routing::Ready(routes) => match self.build(&of_routes, &resolution) {
                Some((clusters, kept)) => self.adopt(&routes, of_routes, clusters, kept, &mut wanted),
                None => self.refresh(&mut wanted),
            },
        }
        self.watch(&wanted);
    }

    /// The fast path: only endpoints of some clusters changed. Has the same result as a walk.
    fn renew_endpoints(&mut self) {
        if self.stage != Stage::Settled || self.new_endpoints.is_empty() {
            return;
        }
        let changed = std::mem::take(&mut self.new_endpoints);
        let Published::Config(current) = &self.published else { return };
        let config = Arc::clone(&current.config);
        let by_eds = self.by_eds.take().unwrap_or_else(|| self.published_by_eds(&config));
        let routing_note = self.routing_note();
        let mut renewed = Vec::new();
        for name in changed.iter().filter_map(|eds| by_eds.get(eds)).flatten() {
            let Some(Ok(old)) = config.clusters.get(name) else { continue };
            if matches!(old.children, ClusterChildren::Aggregate { .. }) {
                continue;
            }
            let new = self.leaf(name, routing_note.as_ref()).filter(|new| !new.same_as(old));
            renewed.extend(new.map(|new| (Arc::clone(name), Ok(Arc::new(new)))));
        }
        self.by_eds = Some(by_eds);
        if renewed.is_empty() {
            return;
        }
        let mut config = XdsConfig::clone(&config);
        config.clusters.extend(renewed);
        let config = Arc::new(config);
        self.update = Some(Ok(Arc::clone(&config)));
        if let Published::Config(current) = &mut self.published {
            current.config = config;
        }
    }

    /// A74: listener or routes are unusable; the published configuration is dropped.
    fn fail(&mut self, why: Arc<str>) {
        if !matches!(&self.published, Published::Failed(old) if *old == why) {
            self.update = Some(Err(Arc::clone(&why)));
            self.published = Published::Failed(why);
        }
    }

    /// A74: the new configuration is not complete. The old one stays, with the latest data of its clusters.
    fn refresh(&mut self, wanted: &mut Wanted) {
        let Published::Config(current) = &self.published else { return };
        wanted.extend(&current.wanted);
        let routing_note = self.routing_note();
        let mut changed = BTreeMap::new();
        for (name, old) in &current.config.clusters {
            let Ok(old) = old else { continue };
            if matches!(old.children, ClusterChildren::Aggregate { .. }) {
                continue;
            }
            if let Some(new) = self.leaf(name, routing_note.as_ref()).filter(|new| !new.same_as(old)) {
                changed.insert(Arc::clone(name), Ok(Arc::new(new)));
            }
        }
        if !changed.is_empty() {
            let mut config = XdsConfig::clone(&current.config);
            config.clusters.append(&mut changed);
            let (wanted, routed) = (current.wanted.clone(), Arc::clone(&current.routed));
            self.publish(config, wanted, routed);
        }
    }

    /// The new configuration is complete.
    fn adopt(
        &mut self,
        routes: &Routes,
        routed: Arc<BTreeSet<Arc<str>>>,
        clusters: Clusters,
        kept: Kept,
        wanted: &mut Wanted,
    ) {
        if let (Published::Config(current), Kept::SomeLeafLists) = (&self.published, kept) {
            wanted.extend(&current.wanted);
        }
        if let Published::Config(current) = &mut self.published
            && routes.are_those_of(&current.config)
            && same_clusters(&current.config.clusters, &clusters)
        {
            current.wanted = wanted.clone();
            return;
        }
        let Routes { listener, route_config, virtual_host } = routes.clone();
        self.publish(XdsConfig { listener, route_config, virtual_host, clusters }, wanted.clone(), routed);
    }

    fn publish(&mut self, config: XdsConfig, wanted: Wanted, routed: Arc<BTreeSet<Arc<str>>>) {
        let config = Arc::new(config);
        self.update = Some(Ok(Arc::clone(&config)));
        self.published = Published::Config(Current { config, wanted, routed });
    }

    /// The clusters of the new configuration; `None` while a cluster of the routes is loading.
    fn build(&self, of_routes: &BTreeSet<Arc<str>>, resolution: &Resolution) -> Option<(Clusters, Kept)> {
        let routing_note = self.routing_note();
        let mut clusters = Clusters::new();
        let mut leaves: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut kept = Kept::Nothing;
        for (name, root) in &resolution.roots {
            let old_list = self.published_leaves(name);
            let entry = match root {
                Root::Failed(why) => Some(Err(Arc::clone(why))),
                Root::Leaf(LeafData::Loading) => None,
                Root::Leaf(_) => self.leaf(name, routing_note.as_ref()).map(|leaf| Ok(self.intern(leaf))),
                Root::Aggregate(new) if self.can_replace(old_list, new) => self.aggregate(name, new).map(Ok),
                Root::Aggregate(_) | Root::Loading => None,
            };
            let is_leaf = matches!(root, Root::Leaf(_));
            let entry = match entry {
                Some(entry) => entry,
                // A99-26, trap 13: an incomplete list does not replace a complete one.
                None if !is_leaf && old_list.is_some() => {
                    kept = Kept::SomeLeafLists;
                    self.published_entry(name)?.clone()
                }
                // A74: the routes wait for their clusters ...
                None if of_routes.contains(name) => return None,
                // ... but not for those that are only subscribed to.
                None => match self.published_entry(name) {
                    Some(old) => {
                        kept = Kept::SomeLeafLists;
                        old.clone()
                    }
                    // A31: an RPC that held it while there was no configuration waits for it and does not fail.
                    None => Ok(Arc::new(ClusterConfig::unknown_leaf(Arc::clone(name)))),
                },
            };
            if let Ok(config) = &entry
                && let ClusterChildren::Aggregate { leaf_clusters, .. } = &config.children
            {
                leaves.extend(leaf_clusters.iter().cloned());
            }
            clusters.insert(Arc::clone(name), entry);
        }
        for name in leaves {
            match clusters.get(&name) {
                None => {
                    let leaf = self.leaf_of_aggregate(&name, routing_note.as_ref());
                    clusters.insert(name, Ok(leaf));
                }
                // A kept list still has a leaf that is now an aggregate and a root itself: wait.
                Some(Ok(root)) if matches!(root.children, ClusterChildren::Aggregate { .. }) => return None,
                Some(_) => {}
            }
        }
        for (name, why) in &resolution.missing {
            clusters.entry(Arc::clone(name)).or_insert_with(|| Err(Arc::clone(why)));
        }
        Some((clusters, kept))
    }

    /// Whether an aggregate may adopt this list: at first when RPCs can be decided, later if it takes nothing from a
    /// leaf that may be serving.
    fn can_replace(&self, old: Option<&Arc<[Arc<str>]>>, new: &Flattened) -> bool {
        let Some(old) = old else { return new.can_start() };
        if new.is_settled() {
            return true;
        }
        let may_serve =
            |name: &Arc<str>| matches!(self.published_entry(name), Some(Ok(leaf)) if !leaf.is_pending());
        let places: BTreeMap<_, _> = old.iter().enumerate().map(|(place, name)| (name, place)).collect();
        // From the end: the first old position among the possibly serving leaves so far, and their number.
        let (mut first, mut met) = (None, 0);
        for (name, data) in new.leaves.iter().rev() {
            let place = places.get(name).copied();
            let serves = place.filter(|_| may_serve(name));
            match (data, serves) {
                (LeafData::Loading, Some(_)) => return false,
                // A loading leaf must not move above a leaf that it was not above before.
                (LeafData::Loading, None) => {
                    if first.is_some_and(|first| place.is_none_or(|place| place > first)) {
                        return false;
                    }
                }
                (_, Some(place)) => {
                    first = Some(first.map_or(place, |first: usize| first.min(place)));
                    met += 1;
                }
                (_, None) => {}
            }
        }
        met == old.iter().filter(|name| may_serve(name)).count()
    }

    fn aggregate(&self, name: &Arc<str>, flattened: &Flattened) -> Option<Arc<ClusterConfig>> {
        let cluster = self.resources.cluster(name)?.ok()?;
        let leaf_clusters = flattened.leaves.iter().map(|(name, _)| Arc::clone(name)).collect();
        let resolution_note = notes::join(&flattened.notes);
        let children = ClusterChildren::Aggregate { leaf_clusters, resolution_note };
        Some(self.intern(ClusterConfig { name: Arc::clone(name), cluster: Arc::clone(cluster), children }))
    }

    fn leaf_of_aggregate(&self, name: &Arc<str>, routing_note: Option<&Arc<str>>) -> Arc<ClusterConfig> {
        if let Some(leaf) = self.leaf(name, routing_note) {
            return self.intern(leaf);
        }
        // A leaf that is loading again (with a different EDS name, for example) keeps its endpoints.
        let old = match self.published_entry(name) {
            Some(Ok(old)) if matches!(old.children, ClusterChildren::Endpoints { .. }) => Some(old),
            _ => None,
        };
        match (old, self.pending_leaf(name)) {
            (Some(old), _) if !old.is_pending() => Arc::clone(old),
            (_, PendingLeaf::Known(pending)) => self.intern(pending),
            (Some(old), PendingLeaf::Unknown) => Arc::clone(old),
            (None, PendingLeaf::Unknown) => Arc::new(ClusterConfig::unknown_leaf(Arc::clone(name))),
        }
    }

    /// The published `Arc`, if it is equal.
    fn intern(&self, new: ClusterConfig) -> Arc<ClusterConfig> {
        match self.published_entry(&new.name) {
            Some(Ok(old)) if old.same_as(&new) => Arc::clone(old),
            _ => Arc::new(new),
        }
    }

    fn published_entry(&self, name: &Arc<str>) -> Option<&Result<Arc<ClusterConfig>, Arc<str>>> {
        match &self.published {
            Published::Config(current) => current.config.clusters.get(name),
            Published::Nothing | Published::Failed(_) => None,
        }
    }

    /// Patient as long as something old serves: for a cluster of the routes in use that is the cluster itself, for one of
    /// routes that are to replace them it is any cluster of theirs.
    fn patience(&self, root: &Arc<str>, routing: &Routing) -> Patience {
        let old_serves = match (&self.published, routing) {
            (Published::Config(current), Routing::Ready(new))
                if new.are_those_of(&current.config) && current.routed.contains(root) =>
            {
                self.serves(root)
            }
            _ => self.routes_serve(),
        };
        if old_serves { Patience::Patient } else { Patience::Exhausted }
    }

    /// Whether a cluster of the routes in use can serve.
    pub(super) fn routes_serve(&self) -> bool {
        match &self.published {
            Published::Config(current) => current.routed.iter().any(|name| self.serves(name)),
            Published::Nothing | Published::Failed(_) => false,
        }
    }

    /// Whether a cluster is published with endpoints that could serve, its own or those of a leaf.
    pub(super) fn serves(&self, name: &Arc<str>) -> bool {
        let leaf_serves = |name: &Arc<str>| {
            let Some(Ok(published)) = self.published_entry(name) else { return false };
            match &published.children {
                ClusterChildren::Endpoints { endpoints: EndpointsState::Known(known), .. } => decides(known),
                ClusterChildren::Endpoints { .. } | ClusterChildren::Aggregate { .. } => false,
            }
        };
        leaf_serves(name) || self.published_leaves(name).is_some_and(|leaves| leaves.iter().any(leaf_serves))
    }

    fn published_leaves(&self, name: &Arc<str>) -> Option<&Arc<[Arc<str>]>> {
        match &self.published_entry(name)?.as_ref().ok()?.children {
            ClusterChildren::Aggregate { leaf_clusters, .. } => Some(leaf_clusters),
            ClusterChildren::Endpoints { .. } => None,
        }
    }

    /// Starts required watches and ends the others (A99-21). Starts come first, so that the client's cache keeps shared
    /// resources.
    pub(super) fn watch(&mut self, wanted: &Wanted) {
        for key in &wanted.resources {
            if let Some(id) = self.resources.watch(key) {
                let (resource_type, name) = key.clone();
                self.effects.push_back(DependencyEffect::Watch { id, resource_type, name });
            }
        }
        for name in &wanted.dns {
            if self.dns.start(name) {
                self.effects.push_back(DependencyEffect::DnsStart(name.clone()));
            }
        }
        let ended = self.resources.retain(&wanted.resources);
        self.effects.extend(ended.into_iter().map(|id| DependencyEffect::Unwatch { id }));
        let stopped: Vec<_> = self.dns.names().filter(|name| !wanted.dns.contains(name)).cloned().collect();
        for name in stopped {
            self.dns.stop(&name);
            self.effects.push_back(DependencyEffect::DnsStop(name));
        }
    }
}

fn same_clusters(old: &Clusters, new: &Clusters) -> bool {
    let same = |old: &Result<_, _>, new: &Result<_, _>| match (old, new) {
        (Ok(old), Ok(new)) => Arc::ptr_eq(old, new),
        (Err(old), Err(new)) => old == new,
        _ => false,
    };
    old.len() == new.len() && old.iter().zip(new).all(|((a, old), (b, new))| a == b && same(old, new))
}
