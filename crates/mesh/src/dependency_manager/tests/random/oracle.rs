//! The expected configuration of a world, by plain recursion.

use super::super::*;
use super::named_by;
use super::world::World;
use ResourceType::{
    AggregateClusterConfig as List, Cluster as Cds, ClusterLoadAssignment as Eds, Listener as Lds,
    RouteConfiguration as Rds,
};

/// The expected configuration and watches once everything is answered.
#[derive(Default)]
pub(super) struct Expected {
    pub(super) failed: bool,
    pub(super) clusters: BTreeMap<String, String>,
    pub(super) watched: BTreeSet<Key>,
    pub(super) dns: BTreeSet<DnsName>,
}

impl Expected {
    pub(super) fn of(world: &World) -> Self {
        let mut expected = Self::default();
        let routed = expected.routes(world);
        expected.failed = routed.is_none();
        let roots: BTreeSet<Arc<str>> =
            routed.into_iter().flatten().chain(world.subscriptions.keys().cloned()).collect();
        let mut below = BTreeMap::new();
        for root in roots {
            let outcome = match expected.children(world, &root) {
                None => expected.leaf(world, &root),
                Some(_) => {
                    let mut leaves = Vec::new();
                    match expected.flatten(world, &root, 0, &mut BTreeSet::new(), &mut leaves) {
                        Err(TooDeep) => "error".into(),
                        Ok(()) => {
                            let mut usable = Vec::new();
                            for leaf in leaves {
                                let data = expected.leaf(world, &leaf);
                                if data != "error" {
                                    usable.push(leaf.to_string());
                                }
                                below.insert(leaf.to_string(), data);
                            }
                            if usable.is_empty() {
                                "error".into()
                            } else {
                                format!("leaves {}", usable.join(" "))
                            }
                        }
                    }
                }
            };
            expected.clusters.insert(root.to_string(), outcome);
        }
        for (name, data) in below {
            expected.clusters.entry(name).or_insert(data);
        }
        expected
    }

    pub(super) fn routes(&mut self, world: &World) -> Option<Vec<Arc<str>>> {
        let listener_key = (Lds, TARGET.into());
        self.watched.insert(listener_key.clone());
        let Some(Resource::Listener(listener)) = &world.resources[&listener_key] else { return None };
        let ListenerKind::Api(manager) = &listener.kind else { return None };
        let routes = match &manager.routes {
            RouteSource::Inline(routes) => routes,
            RouteSource::Rds(name) => {
                let key = (Rds, Arc::clone(name));
                self.watched.insert(key.clone());
                let Some(Resource::RouteConfiguration(routes)) = &world.resources[&key] else { return None };
                routes
            }
        };
        let host = routes.virtual_hosts.iter().find(|host| host.domains.contains(&"*".to_owned()))?;
        Some(named_by(host.routes[0].action.as_ref()?))
    }

    /// The children of an aggregate whose list is known; `None` for anything else.
    pub(super) fn children(&mut self, world: &World, name: &Arc<str>) -> Option<Vec<Arc<str>>> {
        let key = (Cds, Arc::clone(name));
        self.watched.insert(key.clone());
        let Some(Resource::Cluster(cluster)) = &world.resources[&key] else { return None };
        match &cluster.kind {
            ClusterKind::Aggregate(list) => Some(list.clusters.clone()),
            ClusterKind::AggregateResource { name } => {
                let key = (List, Arc::clone(name));
                self.watched.insert(key.clone());
                match &world.resources[&key] {
                    Some(Resource::AggregateClusterConfig(list)) => Some(list.clusters.clone()),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    pub(super) fn flatten(
        &mut self,
        world: &World,
        name: &Arc<str>,
        depth: usize,
        seen: &mut BTreeSet<Arc<str>>,
        leaves: &mut Vec<Arc<str>>,
    ) -> Result<(), TooDeep> {
        if !seen.insert(Arc::clone(name)) {
            return Ok(());
        }
        if depth == 16 {
            return Err(TooDeep);
        }
        match self.children(world, name) {
            None => leaves.push(Arc::clone(name)),
            Some(children) => {
                for child in children {
                    self.flatten(world, &child, depth + 1, seen, leaves)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn leaf(&mut self, world: &World, name: &Arc<str>) -> String {
        let Some(Resource::Cluster(cluster)) = &world.resources[&(Cds, Arc::clone(name))] else {
            return "error".into();
        };
        let eds = match &cluster.kind {
            ClusterKind::Eds { service_name } => service_name.as_ref().unwrap_or(name),
            ClusterKind::LogicalDns { host, port } => {
                let host = DnsName { host: Arc::clone(host), port: *port };
                let known =
                    world.dns[&host].iter().fold("known".into(), |text, a| format!("{text} {}", a.port()));
                self.dns.insert(host);
                return known;
            }
            // The list is missing.
            _ => return "error".into(),
        };
        let key = (Eds, Arc::clone(eds));
        self.watched.insert(key.clone());
        match &world.resources[&key] {
            Some(Resource::ClusterLoadAssignment(known)) => {
                let endpoints = known.priorities.iter().flatten().flat_map(|locality| &locality.endpoints);
                endpoints.fold("known".into(), |text, e| format!("{text} {}", e.addresses[0].port()))
            }
            _ => "missing".into(),
        }
    }
}

pub(super) struct TooDeep;
