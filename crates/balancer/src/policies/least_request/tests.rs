//! Rules of gRFC A48, in a real tree.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_sans_io::Rng;

use super::LeastRequestConfig;
use crate::api::ConnectivityState::{Connecting, Ready, TransientFailure};
use crate::api::{CallAttributes, CallTicket, Code, Endpoint, Endpoints, PickArgs, PickResult, WaitingCall};
use crate::testing::{Bench, Picked, address, endpoint, endpoint_at, endpoints};
use proxyless_sans_io::values::EndpointExtras;

fn config(choice_count: u32) -> Arc<LeastRequestConfig> {
    Arc::new(LeastRequestConfig { choice_count })
}

fn bench(choice_count: u32, numbers: impl IntoIterator<Item = u16>) -> Bench {
    let mut bench = Bench::new();
    bench.update(config(choice_count), endpoints(numbers));
    bench
}

/// Starts a call.
fn call(bench: &mut Bench, rng: &mut Rng) -> CallTicket {
    let headers = HeaderMap::new();
    let mut args = PickArgs { path: "/s/m", headers: &headers, attributes: CallAttributes::default(), rng };
    match bench.tree().output().picker.pick(&mut args) {
        PickResult::Complete(pick) => CallTicket::start(pick),
        other => panic!("not complete: {other:?}"),
    }
}

/// The calls in flight by endpoint, as the tree view shows them.
fn in_flight(bench: &mut Bench) -> BTreeMap<String, u64> {
    let now = bench.now();
    let details = bench.tree().describe(now).expect("a policy").details;
    details.into_iter().map(|detail| (detail.subject, detail.fields["requests"].as_u64().unwrap())).collect()
}

#[test]
fn a48_04_two_endpoints_are_sampled_by_default() {
    assert_eq!(LeastRequestConfig::default().samples(), 2);
}

#[test]
fn a48_05_a_choice_count_above_ten_counts_as_ten() {
    assert_eq!([2, 10, 11, u32::MAX].map(|n| config(n).samples()), [2, 10, 10, 10]);
}

#[test]
fn a48_07_it_connects_to_every_endpoint_and_reconnects() {
    let mut bench = bench(2, 1..=3);
    assert_eq!(bench.connecting().len(), 3);
    bench.ready_all();
    bench.take_reresolutions();
    bench.close(address(2));
    assert_eq!(bench.connecting(), [address(2)]);
    assert_eq!(bench.take_reresolutions(), 1);
    assert_eq!(bench.picked(50), [address(1), address(3)].into());
}

#[test]
fn a48_08_the_state_is_aggregated_as_in_round_robin() {
    let mut bench = bench(2, 1..=2);
    assert_eq!(bench.state(), Connecting);
    bench.fail(address(1));
    assert_eq!(bench.state(), Connecting);
    bench.fail(address(2));
    assert_eq!(bench.state(), TransientFailure);
    assert!(matches!(bench.pick(), Picked::Fail(why) if why.contains("connections to all backends failing")));
    // A failure counts until READY.
    bench.advance(Duration::from_secs(3));
    assert_eq!((bench.connecting().len(), bench.state()), (2, TransientFailure));
    bench.ready(address(1));
    assert_eq!(bench.state(), Ready);
}

#[test]
fn a48_09_counters_belong_to_one_policy() {
    // Both use the same connection.
    let target = |weight| crate::policies::weighted_target::Target { weight, config: config(10) };
    let targets = [(Arc::from("a"), target(1)), (Arc::from("b"), target(1))].into();
    let group = |name: &str, numbers: [u16; 1]| crate::api::Group {
        name: name.into(),
        weight: 1,
        locality: None,
        endpoints: endpoints(numbers),
    };
    let mut bench = Bench::new();
    let config = Arc::new(crate::policies::weighted_target::WeightedTargetConfig { targets });
    bench.update(config, Endpoints::Groups([group("a", [1]), group("b", [1])].into()));
    bench.ready_all();
    let mut rng = Rng::new(1);
    let calls: Vec<_> = (0..100).map(|_| call(&mut bench, &mut rng)).collect();
    let now = bench.now();
    let view = bench.tree().describe(now).expect("a policy");
    let counts: Vec<u64> =
        view.children.iter().map(|c| c.node.details[0].fields["requests"].as_u64().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 100);
    assert!(counts.iter().all(|&n| n > 20), "{counts:?}");
    drop(calls);
}

#[test]
fn a48_10_counters_live_as_long_as_their_endpoints() {
    let mut bench = bench(10, 1..=2);
    bench.ready_all();
    let mut rng = Rng::new(1);
    let calls: Vec<_> = (0..10).map(|_| call(&mut bench, &mut rng)).collect();
    let before = in_flight(&mut bench);
    assert_eq!(before.len(), 2);
    // Other attributes give calls a new target, but not the endpoint a new counter.
    let named = |n| Endpoint { extras: EndpointExtras::named("h"), ..endpoint(n) };
    bench.update(config(10), Endpoints::of([named(1), named(2)]));
    assert_eq!(in_flight(&mut bench), before);
    bench.update(config(10), endpoints([1]));
    assert_eq!(in_flight(&mut bench).len(), 1);
    bench.update(config(10), endpoints(1..=2));
    assert_eq!(in_flight(&mut bench).len(), 1, "the returned endpoint starts with none");
    drop(calls);
    assert!(in_flight(&mut bench).is_empty(), "calls of removed endpoints end without effect");
}

#[test]
fn a48_11_a48_12_calls_count_from_start_to_end_whatever_their_status() {
    let mut bench = bench(2, [1]);
    bench.ready_all();
    let mut rng = Rng::new(1);
    bench.picks(5);
    assert!(in_flight(&mut bench).is_empty(), "a pick is not a call");
    let mut calls: Vec<_> = (0..5).map(|_| call(&mut bench, &mut rng)).collect();
    assert_eq!(in_flight(&mut bench), [(address(1).to_string(), 5)].into());
    calls.pop().unwrap().finish(Code::Ok);
    calls.pop().unwrap().finish(Code::Internal);
    calls.pop().unwrap().unsent();
    drop(calls.pop());
    assert_eq!(in_flight(&mut bench), [(address(1).to_string(), 1)].into());
}

#[test]
fn a48_11_calls_that_wait_for_a_stream_count() {
    let mut bench = bench(2, [1]);
    bench.ready_all();
    let running = call(&mut bench, &mut Rng::new(1));
    let waiting = WaitingCall::start(running.target());
    assert_eq!(in_flight(&mut bench), [(address(1).to_string(), 2)].into());
    drop((running, waiting));
    assert!(in_flight(&mut bench).is_empty());
}

#[test]
fn a48_13_the_sampled_endpoint_with_the_fewest_calls_is_picked() {
    let mut bench = bench(10, 1..=3);
    bench.ready_all();
    let mut rng = Rng::new(1);
    // With ten samples of three, each call goes to one with the fewest, apart from 3 * (2/3)^10 of them.
    let calls: Vec<_> = (0..300).map(|_| call(&mut bench, &mut rng)).collect();
    let counts = in_flight(&mut bench);
    assert!(counts.values().all(|n| (98..=102).contains(n)), "{counts:?}");
    // The calls of one endpoint end: it gets the next ones.
    let (ended, rest): (Vec<_>, Vec<_>) =
        calls.into_iter().partition(|call| call.target().address == address(2));
    let ended = ended.into_iter().map(|call| call.finish(Code::Ok)).count();
    let next: Vec<_> = (0..ended / 2).map(|_| call(&mut bench, &mut rng)).collect();
    let to_two = next.iter().filter(|call| call.target().address == address(2)).count();
    assert!(to_two * 10 >= next.len() * 9, "{to_two} of {}", next.len());
    drop(rest);
}

#[test]
fn a48_13_without_calls_endpoints_are_picked_at_random() {
    let mut bench = bench(2, 1..=4);
    bench.ready_all();
    let picks = bench.picks(4000);
    for n in 1..=4 {
        let hits = picks.iter().filter(|&&picked| picked == address(n)).count();
        assert!((850..1150).contains(&hits), "{hits}");
    }
}

#[test]
fn a48_14_duplicate_addresses_count_once() {
    let mut bench = Bench::new();
    bench.update(config(2), Endpoints::of([endpoint(1), endpoint(1), endpoint(1), endpoint(2)]));
    assert_eq!(bench.connecting().len(), 2);
    bench.ready_all();
    let picks = bench.picks(2000);
    let ones = picks.iter().filter(|&&picked| picked == address(1)).count();
    assert!((850..1150).contains(&ones), "{ones}");
}

#[test]
fn a61_addresses_of_one_endpoint_share_a_counter() {
    let mut bench = Bench::new();
    bench.update(config(10), Endpoints::of([endpoint_at(&[address(1), address(2)]), endpoint(3)]));
    bench.ready_all();
    let mut rng = Rng::new(1);
    let calls: Vec<_> = (0..20).map(|_| call(&mut bench, &mut rng)).collect();
    let before = in_flight(&mut bench);
    // The endpoint moves to its other address with its calls.
    bench.close(address(1));
    bench.fail(address(1));
    bench.ready(address(2));
    assert_eq!(in_flight(&mut bench), before);
    drop(calls);
}

#[test]
fn a_new_choice_count_is_used_at_once() {
    let mut bench = bench(2, 1..=2);
    bench.ready_all();
    bench.take_published();
    bench.update(config(3), endpoints(1..=2));
    assert_eq!(bench.take_states(), [Ready]);
    bench.update(config(3), endpoints(1..=2));
    assert_eq!(bench.take_published(), []);
}
