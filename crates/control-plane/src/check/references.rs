//! References between resources: those that lead nowhere, loops and depth of aggregates, and resources without use.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_mesh::graph::{LeafData, Node as GraphNode, Resolution, Root};
use proxyless_mesh::virtual_host::find_virtual_host;
use proxyless_xds::resource::{
    ClusterKind, ClusterSpecifier, ListenerKind, Resource, ResourceType, RouteConfiguration, RouteSource,
};

use super::report::Report;
use super::{Name, Valid};
use crate::file::did_you_mean;

pub(super) fn warn(valid: &Valid, report: &mut Report) {
    let mut walk = Walk { valid, report, used: BTreeSet::new() };
    walk.listeners();
    walk.clusters();
    walk.unused();
}

struct Walk<'a> {
    valid: &'a Valid,
    report: &'a mut Report,
    used: BTreeSet<(ResourceType, String)>,
}

impl Walk<'_> {
    fn warn(&mut self, kind: ResourceType, name: &str, path: &str, message: impl Into<String>) {
        if let Some(subject) = self.report.subject(kind.name(), name) {
            subject.warn(path, message);
            // The place of a reference is that of its resource, unless its field is known.
            let location = subject.location.clone();
            if let Some(finding) = subject.findings.last_mut() {
                finding.location = location;
            }
        }
    }

    /// Notes a reference; warns if it leads nowhere.
    fn refer(&mut self, from: (ResourceType, &str), path: &str, kind: ResourceType, name: &str) {
        self.used.insert((kind, name.to_owned()));
        if !self.valid.exists(kind, name) {
            let hint = did_you_mean(name, self.valid.names(kind));
            self.warn(from.0, from.1, path, format!("there is no {} {name:?}{hint}", kind.name()));
        }
    }

    fn listeners(&mut self) {
        let valid = self.valid;
        for (name, resource) in valid.of(ResourceType::Listener) {
            let Resource::Listener(listener) = resource else { continue };
            let ListenerKind::Api(manager) = &listener.kind else { continue };
            let from = (ResourceType::Listener, name);
            match &manager.routes {
                RouteSource::Inline(routes) => self.routes(from, name, routes),
                RouteSource::Rds(routes) => {
                    self.refer(from, "rds.route_config_name", ResourceType::RouteConfiguration, routes);
                    if let Some(Resource::RouteConfiguration(config)) =
                        valid.get(ResourceType::RouteConfiguration, routes)
                    {
                        self.routes((ResourceType::RouteConfiguration, routes), name, config);
                    }
                }
            }
        }
    }

    fn routes(&mut self, from: (ResourceType, &str), listener: &str, config: &RouteConfiguration) {
        let (kind, name) = from;
        if find_virtual_host(config, listener).is_none() {
            let message = format!("no virtual host has a domain for xds:///{listener}: all RPCs fail");
            self.warn(kind, name, "virtual_hosts", message);
        }
        for host in &config.virtual_hosts {
            for route in &host.routes {
                match route.action.as_ref().map(|action| &action.cluster) {
                    Some(ClusterSpecifier::Cluster(cluster)) => {
                        self.refer(from, "virtual_hosts", ResourceType::Cluster, cluster);
                    }
                    Some(ClusterSpecifier::Weighted(clusters)) => {
                        for one in clusters {
                            self.refer(from, "virtual_hosts", ResourceType::Cluster, &one.name);
                        }
                    }
                    None => {}
                }
            }
        }
    }

    fn clusters(&mut self) {
        let valid = self.valid;
        for (name, resource) in valid.of(ResourceType::Cluster) {
            let Resource::Cluster(cluster) = resource else { continue };
            let from = (ResourceType::Cluster, name);
            match &cluster.kind {
                ClusterKind::Eds { service_name } => {
                    let wanted = service_name.as_deref().unwrap_or(name).to_owned();
                    self.refer(from, "eds_cluster_config", ResourceType::ClusterLoadAssignment, &wanted);
                }
                ClusterKind::AggregateResource { name: list } => {
                    self.refer(from, "cluster_type", ResourceType::AggregateClusterConfig, list);
                }
                ClusterKind::Aggregate(_) | ClusterKind::LogicalDns { .. } => {}
                #[allow(unreachable_patterns, reason = "the enum may grow")]
                _ => {}
            }
            for child in children(valid, name) {
                self.refer(from, "cluster_type", ResourceType::Cluster, &child);
            }
            self.aggregate(name);
        }
    }

    /// The client's own flattening of an aggregate, and its loops.
    fn aggregate(&mut self, name: &str) {
        let direct = children(self.valid, name);
        if direct.is_empty() {
            return;
        }
        let mut seen = BTreeSet::new();
        for child in &direct {
            if !seen.insert(child.clone()) {
                let message = format!("{child:?} is listed twice: only the first counts");
                self.warn(ResourceType::Cluster, name, "cluster_type", message);
            }
        }
        if let Some(path) = loop_from(self.valid, name) {
            let message = format!("is part of a loop, which gRPC clients cut: {}", path.join(" -> "));
            self.warn(ResourceType::Cluster, name, "cluster_type", message);
        }
        let root: Name = name.into();
        let mut resolution = Resolution::default();
        let valid = self.valid;
        resolution.add(&root, |cluster| lookup(valid, cluster));
        if let Some(Root::Failed(why)) = resolution.roots.get(&root) {
            self.warn(ResourceType::Cluster, name, "cluster_type", format!("cannot serve: {why}"));
        }
    }

    /// Resources that no listener leads to, if there are listeners at all.
    fn unused(&mut self) {
        let valid = self.valid;
        if valid.of(ResourceType::Listener).next().is_none() {
            return;
        }
        let kinds = [
            ResourceType::RouteConfiguration,
            ResourceType::Cluster,
            ResourceType::ClusterLoadAssignment,
            ResourceType::AggregateClusterConfig,
        ];
        for kind in kinds {
            for name in valid.of(kind).map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
                if !self.used.contains(&(kind, name.clone())) {
                    self.warn(kind, &name, "", "is not used: no other resource refers to it");
                }
            }
        }
    }
}

/// The children of an aggregate, inline or from its list.
fn children(valid: &Valid, name: &str) -> Vec<String> {
    let Some(Resource::Cluster(cluster)) = valid.get(ResourceType::Cluster, name) else { return Vec::new() };
    let names = |list: &[Arc<str>]| list.iter().map(ToString::to_string).collect();
    match &cluster.kind {
        ClusterKind::Aggregate(config) => names(&config.clusters),
        ClusterKind::AggregateResource { name } => {
            match valid.get(ResourceType::AggregateClusterConfig, name) {
                Some(Resource::AggregateClusterConfig(config)) => names(&config.clusters),
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

fn lookup(valid: &Valid, name: &Arc<str>) -> GraphNode {
    let missing = |why: String| GraphNode::Missing(why.into());
    let Some(Resource::Cluster(cluster)) = valid.get(ResourceType::Cluster, name) else {
        return missing(format!("Cluster {name} does not exist or is not valid"));
    };
    match &cluster.kind {
        ClusterKind::Aggregate(config) => GraphNode::Aggregate { children: Arc::clone(config), note: None },
        ClusterKind::AggregateResource { name: list } => {
            match valid.get(ResourceType::AggregateClusterConfig, list) {
                Some(Resource::AggregateClusterConfig(config)) => {
                    GraphNode::Aggregate { children: Arc::clone(config), note: None }
                }
                _ => missing(format!("ClusterConfig {list} does not exist or is not valid")),
            }
        }
        _ => GraphNode::Leaf(LeafData::Usable),
    }
}

/// A path from a cluster back to itself.
fn loop_from(valid: &Valid, start: &str) -> Option<Vec<String>> {
    let mut seen = BTreeSet::new();
    // Each entry: a cluster and the children that are still to be visited.
    let mut path = vec![(start.to_owned(), children(valid, start).into_iter())];
    while let Some((_, next)) = path.last_mut() {
        let Some(child) = next.next() else {
            path.pop();
            continue;
        };
        if child == start {
            let names = path.iter().map(|(name, _)| name.clone());
            return Some(names.chain([child]).collect());
        }
        if seen.insert(child.clone()) {
            let below = children(valid, &child).into_iter();
            path.push((child, below));
        }
    }
    None
}
