//! Messages that break no rule.

use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf::{Any, Duration, UInt32Value};
use prost::{Message, Name};

pub(super) fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

pub(super) fn any_of_type(type_name: &str, value: &[u8]) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: value.to_vec() }
}

pub(super) fn seconds(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

pub(super) fn millis(millis: i32) -> Duration {
    Duration { seconds: 0, nanos: millis * 1_000_000 }
}

pub(super) fn ads() -> core::ConfigSource {
    use core::config_source::ConfigSourceSpecifier::Ads;
    core::ConfigSource {
        config_source_specifier: Some(Ads(core::AggregatedConfigSource {})),
        ..Default::default()
    }
}

pub(super) fn self_source() -> core::ConfigSource {
    use core::config_source::ConfigSourceSpecifier::Self_;
    core::ConfigSource { config_source_specifier: Some(Self_(core::SelfConfigSource::default())), ..ads() }
}

pub(super) fn path_source() -> core::ConfigSource {
    use core::config_source::ConfigSourceSpecifier::PathConfigSource;
    let source = PathConfigSource(core::PathConfigSource::default());
    core::ConfigSource { config_source_specifier: Some(source), ..ads() }
}

pub(super) fn address(host: &str, port: u32) -> core::Address {
    use core::socket_address::PortSpecifier::PortValue;
    let socket_address = core::SocketAddress {
        address: host.into(),
        port_specifier: Some(PortValue(port)),
        ..Default::default()
    };
    core::Address { address: Some(core::address::Address::SocketAddress(socket_address)) }
}

/// The socket address of an address.
pub(super) fn socket(address: &mut core::Address) -> &mut core::SocketAddress {
    match &mut address.address {
        Some(core::address::Address::SocketAddress(socket)) => socket,
        other => panic!("{other:?}"),
    }
}

pub(super) fn http_filter(name: &str, config: Any) -> hcm::HttpFilter {
    hcm::HttpFilter {
        name: name.into(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(config)),
        ..Default::default()
    }
}

pub(super) fn router() -> hcm::HttpFilter {
    http_filter("router", any(&Router::default()))
}

pub(super) fn connection_manager() -> hcm::HttpConnectionManager {
    use hcm::http_connection_manager::RouteSpecifier::Rds;
    hcm::HttpConnectionManager {
        http_filters: vec![router()],
        route_specifier: Some(Rds(hcm::Rds {
            config_source: Some(ads()),
            route_config_name: "routes".into(),
        })),
        ..Default::default()
    }
}

pub(super) fn listener_with(manager: &hcm::HttpConnectionManager) -> listener::Listener {
    listener::Listener {
        name: "listener".into(),
        api_listener: Some(listener::ApiListener { api_listener: Some(any(manager)) }),
        ..Default::default()
    }
}

pub(super) fn route_action() -> route::RouteAction {
    use route::route_action::ClusterSpecifier::Cluster;
    route::RouteAction { cluster_specifier: Some(Cluster("cluster".into())), ..Default::default() }
}

pub(super) fn route_match() -> route::RouteMatch {
    let path_specifier = Some(route::route_match::PathSpecifier::Prefix(String::new()));
    route::RouteMatch { path_specifier, ..Default::default() }
}

pub(super) fn route() -> route::Route {
    route::Route {
        r#match: Some(route_match()),
        action: Some(route::route::Action::Route(route_action())),
        ..Default::default()
    }
}

pub(super) fn virtual_host(domains: &[&str]) -> route::VirtualHost {
    route::VirtualHost {
        name: "host".into(),
        domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
        routes: vec![route()],
        ..Default::default()
    }
}

pub(super) fn route_configuration() -> route::RouteConfiguration {
    let virtual_hosts = vec![virtual_host(&["*"])];
    route::RouteConfiguration { name: "routes".into(), virtual_hosts, ..Default::default() }
}

/// A configuration whose only route has been changed.
pub(super) fn routes_with(change: impl FnOnce(&mut route::Route)) -> route::RouteConfiguration {
    let mut config = route_configuration();
    change(&mut config.virtual_hosts[0].routes[0]);
    config
}

pub(super) fn routes_with_match(change: impl FnOnce(&mut route::RouteMatch)) -> route::RouteConfiguration {
    routes_with(|route| change(route.r#match.as_mut().expect("a match")))
}

pub(super) fn routes_with_action(change: impl FnOnce(&mut route::RouteAction)) -> route::RouteConfiguration {
    routes_with(|route| match &mut route.action {
        Some(route::route::Action::Route(action)) => change(action),
        other => panic!("{other:?}"),
    })
}

pub(super) fn eds_cluster() -> cluster::Cluster {
    use cluster::cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig};
    cluster::Cluster {
        name: "cluster".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(ads()), service_name: String::new() }),
        ..Default::default()
    }
}

pub(super) fn dns_cluster() -> cluster::Cluster {
    use cluster::cluster::{ClusterDiscoveryType, DiscoveryType};
    let endpoints = vec![endpoint::LocalityLbEndpoints {
        lb_endpoints: vec![lb_endpoint("backend.example", 8080)],
        ..Default::default()
    }];
    cluster::Cluster {
        name: "cluster".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::LogicalDns as i32)),
        load_assignment: Some(endpoint::ClusterLoadAssignment { endpoints, ..Default::default() }),
        ..Default::default()
    }
}

pub(super) fn custom_cluster(config: Option<Any>) -> cluster::Cluster {
    use cluster::cluster::{ClusterDiscoveryType, CustomClusterType};
    let custom = CustomClusterType { name: "custom".into(), typed_config: config };
    cluster::Cluster {
        name: "cluster".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(custom)),
        ..Default::default()
    }
}

pub(super) fn lb_endpoint(host: &str, port: u32) -> endpoint::LbEndpoint {
    let endpoint = endpoint::Endpoint { address: Some(address(host, port)), ..Default::default() };
    endpoint::LbEndpoint {
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint)),
        ..Default::default()
    }
}

/// The endpoint proper of an endpoint.
pub(super) fn inner(endpoint: &mut endpoint::LbEndpoint) -> &mut endpoint::Endpoint {
    match &mut endpoint.host_identifier {
        Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint)) => endpoint,
        other => panic!("{other:?}"),
    }
}

/// A locality of weight 1 with these ports of one address.
pub(super) fn locality(zone: &str, priority: u32, ports: &[u32]) -> endpoint::LocalityLbEndpoints {
    endpoint::LocalityLbEndpoints {
        locality: Some(core::Locality { zone: zone.into(), ..Default::default() }),
        lb_endpoints: ports.iter().map(|port| lb_endpoint("127.0.0.1", *port)).collect(),
        load_balancing_weight: Some(UInt32Value { value: 1 }),
        priority,
        ..Default::default()
    }
}

pub(super) fn assignment(endpoints: Vec<endpoint::LocalityLbEndpoints>) -> endpoint::ClusterLoadAssignment {
    endpoint::ClusterLoadAssignment { cluster_name: "cluster".into(), endpoints, ..Default::default() }
}

/// The key of a proxy's address in metadata (gRFC A86).
pub(super) const PROXY_KEY: &str = "envoy.http11_proxy_transport_socket.proxy_address";

/// Metadata with these typed values.
pub(super) fn typed_metadata<const N: usize>(values: [(&str, Any); N]) -> core::Metadata {
    let typed_filter_metadata = values.map(|(key, value)| (key.to_owned(), value)).into();
    core::Metadata { typed_filter_metadata, ..Default::default() }
}
