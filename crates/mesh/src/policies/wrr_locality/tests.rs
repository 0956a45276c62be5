use std::sync::Arc;

use proxyless_balancer::api::{ConnectivityState, Endpoints, Group, PolicyConfig};
use proxyless_balancer::policies::ring_hash::RingHashConfig;
use proxyless_balancer::policies::round_robin::RoundRobinConfig;
use proxyless_balancer::testing::{Bench, Picked, address, endpoints};

use super::WrrLocalityConfig;
use crate::endpoints::Grouping;

fn group(name: &str, weight: u32, numbers: impl IntoIterator<Item = u16>) -> Group {
    Group { name: name.into(), weight, locality: None, endpoints: endpoints(numbers) }
}

fn config() -> Arc<WrrLocalityConfig> {
    Arc::new(WrrLocalityConfig { child: Arc::new(RoundRobinConfig), grouping: Grouping::Flat })
}

fn share(bench: &mut Bench, n: u16) -> f64 {
    let picks = bench.picks(20_000);
    picks.iter().filter(|&&picked| picked == address(n)).count() as f64 / picks.len() as f64
}

#[test]
fn a27_97_localities_get_their_share_by_weight() {
    let mut bench = Bench::new();
    bench.update(config(), Endpoints::Groups(Arc::new([group("a", 3, [1]), group("b", 1, [2])])));
    bench.ready_all();
    let a = share(&mut bench, 1);
    assert!((a - 0.75).abs() < 0.02, "{a}");
}

#[test]
fn a27_97_new_weights_touch_no_connection() {
    let mut bench = Bench::new();
    bench.update(config(), Endpoints::Groups(Arc::new([group("a", 3, [1]), group("b", 1, [2])])));
    bench.ready_all();
    bench.take_effects();
    bench.update(config(), Endpoints::Groups(Arc::new([group("a", 1, [1]), group("b", 1, [2])])));
    let a = share(&mut bench, 1);
    assert!((a - 0.5).abs() < 0.02, "{a}");
    assert!(bench.take_effects().is_empty());
}

#[test]
fn a27_91_endpoints_of_a_locality_are_used_in_turn() {
    let mut bench = Bench::new();
    bench.update(config(), Endpoints::Groups(Arc::new([group("a", 1, 1..=3)])));
    bench.ready_all();
    let picks = bench.picks(3000);
    assert!((1..=3).all(|n| picks.iter().filter(|&&picked| picked == address(n)).count() == 1000));
}

#[test]
fn without_localities_rpcs_fail() {
    let mut bench = Bench::new();
    bench.update(config(), Endpoints::none());
    assert_eq!(bench.state(), ConnectivityState::TransientFailure);
    assert!(matches!(bench.pick(), Picked::Fail(_)));
}

/// This many levels of the policy around another.
fn levels(levels: usize, inner: Arc<dyn PolicyConfig>) -> Arc<dyn PolicyConfig> {
    (0..levels).fold(inner, |child, level| {
        let grouping = if level == 0 { Grouping::Flat } else { Grouping::Localities };
        Arc::new(WrrLocalityConfig { child, grouping })
    })
}

#[test]
fn a52_11_levels_of_the_policy_see_the_same_localities() {
    for depth in 1..=4 {
        let mut bench = Bench::new();
        let localities = [group("a", 3, [1]), group("b", 1, 2..=3)];
        bench.update(levels(depth, Arc::new(RoundRobinConfig)), Endpoints::Groups(Arc::new(localities)));
        bench.ready_all();
        let (a, b) = (share(&mut bench, 1), share(&mut bench, 2));
        assert!((a - 0.75).abs() < 0.02 && (b - 0.125).abs() < 0.02, "{depth} levels: {a} {b}");
        let now = bench.now();
        let mut node = &bench.tree().describe(now).expect("a policy");
        for _ in 0..depth {
            let weighted_target = &node.children[0].node;
            let named: Vec<_> =
                weighted_target.children.iter().map(|child| (&*child.name, child.weight)).collect();
            assert!(named.contains(&("a", Some(3))), "{named:?}");
            node = &weighted_target.children[0].node;
        }
        assert_eq!((&*node.policy, node.endpoints.len()), ("round_robin", 1));
    }
}

#[test]
fn a52_11_a52_13_new_weights_and_endpoints_reach_the_innermost_level() {
    let mut bench = Bench::new();
    let config = || levels(3, Arc::new(RoundRobinConfig));
    bench.update(config(), Endpoints::Groups(Arc::new([group("a", 3, [1]), group("b", 1, [2])])));
    bench.ready_all();
    bench.take_effects();
    bench.update(config(), Endpoints::Groups(Arc::new([group("a", 1, [1]), group("b", 3, [2])])));
    assert!(bench.take_effects().is_empty());
    assert!((share(&mut bench, 1) - 0.25).abs() < 0.02);
    bench.update(config(), Endpoints::Groups(Arc::new([group("a", 1, [1, 3])])));
    bench.ready_all();
    assert_eq!(bench.picked(100), [address(1), address(3)].into());
    bench.update(config(), Endpoints::none());
    assert!(matches!(bench.pick(), Picked::Fail(why) if why.contains("no children")));
}

#[test]
fn a27_97_a42_a52_lazy_policies_share_by_weight_on_every_level() {
    for depth in 1..=3 {
        let mut bench = Bench::new();
        let localities = [group("a", 3, [1]), group("b", 1, [2])];
        bench.update(
            levels(depth, Arc::new(RingHashConfig::default())),
            Endpoints::Groups(Arc::new(localities)),
        );
        for _ in 0..200 {
            bench.pick();
            bench.ready_all();
        }
        let a = share(&mut bench, 1);
        assert!((a - 0.75).abs() < 0.02, "{depth} levels: {a}");
    }
}
