//! Deeply nested messages and clusters.

use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use proxyless_testkit::resources::*;
use proxyless_testkit::{CDS, EDS, LDS, RDS, Resource};

use super::common::{SERVICE, ask, builder, mesh, until_failure, until_only};
use super::exchange::response;
use super::hostile::Attack;
use super::memory::unmeasured;
use super::world::survives;
use proxyless_testkit::Backend;

const DEEP: usize = 3000;

/// A field with a length.
fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(u64::from(number << 3 | 2), &mut bytes);
    prost::encoding::encode_varint(value.len() as u64, &mut bytes);
    bytes.extend_from_slice(value);
    bytes
}

fn nested(depth: usize, wrap: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    (0..depth).fold(Vec::new(), |inner, _| wrap(&inner))
}

fn any(type_url: &str, value: Vec<u8>) -> Any {
    Any { type_url: type_url.into(), value }
}

/// A good cluster with these bytes behind it.
fn cluster_and(bytes: &[u8]) -> Any {
    any(CDS, [&eds_cluster("cluster").encode_to_vec(), bytes].concat())
}

/// The bytes to send, and a part of the NACK.
fn cases() -> Vec<(&'static str, Any, &'static str)> {
    const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
    // Struct.fields, an entry's value, Value.struct_value.
    let structs = nested(DEEP, |inner| field(1, &[field(1, b"k"), field(2, &field(5, inner))].concat()));
    // Value.list_value, ListValue.values.
    let lists = nested(DEEP, |inner| field(6, &field(1, inner)));
    let lists = field(1, &[field(1, b"k"), field(2, &lists)].concat());
    // Cluster.metadata, Metadata.filter_metadata.
    let metadata = |of: &[u8]| field(25, &field(1, &[field(1, b"k"), field(2, of)].concat()));
    let wrapper = nested(DEEP, |inner| field(2, &[field(1, WRAPPER.as_bytes()), field(2, inner)].concat()));
    let mut policy = round_robin();
    for _ in 0..50 {
        policy = wrr_locality(policy);
    }
    // Any.value holds the next Any.
    let anys = nested(DEEP, |inner| {
        [field(1, b"type.googleapis.com/google.protobuf.Any"), field(2, inner)].concat()
    });
    let mut unknown_policy = round_robin();
    unknown_policy.typed_config = Some(any("type.googleapis.com/google.protobuf.Any", anys));
    let mut typed_struct = round_robin();
    let content = [field(1, b"x/round_robin"), field(2, &structs)].concat();
    typed_struct.typed_config = Some(any("type.googleapis.com/xds.type.v3.TypedStruct", content));
    // Groups that begin and never end: field 1000, wire type 3.
    let groups = [0xc3, 0x3e].repeat(100_000);
    let with_policy = |policy| Resource::from(eds_cluster("cluster").lb_policy(policy)).value().clone();
    let eds = |bytes: &[u8]| any(EDS, [&field(1, b"cluster"), bytes].concat());
    vec![
        (EDS, any(WRAPPER, wrapper), "in a response of type"),
        (CDS, cluster_and(&metadata(&structs)), "does not decode"),
        (CDS, cluster_and(&metadata(&lists)), "does not decode"),
        (CDS, with_policy(policy), "load_balancing_policy"),
        (CDS, with_policy(unknown_policy), "load_balancing_policy"),
        (CDS, with_policy(typed_struct), "load_balancing_policy"),
        (CDS, cluster_and(&groups), "does not decode"),
        (EDS, eds(&groups), "does not decode"),
        (RDS, any(RDS, [&field(1, b"route"), &groups[..]].concat()), "does not decode"),
        (LDS, any(LDS, groups), "does not decode"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_any_depth_are_rejected() {
    let _shared = unmeasured().await;
    let cases = cases();
    let expected: Vec<_> = cases.iter().map(|(type_url, _, why)| (*type_url, *why)).collect();
    let attack = Attack::streams(move |mut exchange| {
        let cases = cases.clone();
        async move {
            exchange.begin(&[]);
            exchange.request().await;
            // Groups around everything: not a response at all.
            exchange.message(&[0xc3, 0x3e].repeat(100_000)).await;
            for (i, (type_url, resource, _)) in cases.into_iter().enumerate() {
                let nonce = format!("n{i}");
                exchange.respond(&response(type_url, &nonce, vec![resource])).await;
                exchange.answer_to(&nonce).await;
            }
            exchange.log.done();
            exchange.given_up().await;
        }
    });
    let seen = survives("nesting", attack, |seen| seen.done >= 1).await;
    assert_eq!(seen.nacks, expected.len(), "{:?}", seen.why);
    for (why, expected) in seen.why.iter().zip(&expected) {
        assert!(why.contains(expected.1), "{expected:?}: {why}");
    }
}

/// Aggregates of aggregates: too deep, in a loop, and with as many paths as possible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a37_aggregates_of_any_depth() {
    let _shared = unmeasured().await;
    let backend = Backend::start("a").await.unwrap();
    let plane = mesh(&[&backend]).await;
    let channel = builder(&plane).build().unwrap();
    until_only(&channel, &["a"]).await;

    for i in 0..100 {
        plane.set(aggregate_cluster(&format!("deep{i}"), [&*format!("deep{}", i + 1)]));
    }
    plane.set(simple_route_config("route", "deep0"));
    until_failure(&channel, "deep").await;

    plane.set_all([
        aggregate_cluster("circle0", ["circle1"]).into(),
        aggregate_cluster("circle1", ["circle0", "circle1"]).into(),
        simple_route_config("route", "circle0").into(),
    ]);
    until_failure(&channel, "circle0").await;

    // Ten levels of ten, each above all of the next: ten billion paths to one cluster.
    let level = |i: usize| (0..10).map(move |j| format!("level{i}-{j}")).collect::<Vec<_>>();
    for i in 0..10 {
        let below = if i < 9 { level(i + 1) } else { vec!["cluster".to_owned()] };
        let below: Vec<_> = below.iter().map(String::as_str).collect();
        plane.set_all(level(i).iter().map(|name| aggregate_cluster(name, below.clone()).into()));
    }
    plane.set(simple_route_config("route", "level0-0"));
    until_only(&channel, &["a"]).await;

    plane.set_all([simple_route_config("route", "cluster").into(), listener(SERVICE, "route").into()]);
    until_only(&channel, &["a"]).await;
    assert_eq!(ask(&channel).await.unwrap(), "a");
}
