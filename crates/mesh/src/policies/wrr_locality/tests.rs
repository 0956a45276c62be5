use std::sync::Arc;

use proxyless_balancer::api::{ConnectivityState, Endpoints, Group};
use proxyless_balancer::policies::round_robin::RoundRobinConfig;
use proxyless_balancer::testing::{Bench, Picked, address, endpoints};

use super::WrrLocalityConfig;

fn group(name: &str, weight: u32, numbers: impl IntoIterator<Item = u16>) -> Group {
    Group { name: name.into(), weight, locality: None, endpoints: endpoints(numbers) }
}

fn config() -> Arc<WrrLocalityConfig> {
    Arc::new(WrrLocalityConfig { child: Arc::new(RoundRobinConfig) })
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
