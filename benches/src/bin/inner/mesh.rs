//! The resources of the measurements, encoded as a control plane sends them.

use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3 as aggregate;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::envoy::extensions::load_balancing_policies as policies;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use envoy_types::pb::google::protobuf::{Any, Duration as WireDuration, UInt32Value};
use prost::{Message, Name};
use proxyless_xds::resource::ResourceType;

/// The name of the listener and of its route configuration.
pub(crate) const SERVICE: &str = "service";

/// The endpoints of one cluster or of many, each with three localities per priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mesh {
    /// The number of clusters; a route leads to each.
    pub(crate) clusters: usize,
    /// The number of endpoints of each cluster in the first priority, which is connected.
    pub(crate) first: usize,
    /// The number in the second priority, which is idle while the first serves.
    pub(crate) second: usize,
    pub(crate) outlier_detection: bool,
    /// Whether all routes lead to an aggregate of the clusters.
    pub(crate) aggregate: bool,
    /// The policy that picks endpoints.
    pub(crate) policy: Policy,
}

/// The policy that picks endpoints, within weighted localities unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Policy {
    RoundRobin,
    LeastRequest,
    /// Calls report no load: the turns of endpoints with equal weights.
    WeightedRoundRobin,
    /// A subset that contains all endpoints.
    RandomSubsetting,
    /// Over the endpoints of all localities.
    PickFirst,
}

impl Policy {
    fn config(self) -> cluster::LoadBalancingPolicy {
        let endpoint_picking = match self {
            Self::RoundRobin | Self::RandomSubsetting => {
                policy(&policies::round_robin::v3::RoundRobin::default())
            }
            Self::LeastRequest => policy(&policies::least_request::v3::LeastRequest::default()),
            Self::WeightedRoundRobin => policy(
                &policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin::default(),
            ),
            Self::PickFirst => return policy(&policies::pick_first::v3::PickFirst::default()),
        };
        let endpoint_picking_policy = Some(endpoint_picking);
        let localities = policy(&policies::wrr_locality::v3::WrrLocality { endpoint_picking_policy });
        if self != Self::RandomSubsetting {
            return localities;
        }
        policy(&policies::random_subsetting::v3::RandomSubsetting {
            subset_size: Some(UInt32Value { value: u32::MAX }),
            child_policy: Some(localities),
        })
    }
}

/// The endpoints whose address differs from the initial one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    None,
    One,
    All,
}

impl Mesh {
    /// One cluster whose endpoints are all in the first priority.
    pub(crate) const fn connected(endpoints: usize) -> Self {
        Self {
            clusters: 1,
            first: endpoints,
            second: 0,
            outlier_detection: false,
            aggregate: false,
            policy: Policy::RoundRobin,
        }
    }

    /// One cluster with three endpoints in the first priority, and all others in the second.
    pub(crate) fn idle(endpoints: usize) -> Self {
        Self { second: endpoints, ..Self::connected(3) }
    }

    pub(crate) fn listener(&self) -> Bytes {
        let rds = hcm::Rds { config_source: Some(ads()), route_config_name: SERVICE.into() };
        let router = hcm::HttpFilter {
            name: "router".into(),
            config_type: Some(hcm::http_filter::ConfigType::TypedConfig(pack(&Router::default()))),
            ..Default::default()
        };
        let manager = hcm::HttpConnectionManager {
            http_filters: vec![router],
            route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::Rds(rds)),
            ..Default::default()
        };
        let api_listener = Some(listener::ApiListener { api_listener: Some(pack(&manager)) });
        let listener = listener::Listener { name: SERVICE.into(), api_listener, ..Default::default() };
        response(ResourceType::Listener, [pack(&listener)])
    }

    pub(crate) fn routes(&self) -> Bytes {
        let one = |name: String, prefix: String| {
            let specifier = route::route_action::ClusterSpecifier::Cluster(name);
            let path = route::route_match::PathSpecifier::Prefix(prefix);
            let action = route::RouteAction { cluster_specifier: Some(specifier), ..Default::default() };
            route::Route {
                r#match: Some(route::RouteMatch { path_specifier: Some(path), ..Default::default() }),
                action: Some(route::route::Action::Route(action)),
                ..Default::default()
            }
        };
        let routes = match (self.aggregate, self.clusters) {
            (true, _) => vec![one("aggregate".into(), "/".into())],
            (false, 1) => vec![one(name(0), "/".into())],
            (false, many) => (0..many).map(|at| one(name(at), format!("/service-{at}/"))).collect(),
        };
        let host = route::VirtualHost {
            name: "host".into(),
            domains: vec!["*".into()],
            routes,
            ..Default::default()
        };
        let routes = route::RouteConfiguration {
            name: SERVICE.into(),
            virtual_hosts: vec![host],
            ..Default::default()
        };
        response(ResourceType::RouteConfiguration, [pack(&routes)])
    }

    pub(crate) fn clusters(&self) -> Bytes {
        self.clusters_with(Moved::None)
    }

    /// All clusters; those that have moved have another circuit breaker.
    pub(crate) fn clusters_with(&self, moved: Moved) -> Bytes {
        let has_moved = |at| match moved {
            Moved::None => false,
            Moved::One => at == 0,
            Moved::All => true,
        };
        let leaves = (0..self.clusters).map(|at| {
            let max_requests = if has_moved(at) { 50_000 } else { 100_000 };
            pack(&self.cluster(&name(at), max_requests))
        });
        let aggregate = self.aggregate.then(|| {
            let children = aggregate::ClusterConfig { clusters: (0..self.clusters).map(name).collect() };
            let custom = cluster::cluster::CustomClusterType {
                name: "envoy.clusters.aggregate".into(),
                typed_config: Some(pack(&children)),
            };
            let kind = cluster::cluster::ClusterDiscoveryType::ClusterType(custom);
            pack(&cluster::Cluster {
                name: "aggregate".into(),
                cluster_discovery_type: Some(kind),
                ..Default::default()
            })
        });
        response(ResourceType::Cluster, leaves.chain(aggregate))
    }

    /// The endpoints of all clusters; in the first one, some may have moved.
    pub(crate) fn all_endpoints(&self, moved: Moved) -> Bytes {
        let moved = |at| if at == 0 { moved } else { Moved::None };
        response(
            ResourceType::ClusterLoadAssignment,
            (0..self.clusters).map(|at| pack(&self.assignment(at, moved(at)))),
        )
    }

    /// The endpoints of the first cluster alone.
    pub(crate) fn endpoints(&self, moved: Moved) -> Bytes {
        response(ResourceType::ClusterLoadAssignment, [pack(&self.assignment(0, moved))])
    }

    fn cluster(&self, name: &str, max_requests: u32) -> cluster::Cluster {
        use cluster::cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig};
        let limit = cluster::circuit_breakers::Thresholds {
            max_requests: Some(UInt32Value { value: max_requests }),
            ..Default::default()
        };
        let own = core::config_source::ConfigSourceSpecifier::Self_(core::SelfConfigSource::default());
        cluster::Cluster {
            name: name.into(),
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
            eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(ads()), ..Default::default() }),
            load_balancing_policy: Some(self.policy.config()),
            circuit_breakers: Some(cluster::CircuitBreakers {
                thresholds: vec![limit],
                ..Default::default()
            }),
            lrs_server: Some(core::ConfigSource { config_source_specifier: Some(own), ..Default::default() }),
            outlier_detection: self.outlier_detection.then(|| cluster::OutlierDetection {
                interval: Some(duration(Duration::from_secs(10))),
                enforcing_success_rate: Some(UInt32Value { value: 100 }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn assignment(&self, cluster: usize, moved: Moved) -> endpoint::ClusterLoadAssignment {
        let size = self.first + self.second;
        let base = cluster * size;
        // Endpoints move in the priority that is measured.
        let (first_moved, second_moved) =
            if self.second > 0 { (Moved::None, moved) } else { (moved, Moved::None) };
        let mut endpoints = localities(0, base, self.first, first_moved);
        if self.second > 0 {
            endpoints.extend(localities(1, base + self.first, self.second, second_moved));
        }
        endpoint::ClusterLoadAssignment { cluster_name: name(cluster), endpoints, ..Default::default() }
    }
}

/// The localities of one priority.
fn localities(priority: u32, base: usize, size: usize, moved: Moved) -> Vec<endpoint::LocalityLbEndpoints> {
    let one = |zone: usize| {
        let numbers = (size * zone / 3)..(size * (zone + 1) / 3);
        let has_moved = |at: usize| match moved {
            Moved::None => false,
            Moved::One => at == size / 2,
            Moved::All => true,
        };
        endpoint::LocalityLbEndpoints {
            locality: Some(core::Locality {
                region: "region".into(),
                zone: format!("zone-{zone}"),
                ..Default::default()
            }),
            lb_endpoints: numbers.map(|at| lb_endpoint(base + at, has_moved(at))).collect(),
            load_balancing_weight: Some(UInt32Value { value: 1 + zone as u32 }),
            priority,
            ..Default::default()
        }
    };
    (0..3).map(one).collect()
}

fn lb_endpoint(number: usize, moved: bool) -> endpoint::LbEndpoint {
    let [_, a, b, c] = (number as u32).to_be_bytes();
    let address = core::SocketAddress {
        address: format!("10.{a}.{b}.{c}"),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(if moved { 8081 } else { 8080 })),
        ..Default::default()
    };
    let address = core::Address { address: Some(core::address::Address::SocketAddress(address)) };
    let endpoint = endpoint::Endpoint { address: Some(address), ..Default::default() };
    endpoint::LbEndpoint {
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint)),
        health_status: core::HealthStatus::Healthy.into(),
        load_balancing_weight: Some(UInt32Value { value: 1 }),
        ..Default::default()
    }
}

fn name(cluster: usize) -> String {
    format!("outbound|8080||service-{cluster}.namespace.svc.cluster.local")
}

fn policy<M: Name>(config: &M) -> cluster::LoadBalancingPolicy {
    let extension = core::TypedExtensionConfig { name: "policy".into(), typed_config: Some(pack(config)) };
    let policy = cluster::load_balancing_policy::Policy { typed_extension_config: Some(extension) };
    cluster::LoadBalancingPolicy { policies: vec![policy] }
}

fn ads() -> core::ConfigSource {
    let specifier = core::config_source::ConfigSourceSpecifier::Ads(core::AggregatedConfigSource {});
    core::ConfigSource { config_source_specifier: Some(specifier), ..Default::default() }
}

fn duration(duration: Duration) -> WireDuration {
    WireDuration { seconds: duration.as_secs().cast_signed(), nanos: duration.subsec_nanos().cast_signed() }
}

fn pack<M: Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

fn response(resource_type: ResourceType, resources: impl IntoIterator<Item = Any>) -> Bytes {
    let response = DiscoveryResponse {
        version_info: "1".into(),
        resources: resources.into_iter().collect(),
        type_url: resource_type.type_url().into(),
        nonce: "1".into(),
        ..Default::default()
    };
    response.encode_to_vec().into()
}
