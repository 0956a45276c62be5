//! Clusters: EDS, LOGICAL_DNS and aggregates.

use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CustomClusterType, DiscoveryType, EdsClusterConfig,
};
use envoy_types::pb::envoy::config::cluster::v3::load_balancing_policy::Policy;
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, LoadBalancingPolicy, OutlierDetection};
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{
    ConfigSource, HealthStatus, HealthStatusSet, TypedExtensionConfig,
};
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::{AggregateClusterResource, ClusterConfig};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use envoy_types::pb::google::protobuf::UInt32Value;
use prost::Name;

use super::endpoint::named_endpoint;
use super::tls::transport_socket;
use super::{ads_source, pack, proxy};
use crate::control_plane::Resource;

/// A cluster with endpoints from EDS, by the cluster's name unless [`ClusterExt::eds_service_name`] is used.
pub fn eds_cluster(name: &str) -> Cluster {
    Cluster {
        name: name.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(ads_source()), ..Default::default() }),
        ..Default::default()
    }
}

/// A cluster with a single endpoint that is resolved by DNS.
pub fn logical_dns_cluster(name: &str, host: &str, port: u16) -> Cluster {
    let endpoints =
        LocalityLbEndpoints { lb_endpoints: vec![named_endpoint(host, port)], ..Default::default() };
    Cluster {
        name: name.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::LogicalDns.into())),
        load_assignment: Some(ClusterLoadAssignment { endpoints: vec![endpoints], ..Default::default() }),
        ..Default::default()
    }
}

/// An aggregate of other clusters, in order of preference (A37).
pub fn aggregate_cluster<'a>(name: &str, children: impl IntoIterator<Item = &'a str>) -> Cluster {
    custom_cluster(name, "envoy.clusters.aggregate", &cluster_config(children))
}

/// An aggregate of the clusters listed in an [`aggregate_resource`] (A99).
pub fn aggregate_resource_cluster(name: &str, resource_name: &str) -> Cluster {
    let config =
        AggregateClusterResource { config_source: Some(ads_source()), resource_name: resource_name.into() };
    custom_cluster(name, "envoy.clusters.aggregate_resource", &config)
}

/// The children of an [`aggregate_resource_cluster`] as a separate resource (A99). The message has no name, so it is
/// wrapped in a discovery `Resource`.
pub fn aggregate_resource<'a>(name: &str, children: impl IntoIterator<Item = &'a str>) -> Resource {
    Resource::wrapped(name, &cluster_config(children))
}

fn cluster_config<'a>(children: impl IntoIterator<Item = &'a str>) -> ClusterConfig {
    ClusterConfig { clusters: children.into_iter().map(String::from).collect() }
}

fn custom_cluster<M: Name>(name: &str, type_name: &str, config: &M) -> Cluster {
    let cluster_type = CustomClusterType { name: type_name.into(), typed_config: Some(pack(config)) };
    Cluster {
        name: name.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(cluster_type)),
        ..Default::default()
    }
}

/// Further settings of a cluster.
pub trait ClusterExt {
    /// Sets the name of its endpoint assignment.
    #[must_use]
    fn eds_service_name(self, name: &str) -> Self;
    /// Adds a load balancing policy; a client uses the first one that it supports.
    #[must_use]
    fn lb_policy(self, policy: TypedExtensionConfig) -> Self;
    /// Sets the maximum number of concurrent RPCs (circuit breaking).
    #[must_use]
    fn max_requests(self, limit: u32) -> Self;
    /// Sets the maximum number of connections to each endpoint (gRFC A105).
    #[must_use]
    fn max_connections_per_host(self, limit: u32) -> Self;
    /// Enables outlier detection.
    #[must_use]
    fn outlier_detection(self, config: OutlierDetection) -> Self;
    /// Sets the health statuses in which endpoints serve their sessions (A55).
    #[must_use]
    fn override_host_status(self, statuses: impl IntoIterator<Item = HealthStatus>) -> Self;
    /// Enables load reports to the same server.
    #[must_use]
    fn report_load(self) -> Self;
    /// Secures the connections to its endpoints; see [`upstream_tls`](super::upstream_tls) (A29).
    #[must_use]
    fn tls(self, settings: UpstreamTlsContext) -> Self;
    /// Connects to endpoints through their proxies (A86), with the TLS settings that were set before. Clients need the
    /// gate `GRPC_EXPERIMENTAL_XDS_HTTP_CONNECT`.
    #[must_use]
    fn http_connect(self) -> Self;
}

impl ClusterExt for Cluster {
    fn eds_service_name(mut self, name: &str) -> Self {
        self.eds_cluster_config.get_or_insert_default().service_name = name.into();
        self
    }

    fn lb_policy(mut self, policy: TypedExtensionConfig) -> Self {
        let policies = &mut self.load_balancing_policy.get_or_insert_default().policies;
        policies.push(Policy { typed_extension_config: Some(policy) });
        self
    }

    fn max_requests(mut self, limit: u32) -> Self {
        let threshold = Thresholds { max_requests: Some(UInt32Value { value: limit }), ..Default::default() };
        self.circuit_breakers.get_or_insert_default().thresholds = vec![threshold];
        self
    }

    fn max_connections_per_host(mut self, limit: u32) -> Self {
        let max_connections = Some(UInt32Value { value: limit });
        let threshold = Thresholds { max_connections, ..Default::default() };
        self.circuit_breakers.get_or_insert_default().per_host_thresholds = vec![threshold];
        self
    }

    fn outlier_detection(mut self, config: OutlierDetection) -> Self {
        self.outlier_detection = Some(config);
        self
    }

    fn override_host_status(mut self, statuses: impl IntoIterator<Item = HealthStatus>) -> Self {
        let statuses = statuses.into_iter().map(Into::into).collect();
        let config = self.common_lb_config.get_or_insert_default();
        config.override_host_status = Some(HealthStatusSet { statuses });
        self
    }

    fn report_load(mut self) -> Self {
        self.lrs_server = Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::Self_(Default::default())),
            ..Default::default()
        });
        self
    }

    fn tls(mut self, settings: UpstreamTlsContext) -> Self {
        self.transport_socket = Some(transport_socket(&settings));
        self
    }

    fn http_connect(mut self) -> Self {
        self.transport_socket = Some(proxy::wrap(self.transport_socket));
        self
    }
}

pub(super) fn one_policy(policy: TypedExtensionConfig) -> LoadBalancingPolicy {
    LoadBalancingPolicy { policies: vec![Policy { typed_extension_config: Some(policy) }] }
}
