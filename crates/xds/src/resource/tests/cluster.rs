use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as wire;
use envoy_types::pb::envoy::config::core::v3::{
    HttpProtocolOptions as CommonOptions, RoutingPriority, TypedExtensionConfig,
};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::{AggregateClusterResource, ClusterConfig};
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::google::protobuf::{Any, Duration as WireDuration, UInt32Value};
use wire::circuit_breakers::Thresholds;
use wire::cluster::{ClusterDiscoveryType, DiscoveryType, LbPolicy as LegacyPolicy};

use super::builders::{
    ads, any, any_of_type, custom_cluster, dns_cluster, eds_cluster, inner, path_source, self_source, socket,
};
use super::{accepts, as_cluster, decode_message_with, gates, rejects, rejects_with};
use crate::resource::{ClusterKind, LbPolicy, ListedMetrics, LrsServer, MetricSelection};

fn kind(cluster: &wire::Cluster) -> ClusterKind {
    as_cluster(accepts(cluster)).kind.clone()
}

fn aggregate(clusters: &[&str]) -> wire::Cluster {
    let clusters = clusters.iter().map(|name| (*name).to_owned()).collect();
    custom_cluster(Some(any(&ClusterConfig { clusters })))
}

fn aggregate_resource(change: impl FnOnce(&mut AggregateClusterResource)) -> wire::Cluster {
    let mut resource = AggregateClusterResource { config_source: Some(ads()), resource_name: "list".into() };
    change(&mut resource);
    custom_cluster(Some(any(&resource)))
}

#[test]
fn a37_63_only_known_kinds_are_accepted() {
    for kind in [
        None,
        Some(DiscoveryType::Static as i32),
        Some(DiscoveryType::StrictDns as i32),
        Some(DiscoveryType::OriginalDst as i32),
        Some(77),
    ] {
        let mut cluster = eds_cluster();
        cluster.cluster_discovery_type = kind.map(ClusterDiscoveryType::Type);
        rejects(&cluster, "type", "must be EDS or LOGICAL_DNS");
    }
}

#[test]
fn a27_86_eds_needs_its_config() {
    let mut cluster = eds_cluster();
    cluster.eds_cluster_config.as_mut().expect("a config").eds_config = None;
    rejects(&cluster, "eds_cluster_config.eds_config", "must be set");
    cluster.eds_cluster_config = None;
    rejects(&cluster, "eds_cluster_config", "must be set");
}

#[test]
fn a27_87_endpoints_come_over_the_same_stream() {
    let mut cluster = eds_cluster();
    cluster.eds_cluster_config.as_mut().expect("a config").eds_config = Some(self_source());
    accepts(&cluster);
    cluster.eds_cluster_config.as_mut().expect("a config").eds_config = Some(path_source());
    rejects(&cluster, "eds_cluster_config.eds_config", "must be ads or self");
}

#[test]
fn a27_88_the_service_name_is_read() {
    let mut cluster = eds_cluster();
    cluster.eds_cluster_config.as_mut().expect("a config").service_name = "service".into();
    assert_eq!(kind(&cluster), ClusterKind::Eds { service_name: Some("service".into()) });
}

#[test]
fn a27_89_there_may_be_no_service_name() {
    assert_eq!(kind(&eds_cluster()), ClusterKind::Eds { service_name: None });
}

#[test]
fn a47_an_xdstp_cluster_needs_a_service_name() {
    let mut cluster = eds_cluster();
    cluster.name = "xdstp://authority/envoy.config.cluster.v3.Cluster/a".into();
    rejects(&cluster, "eds_cluster_config.service_name", "must be set");
    cluster.eds_cluster_config.as_mut().expect("a config").service_name = "service".into();
    accepts(&cluster);
}

#[test]
fn a27_92_load_is_reported_to_the_same_server_only() {
    for source in [ads(), path_source(), Default::default()] {
        let cluster = wire::Cluster { lrs_server: Some(source), ..eds_cluster() };
        rejects(&cluster, "lrs_server", "must be self");
    }
}

#[test]
fn a27_93_a27_94_load_is_reported_if_asked_for() {
    let cluster = wire::Cluster { lrs_server: Some(self_source()), ..eds_cluster() };
    assert_eq!(as_cluster(accepts(&cluster)).lrs_server, Some(LrsServer::SelfServer));
    assert_eq!(as_cluster(accepts(&eds_cluster())).lrs_server, None);
}

/// The DNS cluster with its assignment changed.
fn dns(change: impl FnOnce(&mut ClusterLoadAssignment)) -> wire::Cluster {
    let mut cluster = dns_cluster();
    change(cluster.load_assignment.as_mut().expect("an assignment"));
    cluster
}

#[test]
fn a37_73_a_host_name_is_accepted() {
    let expected = ClusterKind::LogicalDns { host: "backend.example".into(), port: 8080 };
    assert_eq!(kind(&dns_cluster()), expected);
}

#[test]
fn a37_65_dns_needs_an_assignment() {
    let cluster = wire::Cluster { load_assignment: None, ..dns_cluster() };
    rejects(&cluster, "load_assignment", "must be set");
}

#[test]
fn a37_66_dns_needs_exactly_one_locality() {
    let cluster = dns(|assignment| assignment.endpoints.clear());
    rejects(&cluster, "load_assignment.endpoints", "must be exactly one locality, not 0");
    let cluster = dns(|assignment| assignment.endpoints.push(Default::default()));
    rejects(&cluster, "load_assignment.endpoints", "must be exactly one locality, not 2");
}

#[test]
fn a37_67_dns_needs_exactly_one_endpoint() {
    let path = "load_assignment.endpoints[0].lb_endpoints";
    let cluster = dns(|assignment| assignment.endpoints[0].lb_endpoints.clear());
    rejects(&cluster, path, "must be exactly one endpoint, not 0");
    let cluster = dns(|assignment| assignment.endpoints[0].lb_endpoints.push(Default::default()));
    rejects(&cluster, path, "must be exactly one endpoint, not 2");
}

const DNS_ENDPOINT: &str = "load_assignment.endpoints[0].lb_endpoints[0].endpoint";

#[test]
fn a37_68_dns_needs_an_endpoint() {
    for identifier in [None, Some(HostIdentifier::EndpointName("a".into()))] {
        let cluster = dns(|assignment| assignment.endpoints[0].lb_endpoints[0].host_identifier = identifier);
        rejects(&cluster, DNS_ENDPOINT, "must be set");
    }
}

#[test]
fn a37_69_dns_needs_an_address() {
    let cluster = dns(|assignment| inner(&mut assignment.endpoints[0].lb_endpoints[0]).address = None);
    rejects(&cluster, &format!("{DNS_ENDPOINT}.address"), "must be set");
}

#[test]
fn a37_70_dns_needs_a_socket_address() {
    let cluster = dns(|assignment| {
        inner(&mut assignment.endpoints[0].lb_endpoints[0]).address = Some(Default::default());
    });
    rejects(&cluster, &format!("{DNS_ENDPOINT}.address.socket_address"), "must be set");
}

/// The DNS cluster with its socket address changed.
fn dns_socket(
    change: impl FnOnce(&mut envoy_types::pb::envoy::config::core::v3::SocketAddress),
) -> wire::Cluster {
    dns(|assignment| {
        let endpoint = inner(&mut assignment.endpoints[0].lb_endpoints[0]);
        change(socket(endpoint.address.as_mut().expect("an address")));
    })
}

#[test]
fn a37_71_dns_needs_a_host() {
    let cluster = dns_socket(|socket| socket.address.clear());
    rejects(&cluster, &format!("{DNS_ENDPOINT}.address.socket_address.address"), "must not be empty");
}

#[test]
fn a37_dns_has_no_resolver_of_its_own() {
    let cluster = dns_socket(|socket| socket.resolver_name = "custom".into());
    rejects(&cluster, &format!("{DNS_ENDPOINT}.address.socket_address.resolver_name"), "must not be set");
}

#[test]
fn a37_72_dns_needs_a_port() {
    use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
    let path = format!("{DNS_ENDPOINT}.address.socket_address.port_value");
    for port in [None, Some(PortSpecifier::NamedPort("http".into()))] {
        rejects(&dns_socket(|socket| socket.port_specifier = port), &path, "must be set");
    }
    let cluster = dns_socket(|socket| socket.port_specifier = Some(PortSpecifier::PortValue(65536)));
    rejects(&cluster, &path, "65536 is beyond 65535");
}

#[test]
fn a37_05_an_aggregate_is_an_ordered_list() {
    let ClusterKind::Aggregate(config) = kind(&aggregate(&["b", "a"])) else { panic!("no aggregate") };
    assert_eq!(config.clusters, ["b".into(), "a".into()]);
}

#[test]
fn a37_74_a_cluster_type_needs_a_config() {
    rejects(&custom_cluster(None), "cluster_type.typed_config", "must be set");
}

#[test]
fn a37_75_other_cluster_types_are_rejected() {
    let cluster = custom_cluster(Some(any_of_type("example.Cluster", b"")));
    rejects(&cluster, "cluster_type.typed_config", "example.Cluster is not supported");
    let cluster = custom_cluster(Some(Any::default()));
    rejects(&cluster, "cluster_type.typed_config.type_url", "is not a type URL");
}

#[test]
fn a37_76_a_list_that_does_not_decode_is_rejected() {
    let config = any_of_type("envoy.extensions.clusters.aggregate.v3.ClusterConfig", b"\xff");
    rejects(&custom_cluster(Some(config)), "cluster_type.typed_config", "does not decode");
}

#[test]
fn a37_77_an_empty_list_is_rejected() {
    rejects(&aggregate(&[]), "cluster_type.typed_config.clusters", "must not be empty");
    rejects(&aggregate(&["a", ""]), "cluster_type.typed_config.clusters[1]", "must not be empty");
}

#[test]
fn a75_13_the_policy_of_an_aggregate_is_ignored() {
    for policy in [LegacyPolicy::ClusterProvided as i32, LegacyPolicy::RoundRobin as i32, 99] {
        let cluster = wire::Cluster { lb_policy: policy, ..aggregate(&["a"]) };
        assert_eq!(as_cluster(accepts(&cluster)).lb_policy, None);
    }
    let list = Some(wire::LoadBalancingPolicy::default());
    let cluster = wire::Cluster { load_balancing_policy: list, ..aggregate(&["a"]) };
    assert_eq!(as_cluster(accepts(&cluster)).lb_policy, None);
}

#[test]
fn a75_14_the_policy_of_an_aggregate_counts_for_backward_compatibility() {
    let cx = gates(|gates| gates.aggregate_cluster_backward_compat = true);
    let cluster = as_cluster(decode_message_with(&aggregate(&["a"]), &cx).expect("valid"));
    assert_eq!(cluster.lb_policy, Some(LbPolicy::WrrLocality(Box::new(LbPolicy::RoundRobin))));
    let cluster = wire::Cluster { lb_policy: LegacyPolicy::ClusterProvided as i32, ..aggregate(&["a"]) };
    rejects_with(&cluster, &cx, "lb_policy", "CLUSTER_PROVIDED is not supported");
}

#[test]
fn a99_03_an_aggregate_may_name_its_list() {
    let cx = gates(|gates| gates.aggregate_cluster_resource = true);
    let cluster = as_cluster(decode_message_with(&aggregate_resource(|_| {}), &cx).expect("valid"));
    assert_eq!(cluster.kind, ClusterKind::AggregateResource { name: "list".into() });
    assert_eq!(cluster.lb_policy, None);
}

#[test]
fn a99_14_without_the_gate_it_is_rejected() {
    rejects(
        &aggregate_resource(|_| {}),
        "cluster_type.typed_config",
        "AggregateClusterResource is not supported",
    );
}

#[test]
fn a99_15_inline_aggregates_need_no_gate() {
    accepts(&aggregate(&["a"]));
    let cx = gates(|gates| gates.aggregate_cluster_resource = true);
    decode_message_with(&aggregate(&["a"]), &cx).expect("valid");
}

#[test]
fn a99_17_the_list_comes_over_the_same_stream() {
    let cx = gates(|gates| gates.aggregate_cluster_resource = true);
    let path = "cluster_type.typed_config.config_source";
    let cluster = aggregate_resource(|resource| resource.config_source = Some(self_source()));
    decode_message_with(&cluster, &cx).expect("valid");
    let cluster = aggregate_resource(|resource| resource.config_source = Some(path_source()));
    rejects_with(&cluster, &cx, path, "must be ads or self");
    let cluster = aggregate_resource(|resource| resource.config_source = None);
    rejects_with(&cluster, &cx, path, "must be set");
}

#[test]
fn a99_18_the_list_needs_a_name() {
    let cx = gates(|gates| gates.aggregate_cluster_resource = true);
    let cluster = aggregate_resource(|resource| resource.resource_name.clear());
    rejects_with(&cluster, &cx, "cluster_type.typed_config.resource_name", "must not be empty");
}

#[test]
fn x_13_the_first_default_threshold_counts() {
    let max_requests = |thresholds: &[(RoutingPriority, Option<u32>)]| {
        let thresholds = thresholds.iter().map(|(priority, max)| Thresholds {
            priority: *priority as i32,
            max_requests: max.map(|value| UInt32Value { value }),
            ..Default::default()
        });
        let breakers =
            wire::CircuitBreakers { thresholds: thresholds.collect(), per_host_thresholds: vec![] };
        let cluster = wire::Cluster { circuit_breakers: Some(breakers), ..eds_cluster() };
        as_cluster(accepts(&cluster)).circuit_breakers.max_requests
    };
    assert_eq!(
        max_requests(&[
            (RoutingPriority::High, Some(1)),
            (RoutingPriority::Default, Some(2)),
            (RoutingPriority::Default, Some(3))
        ]),
        2
    );
    assert_eq!(max_requests(&[(RoutingPriority::Default, Some(0))]), 0);
    // A37-50: the default, also if the first one leaves it unset.
    assert_eq!(max_requests(&[(RoutingPriority::Default, None), (RoutingPriority::Default, Some(3))]), 1024);
    assert_eq!(max_requests(&[(RoutingPriority::High, Some(1))]), 1024);
    assert_eq!(as_cluster(accepts(&eds_cluster())).circuit_breakers.max_requests, 1024);
}

/// A cluster with these thresholds per host: priority and `max_connections`.
fn per_host(thresholds: &[(RoutingPriority, Option<u32>)]) -> wire::Cluster {
    let threshold = |&(priority, max): &(RoutingPriority, Option<u32>)| Thresholds {
        priority: priority.into(),
        max_connections: max.map(|value| UInt32Value { value }),
        ..Thresholds::default()
    };
    let per_host_thresholds = thresholds.iter().map(threshold).collect();
    let breakers = wire::CircuitBreakers { thresholds: vec![], per_host_thresholds };
    wire::Cluster { circuit_breakers: Some(breakers), ..eds_cluster() }
}

#[test]
fn a105_01_the_first_default_threshold_per_host_limits_connections() {
    let cx = gates(|gates| gates.connection_scaling = true);
    let breakers = |thresholds: &[_]| {
        as_cluster(decode_message_with(&per_host(thresholds), &cx).expect("valid")).circuit_breakers
    };
    let max = |thresholds: &[_]| breakers(thresholds).max_connections_per_host;
    let (high, default) = (RoutingPriority::High, RoutingPriority::Default);
    assert_eq!(max(&[(high, Some(7)), (default, Some(3)), (default, Some(9))]), Some(3));
    assert_eq!(max(&[(default, None), (default, Some(9))]), None);
    assert_eq!(max(&[(high, Some(7))]), None);
    assert_eq!(max(&[]), None);
    // The limit of requests is that of the whole cluster.
    assert_eq!(breakers(&[(default, Some(3))]).max_requests, 1024);
}

#[test]
fn a105_01_zero_connections_are_rejected() {
    let cx = gates(|gates| gates.connection_scaling = true);
    let cluster = per_host(&[(RoutingPriority::High, Some(0)), (RoutingPriority::Default, Some(0))]);
    rejects_with(&cluster, &cx, "circuit_breakers.per_host_thresholds[1].max_connections", "must not be 0");
}

#[test]
fn a105_23_the_limit_of_connections_is_read_behind_its_gate() {
    for value in [0, 3] {
        let cluster = per_host(&[(RoutingPriority::Default, Some(value))]);
        assert_eq!(as_cluster(accepts(&cluster)).circuit_breakers.max_connections_per_host, None);
    }
}

fn with_upstream_config(config: Option<Any>) -> wire::Cluster {
    let config = TypedExtensionConfig { name: "upstream".into(), typed_config: config };
    wire::Cluster { upstream_config: Some(config), ..eds_cluster() }
}

fn with_idle_timeout(idle_timeout: Option<WireDuration>) -> wire::Cluster {
    let common = CommonOptions { idle_timeout, ..Default::default() };
    let options = HttpProtocolOptions { common_http_protocol_options: Some(common), ..Default::default() };
    with_upstream_config(Some(any(&options)))
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a75_26_to_a75_29_the_idle_timeout_is_an_hour_by_default() {
    for cluster in [
        eds_cluster(),
        with_upstream_config(Some(any(&HttpProtocolOptions::default()))),
        with_idle_timeout(None),
    ] {
        assert_eq!(as_cluster(accepts(&cluster)).idle_timeout, HOUR);
    }
}

#[test]
fn a75_28_a75_33_without_common_options_the_idle_timeout_is_an_hour() {
    let options = HttpProtocolOptions { common_http_protocol_options: None, ..Default::default() };
    let cluster = with_upstream_config(Some(any(&options)));
    assert_eq!(as_cluster(accepts(&cluster)).idle_timeout, HOUR);
}

#[test]
fn a75_34_the_idle_timeout_comes_with_the_cluster() {
    for seconds in [5, 7] {
        let cluster = with_idle_timeout(Some(WireDuration { seconds, nanos: 0 }));
        assert_eq!(as_cluster(accepts(&cluster)).idle_timeout.as_secs(), seconds.unsigned_abs());
    }
}

#[test]
fn a75_27_an_upstream_config_of_another_type_is_rejected() {
    let path = "upstream_config.typed_config";
    let cluster = with_upstream_config(Some(any_of_type("example.Options", b"")));
    rejects(&cluster, path, "example.Options is not HttpProtocolOptions");
    let bad = any_of_type("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", b"\xff");
    rejects(&with_upstream_config(Some(bad)), path, "does not decode");
    rejects(&with_upstream_config(None), path, "must be set");
}

#[test]
fn a75_30_a75_31_the_idle_timeout_must_be_in_range() {
    let path = "upstream_config.typed_config.common_http_protocol_options.idle_timeout";
    for seconds in [-1, 315_576_000_001] {
        let cluster = with_idle_timeout(Some(WireDuration { seconds, nanos: 0 }));
        rejects(&cluster, &format!("{path}.seconds"), "is not in the range");
    }
    for nanos in [-1, 1_000_000_000] {
        let cluster = with_idle_timeout(Some(WireDuration { seconds: 0, nanos }));
        rejects(&cluster, &format!("{path}.nanos"), "is not in the range");
    }
}

#[test]
fn a75_32_any_other_idle_timeout_counts() {
    for (seconds, nanos) in [(0, 0), (0, 999_999_999), (315_576_000_000, 0)] {
        let cluster = with_idle_timeout(Some(WireDuration { seconds, nanos }));
        let expected = Duration::new(seconds.unsigned_abs(), nanos.unsigned_abs());
        assert_eq!(as_cluster(accepts(&cluster)).idle_timeout, expected);
    }
}

#[test]
fn a85_the_list_of_metrics_counts_behind_its_gate_only() {
    let entries = [
        "cpu_utilization",
        "application_utilization",
        "named_metrics.foo",
        "named_metrics.",
        "utilization.bar",
        "something new",
    ];
    let cluster =
        wire::Cluster { lrs_report_endpoint_metrics: entries.map(String::from).to_vec(), ..eds_cluster() };
    assert_eq!(as_cluster(accepts(&cluster)).lrs_report_endpoint_metrics, MetricSelection::AllNamed);
    let open = gates(|gates| gates.orca_lrs_propagation = true);
    let selection = |cluster: &wire::Cluster| {
        let resource = decode_message_with(cluster, &open).expect("the resource should be accepted");
        as_cluster(resource).lrs_report_endpoint_metrics.clone()
    };
    let MetricSelection::Listed(listed) = selection(&cluster) else { panic!() };
    let expected = ListedMetrics {
        cpu_utilization: true,
        application_utilization: true,
        named: ["foo".to_owned()].into(),
        ..ListedMetrics::default()
    };
    assert_eq!(*listed, expected);
    assert!(selection(&eds_cluster()).is_empty(), "nothing is reported unless it is listed");
    let all = ["named_metrics.foo", "named_metrics.*"].map(String::from).to_vec();
    let cluster = wire::Cluster { lrs_report_endpoint_metrics: all, ..eds_cluster() };
    let MetricSelection::Listed(listed) = selection(&cluster) else { panic!() };
    assert_eq!(*listed, ListedMetrics { all_named: true, ..ListedMetrics::default() });
}
