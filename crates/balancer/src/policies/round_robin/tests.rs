//! Rules of round_robin, in a real tree.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::RoundRobinConfig;
use crate::api::ConnectivityState::{Connecting, Ready, TransientFailure};
use crate::api::{Endpoint, Endpoints, Update};
use crate::testing::{Bench, Picked, address, endpoint, endpoint_at, endpoints};
use crate::tree::TreeEffect;
use proxyless_sans_io::values::EndpointExtras;

fn config() -> Arc<RoundRobinConfig> {
    Arc::new(RoundRobinConfig)
}

fn bench(numbers: impl IntoIterator<Item = u16>) -> Bench {
    let mut bench = Bench::new();
    bench.update(config(), endpoints(numbers));
    bench
}

fn counts(picks: &[SocketAddr]) -> BTreeMap<SocketAddr, usize> {
    let mut counts = BTreeMap::new();
    picks.iter().for_each(|&address| *counts.entry(address).or_default() += 1);
    counts
}

#[test]
fn a27_91_rpcs_are_spread_round_robin() {
    let mut bench = bench(1..=3);
    bench.ready_all();
    let picks = bench.picks(9);
    assert_eq!(counts(&picks), (1..=3).map(|n| (address(n), 3)).collect());
    assert_eq!(picks[..3], picks[3..6], "the order repeats");
}

#[test]
fn connects_to_all_endpoints_and_is_ready_with_the_first() {
    let mut bench = bench(1..=3);
    assert_eq!(bench.connecting().len(), 3);
    assert_eq!(bench.state(), Connecting);
    assert_eq!(bench.pick(), Picked::Queue);
    bench.ready(address(2));
    assert_eq!(bench.state(), Ready);
    assert_eq!(bench.picks(2), [address(2); 2]);
    bench.ready(address(3));
    assert_eq!(bench.picked(2), [address(2), address(3)].into());
}

#[test]
fn fails_only_when_all_endpoints_fail_and_shows_the_last_error() {
    let mut bench = bench(1..=2);
    bench.fail(address(1));
    assert_eq!(bench.state(), Connecting);
    bench.fail_with(address(2), "no route");
    assert_eq!(bench.state(), TransientFailure);
    let message = "connections to all backends failing; last error: ipv4:10.0.0.2:80: no route";
    assert_eq!(bench.pick(), Picked::Fail(message.into()));
}

#[test]
fn a61_sticky_failure_counts_until_ready() {
    let mut bench = bench(1..=2);
    bench.fail(address(1));
    bench.fail(address(2));
    bench.take_states();
    for _ in 0..5 {
        bench.advance(Duration::from_secs(200));
        assert!(!bench.connecting().is_empty(), "it goes on trying");
        bench.fail_all();
    }
    assert!(bench.take_states().iter().all(|&state| state == TransientFailure));
    bench.advance(Duration::from_secs(200));
    bench.ready(address(2));
    assert_eq!(bench.state(), Ready);
}

#[test]
fn a_failure_that_is_not_shown_publishes_nothing() {
    let mut bench = bench(1..=100);
    bench.fail_all();
    assert_eq!(bench.state(), TransientFailure);
    bench.take_published();
    bench.advance(Duration::from_secs(200));
    assert_eq!(bench.connecting().len(), 100);
    for n in 1..100 {
        bench.fail_with(address(n), "another error");
    }
    assert_eq!(bench.take_published(), []);
    bench.fail_with(address(100), "another error");
    assert_eq!(bench.take_states(), [TransientFailure]);
    assert!(
        matches!(bench.pick(), Picked::Fail(message) if message.ends_with("10.0.0.100:80: another error"))
    );
}

#[test]
fn a61_disconnected_endpoint_is_connected_again_without_an_rpc() {
    let mut bench = bench(1..=2);
    bench.ready_all();
    bench.take_reresolutions();
    bench.go_away(address(1));
    assert_eq!(bench.state(), Ready);
    assert_eq!(bench.connecting(), [address(1)]);
    assert_eq!(bench.take_reresolutions(), 1);
    assert_eq!(bench.picks(2), [address(2); 2]);
    bench.ready(address(1));
    assert_eq!(bench.picked(2).len(), 2);
}

#[test]
fn a61_last_endpoint_lost_is_connecting_not_idle() {
    let mut bench = bench([1]);
    bench.ready_all();
    bench.take_states();
    bench.close(address(1));
    assert_eq!(bench.take_states(), [Connecting]);
    bench.fail(address(1));
    assert_eq!(bench.state(), TransientFailure);
}

#[test]
fn a61_order_of_addresses_keeps_the_child() {
    let both = [address(1), address(2)];
    let mut bench = Bench::new();
    bench.update(config(), Endpoints::of([endpoint_at(&both)]));
    bench.fail(address(1));
    bench.ready(address(2));
    bench.take_effects();
    bench.take_published();
    bench.update(config(), Endpoints::of([endpoint_at(&[address(2), address(1)])]));
    assert_eq!(bench.take_effects(), []);
    assert_eq!(bench.take_published(), []);
    bench.close(address(2));
    assert_eq!(bench.connecting(), [address(2)], "the new order holds");
}

#[test]
fn a61_addresses_of_one_endpoint_get_one_share() {
    let mut bench = Bench::new();
    let list = [endpoint_at(&[address(1), address(2)]), endpoint(3)];
    bench.update(config(), Endpoints::of(list));
    bench.ready_all();
    assert_eq!(counts(&bench.picks(10)), [(address(1), 5), (address(3), 5)].into());
}

#[test]
fn one_endpoint_of_a_thousand_changes_one_connection() {
    let mut bench = bench(1..=1_000);
    bench.ready_all();
    bench.take_effects();
    bench.take_published();
    bench.update(config(), endpoints((1..1_000).chain([2_000])));
    let effects = bench.take_effects();
    assert!(
        matches!(effects[..], [TreeEffect::Connect { address: to, .. }] if to == address(2_000)),
        "{effects:?}"
    );
    assert_eq!(bench.take_states(), [Ready], "one picker, without the endpoint that left");
    bench.advance(Duration::from_secs(5));
    let effects = bench.take_effects();
    assert!(matches!(effects[..], [TreeEffect::CloseGracefully { .. }]), "{effects:?}");
    assert!(!bench.connected().contains(&address(1_000)));
    assert_eq!(bench.connected().len(), 999);
}

#[test]
fn events_that_change_nothing_for_rpcs_publish_nothing() {
    let mut bench = bench(1..=10);
    bench.ready(address(1));
    bench.take_published();
    (2..=10).for_each(|n| bench.fail(address(n)));
    bench.advance(Duration::from_secs(100));
    bench.update(config(), endpoints(1..=20));
    bench.advance(Duration::from_secs(100));
    assert_eq!(bench.take_published(), []);
}

#[test]
fn the_position_continues_when_the_picker_is_rebuilt() {
    let mut bench = bench(1..=4);
    bench.ready_all();
    let before = bench.picks(2);
    bench.update(config(), endpoints((1..=4).chain([9])));
    bench.ready(address(9));
    bench.update(config(), endpoints(1..=4));
    let after = bench.picks(2);
    let all: std::collections::BTreeSet<_> = before.iter().chain(&after).collect();
    assert_eq!(all.len(), 4, "{before:?} {after:?}");
}

#[test]
fn clients_start_at_different_endpoints() {
    let firsts: std::collections::BTreeSet<_> = (0..50)
        .map(|seed| {
            let mut bench = Bench::with_seed(seed);
            bench.update(config(), endpoints(1..=10));
            bench.ready_all();
            bench.picks(1)[0]
        })
        .collect();
    assert!(firsts.len() > 5, "{firsts:?}");
}

#[test]
fn a74_empty_list_fails_with_the_resolution_note() {
    let mut bench = bench(1..=2);
    bench.ready_all();
    let mut update = Update::new(config(), Endpoints::none());
    update.resolution_note = Some("EDS has no endpoints".into());
    bench.try_update(&update).unwrap();
    assert_eq!(bench.state(), TransientFailure);
    assert_eq!(bench.pick(), Picked::Fail("no endpoints (EDS has no endpoints)".into()));
    assert_eq!(bench.tree().stats().owners, 0);
}

#[test]
fn a74_resolution_note_is_added_once_and_follows_updates() {
    let mut bench = bench([1]);
    bench.fail(address(1));
    let mut update = Update::new(config(), endpoints([1]));
    update.resolution_note = Some("stale data".into());
    bench.try_update(&update).unwrap();
    let message =
        "connections to all backends failing; last error: ipv4:10.0.0.1:80: connection refused (stale data)";
    assert_eq!(bench.pick(), Picked::Fail(message.into()));
}

#[test]
fn duplicate_endpoints_count_once() {
    let mut bench = Bench::new();
    bench.update(config(), Endpoints::of([endpoint(1), endpoint(1), endpoint(2)]));
    bench.ready_all();
    assert_eq!(counts(&bench.picks(10)), [(address(1), 5), (address(2), 5)].into());
}

#[test]
fn change_of_an_endpoints_attributes_rebuilds_only_the_picker() {
    let mut bench = bench(1..=3);
    bench.ready_all();
    bench.take_effects();
    bench.take_published();
    let named = Endpoint { extras: EndpointExtras::named("b"), ..endpoint(2) };
    bench.update(config(), Endpoints::of([endpoint(1), named, endpoint(3)]));
    assert_eq!(bench.take_effects(), []);
    assert_eq!(bench.take_states(), [Ready]);
    assert_eq!(bench.picked(3).len(), 3);
}
