//! Rules of gRFC A68, in a real tree.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::RandomSubsettingConfig;
use crate::api::{Endpoints, Group};
use crate::policies::round_robin::RoundRobinConfig;
use crate::policies::weighted_target::{Target, WeightedTargetConfig};
use crate::testing::{Bench, address, endpoint, endpoint_at, endpoints};

fn config(subset_size: u32) -> Arc<RandomSubsettingConfig> {
    Arc::new(RandomSubsettingConfig { subset_size, child: Arc::new(RoundRobinConfig) })
}

fn subset(bench: &Bench) -> BTreeSet<SocketAddr> {
    bench.connecting().into_iter().chain(bench.connected()).collect()
}

#[test]
fn a68_02_the_child_gets_a_subset() {
    let mut bench = Bench::new();
    bench.update(config(5), endpoints(1..=100));
    assert_eq!(subset(&bench).len(), 5);
    bench.ready_all();
    assert_eq!(bench.picked(50), subset(&bench));
}

#[test]
fn a68_03_clients_choose_different_subsets_and_stay_with_them() {
    let mut hits: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    for seed in 0..200 {
        let mut bench = Bench::with_seed(seed);
        bench.update(config(5), endpoints(1..=20));
        let chosen = subset(&bench);
        bench.update(config(5), Endpoints::of((1..=20).rev().map(endpoint)));
        assert_eq!(subset(&bench), chosen, "the order does not matter");
        chosen.into_iter().for_each(|address| *hits.entry(address).or_default() += 1);
    }
    // 50 each on average.
    assert_eq!(hits.len(), 20);
    assert!(hits.values().all(|hits| (25..=80).contains(hits)), "{hits:?}");
}

#[test]
fn a68_05_the_first_address_of_an_endpoint_counts() {
    let list = |second: u16| {
        Endpoints::of((1..=20).map(|n| endpoint_at(&[address(n), address(second + n)])).collect::<Vec<_>>())
    };
    let firsts = |bench: &Bench| subset(bench).into_iter().filter(|a| (1..=20).any(|n| *a == address(n)));
    let mut bench = Bench::new();
    bench.update(config(5), list(100));
    let before: Vec<_> = firsts(&bench).collect();
    bench.update(config(5), list(200));
    assert_eq!(firsts(&bench).collect::<Vec<_>>(), before);
}

#[test]
fn a68_06_one_server_more_or_less_changes_at_most_one_endpoint() {
    for seed in 0..50 {
        let mut bench = Bench::with_seed(seed);
        bench.update(config(5), endpoints(1..=30));
        bench.ready_all();
        let before = subset(&bench);
        bench.update(config(5), endpoints(1..=31));
        bench.ready_all();
        bench.advance(Duration::from_secs(10));
        assert!(subset(&bench).difference(&before).count() <= 1);
        bench.update(config(5), endpoints(2..=30));
        bench.ready_all();
        bench.advance(Duration::from_secs(10));
        assert!(subset(&bench).difference(&before).count() <= 1);
    }
}

#[test]
fn a68_07_all_endpoints_are_used_if_there_are_not_more() {
    let mut bench = Bench::new();
    bench.update(config(5), endpoints(1..=5));
    assert_eq!(subset(&bench).len(), 5);
    bench.update(config(500), endpoints(1..=7));
    assert_eq!(subset(&bench).len(), 7);
}

#[test]
fn a68_08_localities_are_passed_on_with_their_part_of_the_subset() {
    let target = || Target { weight: 1, config: Arc::new(RoundRobinConfig) };
    let targets = [(Arc::from("a"), target()), (Arc::from("b"), target())].into();
    let child = Arc::new(WeightedTargetConfig { targets });
    let group = |name: &str, endpoints| Group { name: name.into(), weight: 1, locality: None, endpoints };
    let groups = [group("a", endpoints(1..=10)), group("b", endpoints(11..=20))];
    let mut bench = Bench::new();
    bench
        .update(Arc::new(RandomSubsettingConfig { subset_size: 6, child }), Endpoints::Groups(groups.into()));
    bench.ready_all();
    assert_eq!(subset(&bench).len(), 6);
    assert_eq!(bench.picked(200), subset(&bench));
}

#[test]
fn a_new_size_is_used_at_once() {
    let mut bench = Bench::new();
    bench.update(config(3), endpoints(1..=50));
    let three = subset(&bench);
    bench.update(config(6), endpoints(1..=50));
    let six = subset(&bench);
    assert!(six.len() == 6 && six.is_superset(&three));
}
