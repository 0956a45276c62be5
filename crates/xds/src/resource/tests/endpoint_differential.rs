//! Assignments are read in place; envoy's own messages and the model must have the same result for all bytes:
//! the same resource, or the same violations in the same words.

use envoy_types::pb::envoy::config::core::v3::address::Address::{EnvoyInternalAddress, Pipe};
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{self as core, Address, Metadata};
use envoy_types::pb::envoy::config::endpoint::v3 as wire;
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Any, ListValue, Struct, UInt32Value, Value};
use prost::Message;
use proxyless_sans_io::Rng;
use wire::cluster_load_assignment::policy::DropOverload;
use wire::endpoint::{AdditionalAddress, HealthCheckConfig};
use wire::lb_endpoint::HostIdentifier;
use wire::locality_lb_endpoints::{LbConfig, LbEndpointList};

use super::builders::{
    PROXY_KEY, address, ads, any, assignment, inner, lb_endpoint, locality, seconds, socket, typed_metadata,
};
use super::endpoint_model;
use super::fuzz::mutate;
use super::wire_tree::Tree;
use crate::resource::{DecodeContext, Resource, ResourceType, Update, decode, decode_update};

/// How many mutations of each kind each message gets.
const CASES: usize = 3000;

/// Decodes in both ways. Says whether the assignment is good.
#[track_caller]
fn agree(value: &[u8]) -> bool {
    agree_with(value, &open())
}

/// The gate of proxies is open (gRFC A86).
fn open() -> DecodeContext {
    super::gates(|gates| gates.http_connect = true)
}

#[track_caller]
fn agree_with(value: &[u8], cx: &DecodeContext) -> bool {
    let kind = ResourceType::ClusterLoadAssignment;
    let ours = decode(kind, kind.type_url(), value, cx);
    let model = endpoint_model::decode(value, cx);
    assert_eq!(ours.name, model.name, "{value:x?}");
    assert_eq!(ours.resource, model.resource, "{value:x?}");
    ours.resource.is_ok()
}

/// The same beside a version in use, which must make no difference.
#[track_caller]
fn agree_beside(known: &Resource, value: &[u8]) {
    let cx = open();
    let kind = ResourceType::ClusterLoadAssignment;
    let update = decode_update(kind, kind.type_url(), value, &cx, &|_| Some(known));
    let Update::Resource(ours) = update else { panic!("{update:?}") };
    assert_eq!(ours.resource, endpoint_model::decode(value, &cx).resource, "{value:x?}");
}

#[test]
fn valid_messages_agree() {
    for message in corpus() {
        assert!(agree(&message.encode_to_vec()), "{message:?}");
        assert!(agree_with(&message.encode_to_vec(), &DecodeContext::default()), "{message:?}");
    }
}

#[test]
fn mutated_bytes_agree() {
    let mut rng = Rng::new(7);
    let mut good = 0;
    for message in corpus() {
        let valid = message.encode_to_vec();
        for _ in 0..CASES {
            let mut value = valid.clone();
            (0..=rng.below(3)).for_each(|_| mutate(&mut value, &mut rng));
            good += usize::from(agree(&value));
        }
    }
    assert!(good > CASES / 10, "{good}");
}

#[test]
fn mutated_fields_agree() {
    let mut rng = Rng::new(8);
    let (mut good, mut all) = (0, 0);
    for message in corpus() {
        let valid = Tree::parse(&message.encode_to_vec());
        let known = super::accepts(&message);
        for _ in 0..CASES {
            let mut tree = valid.clone();
            (0..=rng.below(4)).for_each(|_| tree.mutate(&mut rng));
            good += usize::from(agree(&tree.encode()));
            agree_beside(&known, &tree.encode());
            all += 1;
        }
    }
    assert!(good > all / 20 && good < all, "{good} of {all}");
}

#[test]
fn every_truncation_agrees() {
    for message in corpus() {
        let value = message.encode_to_vec();
        for length in 0..value.len() {
            agree(&value[..length]);
        }
    }
}

#[test]
fn two_messages_in_a_row_are_one() {
    let all: Vec<_> = corpus().iter().map(Message::encode_to_vec).collect();
    let mut good = 0;
    for first in &all {
        for second in &all {
            good += usize::from(agree(&[&first[..], second].concat()));
        }
    }
    assert!(good > 0);
}

#[test]
fn both_stop_at_the_same_depth() {
    let mut stopped = Vec::new();
    for depth in 20..40 {
        let nest = |value, _| Value {
            kind: Some(Kind::StructValue(Struct { fields: [("a".to_owned(), value)].into() })),
        };
        let value = (0..depth).fold(Value { kind: Some(Kind::BoolValue(true)) }, nest);
        stopped.push(!agree(&with_metadata("hash_key", value).encode_to_vec()));
    }
    assert!(!stopped[0] && stopped[19], "{stopped:?}");
    // A group that nobody knows.
    for depth in 95..105 {
        let groups = [vec![0x7b; depth], vec![0x7c; depth]].concat();
        agree(&[assignment(vec![]).encode_to_vec(), groups].concat());
    }
}

#[test]
fn a76_of_two_kinds_of_a_value_the_last_counts() {
    let kinds = [
        Kind::NullValue(0),
        Kind::NumberValue(1.5),
        Kind::StringValue("key".into()),
        Kind::BoolValue(true),
        Kind::StructValue(Struct::default()),
        Kind::ListValue(ListValue::default()),
    ]
    .map(|kind| Value { kind: Some(kind) }.encode_to_vec());
    let text = |key: u8, text: &str| nest(key, text.as_bytes());
    for first in &kinds {
        for second in &kinds {
            let value = [&first[..], second].concat();
            let field = [text(0x0a, "hash_key"), nest(0x12, &value)].concat();
            let filter = [text(0x0a, "envoy.lb"), nest(0x12, &nest(0x0a, &field))].concat();
            let metadata = nest(0x1a, &nest(0x0a, &filter));
            let endpoint = [lb_endpoint("10.0.0.1", 80).encode_to_vec(), metadata].concat();
            let locality = [locality("a", 0, &[]).encode_to_vec(), nest(0x12, &endpoint)].concat();
            assert!(agree(&[assignment(vec![]).encode_to_vec(), nest(0x12, &locality)].concat()));
        }
    }
}

/// A field of known length behind its key.
fn nest(key: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![key];
    prost::encoding::encode_varint(value.len() as u64, &mut field);
    field.extend(value);
    field
}

/// Messages that together have every field there is, and small ones, of which mutations change more.
fn corpus() -> Vec<wire::ClusterLoadAssignment> {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.into())) };
    let mut corpus = vec![
        assignment(vec![]),
        assignment(vec![locality("a", 0, &[1])]),
        assignment(vec![locality("a", 0, &[1, 2]), locality("b", 0, &[3]), locality("a", 1, &[4])]),
        with_metadata("hash_key", text("key")),
        with_metadata("hash_key", Value { kind: Some(Kind::NumberValue(1.5)) }),
        with_metadata("other", Value { kind: Some(Kind::NullValue(0)) }),
    ];
    let values = vec![text("a"), Value { kind: Some(Kind::BoolValue(true)) }];
    corpus.push(with_metadata("list", Value { kind: Some(Kind::ListValue(ListValue { values })) }));
    corpus.push(rich());
    corpus.push(proxied());
    corpus
}

/// Proxies in the metadata of a locality and of an endpoint, and other addresses (gRFC A86).
fn proxied() -> wire::ClusterLoadAssignment {
    let mut of_locality = locality("a", 0, &[1, 2, 3]);
    of_locality.metadata = Some(typed_metadata([(PROXY_KEY, any(&address("10.0.0.9", 3128)))]));
    let own = [(PROXY_KEY, any(&address("::1", 3129))), ("other", any(&address("10.0.0.8", 1)))];
    of_locality.lb_endpoints[1].metadata = Some(typed_metadata(own));
    let hidden = [("envoy.lb", any(&address("10.0.0.7", 1)))];
    let untyped = metadata("hash_key", Value { kind: Some(Kind::StringValue("k".into())) });
    let filter_metadata = untyped.filter_metadata;
    of_locality.lb_endpoints[2].metadata = Some(Metadata { filter_metadata, ..typed_metadata(hidden) });
    assignment(vec![of_locality, locality("b", 0, &[4])])
}

fn with_metadata(key: &str, value: Value) -> wire::ClusterLoadAssignment {
    let mut endpoint = lb_endpoint("10.0.0.1", 80);
    endpoint.metadata = Some(metadata(key, value));
    assignment(vec![wire::LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..locality("a", 0, &[]) }])
}

fn metadata(key: &str, value: Value) -> Metadata {
    let filter = Struct { fields: [(key.to_owned(), value)].into() };
    let typed = Any { type_url: "type.googleapis.com/a".into(), value: vec![1, 2] };
    Metadata {
        filter_metadata: [("envoy.lb".to_owned(), filter)].into(),
        typed_filter_metadata: [("a".to_owned(), typed)].into(),
    }
}

#[allow(deprecated)] // a field that must decode all the same
fn rich() -> wire::ClusterLoadAssignment {
    let other = |other| Address { address: Some(other) };
    let pipe = other(Pipe(core::Pipe { path: "/a".into(), mode: 1 }));
    let internal = other(EnvoyInternalAddress(core::EnvoyInternalAddress {
        endpoint_id: "e".into(),
        ..Default::default()
    }));
    let mut first = lb_endpoint("10.0.0.1", 80);
    first.load_balancing_weight = Some(UInt32Value { value: 300 });
    *inner(&mut first) = wire::Endpoint {
        health_check_config: Some(HealthCheckConfig {
            port_value: 1,
            hostname: "h".into(),
            address: Some(pipe.clone()),
            disable_active_health_check: true,
        }),
        hostname: "a.example".into(),
        additional_addresses: vec![AdditionalAddress { address: Some(address("::1", 81)) }],
        observability_name: "o".into(),
        address: inner(&mut first).address.take(),
    };
    let details = socket(inner(&mut first).address.as_mut().expect("an address"));
    details.resolver_name = "r".into();
    details.ipv4_compat = true;
    details.network_namespace_filepath = "/ns".into();
    let mut named_port = address("10.0.0.2", 0);
    socket(&mut named_port).port_specifier = Some(PortSpecifier::NamedPort("http".into()));
    // Unhealthy, so that nothing is wrong with their addresses.
    let ignored = [pipe, internal, named_port].map(|address| {
        let endpoint = wire::Endpoint { address: Some(address), ..Default::default() };
        let host_identifier = Some(HostIdentifier::Endpoint(endpoint));
        wire::LbEndpoint { health_status: 2, host_identifier, ..Default::default() }
    });
    let by_name = wire::LbEndpoint {
        health_status: 2,
        host_identifier: Some(HostIdentifier::EndpointName("n".into())),
        ..Default::default()
    };
    let leds = wire::LedsClusterLocalityConfig { leds_config: Some(ads()), leds_collection_name: "l".into() };
    let list = LbEndpointList { lb_endpoints: vec![lb_endpoint("10.0.0.9", 9)] };
    let of_locality = |zone: &str, config| wire::LocalityLbEndpoints {
        metadata: Some(metadata("a", Value::default())),
        proximity: Some(UInt32Value { value: 1 }),
        lb_config: Some(config),
        ..locality(zone, 0, &[])
    };
    let mut localities = vec![
        of_locality("a", LbConfig::LedsClusterLocalityConfig(leds)),
        of_locality("b", LbConfig::LoadBalancerEndpoints(list)),
    ];
    localities[0].lb_endpoints = [first, by_name].into_iter().chain(ignored).collect();
    let drop_percentage = Some(FractionalPercent { numerator: 5, denominator: 1 });
    let named = inner(&mut lb_endpoint("10.0.0.3", 3)).clone();
    wire::ClusterLoadAssignment {
        policy: Some(wire::cluster_load_assignment::Policy {
            drop_overloads: vec![DropOverload { category: "lb".into(), drop_percentage }],
            overprovisioning_factor: Some(UInt32Value { value: 140 }),
            endpoint_stale_after: Some(seconds(1)),
            weighted_priority_health: true,
        }),
        named_endpoints: [("n".to_owned(), named)].into(),
        ..assignment(localities)
    }
}
