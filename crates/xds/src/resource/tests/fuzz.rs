//! Valid bytes, mutated at random: validation must not panic.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::route::v3::route_action::hash_policy::{self, PolicySpecifier};
use envoy_types::pb::envoy::config::route::v3::route_action::{ClusterSpecifier, HashPolicy};
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, RetryPolicy, WeightedCluster, header_matcher, route_match,
};
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::{AggregateClusterResource, ClusterConfig};
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::envoy::service::discovery::v3::Resource as Wrapper;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher};
use envoy_types::pb::envoy::r#type::v3::Int64Range;
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use prost::{Message, Name};
use proxyless_sans_io::Rng;

use super::builders::{
    ads, any, assignment, connection_manager, custom_cluster, dns_cluster, eds_cluster, listener_with,
    locality, route, route_configuration,
};
use super::gates;
use crate::resource::{ResourceType, decode};

/// How many mutations each valid resource gets.
const CASES: usize = 6000;

#[test]
fn mutated_bytes_never_panic() {
    let mut rng = Rng::new(42);
    let cx = gates(|gates| {
        gates.aggregate_cluster_resource = true;
        gates.aggregate_cluster_backward_compat = true;
    });
    let (mut good, mut bad) = (0, 0);
    for (expected, valid) in corpus() {
        assert!(decode(expected, &valid.type_url, &valid.value, &cx).resource.is_ok(), "{expected:?}");
        for _ in 0..CASES {
            let mut value = valid.value.clone();
            for _ in 0..=rng.below(4) {
                mutate(&mut value, &mut rng);
            }
            match decode(expected, &valid.type_url, &value, &cx).resource {
                Ok(_) => good += 1,
                Err(found) => {
                    assert!(!found.first.is_empty());
                    bad += 1;
                }
            }
        }
    }
    // The mutations are neither all harmless nor all fatal to the encoding.
    assert!(good > CASES / 10 && bad > CASES / 10, "{good} good, {bad} bad");
}

#[test]
fn every_truncation_is_survived() {
    for (expected, valid) in corpus() {
        for length in 0..valid.value.len() {
            let _ = decode(expected, &valid.type_url, &valid.value[..length], &Default::default());
        }
    }
}

#[test]
fn deep_recursion_is_an_error() {
    let nest = |value: Vec<u8>, tag: u8| {
        let mut outer = vec![tag];
        prost::encoding::encode_varint(value.len() as u64, &mut outer);
        outer.extend(value);
        outer
    };
    // Struct.fields, its entry's value, Value.struct_value: a thousand times in each other.
    let value = (0..1000).fold(Vec::new(), |value, _| [0x2a, 0x12, 0x0a].into_iter().fold(value, nest));
    // In Listener.metadata.filter_metadata.
    let value = [0x12, 0x0a, 0x32].into_iter().fold(value, nest);
    let expected = ResourceType::Listener;
    let decoded = decode(expected, expected.type_url(), &value, &Default::default());
    let why = &decoded.resource.expect_err("too deep").first[0].why;
    assert!(why.contains("recursion"), "{why}");
}

pub(super) fn mutate(value: &mut Vec<u8>, rng: &mut Rng) {
    let length = value.len() as u64;
    let at = rng.below(length) as usize;
    match rng.below(7) {
        0 => value.truncate(at),
        1 => value.insert(at, rng.next_u64() as u8),
        2 if length > 0 => {
            value.remove(at);
        }
        3 if length > 0 => value[at] ^= 1 << rng.below(8),
        4 if length > 0 => value[at] = [0, 0xff, 0x7f, 0x80, b'*', b'(', b'\\'][rng.below(7) as usize],
        5 if length > 0 => value[at] = rng.next_u64() as u8,
        _ => {
            // Some part of it once more: repeats fields.
            let end = at + rng.below(length - at as u64) as usize;
            let part = value[at..end].to_vec();
            value.splice(at..at, part);
        }
    }
}

/// Valid resources that touch as much of the validators as possible; one of each type is wrapped.
fn corpus() -> Vec<(ResourceType, Any)> {
    use ResourceType as Type;
    let mut clusters = eds_cluster();
    clusters.upstream_config = Some(TypedExtensionConfig {
        name: "upstream".into(),
        typed_config: Some(any(&HttpProtocolOptions::default())),
    });
    let aggregate = custom_cluster(Some(any(&ClusterConfig { clusters: vec!["a".into(), "b".into()] })));
    let resource = AggregateClusterResource { config_source: Some(ads()), resource_name: "list".into() };
    let aggregate_resource = custom_cluster(Some(any(&resource)));
    let endpoints = assignment(vec![locality("a", 0, &[1, 2]), locality("b", 1, &[3])]);
    let mut corpus = vec![
        (Type::Listener, any(&listener_with(&connection_manager()))),
        (Type::RouteConfiguration, any(&rich_routes())),
        (Type::Cluster, any(&clusters)),
        (Type::Cluster, any(&dns_cluster())),
        (Type::Cluster, any(&aggregate)),
        (Type::Cluster, any(&aggregate_resource)),
        (Type::ClusterLoadAssignment, any(&endpoints)),
    ];
    for (expected, name, inner) in [
        (Type::Listener, "listener", any(&listener_with(&connection_manager()))),
        (Type::AggregateClusterConfig, "list", any(&ClusterConfig { clusters: vec!["a".into()] })),
    ] {
        let wrapper = Wrapper { name: name.into(), resource: Some(inner), ..Default::default() };
        corpus.push((expected, Any { type_url: Wrapper::type_url(), value: wrapper.encode_to_vec() }));
    }
    corpus
}

fn rich_routes() -> envoy_types::pb::envoy::config::route::v3::RouteConfiguration {
    use envoy_types::pb::envoy::config::route::v3::route::Action;
    let regex = |regex: &str| RegexMatcher { regex: regex.into(), ..Default::default() };
    let mut config = route_configuration();
    let mut rich = route();
    let matcher = rich.r#match.as_mut().expect("a match");
    matcher.path_specifier = Some(route_match::PathSpecifier::SafeRegex(regex("/[a-z]+/(b|c)*")));
    let range = header_matcher::HeaderMatchSpecifier::RangeMatch(Int64Range { start: 1, end: 9 });
    matcher.headers =
        vec![HeaderMatcher { name: "a".into(), header_match_specifier: Some(range), ..Default::default() }];
    let Some(Action::Route(action)) = &mut rich.action else { panic!("no action") };
    let cluster = |name: &str| ClusterWeight {
        name: name.into(),
        weight: Some(UInt32Value { value: 5 }),
        ..Default::default()
    };
    let clusters = WeightedCluster { clusters: vec![cluster("a"), cluster("b")], ..Default::default() };
    action.cluster_specifier = Some(ClusterSpecifier::WeightedClusters(clusters));
    let rewrite = RegexMatchAndSubstitute { pattern: Some(regex("(a)(b)")), substitution: r"\1\2$".into() };
    let header = hash_policy::Header { header_name: "h".into(), regex_rewrite: Some(rewrite) };
    let specifier = Some(PolicySpecifier::Header(header));
    action.hash_policy = vec![HashPolicy { policy_specifier: specifier, terminal: true }];
    action.retry_policy = Some(RetryPolicy { retry_on: "unavailable".into(), ..Default::default() });
    config.virtual_hosts[0].routes.push(rich);
    config
}
