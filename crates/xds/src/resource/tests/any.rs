use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
use envoy_types::pb::envoy::service::discovery::v3::Resource as Wrapper;
use prost::{Message, Name};

use super::builders::{any, assignment, connection_manager, eds_cluster, listener_with, route_configuration};
use crate::resource::{DecodeContext, Decoded, Resource, ResourceType, Violation, Violations, decode};

fn wrap<M: Message + Name>(name: &str, message: &M) -> Vec<u8> {
    Wrapper { name: name.into(), resource: Some(any(message)), ..Default::default() }.encode_to_vec()
}

fn decode_wrapped(expected: ResourceType, value: &[u8]) -> Decoded {
    decode(expected, &Wrapper::type_url(), value, &DecodeContext::default())
}

#[track_caller]
fn assert_bad(decoded: Decoded, name: Option<&str>, path: &str, why: &str) {
    assert_eq!(decoded.name.as_deref(), name);
    let found = decoded.resource.expect_err("a violation").first;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].path, path);
    assert!(found[0].why.contains(why), "{found:?}");
}

#[test]
fn x_06_every_type_is_unwrapped() {
    let cases = [
        (ResourceType::Listener, wrap("listener", &listener_with(&connection_manager())), "listener"),
        (ResourceType::RouteConfiguration, wrap("routes", &route_configuration()), "routes"),
        (ResourceType::Cluster, wrap("cluster", &eds_cluster()), "cluster"),
        (ResourceType::ClusterLoadAssignment, wrap("cluster", &assignment(vec![])), "cluster"),
        (
            ResourceType::AggregateClusterConfig,
            wrap("list", &ClusterConfig { clusters: vec!["a".into()] }),
            "list",
        ),
    ];
    for (expected, value, name) in cases {
        let decoded = decode_wrapped(expected, &value);
        assert_eq!(decoded.name.as_deref(), Some(name));
        assert_eq!(decoded.resource.map(|resource| resource.resource_type()), Ok(expected));
    }
}

#[test]
fn x_06_unwrapped_resources_keep_their_name() {
    let value = eds_cluster().encode_to_vec();
    let decoded =
        decode(ResourceType::Cluster, ResourceType::Cluster.type_url(), &value, &DecodeContext::default());
    assert_eq!(decoded.name.as_deref(), Some("cluster"));
    assert!(decoded.resource.is_ok());
}

#[test]
fn x_06_a_wrapper_without_a_name_is_accepted() {
    let decoded = decode_wrapped(ResourceType::Cluster, &wrap("", &eds_cluster()));
    assert_eq!(decoded.name.as_deref(), Some("cluster"));
    assert!(decoded.resource.is_ok());
}

#[test]
fn x_06_a_wrapper_inside_a_wrapper_is_rejected() {
    let inner = Wrapper { resource: Some(any(&eds_cluster())), ..Default::default() };
    let decoded = decode_wrapped(ResourceType::Cluster, &wrap("cluster", &inner));
    assert_bad(decoded, Some("cluster"), "type_url", "discovery.v3.Resource");
}

#[test]
fn x_06_a_wrapper_without_a_resource_is_not_a_resource() {
    // With a name it is a heartbeat, which the client accepts; here a resource is asked for.
    let wrapper = Wrapper { name: "cluster".into(), ..Default::default() };
    let decoded = decode_wrapped(ResourceType::Cluster, &wrapper.encode_to_vec());
    assert_bad(decoded, Some("cluster"), "resource", "must be set");
    let decoded = decode_wrapped(ResourceType::Cluster, &Wrapper::default().encode_to_vec());
    assert_bad(decoded, None, "resource", "must be set");

    let wrapper = Wrapper { resource: Some(Default::default()), ..wrapper };
    let decoded = decode_wrapped(ResourceType::Cluster, &wrapper.encode_to_vec());
    assert_bad(decoded, Some("cluster"), "type_url", "\"\" in a response of type");
}

#[test]
fn x_06_a_wrapper_that_does_not_decode_is_rejected() {
    assert_bad(decode_wrapped(ResourceType::Cluster, b"\xff\xff"), None, "", "wrapper does not decode");
}

#[test]
fn x_06_the_wrappers_name_counts() {
    let mut nameless = eds_cluster();
    nameless.name.clear();
    for cluster in [eds_cluster(), nameless] {
        let decoded = decode_wrapped(ResourceType::Cluster, &wrap("other", &cluster));
        assert_eq!(decoded.name.as_deref(), Some("other"));
        assert!(decoded.resource.is_ok());
    }
    // Also where the resource is bad.
    let bad = Cluster { eds_cluster_config: None, ..eds_cluster() };
    let decoded = decode_wrapped(ResourceType::Cluster, &wrap("other", &bad));
    assert_bad(decoded, Some("other"), "eds_cluster_config", "must be set");
}

#[test]
fn x_07_another_type_than_the_responses_is_rejected() {
    let value = eds_cluster().encode_to_vec();
    let cluster = ResourceType::Cluster.type_url();
    let decoded = decode(ResourceType::Listener, cluster, &value, &DecodeContext::default());
    assert_bad(decoded, None, "type_url", "config.cluster.v3.Cluster");
    let decoded = decode_wrapped(ResourceType::Listener, &wrap("cluster", &eds_cluster()));
    assert_bad(decoded, Some("cluster"), "type_url", "config.cluster.v3.Cluster");
}

#[test]
fn x_07_only_the_message_name_of_the_url_counts() {
    let value = eds_cluster().encode_to_vec();
    let url = "example.com/types/envoy.config.cluster.v3.Cluster";
    assert!(decode(ResourceType::Cluster, url, &value, &DecodeContext::default()).resource.is_ok());
}

#[test]
fn garbage_is_rejected_without_a_name() {
    for expected in ResourceType::ALL {
        for garbage in [&b"\xff\xff\xff"[..], b"\x0a\x02\xff\xfe", b"\x0a\x7f"] {
            let decoded = decode(expected, expected.type_url(), garbage, &DecodeContext::default());
            assert_bad(decoded, None, "", "does not decode");
        }
    }
}

#[test]
fn a_bad_resource_still_has_its_name() {
    let mut cluster = eds_cluster();
    cluster.eds_cluster_config = None;
    let decoded = decode_wrapped(ResourceType::Cluster, &wrap("cluster", &cluster));
    assert_bad(decoded, Some("cluster"), "eds_cluster_config", "must be set");
}

#[test]
fn a_resource_without_a_name_is_rejected() {
    let mut cluster = eds_cluster();
    cluster.name.clear();
    super::rejects(&cluster, "name", "must not be empty");
    let mut endpoints = assignment(vec![]);
    endpoints.cluster_name.clear();
    super::rejects(&endpoints, "cluster_name", "must not be empty");
}

#[test]
fn a99_07_a_cluster_config_is_an_ordered_list() {
    let config = ClusterConfig { clusters: vec!["b".into(), "a".into()] };
    let decoded = decode_wrapped(ResourceType::AggregateClusterConfig, &wrap("list", &config));
    let Ok(Resource::AggregateClusterConfig(config)) = decoded.resource else { panic!("{decoded:?}") };
    assert_eq!(config.clusters, ["b".into(), "a".into()]);
}

#[test]
fn a99_19_an_unwrapped_cluster_config_is_rejected() {
    super::rejects(&ClusterConfig { clusters: vec!["a".into()] }, "", "has no name of its own");
    // A wrapper without a name does not help.
    let config = ClusterConfig { clusters: vec!["a".into()] };
    let decoded = decode_wrapped(ResourceType::AggregateClusterConfig, &wrap("", &config));
    assert_bad(decoded, None, "", "has no name of its own");
}

#[test]
fn a99_05_a_cluster_config_needs_clusters() {
    let decoded =
        decode_wrapped(ResourceType::AggregateClusterConfig, &wrap("list", &ClusterConfig::default()));
    assert_bad(decoded, Some("list"), "clusters", "must not be empty");
    let config = ClusterConfig { clusters: vec!["a".into(), String::new()] };
    let decoded = decode_wrapped(ResourceType::AggregateClusterConfig, &wrap("list", &config));
    assert_bad(decoded, Some("list"), "clusters[1]", "must not be empty");
}

#[test]
fn a40_08_all_violations_are_collected() {
    let mut cluster = eds_cluster();
    cluster.eds_cluster_config = None;
    cluster.lb_policy = 5;
    cluster.lrs_server = Some(super::builders::ads());
    cluster.transport_socket = Some(Default::default());
    let found = super::decode_message(&cluster).expect_err("violations");
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["eds_cluster_config", "lb_policy", "lrs_server", "transport_socket.typed_config"]);
}

#[test]
fn very_many_violations_are_not_all_written_out() {
    let one = Violation { path: "a.b".into(), why: "is wrong".into() };
    let found = |count| {
        let mut found = Violations::default();
        (0..count).for_each(|_| found.push("a.b", "is wrong"));
        found
    };
    assert_eq!(found(2), Violations { first: vec![one.clone(); 2], more: 0 });
    assert_eq!(found(2).to_string(), "a.b: is wrong; a.b: is wrong");
    let many = found(1_000_000);
    assert_eq!(many, Violations { first: vec![one; 50], more: 999_950 });
    assert!(many.to_string().ends_with("; and 999950 more"), "{many}");
    // Text of the resource is not repeated at any length.
    let long = Violations::one("é".repeat(10_000), "x".repeat(10_000)).to_string();
    assert!(long.len() < 8200 && long.starts_with("éé") && long.ends_with(" ... (cut)"), "{long}");
}
