//! Rules of A61 and A62, in a real tree.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::PickFirstConfig;
use crate::api::ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
use crate::api::{Endpoint, Endpoints, Security, Update};
use crate::testing::{Bench, Picked, address, endpoint, endpoint_at, endpoints};
use crate::tree::{Publication, TreeEffect};
use proxyless_sans_io::values::EndpointExtras;

const DELAY: Duration = Duration::from_millis(250);

fn config() -> Arc<PickFirstConfig> {
    Arc::new(PickFirstConfig::default())
}

fn bench(numbers: impl IntoIterator<Item = u16>) -> Bench {
    let mut bench = Bench::new();
    bench.update(config(), endpoints(numbers));
    bench
}

fn addresses(numbers: impl IntoIterator<Item = u16>) -> Vec<SocketAddr> {
    numbers.into_iter().map(address).collect()
}

#[test]
fn a61_first_address_is_tried_first_and_alone() {
    let mut bench = bench(1..=3);
    assert_eq!(bench.connecting(), addresses([1]));
    assert_eq!(bench.state(), Connecting);
    assert_eq!(bench.pick(), Picked::Queue);
    bench.ready(address(1));
    assert_eq!(bench.state(), Ready);
    assert_eq!(bench.picks(3), addresses([1, 1, 1]));
}

#[test]
fn a61_next_address_is_tried_beside_the_first_after_250_ms() {
    let mut bench = bench(1..=3);
    bench.advance(DELAY - Duration::from_nanos(1));
    assert_eq!(bench.connecting(), addresses([1]));
    bench.advance(Duration::from_nanos(1));
    assert_eq!(bench.connecting(), addresses([1, 2]));
    bench.advance(DELAY);
    assert_eq!(bench.connecting(), addresses([1, 2, 3]));
    // No timer runs for the last.
    assert_eq!(bench.tree().next_deadline(), None);
}

#[test]
fn a61_attempt_delay_stays_within_100_ms_and_2_s() {
    for (configured, effective) in [(1, 100), (100, 100), (700, 700), (2_000, 2_000), (60_000, 2_000)] {
        let mut bench = Bench::new();
        let connection_attempt_delay = Duration::from_millis(configured);
        bench.update(
            Arc::new(PickFirstConfig { connection_attempt_delay, ..PickFirstConfig::default() }),
            endpoints(1..=2),
        );
        let deadline = bench.tree().next_deadline().unwrap();
        assert_eq!(deadline.since_epoch(), Duration::from_millis(effective), "{configured}");
    }
}

#[test]
fn a61_failure_before_the_timer_moves_on_at_once() {
    let mut bench = bench(1..=3);
    bench.fail(address(1));
    assert_eq!(bench.connecting(), addresses([2]));
    assert_eq!(bench.state(), Connecting);
    // The timer is that of the second address now: only its backoff of 0.8 s and more is due later.
    let deadline = bench.tree().next_deadline().unwrap();
    assert_eq!(deadline.since(bench.now()), DELAY);
}

#[test]
fn a61_first_connection_wins_and_the_others_are_cancelled() {
    let mut bench = bench(1..=3);
    bench.advance(DELAY * 2);
    bench.take_effects();
    bench.ready(address(2));
    let cancelled = bench.take_effects();
    assert_eq!(cancelled.len(), 2, "{cancelled:?}");
    assert!(
        cancelled.iter().all(|effect| matches!(effect, TreeEffect::CancelConnect { .. })),
        "{cancelled:?}"
    );
    assert_eq!(bench.picks(2), addresses([2, 2]));
    let stats = bench.tree().stats();
    assert_eq!((stats.subchannels, stats.owners, stats.timers), (1, 1, 0));
}

#[test]
fn a61_first_pass_ends_when_every_address_has_failed() {
    let mut bench = bench(1..=3);
    bench.advance(DELAY);
    bench.fail(address(2));
    assert_eq!(bench.connecting(), addresses([1, 3]));
    bench.fail(address(3));
    assert_eq!(bench.state(), Connecting);
    assert_eq!(bench.take_reresolutions(), 0);
    bench.fail_with(address(1), "no route");
    assert_eq!(bench.state(), TransientFailure);
    assert_eq!(bench.take_reresolutions(), 1);
    let message = "failed to connect to all addresses; last error: ipv4:10.0.0.1:80: no route";
    assert_eq!(bench.pick(), Picked::Fail(message.into()));
}

#[test]
fn a61_after_the_first_pass_all_addresses_are_tried_at_all_times() {
    let mut bench = bench(1..=2);
    bench.fail(address(1));
    bench.fail(address(2));
    assert!(bench.connecting().is_empty(), "both are in backoff");
    bench.advance(Duration::from_secs(2));
    let mut connecting = bench.connecting();
    connecting.sort();
    assert_eq!(connecting, addresses([1, 2]));
    bench.ready(address(2));
    assert_eq!(bench.state(), Ready);
}

#[test]
fn a61_address_whose_backoff_ended_during_the_pass_is_tried_when_the_pass_ends() {
    let mut bench = bench(1..=2);
    bench.fail(address(1));
    bench.advance(Duration::from_secs(5));
    assert_eq!(bench.connecting(), addresses([2]), "the first one waits for the end of the pass");
    bench.fail(address(2));
    assert_eq!(bench.state(), TransientFailure);
    assert!(bench.connecting().contains(&address(1)));
}

#[test]
fn a61_as_many_failures_as_subchannels_resolve_again() {
    let mut bench = bench(1..=2);
    bench.fail_all();
    bench.fail_all();
    assert_eq!(bench.take_reresolutions(), 1);
    for round in 1..=3 {
        bench.advance(Duration::from_secs(10));
        bench.fail(address(1));
        assert_eq!(bench.take_reresolutions(), 0, "round {round}");
        bench.fail_with(address(2), &format!("round {round}"));
        assert_eq!(bench.take_reresolutions(), 1, "round {round}");
        // The newest error is shown.
        let expected =
            format!("failed to connect to all addresses; last error: ipv4:10.0.0.2:80: round {round}");
        assert_eq!(bench.pick(), Picked::Fail(expected));
    }
}

#[test]
fn a62_transient_failure_is_sticky_until_ready() {
    let mut bench = bench(1..=2);
    bench.fail_all();
    bench.fail_all();
    bench.take_states();
    bench.advance(Duration::from_secs(2));
    assert!(!bench.connecting().is_empty());
    // Neither attempts nor a new address list leave TRANSIENT_FAILURE.
    bench.update(config(), endpoints(2..=4));
    bench.advance(Duration::from_secs(1));
    assert!(bench.take_states().iter().all(|&state| state == TransientFailure));
    assert_eq!(bench.state(), TransientFailure);
    bench.ready(address(3));
    assert_eq!(bench.state(), Ready);
}

#[test]
fn a113_01_endpoints_are_shuffled_by_weight() {
    let config = || Arc::new(PickFirstConfig { shuffle_address_list: true, ..PickFirstConfig::default() });
    let share = |weights: [u32; 3], n: u16| {
        let firsts = (0..3_000).filter(|&seed| {
            let mut bench = Bench::with_seed(seed);
            let list = (1..=3).zip(weights).map(|(n, weight)| Endpoint { weight, ..endpoint(n) });
            bench.update(config(), Endpoints::of(list));
            bench.connecting() == [address(n)]
        });
        firsts.count() as f64 / 3_000.0
    };
    for (weights, expected) in [([1, 1, 1], 1.0 / 3.0), ([6, 3, 1], 0.6), ([1 << 30, 1 << 29, 1 << 29], 0.5)]
    {
        let found = share(weights, 1);
        assert!((found - expected).abs() < 0.04, "{weights:?}: {found}");
    }
}

#[test]
fn a62_shuffle_changes_the_order_of_endpoints_only() {
    let pairs: Vec<Endpoint> = (0..20).map(|n| endpoint_at(&[address(2 * n), address(2 * n + 1)])).collect();
    let order = |seed: u64, shuffle_address_list: bool| {
        let mut bench = Bench::with_seed(seed);
        let config = PickFirstConfig { shuffle_address_list, ..PickFirstConfig::default() };
        bench.update(Arc::new(config), Endpoints::of(pairs.clone()));
        bench.advance(DELAY * 40);
        bench.connecting()
    };
    assert_eq!(order(1, false), addresses(0..40));
    let shuffled = order(1, true);
    assert_ne!(shuffled, addresses(0..40));
    assert_ne!(shuffled, order(2, true));
    for pair in shuffled.chunks(2) {
        let &[first, second] = pair else { panic!("{pair:?}") };
        assert!((0..20).any(|n| (first, second) == (address(2 * n), address(2 * n + 1))), "{pair:?}");
    }
}

#[test]
fn a61_subchannel_in_backoff_is_skipped_by_a_new_pass() {
    let mut bench = bench(1..=2);
    bench.fail(address(1));
    bench.update(config(), endpoints([1, 3]));
    // 1 is in backoff: the pass begins with 3, and 2 is cancelled.
    assert_eq!(bench.connecting(), addresses([3]));
    bench.fail(address(3));
    assert_eq!(bench.state(), TransientFailure);
}

#[test]
fn a61_connecting_subchannel_is_treated_as_asked_by_a_new_pass() {
    let mut bench = bench(1..=2);
    bench.take_effects();
    bench.update(config(), endpoints([1, 3]));
    assert_eq!(bench.take_effects(), [], "the attempt to the first address goes on");
    bench.advance(DELAY);
    assert_eq!(bench.connecting(), addresses([1, 3]));
}

#[test]
fn a61_new_pass_over_all_failing_addresses_fails_at_once() {
    let mut bench = bench(1..=2);
    bench.fail(address(1));
    bench.update(config(), endpoints([1]));
    assert_eq!(bench.state(), TransientFailure);
    assert_eq!(bench.take_reresolutions(), 1);
}

#[test]
fn update_with_the_selected_address_keeps_the_connection_without_a_gap() {
    let mut bench = bench(1..=2);
    bench.ready(address(1));
    bench.take_effects();
    bench.take_published();
    bench.update(config(), endpoints([3, 1]));
    assert_eq!(bench.take_effects(), []);
    assert_eq!(bench.take_published(), []);
    assert_eq!(bench.picks(1), addresses([1]));
}

#[test]
fn update_of_the_host_name_reaches_calls_and_keeps_the_connection() {
    let mut bench = bench([1]);
    bench.ready(address(1));
    bench.take_effects();
    bench.take_published();
    let named = Endpoint { extras: EndpointExtras::named("b.example"), ..endpoint(1) };
    bench.update(config(), Endpoints::of([named]));
    assert_eq!(bench.take_effects(), []);
    assert_eq!(bench.take_published(), [(Publication::Changed, Ready)]);
    assert_eq!(bench.picks(1), addresses([1]));
    assert_eq!(bench.tree().stats().owners, 1);
    // Events of the new handle arrive.
    bench.close(address(1));
    assert_eq!(bench.state(), Idle);
}

#[test]
fn a29_09_other_security_means_another_connection_and_calls_wait_for_it() {
    let mut bench = bench([1]);
    bench.ready(address(1));
    bench.take_effects();
    let secured = |id| Endpoint { security: Some(Arc::new(Security::new(id, ()))), ..endpoint(1) };
    bench.update(config(), Endpoints::of([secured(1)]));
    assert_eq!(bench.pick(), Picked::Queue);
    bench.exit_idle();
    let effects = bench.take_effects();
    let [TreeEffect::Connect { address: to, security: Some(security), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((*to, security.id()), (address(1), 1));
    assert_eq!(bench.pick(), Picked::Queue, "the old connection takes no more calls");
    // Settings that change during an attempt replace it.
    bench.update(config(), Endpoints::of([secured(2)]));
    let effects = bench.take_effects();
    let of_two = |effect: &TreeEffect| matches!(effect, TreeEffect::Connect { security: Some(to), .. } if to.id() == 2);
    assert!(effects.iter().any(of_two), "{effects:?}");
    let cancelled = |effect: &TreeEffect| matches!(effect, TreeEffect::CancelConnect { .. });
    assert!(effects.iter().any(cancelled), "{effects:?}");
}

#[test]
fn a86_13_another_proxy_means_another_connection_and_calls_wait_for_it() {
    let mut bench = bench([1]);
    bench.ready(address(1));
    bench.take_effects();
    let proxied = |n| Endpoint {
        extras: EndpointExtras { proxy: Some(Arc::new(address(n))), ..Default::default() }.shared(),
        ..endpoint(1)
    };
    bench.update(config(), Endpoints::of([proxied(8)]));
    assert_eq!(bench.pick(), Picked::Queue, "the direct connection takes no more calls");
    bench.exit_idle();
    let through = |effects: &[TreeEffect]| {
        let connects = effects.iter().filter_map(|effect| match effect {
            TreeEffect::Connect { address, proxy, .. } => Some((*address, proxy.as_deref().copied())),
            _ => None,
        });
        connects.collect::<Vec<_>>()
    };
    assert_eq!(through(&bench.take_effects()), [(address(1), Some(address(8)))]);
    // A proxy that changes during an attempt replaces it.
    bench.update(config(), Endpoints::of([proxied(9)]));
    let effects = bench.take_effects();
    assert_eq!(through(&effects), [(address(1), Some(address(9)))]);
    let cancelled = |effect: &TreeEffect| matches!(effect, TreeEffect::CancelConnect { .. });
    assert!(effects.iter().any(cancelled), "{effects:?}");
    // An equal address is the same proxy.
    bench.ready(address(1));
    bench.update(config(), Endpoints::of([proxied(9)]));
    assert_eq!(bench.take_effects(), []);
    assert_eq!(bench.picks(1), addresses([1]));
}

#[test]
fn update_of_the_weight_alone_changes_nothing() {
    let mut bench = bench([1]);
    bench.ready(address(1));
    bench.take_published();
    bench.update(config(), Endpoints::of([Endpoint { weight: 7, ..endpoint(1) }]));
    assert_eq!(bench.take_published(), []);
}

#[test]
fn update_without_the_selected_address_goes_idle() {
    let mut bench = bench(1..=2);
    bench.ready(address(1));
    bench.update(config(), endpoints([2]));
    assert_eq!(bench.state(), Idle);
    assert!(bench.connecting().is_empty());
    assert_eq!(bench.pick(), Picked::Queue);
    assert_eq!(bench.connecting(), addresses([2]));
    assert_eq!(bench.state(), Connecting);
}

#[test]
fn lost_connection_goes_idle_until_an_rpc_comes() {
    for go_away in [true, false] {
        let mut bench = bench(1..=2);
        bench.ready(address(1));
        bench.take_published();
        if go_away {
            bench.go_away(address(1))
        } else {
            bench.close(address(1))
        }
        assert_eq!(bench.take_published(), [(Publication::Changed, Idle)]);
        assert_eq!(bench.take_reresolutions(), 1);
        bench.advance(Duration::from_secs(600));
        assert!(bench.connecting().is_empty());
        assert_eq!(bench.pick(), Picked::Queue);
        assert_eq!(bench.connecting(), addresses([1]), "the search begins with the first address");
        bench.ready(address(1));
        assert_eq!(bench.state(), Ready);
    }
}

#[test]
fn exit_idle_connects_without_an_rpc() {
    let mut bench = bench([1]);
    bench.ready(address(1));
    bench.exit_idle();
    assert_eq!(bench.state(), Ready, "no effect unless IDLE");
    bench.close(address(1));
    bench.exit_idle();
    assert_eq!(bench.connecting(), addresses([1]));
    assert_eq!(bench.state(), Connecting);
}

#[test]
fn update_while_idle_waits_for_an_rpc() {
    let mut bench = bench([1]);
    bench.ready(address(1));
    bench.close(address(1));
    bench.update(config(), endpoints([2]));
    assert_eq!(bench.state(), Idle);
    assert!(bench.connecting().is_empty());
    bench.pick();
    assert_eq!(bench.connecting(), addresses([2]));
}

#[test]
fn a74_empty_list_fails_with_the_resolution_note_and_resolves_again() {
    let mut bench = bench([1]);
    bench.ready(address(1));
    let mut update = Update::new(config(), Endpoints::none());
    update.resolution_note = Some("DNS said nothing".into());
    bench.try_update(&update).unwrap();
    assert_eq!(bench.state(), TransientFailure);
    assert_eq!(bench.pick(), Picked::Fail("no addresses (DNS said nothing)".into()));
    assert_eq!(bench.take_reresolutions(), 1);
    assert_eq!(bench.tree().stats().owners, 0);
    bench.update(config(), endpoints([2]));
    bench.ready(address(2));
    assert_eq!(bench.picks(1), addresses([2]));
}

#[test]
fn a61_renewed_subchannel_in_backoff_does_not_count_as_a_new_failure() {
    let mut bench = bench(1..=3);
    (1..=3).for_each(|n| bench.fail(address(n)));
    let named = Endpoint { extras: EndpointExtras::named("a.example"), ..endpoint(1) };
    bench.update(config(), Endpoints::of([named, endpoint(2), endpoint(3)]));
    bench.take_reresolutions();
    bench.advance(Duration::from_secs(10));
    bench.fail(address(1));
    bench.fail(address(2));
    assert_eq!(bench.take_reresolutions(), 0);
    bench.fail(address(3));
    assert_eq!(bench.take_reresolutions(), 1);
}

#[test]
fn a62_failure_is_over_once_ready() {
    let mut bench = bench([1]);
    bench.fail(address(1));
    bench.advance(Duration::from_secs(2));
    bench.ready(address(1));
    bench.advance(Duration::from_secs(1));
    bench.close(address(1));
    bench.exit_idle();
    assert_eq!(bench.state(), Connecting);
    assert_eq!(bench.pick(), Picked::Queue);
}

#[test]
fn connections_that_are_lost_at_once_count_as_failures() {
    let mut bench = bench([1]);
    // The first loss is followed by an attempt at once.
    bench.ready(address(1));
    bench.close(address(1));
    bench.exit_idle();
    assert_eq!(bench.state(), Connecting);
    bench.ready(address(1));
    bench.close(address(1));
    bench.exit_idle();
    assert_eq!(bench.state(), TransientFailure);
    bench.advance(Duration::from_secs(2));
    bench.ready(address(1));
    assert_eq!(bench.state(), Ready);
}

#[test]
fn a_single_address_runs_no_timer() {
    let mut bench = bench([1]);
    assert_eq!(bench.tree().next_deadline(), None);
}

#[test]
fn ten_thousand_failing_addresses_end_the_pass_without_recursion() {
    let mut bench = bench(1..=10_000);
    for n in 1..=10_000 {
        bench.fail(address(n));
    }
    assert_eq!(bench.state(), TransientFailure);
    assert_eq!(bench.take_reresolutions(), 1);
}
