//! Encodes plain values as the protobuf messages of real resources.

use std::net::SocketAddr;

use bytes::Bytes;
use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3 as aggregate;
use envoy_types::pb::envoy::extensions::filters::common::fault::v3 as common_fault;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::{self as fault, HttpFault};
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::StatefulSession;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::envoy::extensions::load_balancing_policies as policies;
use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::envoy::r#type::v3::fractional_percent::DenominatorType;
use envoy_types::pb::google::protobuf::{Any, BoolValue, Duration, UInt32Value, UInt64Value};
use policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin;
use prost::{Message, Name};
use proxyless_xds::resource::ResourceType;

use crate::script::config::{
    Assignment, Cluster, ClusterKind, Endpoint, Faults, Health, Key, Listener, Mesh, PORT, Policy, Route,
    SMALL_SUBSET,
};

mod options;

/// A resource of the mesh, encoded; `None` if it does not exist.
pub(crate) fn resource(mesh: &Mesh, (resource_type, name): &Key) -> Option<Any> {
    Some(match resource_type {
        ResourceType::Listener => pack(&listener(name, mesh.listeners.get(name)?)),
        ResourceType::RouteConfiguration => pack(&route_config(name, mesh.routes.get(name)?)),
        ResourceType::Cluster => pack(&cluster(name, mesh.clusters.get(name)?)),
        ResourceType::ClusterLoadAssignment => pack(&assignment(name, mesh.assignments.get(name)?)),
        ResourceType::AggregateClusterConfig => wrapped(name, mesh.lists.get(name)?.clone()),
    })
}

/// An invalid resource with a valid name.
pub(crate) fn bad_resource((resource_type, name): &Key) -> Any {
    let name = name.clone();
    match resource_type {
        ResourceType::Listener => pack(&listener::Listener { name, ..Default::default() }),
        ResourceType::RouteConfiguration => {
            let virtual_hosts = vec![route::VirtualHost::default()];
            pack(&route::RouteConfiguration { name, virtual_hosts, ..Default::default() })
        }
        ResourceType::Cluster => pack(&cluster::Cluster { name, ..Default::default() }),
        ResourceType::ClusterLoadAssignment => {
            // a gap in the priorities.
            let locality = locality("z", 1, 3, &[]);
            pack(&endpoint::ClusterLoadAssignment {
                cluster_name: name,
                endpoints: vec![locality],
                ..Default::default()
            })
        }
        // A37-77, A99-05
        ResourceType::AggregateClusterConfig => wrapped(&name, Vec::new()),
    }
}

/// An encoded DiscoveryResponse.
pub(crate) fn response(
    resource_type: ResourceType,
    resources: Vec<Any>,
    version: &str,
    nonce: &str,
) -> Bytes {
    discovery::DiscoveryResponse {
        version_info: version.into(),
        resources,
        type_url: resource_type.type_url().into(),
        nonce: nonce.into(),
        ..Default::default()
    }
    .encode_to_vec()
    .into()
}

/// The first request of a load reporting stream.
pub(crate) fn load_node() -> Bytes {
    let node = core::Node { id: "sim".into(), ..Default::default() };
    LoadStatsRequest { node: Some(node), cluster_stats: Vec::new() }.encode_to_vec().into()
}

/// The node of the simulated client.
pub(crate) fn node() -> Bytes {
    core::Node { id: "sim".into(), ..Default::default() }.encode_to_vec().into()
}

fn pack<M: Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

fn listener(name: &str, spec: &Listener) -> listener::Listener {
    let specifier = match spec.kind() {
        Listener::Socket | Listener::WithoutSessions(_) | Listener::WithFaults(..) => {
            let address = Some(socket_address("0.0.0.0", PORT));
            return listener::Listener { name: name.into(), address, ..Default::default() };
        }
        Listener::Rds(routes) => hcm::http_connection_manager::RouteSpecifier::Rds(hcm::Rds {
            config_source: Some(ads()),
            route_config_name: routes.clone(),
        }),
        Listener::Inline(routes) => {
            hcm::http_connection_manager::RouteSpecifier::RouteConfig(route_config("inline", routes))
        }
    };
    // Without the filter the client does not expect sessions; RPCs carry their cookies themselves.
    let has_sessions = !matches!(spec, Listener::WithoutSessions(_));
    let sessions = has_sessions.then(|| filter("sessions", &StatefulSession::default()));
    let faults = spec.faults().map(|faults| filter("faults", &fault_filter(faults)));
    let router = filter("router", &Router::default());
    let manager = hcm::HttpConnectionManager {
        http_filters: sessions.into_iter().chain(faults).chain([router]).collect(),
        route_specifier: Some(specifier),
        ..Default::default()
    };
    let api_listener = Some(listener::ApiListener { api_listener: Some(pack(&manager)) });
    listener::Listener { name: name.into(), api_listener, ..Default::default() }
}

fn filter<M: Name>(name: &str, config: &M) -> hcm::HttpFilter {
    let config_type = Some(hcm::http_filter::ConfigType::TypedConfig(pack(config)));
    hcm::HttpFilter { name: name.into(), config_type, ..Default::default() }
}

fn fault_filter(spec: &Faults) -> HttpFault {
    let percent = |numerator| FractionalPercent { numerator, denominator: DenominatorType::Hundred.into() };
    let delay = common_fault::FaultDelay {
        fault_delay_secifier: Some(common_fault::fault_delay::FaultDelaySecifier::FixedDelay(
            options::duration(spec.delay),
        )),
        percentage: Some(percent(spec.delayed)),
    };
    let abort = fault::FaultAbort {
        // UNAVAILABLE.
        error_type: Some(fault::fault_abort::ErrorType::GrpcStatus(14)),
        percentage: Some(percent(spec.aborted)),
        ..Default::default()
    };
    HttpFault {
        delay: Some(delay),
        abort: Some(abort),
        max_active_faults: spec.max_active.map(|value| UInt32Value { value }),
        ..Default::default()
    }
}

fn route_config(name: &str, routes: &[Route]) -> route::RouteConfiguration {
    let host = route::VirtualHost {
        name: "host".into(),
        domains: vec!["*".into()],
        routes: routes.iter().map(one_route).collect(),
        ..Default::default()
    };
    route::RouteConfiguration { name: name.into(), virtual_hosts: vec![host], ..Default::default() }
}

fn one_route(spec: &Route) -> route::Route {
    use route::route_action::ClusterSpecifier;
    let specifier = match spec.clusters.as_slice() {
        [(name, _)] => ClusterSpecifier::Cluster(name.clone()),
        weighted => {
            let clusters = weighted.iter().map(|(name, weight)| route::weighted_cluster::ClusterWeight {
                name: name.clone(),
                weight: Some(UInt32Value { value: *weight }),
                ..Default::default()
            });
            let clusters = clusters.collect();
            ClusterSpecifier::WeightedClusters(route::WeightedCluster { clusters, ..Default::default() })
        }
    };
    let path = route::route_match::PathSpecifier::Prefix(spec.prefix.clone());
    let action = route::RouteAction { cluster_specifier: Some(specifier), ..Default::default() };
    route::Route {
        r#match: Some(route::RouteMatch { path_specifier: Some(path), ..Default::default() }),
        action: Some(route::route::Action::Route(action)),
        ..Default::default()
    }
}

fn cluster(name: &str, spec: &Cluster) -> cluster::Cluster {
    use cluster::cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig};
    let mut proto = cluster::Cluster { name: name.into(), ..Default::default() };
    let by_type = |kind: DiscoveryType| Some(ClusterDiscoveryType::Type(kind.into()));
    match &spec.kind {
        ClusterKind::Eds(service_name) => {
            proto.cluster_discovery_type = by_type(DiscoveryType::Eds);
            let service_name = if service_name == name { String::new() } else { service_name.clone() };
            proto.eds_cluster_config = Some(EdsClusterConfig { eds_config: Some(ads()), service_name });
        }
        ClusterKind::Dns(host) => {
            proto.cluster_discovery_type = by_type(DiscoveryType::LogicalDns);
            let endpoint = lb_endpoint(vec![socket_address(host, PORT)], Health::Healthy);
            let endpoints =
                endpoint::LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..Default::default() };
            let assignment =
                endpoint::ClusterLoadAssignment { endpoints: vec![endpoints], ..Default::default() };
            proto.load_assignment = Some(assignment);
        }
        ClusterKind::Aggregate(children) => {
            let config = aggregate::ClusterConfig { clusters: children.clone() };
            proto.cluster_discovery_type = custom("envoy.clusters.aggregate", &config);
        }
        ClusterKind::List(list) => {
            let config = aggregate::AggregateClusterResource {
                config_source: Some(ads()),
                resource_name: list.clone(),
            };
            proto.cluster_discovery_type = custom("envoy.clusters.aggregate_resource", &config);
        }
    }
    proto.load_balancing_policy = Some(policy(spec.policy));
    let number = |value: Option<u32>| value.map(|value| UInt32Value { value });
    let (max_requests, max_connections) = (number(spec.max_requests), number(spec.max_connections));
    let thresholds = cluster::circuit_breakers::Thresholds::default;
    if max_requests.is_some() || max_connections.is_some() {
        proto.circuit_breakers = Some(cluster::CircuitBreakers {
            thresholds: vec![cluster::circuit_breakers::Thresholds { max_requests, ..thresholds() }],
            per_host_thresholds: vec![cluster::circuit_breakers::Thresholds {
                max_connections,
                ..thresholds()
            }],
        });
    }
    options::set(&mut proto, spec);
    proto
}

fn custom<M: Name>(name: &str, config: &M) -> Option<cluster::cluster::ClusterDiscoveryType> {
    let custom = cluster::cluster::CustomClusterType { name: name.into(), typed_config: Some(pack(config)) };
    Some(cluster::cluster::ClusterDiscoveryType::ClusterType(custom))
}

fn policy(policy: Policy) -> cluster::LoadBalancingPolicy {
    match policy {
        Policy::RoundRobin => by_locality(one_policy(&policies::round_robin::v3::RoundRobin::default())),
        // Rings are small because the simulator builds many.
        Policy::RingHash => one_policy(&policies::ring_hash::v3::RingHash {
            minimum_ring_size: Some(UInt64Value { value: 8 }),
            maximum_ring_size: Some(UInt64Value { value: 64 }),
            ..Default::default()
        }),
        Policy::LocalRings => by_locality(self::policy(Policy::RingHash)),
        Policy::Nested => by_locality(self::policy(Policy::RoundRobin)),
        Policy::LeastRequest => {
            by_locality(one_policy(&policies::least_request::v3::LeastRequest::default()))
        }
        Policy::WeightedRoundRobin | Policy::WeightedByCalls => {
            let seconds = |seconds| Some(Duration { seconds, nanos: 0 });
            let out_of_band = policy == Policy::WeightedRoundRobin;
            by_locality(one_policy(&ClientSideWeightedRoundRobin {
                enable_oob_load_report: Some(BoolValue { value: out_of_band }),
                oob_reporting_period: seconds(2),
                blackout_period: seconds(1),
                weight_expiration_period: seconds(60),
                // Each one is a step of the simulation.
                weight_update_period: seconds(20),
                ..Default::default()
            }))
        }
        Policy::Subset => subset(1_000),
        Policy::SmallSubset => subset(SMALL_SUBSET),
        Policy::PickFirst => one_policy(&policies::pick_first::v3::PickFirst::default()),
    }
}

fn subset(size: u32) -> cluster::LoadBalancingPolicy {
    one_policy(&policies::random_subsetting::v3::RandomSubsetting {
        subset_size: Some(UInt32Value { value: size }),
        child_policy: Some(policy(Policy::RoundRobin)),
    })
}

fn by_locality(child: cluster::LoadBalancingPolicy) -> cluster::LoadBalancingPolicy {
    one_policy(&policies::wrr_locality::v3::WrrLocality { endpoint_picking_policy: Some(child) })
}

fn one_policy<M: Name>(config: &M) -> cluster::LoadBalancingPolicy {
    let extension = core::TypedExtensionConfig { name: "policy".into(), typed_config: Some(pack(config)) };
    let policy = cluster::load_balancing_policy::Policy { typed_extension_config: Some(extension) };
    cluster::LoadBalancingPolicy { policies: vec![policy] }
}

fn assignment(name: &str, spec: &Assignment) -> endpoint::ClusterLoadAssignment {
    use endpoint::cluster_load_assignment::Policy;
    use endpoint::cluster_load_assignment::policy::DropOverload;
    let numbered = spec.priorities.iter().zip(0..);
    let localities = numbered.flat_map(|(localities, priority)| {
        localities.iter().map(move |spec| locality(&spec.zone, spec.weight, priority, &spec.endpoints))
    });
    let all = FractionalPercent { numerator: 100, denominator: DenominatorType::Hundred.into() };
    let drop_all = DropOverload { category: "all".into(), drop_percentage: Some(all) };
    endpoint::ClusterLoadAssignment {
        cluster_name: name.into(),
        endpoints: localities.collect(),
        policy: spec.drop_all.then(|| Policy { drop_overloads: vec![drop_all], ..Default::default() }),
        ..Default::default()
    }
}

fn locality(zone: &str, weight: u32, priority: u32, endpoints: &[Endpoint]) -> endpoint::LocalityLbEndpoints {
    let lb_endpoints = endpoints.iter().map(|spec| {
        let addresses = spec.addresses.iter().map(|address| ip_address(*address)).collect();
        lb_endpoint(addresses, spec.health)
    });
    endpoint::LocalityLbEndpoints {
        locality: Some(core::Locality { zone: zone.into(), ..Default::default() }),
        lb_endpoints: lb_endpoints.collect(),
        load_balancing_weight: (weight > 0).then_some(UInt32Value { value: weight }),
        priority,
        ..Default::default()
    }
}

fn lb_endpoint(addresses: Vec<core::Address>, health: Health) -> endpoint::LbEndpoint {
    let mut addresses = addresses.into_iter();
    let endpoint = endpoint::Endpoint {
        address: addresses.next(),
        additional_addresses: addresses
            .map(|address| endpoint::endpoint::AdditionalAddress { address: Some(address) })
            .collect(),
        ..Default::default()
    };
    endpoint::LbEndpoint {
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint)),
        health_status: health_status(health).into(),
        ..Default::default()
    }
}

fn health_status(health: Health) -> core::HealthStatus {
    match health {
        Health::Healthy => core::HealthStatus::Healthy,
        Health::Draining => core::HealthStatus::Draining,
        Health::Unhealthy => core::HealthStatus::Unhealthy,
    }
}

fn ip_address(address: SocketAddr) -> core::Address {
    socket_address(&address.ip().to_string(), address.port())
}

fn socket_address(host: &str, port: u16) -> core::Address {
    let address = core::SocketAddress {
        address: host.into(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port.into())),
        ..Default::default()
    };
    core::Address { address: Some(core::address::Address::SocketAddress(address)) }
}

fn wrapped(name: &str, clusters: Vec<String>) -> Any {
    let config = aggregate::ClusterConfig { clusters };
    pack(&discovery::Resource { name: name.into(), resource: Some(pack(&config)), ..Default::default() })
}

fn ads() -> core::ConfigSource {
    let specifier = core::config_source::ConfigSourceSpecifier::Ads(core::AggregatedConfigSource {});
    core::ConfigSource { config_source_specifier: Some(specifier), ..Default::default() }
}
