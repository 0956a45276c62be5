//! Costs with many clusters and endpoints.

use std::time::Duration;

use proxyless_balancer::testing::address;

use super::world::World;
use crate::policies::fixtures::{assignment, eds_cluster, locality};

#[test]
fn one_changed_endpoint_of_a_thousand_touches_only_its_connection() {
    let mut world = World::with_routes(&[("/", "c")]);
    world.set_cluster("c", eds_cluster());
    world.set_endpoints("c", assignment(vec![vec![locality("l", 1, 1..=500), locality("m", 1, 501..=1000)]]));
    assert_eq!(world.connected(), 1000);
    world.take_connects();
    let changed = (1..=499).chain([2000]);
    world.set_endpoints("c", assignment(vec![vec![locality("l", 1, changed), locality("m", 1, 501..=1000)]]));
    assert_eq!(world.take_connects(), [address(2000)]);
    world.advance(Duration::from_secs(60));
    assert_eq!(world.take_closes(), [address(500)]);
    assert!(world.take_connects().is_empty());
}

#[test]
fn one_changed_endpoint_of_two_hundred_clusters_touches_only_its_connection() {
    let names: Vec<String> = (0..200).map(|n| format!("c{n}")).collect();
    let paths: Vec<String> = (0..200).map(|n| format!("/{n}/")).collect();
    let routes: Vec<_> = paths.iter().map(String::as_str).zip(names.iter().map(String::as_str)).collect();
    let mut world = World::with_routes(&routes);
    let endpoints = |n: u16| assignment(vec![vec![locality("l", 1, n * 5 + 1..n * 5 + 6)]]);
    for (n, name) in (0..).zip(&names) {
        world.set_cluster(name, eds_cluster());
        world.set_endpoints(name, endpoints(n));
    }
    assert_eq!(world.connected(), 1000);
    world.take_connects();
    let publishes = world.publishes;
    world.set_endpoints("c77", assignment(vec![vec![locality("l", 1, [386, 387, 388, 389, 3000])]]));
    assert_eq!(world.take_connects(), [address(3000)]);
    assert!(world.publishes - publishes <= 3, "{}", world.publishes - publishes);
    world.advance(Duration::from_secs(60));
    assert_eq!(world.take_closes(), [address(390)]);
    assert_eq!(world.connected(), 1000);
    let picked: Vec<_> = (0..5).map(|_| world.rpc("/77/x")).collect();
    assert!(picked.iter().any(|rpc| *rpc == 3000), "{picked:?}");
    let picked = world.rpc("/3/x");
    assert!((16..=20).any(|n| picked == n), "{picked:?}");
}
