//! Small resources for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::testing::address;
use proxyless_sans_io::Interner;
use proxyless_xds::resource::{
    AggregateClusterConfig, CircuitBreakers, Cluster, ClusterKind, ClusterLoadAssignment, DropCategory,
    EndpointHealth, FilterOverrides, HttpConnectionManager, LbEndpoint, LbPolicy, Listener, ListenerKind,
    Locality, LocalityEndpoints, MetricSelection, OverrideHostStatus, RouteConfiguration, RouteSource,
    VirtualHost,
};

use super::cds::CdsSettings;
use super::cluster_impl::{CircuitRegistry, LoadRegistry};
use super::override_host::Sessions;
use crate::security::SecurityRegistry;
use crate::xds_config::{ClusterConfig, ClusterState, EndpointsState, XdsConfig};

pub(crate) fn lb_endpoint(n: u16) -> LbEndpoint {
    LbEndpoint { addresses: Arc::new([address(n)]), weight: 1, health: EndpointHealth::Healthy, extras: None }
}

/// A locality with this name and one endpoint per number.
pub(crate) fn locality(name: &str, weight: u32, numbers: impl IntoIterator<Item = u16>) -> LocalityEndpoints {
    let locality = Locality { region: name.into(), ..Locality::default() };
    LocalityEndpoints {
        locality: Arc::new(locality),
        weight,
        endpoints: numbers.into_iter().map(lb_endpoint).collect(),
    }
}

pub(crate) fn assignment(priorities: Vec<Vec<LocalityEndpoints>>) -> ClusterLoadAssignment {
    ClusterLoadAssignment { priorities, drops: Vec::new() }
}

pub(crate) fn drop_category(category: &str, per_million: u32) -> DropCategory {
    DropCategory { category: category.into(), per_million }
}

pub(crate) fn cluster(kind: ClusterKind) -> Cluster {
    Cluster {
        kind,
        lb_policy: Some(LbPolicy::WrrLocality(Box::new(LbPolicy::RoundRobin))),
        lrs_server: None,
        lrs_report_endpoint_metrics: MetricSelection::default(),
        circuit_breakers: CircuitBreakers::default(),
        idle_timeout: Duration::from_secs(3600),
        outlier_detection: None,
        override_host_status: OverrideHostStatus::default(),
        tls: None,
        http_connect: false,
    }
}

pub(crate) fn eds_cluster() -> Cluster {
    cluster(ClusterKind::Eds { service_name: None })
}

pub(crate) fn aggregate_cluster(leaves: &[&str]) -> Cluster {
    let clusters = leaves.iter().map(|&leaf| leaf.into()).collect();
    Cluster {
        lb_policy: None,
        ..cluster(ClusterKind::Aggregate(Arc::new(AggregateClusterConfig { clusters })))
    }
}

pub(crate) fn leaf(name: &str, cluster: Cluster, endpoints: EndpointsState) -> Arc<ClusterConfig> {
    leaf_with_note(name, cluster, endpoints, None)
}

pub(crate) fn leaf_with_note(
    name: &str,
    cluster: Cluster,
    endpoints: EndpointsState,
    note: Option<&str>,
) -> Arc<ClusterConfig> {
    let (cluster, resolution_note) = (Arc::new(cluster), note.map(Arc::from));
    let state = ClusterState::Leaf { cluster, endpoints, resolution_note };
    Arc::new(ClusterConfig { name: name.into(), state })
}

pub(crate) fn aggregate(name: &str, leaves: &[&str]) -> Arc<ClusterConfig> {
    let state = ClusterState::Aggregate {
        cluster: Arc::new(aggregate_cluster(leaves)),
        leaf_clusters: leaves.iter().map(|&leaf| Arc::from(leaf)).collect(),
        resolution_note: None,
    };
    Arc::new(ClusterConfig { name: name.into(), state })
}

/// A configuration with these clusters and no routes.
pub(crate) fn xds_config(clusters: impl IntoIterator<Item = Arc<ClusterConfig>>) -> Arc<XdsConfig> {
    let clusters: BTreeMap<_, _> =
        clusters.into_iter().map(|cluster| (Arc::clone(&cluster.name), Ok(cluster))).collect();
    config_of_results(clusters)
}

/// Like [`xds_config`], where clusters may be errors.
pub(crate) fn config_of_results(
    clusters: BTreeMap<Arc<str>, Result<Arc<ClusterConfig>, Arc<str>>>,
) -> Arc<XdsConfig> {
    let virtual_host = Arc::new(VirtualHost {
        name: "v".into(),
        domains: vec!["*".into()],
        routes: Vec::new(),
        retry_policy: None,
        filter_overrides: FilterOverrides::default(),
    });
    let route_config = Arc::new(RouteConfiguration { virtual_hosts: vec![Arc::clone(&virtual_host)] });
    let manager = HttpConnectionManager {
        routes: RouteSource::Inline(Arc::clone(&route_config)),
        max_stream_duration: None,
        filters: Arc::new([]),
    };
    let listener = Arc::new(Listener { kind: ListenerKind::Api(manager) });
    Arc::new(XdsConfig { listener, route_config, virtual_host, clusters: clusters.into() })
}

pub(crate) fn settings() -> CdsSettings {
    CdsSettings {
        failover_timeout: Duration::from_secs(10),
        aggregate_backward_compat: false,
        sessions: Sessions::Used,
        circuits: CircuitRegistry::default(),
        loads: LoadRegistry::default(),
        security: SecurityRegistry::default(),
        names: Interner::default(),
    }
}
