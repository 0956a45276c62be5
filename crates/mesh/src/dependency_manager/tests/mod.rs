//! A miniature management server: records the manager's watches, and sends the answers of each test.

mod aggregates;
mod clusters;
mod dns;
mod lookahead;
mod random;
mod routes;
mod switches;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_xds::client::{ResourceError, ResourceErrorKind, WatchEvent, WatchId};
use proxyless_xds::resource::{
    AggregateClusterConfig, CircuitBreakers, Cluster, ClusterKind, ClusterLoadAssignment, ClusterSpecifier,
    DropCategory, EndpointHealth, FilterOverrides, HttpConnectionManager, LbEndpoint, LbPolicy, Listener,
    ListenerKind, LocalityEndpoints, MetricSelection, OverrideHostStatus, PathMatcher, Resource,
    ResourceType, Route, RouteAction, RouteConfiguration, RouteMatch, RouteSource, VirtualHost,
    WeightedCluster,
};

use super::resources::Key;
use super::{DependencyEffect, DependencyManager, DnsName};
use crate::xds_config::{ClusterState, EndpointsState, XdsConfig};

const TARGET: &str = "server.example.com";

/// The manager with its live watches, started, for [`TARGET`].
struct Bed {
    manager: DependencyManager,
    watches: BTreeMap<Key, WatchId>,
    dns: BTreeSet<DnsName>,
    /// Every effect so far, as text.
    log: Vec<String>,
    /// The latest update taken.
    config: Option<Result<Arc<XdsConfig>, Arc<str>>>,
}

impl Bed {
    fn new() -> Self {
        let manager = DependencyManager::new(TARGET.into(), TARGET.into());
        let mut bed =
            Self { manager, watches: BTreeMap::new(), dns: BTreeSet::new(), log: Vec::new(), config: None };
        bed.manager.start();
        bed.pump();
        bed
    }

    /// One whose listener holds routes to these clusters (in equal parts), with the clusters not answered yet.
    fn routed(clusters: &[&str]) -> Self {
        let mut bed = Self::new();
        bed.routes(clusters);
        bed
    }

    fn pump(&mut self) {
        while let Some(effect) = self.manager.poll_effect() {
            match &effect {
                DependencyEffect::Watch { id, resource_type, name } => {
                    self.log.push(format!("watch {} {name}", resource_type.name()));
                    let before = self.watches.insert((*resource_type, Arc::clone(name)), *id);
                    assert_eq!(before, None, "{effect:?}: watched twice");
                }
                DependencyEffect::Unwatch { id } => {
                    let key = self.watches.iter().find(|(_, live)| *live == id).map(|(key, _)| key.clone());
                    let key = key.expect("only live watches end");
                    self.log.push(format!("unwatch {} {}", key.0.name(), key.1));
                    self.watches.remove(&key);
                }
                DependencyEffect::DnsStart(name) => {
                    self.log.push(format!("dns {name}"));
                    assert!(self.dns.insert(name.clone()), "{name} resolved twice");
                }
                DependencyEffect::DnsStop(name) => {
                    self.log.push(format!("stop dns {name}"));
                    assert!(self.dns.remove(name), "{name} was not being resolved");
                }
                DependencyEffect::DnsResolve => self.log.push("resolve".into()),
            }
        }
        if let Some(update) = self.manager.resolve() {
            self.config = Some(update);
        }
        assert_eq!(self.manager.poll_effect(), None, "taking the update has no effects of its own");
    }

    fn event(&mut self, resource_type: ResourceType, name: &str, event: WatchEvent) {
        let id = self.watches.get(&(resource_type, name.into()));
        let id = *id.unwrap_or_else(|| panic!("{} {name} is not watched", resource_type.name()));
        self.manager.on_resource(id, event);
        self.pump();
    }

    fn give(&mut self, name: &str, resource: Resource) {
        self.event(resource.resource_type(), name, WatchEvent::Changed(Ok(resource)));
    }

    fn gone(&mut self, resource_type: ResourceType, name: &str) {
        let kind = ResourceErrorKind::DoesNotExist("deleted".into());
        self.event(resource_type, name, WatchEvent::Changed(Err(error(resource_type, name, kind))));
    }

    /// The control plane cannot be reached before it has said anything of the resource.
    fn unreachable(&mut self, resource_type: ResourceType, name: &str) {
        let kind = ResourceErrorKind::Transient("connection refused".into());
        self.event(resource_type, name, WatchEvent::Changed(Err(error(resource_type, name, kind))));
    }

    fn ambient(&mut self, resource_type: ResourceType, name: &str, why: Option<&str>) {
        let error = why.map(|why| error(resource_type, name, ResourceErrorKind::Transient(why.into())));
        self.event(resource_type, name, WatchEvent::Ambient(error));
    }

    /// A listener with inline routes to these clusters.
    fn routes(&mut self, clusters: &[&str]) {
        let routes = RouteSource::Inline(route_config(&[TARGET], clusters));
        self.give(TARGET, listener(routes));
    }

    fn eds_cluster(&mut self, name: &str) {
        self.give(name, cluster(ClusterKind::Eds { service_name: None }));
    }

    fn endpoints(&mut self, name: &str, ports: &[u16]) {
        self.give(name, assignment(ports));
    }

    /// An EDS cluster and its endpoints.
    fn leaf(&mut self, name: &str, port: u16) {
        self.eds_cluster(name);
        self.endpoints(name, &[port]);
    }

    fn aggregate(&mut self, name: &str, children: &[&str]) {
        self.give(name, cluster(ClusterKind::Aggregate(list(children))));
    }

    fn aggregate_resource(&mut self, name: &str, resource: &str) {
        self.give(name, cluster(ClusterKind::AggregateResource { name: resource.into() }));
    }

    fn cluster_config(&mut self, name: &str, children: &[&str]) {
        self.give(name, Resource::AggregateClusterConfig(list(children)));
    }

    fn config(&self) -> Arc<XdsConfig> {
        match &self.config {
            Some(Ok(config)) => Arc::clone(config),
            other => panic!("no configuration: {other:?}"),
        }
    }

    fn failure(&self) -> String {
        match &self.config {
            Some(Err(why)) => why.to_string(),
            other => panic!("no failure: {other:?}"),
        }
    }

    /// The clusters of the configuration, as text.
    fn clusters(&self) -> BTreeMap<String, String> {
        shape(&self.config())
    }

    fn cluster(&self, name: &str) -> String {
        self.clusters().remove(name).unwrap_or_else(|| panic!("no cluster {name}"))
    }

    fn note(&self, name: &str) -> Option<String> {
        let config = self.config();
        let cluster = config.clusters[name].as_ref().expect("a cluster that is there");
        match &cluster.state {
            ClusterState::Pending => None,
            ClusterState::Leaf { resolution_note, .. } | ClusterState::Aggregate { resolution_note, .. } => {
                resolution_note.as_ref().map(ToString::to_string)
            }
        }
    }

    fn is_watched(&self, resource_type: ResourceType, name: &str) -> bool {
        self.watches.contains_key(&(resource_type, name.into()))
    }
}

/// `known 1 2` (ports), `missing`, `pending`, `leaves a b` or `error why`, by cluster.
fn shape(config: &XdsConfig) -> BTreeMap<String, String> {
    let describe = |cluster: &Result<Arc<crate::xds_config::ClusterConfig>, Arc<str>>| match cluster {
        Err(why) => format!("error {why}"),
        Ok(cluster) => match &cluster.state {
            ClusterState::Aggregate { leaf_clusters, .. } => format!("leaves {}", leaf_clusters.join(" ")),
            ClusterState::Pending => "pending".into(),
            ClusterState::Leaf { endpoints: EndpointsState::Missing, .. } => "missing".into(),
            ClusterState::Leaf { endpoints: EndpointsState::Known(known), .. } => {
                let localities = known.priorities.iter().flatten();
                let addresses = localities.flat_map(|l| &l.endpoints).flat_map(|e| e.addresses.iter());
                addresses.fold("known".to_owned(), |text, address| format!("{text} {}", address.port()))
            }
        },
    };
    config.clusters.iter().map(|(name, cluster)| (name.to_string(), describe(cluster))).collect()
}

fn error(resource_type: ResourceType, name: &str, kind: ResourceErrorKind) -> Arc<ResourceError> {
    Arc::new(ResourceError {
        resource_type,
        name: name.into(),
        server: "xds.test:1".into(),
        node: "n1".into(),
        kind,
    })
}

fn listener(routes: RouteSource) -> Resource {
    let manager = HttpConnectionManager { routes, max_stream_duration: None, filters: Arc::new([]) };
    Resource::Listener(Arc::new(Listener { kind: ListenerKind::Api(manager) }))
}

fn route_config(domains: &[&str], clusters: &[&str]) -> Arc<RouteConfiguration> {
    let weighted = clusters.iter().map(|&name| WeightedCluster {
        name: name.into(),
        weight: 1,
        filter_overrides: FilterOverrides::default(),
    });
    let specifier = match clusters {
        [one] => ClusterSpecifier::Cluster((*one).into()),
        _ => ClusterSpecifier::Weighted(weighted.collect()),
    };
    let host = VirtualHost {
        name: "host".into(),
        domains: domains.iter().map(ToString::to_string).collect(),
        routes: vec![route(Some(specifier))],
        retry_policy: None,
        filter_overrides: FilterOverrides::default(),
    };
    Arc::new(RouteConfiguration { virtual_hosts: vec![Arc::new(host)] })
}

fn route(cluster: Option<ClusterSpecifier>) -> Route {
    let path = PathMatcher::Prefix { prefix: String::new(), case_sensitive: true };
    let action = cluster.map(|cluster| RouteAction {
        cluster,
        max_stream_duration: None,
        hash_policies: Vec::new(),
        retry_policy: None,
        auto_host_rewrite: false,
    });
    Route {
        name: "route".into(),
        matcher: RouteMatch { path, headers: Vec::new(), fraction_per_million: None },
        action,
        filter_overrides: FilterOverrides::default(),
    }
}

fn cluster(kind: ClusterKind) -> Resource {
    Resource::Cluster(Arc::new(Cluster {
        kind,
        lb_policy: Some(LbPolicy::RoundRobin),
        lrs_server: None,
        lrs_report_endpoint_metrics: MetricSelection::default(),
        circuit_breakers: CircuitBreakers::default(),
        idle_timeout: Duration::from_secs(3600),
        outlier_detection: None,
        override_host_status: OverrideHostStatus::default(),
        tls: None,
        http_connect: false,
    }))
}

fn list(children: &[&str]) -> Arc<AggregateClusterConfig> {
    Arc::new(AggregateClusterConfig { clusters: children.iter().map(|&child| child.into()).collect() })
}

/// One locality with an endpoint for each port; no localities without ports.
fn assignment(ports: &[u16]) -> Resource {
    let endpoints = ports.iter().map(|&port| endpoint(port, EndpointHealth::Healthy)).collect();
    let locality = LocalityEndpoints { locality: Arc::default(), weight: 1, endpoints };
    let priorities = if ports.is_empty() { Vec::new() } else { vec![vec![locality]] };
    Resource::ClusterLoadAssignment(Arc::new(ClusterLoadAssignment { priorities, drops: Vec::new() }))
}

fn endpoint(port: u16, health: EndpointHealth) -> LbEndpoint {
    let addresses = Arc::new([SocketAddr::from(([127, 0, 0, 1], port))]);
    LbEndpoint { addresses, weight: 1, health, extras: None }
}
