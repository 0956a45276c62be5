//! The walk: from resources to effects and, if the channel's configuration changed, an update.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proxyless_xds::resource::ResourceType;

use super::cluster_state::{Patience, decides};
use super::resources::Wanted;
use super::routing::{Routes, Routing, clusters};
use super::{DependencyEffect, DependencyManager, Stage, notes};
use crate::cluster_map::ClusterMap;
use crate::graph::{Flattened, LeafData, Resolution, Root};
use crate::xds_config::{ClusterConfig, ClusterEntry, ClusterState, EndpointsState, XdsConfig};

/// The result that the channel uses.
#[derive(Debug)]
pub(super) enum Current {
    /// None yet.
    Nothing,
    /// RPCs fail with this text.
    Failed(Arc<str>),
    /// A configuration.
    Config(CurrentConfig),
}

/// The configuration in use.
#[derive(Debug)]
pub(super) struct CurrentConfig {
    config: Arc<XdsConfig>,
    /// The resources that it depends on, watched while it is in use.
    wanted: Wanted,
    /// The clusters of its routes.
    routed: Arc<BTreeSet<Arc<str>>>,
}

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
            return self.renew_leaves();
        }
        self.stage = Stage::Settled;
        self.renewed.clear();
        self.by_eds = None;
        let mut wanted = Wanted::default();
        let routing = self.route(&mut wanted);
        let of_routes = Arc::new(match &routing {
            Routing::Ready(routes) => clusters(&routes.virtual_host),
            Routing::Loading | Routing::Failed(_) => BTreeSet::new(),
        });
        let roots: BTreeSet<_> = of_routes.iter().chain(self.claims.keys()).collect();
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

    /// The fast path: only data of some leaves has changed. Has the same result as a walk.
    fn renew_leaves(&mut self) {
        if self.stage != Stage::Settled || self.renewed.is_empty() {
            return;
        }
        let changed = std::mem::take(&mut self.renewed);
        let Current::Config(CurrentConfig { config, .. }) = &self.current else { return };
        let mut by_eds = self.by_eds.take();
        let mut names = BTreeSet::new();
        for (resource_type, name) in &changed {
            match resource_type {
                ResourceType::Cluster => drop(names.insert(Arc::clone(name))),
                _ => {
                    let by_eds = by_eds.get_or_insert_with(|| self.clusters_by_eds(config));
                    names.extend(by_eds.get(name).into_iter().flatten().cloned());
                }
            }
        }
        let renewed =
            self.renewed_leaves(names.iter().filter_map(|name| config.clusters.get_key_value(name)));
        self.by_eds = by_eds;
        self.renew(renewed);
    }

    /// A74: listener or routes are unusable; the current configuration is dropped.
    fn fail(&mut self, why: Arc<str>) {
        if !matches!(&self.current, Current::Failed(old) if *old == why) {
            self.update = Some(Err(Arc::clone(&why)));
            self.current = Current::Failed(why);
        }
    }

    /// A74: the new configuration is not complete. The old one stays, with the latest data of its clusters.
    fn refresh(&mut self, wanted: &mut Wanted) {
        let Current::Config(current) = &self.current else { return };
        wanted.extend(&current.wanted);
        self.renew(self.renewed_leaves(current.config.clusters.iter()));
    }

    /// The leaves with newer data than in these entries of the current configuration.
    fn renewed_leaves<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a Arc<str>, &'a ClusterEntry)>,
    ) -> Vec<(Arc<str>, ClusterEntry)> {
        let routing_note = self.routing_note();
        let renewed = |(name, entry): (&Arc<str>, &ClusterEntry)| {
            let old = entry.as_ref().ok()?;
            if matches!(old.state, ClusterState::Aggregate { .. }) {
                return None;
            }
            let new = self.leaf(name, routing_note.as_ref()).filter(|new| *new != **old)?;
            Some((Arc::clone(name), Ok(Arc::new(new))))
        };
        entries.into_iter().filter_map(renewed).collect()
    }

    /// Replaces entries of the current configuration.
    fn renew(&mut self, entries: Vec<(Arc<str>, ClusterEntry)>) {
        if let Current::Config(current) = &mut self.current
            && !entries.is_empty()
        {
            let mut config = XdsConfig::clone(&current.config);
            for (name, entry) in entries {
                config.clusters.renew_leaf(&name, entry);
            }
            current.config = Arc::new(config);
            self.update = Some(Ok(Arc::clone(&current.config)));
        }
    }

    /// The new configuration is complete.
    fn adopt(
        &mut self,
        routes: &Routes,
        routed: Arc<BTreeSet<Arc<str>>>,
        clusters: ClusterMap,
        kept: Kept,
        wanted: &mut Wanted,
    ) {
        if let (Current::Config(current), Kept::SomeLeafLists) = (&self.current, kept) {
            wanted.extend(&current.wanted);
        }
        if let Current::Config(current) = &mut self.current
            && routes.ptr_eq(&current.config)
            && clusters.ptr_eq(&current.config.clusters)
        {
            current.wanted = wanted.clone();
            return;
        }
        let Routes { listener, route_config, virtual_host } = routes.clone();
        let config = Arc::new(XdsConfig { listener, route_config, virtual_host, clusters });
        self.update = Some(Ok(Arc::clone(&config)));
        self.current = Current::Config(CurrentConfig { config, wanted: wanted.clone(), routed });
    }

    /// The clusters of the new configuration; `None` while a cluster of the routes is loading.
    fn build(&self, of_routes: &BTreeSet<Arc<str>>, resolution: &Resolution) -> Option<(ClusterMap, Kept)> {
        let routing_note = self.routing_note();
        let mut clusters = BTreeMap::new();
        let mut leaves: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut kept = Kept::Nothing;
        for (name, root) in &resolution.roots {
            let old_list = self.current_leaves(name);
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
                    self.current_entry(name)?.clone()
                }
                // A74: the routes wait for their clusters ...
                None if of_routes.contains(name) => return None,
                // ... but not for those that are only claimed.
                None => match self.current_entry(name) {
                    Some(old) => {
                        kept = Kept::SomeLeafLists;
                        old.clone()
                    }
                    // A31: an RPC that held it while there was no configuration waits for it and does not fail.
                    None => Ok(Arc::new(ClusterConfig::pending(Arc::clone(name)))),
                },
            };
            if let Ok(config) = &entry
                && let ClusterState::Aggregate { leaf_clusters, .. } = &config.state
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
                Some(Ok(root)) if matches!(root.state, ClusterState::Aggregate { .. }) => return None,
                Some(_) => {}
            }
        }
        for (name, why) in &resolution.missing {
            clusters.entry(Arc::clone(name)).or_insert_with(|| Err(Arc::clone(why)));
        }
        Some((clusters.into(), kept))
    }

    /// Whether an aggregate may adopt this list: at first when RPCs can be decided, later if it takes nothing from a
    /// leaf that may be serving.
    fn can_replace(&self, old: Option<&Arc<[Arc<str>]>>, new: &Flattened) -> bool {
        let Some(old) = old else { return new.can_start() };
        if new.is_settled() {
            return true;
        }
        let may_serve =
            |name: &Arc<str>| matches!(self.current_entry(name), Some(Ok(leaf)) if !leaf.is_pending());
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
        let state = ClusterState::Aggregate {
            cluster: Arc::clone(cluster),
            leaf_clusters: flattened.leaves.iter().map(|(name, _)| Arc::clone(name)).collect(),
            resolution_note: notes::join(&flattened.notes),
        };
        Some(self.intern(ClusterConfig { name: Arc::clone(name), state }))
    }

    fn leaf_of_aggregate(&self, name: &Arc<str>, routing_note: Option<&Arc<str>>) -> Arc<ClusterConfig> {
        if let Some(leaf) = self.leaf(name, routing_note) {
            return self.intern(leaf);
        }
        match self.current_entry(name) {
            // A leaf that is loading again (with a different EDS name, for example) keeps its endpoints.
            Some(Ok(old)) if matches!(old.state, ClusterState::Leaf { .. }) => Arc::clone(old),
            _ => self.intern(ClusterConfig::pending(Arc::clone(name))),
        }
    }

    /// The `Arc` in use, if it is equal.
    fn intern(&self, new: ClusterConfig) -> Arc<ClusterConfig> {
        match self.current_entry(&new.name) {
            Some(Ok(old)) if **old == new => Arc::clone(old),
            _ => Arc::new(new),
        }
    }

    fn current_entry(&self, name: &Arc<str>) -> Option<&ClusterEntry> {
        match &self.current {
            Current::Config(current) => current.config.clusters.get(name),
            Current::Nothing | Current::Failed(_) => None,
        }
    }

    /// Patient as long as something old serves: for a cluster of the routes in use that is the cluster itself, for a
    /// cluster of their replacement it is any cluster of the routes in use.
    fn patience(&self, root: &Arc<str>, routing: &Routing) -> Patience {
        let old_serves = match (&self.current, routing) {
            (Current::Config(current), Routing::Ready(new))
                if new.ptr_eq(&current.config) && current.routed.contains(root) =>
            {
                self.serves(root)
            }
            _ => self.routes_serve(),
        };
        if old_serves { Patience::Patient } else { Patience::Exhausted }
    }

    /// Whether a cluster of the routes in use can serve.
    pub(super) fn routes_serve(&self) -> bool {
        match &self.current {
            Current::Config(current) => current.routed.iter().any(|name| self.serves(name)),
            Current::Nothing | Current::Failed(_) => false,
        }
    }

    /// Whether a cluster has endpoints in use that could serve, its own or those of a leaf.
    pub(super) fn serves(&self, name: &Arc<str>) -> bool {
        let leaf_serves = |name: &Arc<str>| {
            let Some(Ok(current)) = self.current_entry(name) else { return false };
            match &current.state {
                ClusterState::Leaf { endpoints: EndpointsState::Known(known), .. } => decides(known),
                _ => false,
            }
        };
        leaf_serves(name) || self.current_leaves(name).is_some_and(|leaves| leaves.iter().any(leaf_serves))
    }

    fn current_leaves(&self, name: &Arc<str>) -> Option<&Arc<[Arc<str>]>> {
        match &self.current_entry(name)?.as_ref().ok()?.state {
            ClusterState::Aggregate { leaf_clusters, .. } => Some(leaf_clusters),
            ClusterState::Pending | ClusterState::Leaf { .. } => None,
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
