//! Tests of the ring_hash policy, by rule.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use xxhash_rust::xxh64::xxh64;

use super::policy::aggregate;
use super::ring::{Member, Ring};
use super::weights::Weights;
use super::{RING_SIZE_CAP, RingHashConfig};
use crate::api::ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
use crate::api::{CallAttributes, Endpoint, Endpoints, Group, Update};
use crate::petiole::StateCounts;
use crate::policies::priority::{PriorityChild, PriorityConfig};
use crate::testing::{Bench, Picked, address, endpoint, endpoint_at, endpoints};
use proxyless_sans_io::values::EndpointExtras;

fn sized(min_ring_size: u64, max_ring_size: u64) -> RingHashConfig {
    RingHashConfig { min_ring_size, max_ring_size, request_hash_header: None }
}

fn bench(numbers: impl IntoIterator<Item = u16>) -> Bench {
    let mut bench = Bench::new();
    bench.update(Arc::new(RingHashConfig::default()), endpoints(numbers));
    bench
}

/// The hash of the first place of a key on the ring.
fn place(key: &str) -> u64 {
    xxh64(format!("{key}_0").as_bytes(), 0)
}

/// A pick whose hash falls on a place of the endpoint with this address.
fn pick_of(bench: &mut Bench, address: SocketAddr) -> Picked {
    pick(bench, place(&address.to_string()))
}

fn pick(bench: &mut Bench, hash: u64) -> Picked {
    bench.pick_with(CallAttributes { hash, ..CallAttributes::default() })
}

fn connect(bench: &mut Bench, address: SocketAddr) {
    assert_eq!(pick_of(bench, address), Picked::Queue);
    bench.ready(address);
}

#[test]
fn a42_endpoints_connect_only_for_picks() {
    let mut bench = bench(1..=3);
    assert_eq!((bench.state(), bench.connecting()), (Idle, vec![]));
    bench.exit_idle();
    assert_eq!(bench.connecting(), []);
    assert_eq!(pick_of(&mut bench, address(2)), Picked::Queue);
    assert_eq!((bench.state(), bench.connecting()), (Connecting, vec![address(2)]));
    assert_eq!(pick_of(&mut bench, address(2)), Picked::Queue, "waits for the same endpoint");
    assert_eq!(bench.connecting(), [address(2)]);
    bench.ready(address(2));
    assert_eq!((bench.state(), pick_of(&mut bench, address(2))), (Ready, Picked::Target(address(2))));
    assert_eq!(pick_of(&mut bench, address(3)), Picked::Queue, "READY elsewhere does not matter");
    assert_eq!(bench.connecting(), [address(3)]);
}

#[test]
fn a42_keys_are_addresses_and_counts() {
    let v6: SocketAddr = "[2001:db8::1]:8080".parse().unwrap();
    let mut bench = Bench::new();
    let list = Endpoints::of([endpoint(1), endpoint_at(&[v6, address(9)])]);
    bench.update(Arc::new(RingHashConfig::default()), list);
    pick(&mut bench, place("[2001:db8::1]:8080"));
    assert_eq!(bench.connecting(), [v6], "the first address of the endpoint counts (A61)");
    pick(&mut bench, place("10.0.0.1:80"));
    assert_eq!(bench.connecting(), [v6, address(1)]);
}

#[test]
fn a42_hash_beyond_the_last_place_wraps_around() {
    let ring = ring(&[("a", 1), ("b", 1)], 1, 4);
    let all = |hash| ring.walk(hash).collect::<Vec<_>>();
    assert_eq!(all(0), all(u64::MAX));
    assert_eq!(all(0).len(), 2);
}

#[test]
fn a42_lost_connection_makes_the_endpoint_idle() {
    let mut bench = bench(1..=2);
    connect(&mut bench, address(1));
    bench.close(address(1));
    assert_eq!((bench.state(), bench.connecting()), (Idle, vec![]));
    assert_eq!(pick_of(&mut bench, address(1)), Picked::Queue);
    assert_eq!(bench.connecting(), [address(1)]);
}

#[test]
fn a42_aggregation_rules() {
    let state = |ready, transient_failure, connecting, idle| {
        aggregate(&StateCounts { idle, connecting, ready, transient_failure })
    };
    assert_eq!(state(1, 5, 5, 5), Ready);
    assert_eq!(state(0, 2, 5, 5), TransientFailure);
    assert_eq!(state(0, 1, 1, 5), Connecting);
    assert_eq!(state(0, 0, 1, 5), Connecting);
    assert_eq!(state(0, 1, 0, 1), Connecting);
    assert_eq!(state(0, 0, 0, 1), Idle);
    assert_eq!(state(0, 1, 0, 0), TransientFailure);
}

#[test]
fn a61_failed_endpoint_is_passed_by() {
    let mut bench = bench(1..=2);
    connect(&mut bench, address(2));
    assert_eq!(pick_of(&mut bench, address(1)), Picked::Queue);
    bench.fail(address(1));
    assert_eq!((bench.state(), pick_of(&mut bench, address(1))), (Ready, Picked::Target(address(2))));
}

#[test]
fn a61_all_failed_shows_the_error_of_the_first() {
    let mut bench = bench([]);
    let mut update = Update::new(Arc::new(RingHashConfig::default()), endpoints(1..=2));
    update.resolution_note = Some("a note".into());
    bench.try_update(&update).unwrap();
    pick_of(&mut bench, address(1));
    bench.fail_with(address(1), "refused by one");
    bench.fail_with(address(2), "refused by two");
    assert_eq!(bench.state(), TransientFailure);
    for (n, why) in [(1, "refused by one"), (2, "refused by two")] {
        let Picked::Fail(message) = pick_of(&mut bench, address(n)) else { panic!("endpoint {n}") };
        assert!(message.contains(why) && message.ends_with("(a note)"), "{message}");
    }
}

#[test]
fn a61_attempts_go_on_without_picks() {
    let mut bench = bench(1..=4);
    pick_of(&mut bench, address(1));
    bench.fail(address(1));
    // One failed, the rest is IDLE: CONNECTING, and somebody has to be.
    assert_eq!((bench.state(), bench.connecting().len()), (Connecting, 1));
    bench.fail_all();
    assert_eq!((bench.state(), bench.connecting().len()), (TransientFailure, 1));
    bench.fail_all();
    bench.fail_all();
    assert_eq!((bench.state(), bench.connecting().len()), (TransientFailure, 0), "all were tried");
    // A62: the children try again after their backoff.
    bench.advance(Duration::from_secs(2));
    assert_eq!(bench.connecting().len(), 4);
    assert_eq!(bench.state(), TransientFailure);
    bench.ready(address(3));
    assert_eq!(bench.state(), Ready);
}

#[test]
fn a61_update_also_triggers_an_attempt() {
    let mut bench = bench(1..=1);
    pick_of(&mut bench, address(1));
    bench.fail(address(1));
    assert_eq!((bench.state(), bench.connecting()), (TransientFailure, vec![]));
    bench.update(Arc::new(RingHashConfig::default()), endpoints(1..=2));
    assert_eq!((bench.state(), bench.connecting()), (Connecting, vec![address(2)]));
}

#[test]
fn a61_order_of_addresses_does_not_make_another_endpoint() {
    let mut bench = Bench::new();
    let config = Arc::new(RingHashConfig::default());
    let list = |addresses: &[SocketAddr]| Endpoints::of([endpoint_at(addresses), endpoint(3)]);
    bench.update(config.clone(), list(&[address(1), address(2)]));
    connect(&mut bench, address(1));
    bench.take_effects();
    bench.update(config, list(&[address(2), address(1)]));
    assert_eq!(bench.take_effects(), []);
    // It has moved on the ring, to the positions of its new first address.
    assert_eq!(pick_of(&mut bench, address(2)), Picked::Target(address(1)));
}

#[test]
fn a42_update_keeps_connections_and_drops_removed_endpoints() {
    let mut bench = bench(1..=3);
    connect(&mut bench, address(1));
    connect(&mut bench, address(2));
    bench.update(Arc::new(RingHashConfig::default()), endpoints(2..=4));
    assert_eq!(pick_of(&mut bench, address(2)), Picked::Target(address(2)));
    bench.advance(Duration::from_secs(60));
    assert_eq!(bench.connected(), [address(2)].into());
}

#[test]
fn a42_update_that_changes_nothing_publishes_nothing() {
    let mut bench = bench(1..=2);
    connect(&mut bench, address(1));
    bench.take_published();
    let mut update = Update::new(Arc::new(RingHashConfig::default()), endpoints(1..=2));
    // Something that ring_hash is told and does not look at.
    update.shared = Some(Arc::new(0));
    bench.try_update(&update).unwrap();
    assert_eq!(bench.take_published(), []);
}

#[test]
fn empty_list_fails_with_the_note() {
    let mut bench = bench(1..=2);
    connect(&mut bench, address(1));
    let mut update = Update::new(Arc::new(RingHashConfig::default()), Endpoints::none());
    update.resolution_note = Some("no such name".into());
    bench.try_update(&update).unwrap();
    assert_eq!(bench.state(), TransientFailure);
    assert_eq!(pick(&mut bench, 0), Picked::Fail("empty address list (no such name)".into()));
    bench.update(Arc::new(RingHashConfig::default()), endpoints(1..=2));
    assert_eq!(bench.state(), Idle);
}

#[test]
fn a42_idle_ring_below_priority_fails_over_after_two_failures() {
    let child = |ignore| PriorityChild {
        config: Arc::new(RingHashConfig::default()),
        ignore_reresolution_requests: ignore,
    };
    let config = PriorityConfig::new([(Arc::from("p0"), child(true)), (Arc::from("p1"), child(false))]);
    let group =
        |name: &str, numbers| Group { name: name.into(), weight: 1, locality: None, endpoints: numbers };
    let groups = Endpoints::Groups([group("p0", endpoints(1..=4)), group("p1", endpoints(5..=5))].into());
    let mut bench = Bench::new();
    bench.update(Arc::new(config), groups);
    assert_eq!(bench.state(), Idle);
    assert_eq!(pick_of(&mut bench, address(1)), Picked::Queue);
    bench.fail(address(1));
    assert_eq!(bench.state(), Connecting, "the second endpoint is tried");
    bench.fail_all();
    assert_eq!(bench.state(), Idle, "p1, which has seen no pick yet");
    assert_eq!(pick_of(&mut bench, address(1)), Picked::Queue);
    bench.ready(address(5));
    assert_eq!(pick_of(&mut bench, address(1)), Picked::Target(address(5)));
    // p0 gets no picks any more, and yet it comes back.
    bench.ready_all();
    assert_ne!(pick_of(&mut bench, address(1)), Picked::Target(address(5)));
}

#[test]
fn nothing_is_left_after_shutdown() {
    let mut bench = bench(1..=3);
    connect(&mut bench, address(1));
    pick_of(&mut bench, address(2));
    bench.fail(address(2));
    bench.shutdown();
    let stats = bench.tree().stats();
    assert_eq!((stats.owners, stats.timers, stats.signals), (0, 0, 0));
}

fn ring(members: &[(&str, u32)], min_ring_size: u64, max_ring_size: u64) -> Ring {
    let member = |(key, weight): &(&str, u32)| Member { key: (*key).to_owned(), weight: *weight };
    Ring::new(members.iter().map(member).collect(), &sized(min_ring_size, max_ring_size))
}

/// How many places each member has.
fn places(ring: &Ring) -> Vec<usize> {
    let mut counts = BTreeMap::new();
    for member in ring.walk(0) {
        *counts.entry(member).or_default() += 1;
    }
    counts.into_values().collect()
}

#[test]
fn a42_lightest_member_has_a_whole_number_of_places() {
    assert_eq!(places(&ring(&[("a", 1), ("b", 1), ("c", 1)], 1024, 4096)), [342, 342, 342]);
    assert_eq!(places(&ring(&[("a", 1), ("b", 2), ("c", 5)], 1024, 4096)), [128, 256, 640]);
    assert_eq!(places(&ring(&[("a", 1), ("b", 2)], 1, 4096)), [1, 2]);
}

#[test]
fn a42_ring_size_is_limited() {
    assert_eq!(places(&ring(&[("a", 1), ("b", 1), ("c", 1)], 10, 10)).iter().sum::<usize>(), 10);
    let big = ring(&[("a", 1), ("b", 1)], 8 << 20, 8 << 20);
    assert_eq!(places(&big).iter().sum::<usize>() as u64, RING_SIZE_CAP);
    assert_eq!(places(&ring(&[("a", 1)], 0, 0)), [1]);
}

#[test]
fn a42_place_is_the_hash_of_key_and_count() {
    let ring = ring(&[("a", 1), ("b", 3)], 64, 64);
    for (member, key, count) in [(0, "a", 16), (1, "b", 48)] {
        for n in 0..count {
            let hash = xxh64(format!("{key}_{n}").as_bytes(), 0);
            assert_eq!(ring.walk(hash).next(), Some(member), "{key}_{n}");
        }
    }
    // The seed is 0: this is the published value for no input.
    assert_eq!(xxh64(b"", 0), 0xef46_db37_51d8_e999);
}

#[test]
fn a42_only_the_requests_of_a_lost_member_move() {
    let before = ring(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)], 1024, 1024);
    let after = ring(&[("a", 1), ("b", 1), ("c", 1)], 768, 768);
    let mut moved = 0;
    for n in 0..1000u64 {
        let hash = xxh64(&n.to_le_bytes(), 0);
        let (old, new) = (before.walk(hash).next().unwrap(), after.walk(hash).next().unwrap());
        moved += usize::from(old == 3);
        assert!(old == new || old == 3, "request {n} moved from {old} to {new}");
    }
    assert!((150..350).contains(&moved), "{moved}");
}

#[test]
fn a42_ring_is_rebuilt_only_for_other_members_or_limits() {
    let ring = ring(&[("a", 1), ("b", 2)], 10, 20);
    let member = |key: &str, weight| Member { key: key.into(), weight };
    let config = sized(10, 20);
    assert!(ring.is_built_from(&[member("a", 1), member("b", 2)], &config));
    assert!(!ring.is_built_from(&[member("a", 1), member("b", 3)], &config));
    assert!(!ring.is_built_from(&[member("a", 1), member("c", 2)], &config));
    assert!(
        !ring.is_built_from(
            &[member("a", 1), member("b", 2)],
            &RingHashConfig { max_ring_size: 21, ..config }
        )
    );
}

#[test]
fn a42_weights_of_localities_multiply() {
    let weighted = |n, weight| Endpoint { weight, ..endpoint(n) };
    let group = |weight, list: [Endpoint; 2]| Group {
        name: "locality".into(),
        weight,
        locality: None,
        endpoints: Endpoints::of(list),
    };
    let localities = [group(3, [weighted(1, 2), weighted(2, 1)]), group(2, [weighted(3, 3), weighted(4, 1)])];
    let weights = Weights::of(&Endpoints::Groups(localities.into()));
    // The example of the gRFC.
    assert_eq!([1, 2, 3, 4].map(|n| weights.member(&endpoint(n)).weight), [6, 3, 6, 2]);
}

#[test]
fn a42_repeated_endpoint_has_the_sum_of_the_weights() {
    let again = Endpoint { weight: 4, ..endpoint_at(&[address(2), address(1)]) };
    let list =
        [endpoint_at(&[address(1), address(2)]), endpoint(3), again, Endpoint { weight: 0, ..endpoint(5) }];
    let weights = Weights::of(&Endpoints::of(list.clone()));
    assert_eq!(list.each_ref().map(|endpoint| weights.member(endpoint).weight), [5, 1, 5, 1]);
}

#[test]
fn a76_07_the_hash_key_takes_the_place_of_the_address() {
    let with_key = |key: &str| Endpoint {
        extras: EndpointExtras { hash_key: Some(key.into()), ..Default::default() }.shared(),
        ..endpoint(1)
    };
    let key_of = |endpoint: Endpoint| Weights::of(&Endpoints::none()).member(&endpoint).key;
    assert_eq!(key_of(with_key("pod-0")), "pod-0");
    assert_eq!(key_of(with_key("")), "10.0.0.1:80");
    let mut bench = Bench::new();
    let config = Arc::new(RingHashConfig::default());
    bench.update(config.clone(), Endpoints::of([with_key("pod-0"), endpoint(2)]));
    pick(&mut bench, place("pod-0"));
    bench.ready(address(1));
    assert_eq!(pick(&mut bench, place("pod-0")), Picked::Target(address(1)));
    bench.update(config, Endpoints::of([with_key("pod-1"), endpoint(2)]));
    assert_eq!(pick(&mut bench, place("pod-1")), Picked::Target(address(1)), "its places follow its key");
}

fn by_header(numbers: impl IntoIterator<Item = u16>) -> Bench {
    let mut bench = Bench::new();
    let request_hash_header = Some(HeaderName::from_static("user"));
    bench.update(
        Arc::new(RingHashConfig { request_hash_header, ..RingHashConfig::default() }),
        endpoints(numbers),
    );
    bench
}

fn users(values: &[&'static str]) -> HeaderMap {
    values.iter().map(|&value| (HeaderName::from_static("user"), HeaderValue::from_static(value))).collect()
}

#[test]
fn a76_03_the_header_is_hashed_instead_of_the_route() {
    let mut bench = by_header(1..=5);
    for _ in 0..200 {
        bench.pick_with_headers(&users(&[]));
        bench.ready_all();
    }
    let mut owners = std::collections::BTreeSet::new();
    for user in ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "ian", "joe"] {
        let picked: Vec<_> = (0..10).map(|_| bench.pick_with_headers(&users(&[user]))).collect();
        assert!(picked.iter().all(|other| *other == picked[0]), "{user}: {picked:?}");
        owners.insert(format!("{:?}", picked[0]));
    }
    assert!(owners.len() > 1);
}

#[test]
fn a76_03_several_values_are_joined_with_a_comma() {
    let hash = |values: &[&'static str]| {
        super::picker::header_hash(&users(values), &HeaderName::from_static("user"))
    };
    assert_eq!(hash(&["a", "b"]), Some(xxh64(b"a,b", 0)));
    assert_eq!(hash(&["a,b"]), hash(&["a", "b"]));
    assert_eq!(hash(&["a"]), Some(xxh64(b"a", 0)));
    assert_eq!((hash(&[]), hash(&[""])), (None, None), "no value");
}

#[test]
fn a76_04_a76_05_without_the_header_ready_endpoints_are_picked_at_random_and_one_connects_at_a_time() {
    let mut bench = by_header(1..=4);
    assert_eq!(bench.pick_with_headers(&users(&[])), Picked::Queue);
    assert_eq!(bench.connecting().len(), 1);
    for _ in 0..20 {
        assert_eq!(bench.pick_with_headers(&users(&[])), Picked::Queue);
    }
    assert_eq!(bench.connecting().len(), 1, "one endpoint is connecting already");
    bench.ready_all();
    let first = *bench.connected().iter().next().unwrap();
    for _ in 0..20 {
        assert_eq!(bench.pick_with_headers(&users(&[])), Picked::Target(first), "a READY one, at once");
        assert!(bench.connecting().len() <= 1);
    }
    for _ in 0..100 {
        bench.ready_all();
        bench.pick_with_headers(&users(&[]));
    }
    assert_eq!(bench.connected().len(), 4, "in the end all of them");
}

#[test]
fn a76_06_if_all_endpoints_have_failed_the_first_error_is_returned() {
    let mut bench = by_header(1..=2);
    bench.pick_with_headers(&users(&[]));
    bench.fail_all();
    bench.fail_all();
    assert!(matches!(bench.pick_with_headers(&users(&[])), Picked::Fail(why) if why.contains("refused")));
}

#[test]
fn a42_defaults_of_the_configuration() {
    assert_eq!(RingHashConfig::default(), sized(1024, 4096));
    assert_eq!(sized(5000, 8 << 20).limits(), (4096, 4096));
}
