//! The hash of a request (gRFC A42).

use proxyless_xds::resource::{HashPolicy, HashPolicyKind, HeaderRewrite};
use xxhash_rust::xxh64::xxh64;

use super::*;

const CHANNEL: u64 = 0x1234_5678_9abc_def0;

fn on(name: &str) -> HashPolicy {
    HashPolicy { kind: HashPolicyKind::Header { name: name.into(), rewrite: None }, terminal: false }
}

fn channel_id() -> HashPolicy {
    HashPolicy { kind: HashPolicyKind::ChannelId, terminal: false }
}

fn terminal(policy: HashPolicy) -> HashPolicy {
    HashPolicy { terminal: true, ..policy }
}

fn hash(policies: Vec<HashPolicy>, headers: &HeaderMap, rng: &mut Rng) -> u64 {
    let mut route = to("c");
    route.action.as_mut().expect("it forwards").hash_policies = policies;
    let table = table(vec![route]);
    table.select("/", headers, &mut Rng::new(0)).expect("a route").route.hash(
        headers,
        ChannelHash(CHANNEL),
        rng,
    )
}

/// The hash of policies that give one, without random numbers.
fn sure(policies: Vec<HashPolicy>, headers: &HeaderMap) -> u64 {
    let (one, other) =
        (hash(policies.clone(), headers, &mut Rng::new(1)), hash(policies, headers, &mut Rng::new(2)));
    assert_eq!(one, other, "random");
    one
}

#[test]
fn a42_header_is_hashed_with_xxh64() {
    let user = headers(&[("user", "alice")]);
    assert_eq!(sure(vec![on("user")], &user), xxh64(b"alice", 0));
    assert_eq!(xxh64(b"", 0), 0xef46_db37_51d8_e999, "the reference value of XXH64");
}

#[test]
fn a42_policies_are_combined_by_rotation_and_xor() {
    let both = headers(&[("a", "1"), ("b", "2")]);
    let expected = xxh64(b"1", 0).rotate_left(1) ^ xxh64(b"2", 0);
    assert_eq!(sure(vec![on("a"), on("b")], &both), expected);
    assert_ne!(sure(vec![on("b"), on("a")], &both), expected);
    assert_ne!(sure(vec![on("a"), on("a")], &both), 0, "equal policies do not cancel out");
    assert_eq!(sure(vec![on("a"), on("absent"), on("b")], &both), expected, "no result changes nothing");
}

#[test]
fn a42_channel_id_is_the_same_for_every_rpc() {
    assert_eq!(sure(vec![channel_id()], &HeaderMap::new()), CHANNEL);
}

#[test]
fn a42_terminal_policy_ends_the_list_once_there_is_a_hash() {
    let a = headers(&[("a", "1")]);
    assert_eq!(sure(vec![terminal(on("a")), channel_id()], &a), xxh64(b"1", 0));
    assert_eq!(sure(vec![terminal(on("absent")), channel_id()], &a), CHANNEL);
    let expected = xxh64(b"1", 0);
    assert_eq!(sure(vec![on("a"), terminal(on("absent")), channel_id()], &a), expected);
}

#[test]
fn a42_random_only_if_no_policy_gives_a_hash() {
    let none = HeaderMap::new();
    for policies in [vec![], vec![on("absent")]] {
        let mut rng = Rng::new(1);
        let (first, second) = (hash(policies.clone(), &none, &mut rng), hash(policies, &none, &mut rng));
        assert_ne!(first, second);
    }
}

#[test]
fn a42_headers_are_seen_as_by_route_matching() {
    let all = headers(&[("h", "a"), ("h", "b"), ("h-bin", "x"), ("content-type", "text/plain")]);
    assert_eq!(sure(vec![on("h")], &all), xxh64(b"a,b", 0));
    assert_eq!(sure(vec![on("content-type")], &all), xxh64(b"application/grpc", 0));
    assert_eq!(sure(vec![on("h-bin"), channel_id()], &all), CHANNEL);
}

#[test]
fn a42_rewrite_comes_before_hashing() {
    let rewrite = HeaderRewrite { regex: regex("/session/([0-9]+)/[a-z]+"), substitution: "s$1".into() };
    let kind = HashPolicyKind::Header { name: "p".into(), rewrite: Some(rewrite) };
    let policy = HashPolicy { kind, terminal: false };
    assert_eq!(sure(vec![policy.clone()], &headers(&[("p", "/session/7/x")])), xxh64(b"s7", 0));
    assert_eq!(
        sure(vec![policy], &headers(&[("p", "other")])),
        xxh64(b"other", 0),
        "a value that does not match is hashed unchanged"
    );
}
