//! Failover between priorities and between the leaves of an aggregate.

use std::sync::Arc;
use std::time::Duration;

use proxyless_xds::resource::{
    AggregateClusterConfig, ClusterKind, ClusterLoadAssignment, CookieSession, HttpFilter, HttpFilterConfig,
    Resource,
};

use super::world::{Backend, Rpc, World};
use crate::policies::fixtures::{aggregate_cluster, assignment, cluster, eds_cluster, locality};

/// Priorities with one endpoint each.
fn priorities(numbers: &[u16]) -> ClusterLoadAssignment {
    assignment(numbers.iter().map(|&n| vec![locality(&format!("l{n}"), 1, [n])]).collect())
}

fn one_cluster(numbers: &[u16], backends: &[(u16, Backend)]) -> World {
    let mut world = World::with_routes(&[("/", "c")]);
    for &(n, backend) in backends {
        world.set_backend(n, backend);
    }
    world.set_cluster("c", eds_cluster());
    world.set_endpoints("c", priorities(numbers));
    world
}

#[test]
fn a56_a_refused_connection_moves_on_without_waiting_for_the_timer() {
    let mut world = one_cluster(&[1, 2], &[(1, Backend::Refuses)]);
    assert!(world.rpc("/s/m") == 2, "no time has passed");
}

#[test]
fn a56_a_silent_primary_is_left_at_the_timer() {
    let mut world = one_cluster(&[1, 2], &[(1, Backend::Silent)]);
    world.advance(Duration::from_millis(9_999));
    assert!(matches!(world.rpc("/s/m"), Rpc::Waits));
    world.advance(Duration::from_millis(1));
    assert!(world.rpc("/s/m") == 2);
}

#[test]
fn a55_a56_a_session_filter_that_comes_or_goes_forgets_no_failover() {
    let mut world = one_cluster(&[1, 2], &[(1, Backend::Silent)]);
    world.advance(Duration::from_secs(10));
    assert!(world.rpc("/s/m") == 2);
    world.take_connects();
    let session = CookieSession { name: "session".into(), path: "".into(), ttl: Duration::ZERO };
    let config = HttpFilterConfig::StatefulSession(Some(Arc::new(session)));
    let filter = HttpFilter { name: "session".into(), config };
    for filters in [vec![filter.clone()], vec![], vec![filter]] {
        world.set_filters(&[("/", "c")], filters);
        assert!(world.rpc("/s/m") == 2, "no RPC queues because of an edit");
        assert!(world.take_connects().is_empty() && world.take_closes().is_empty());
    }
}

#[test]
fn a56_fails_back_as_soon_as_the_primary_is_ready() {
    let mut world = one_cluster(&[1, 2], &[]);
    assert!(world.rpc("/s/m") == 1);
    // A connection that lived a second resets the backoff.
    world.advance(Duration::from_secs(1));
    world.kill(1);
    assert!(world.rpc("/s/m") == 2);
    world.set_backend(1, Backend::Accepts);
    // The next attempt is at most one backoff away.
    world.advance(Duration::from_millis(1_200));
    assert!(world.rpc("/s/m") == 1);
}

#[test]
fn a_lost_connection_that_no_pick_uses_still_bumps_the_snapshot() {
    let mut world = one_cluster(&[1, 2], &[]);
    world.advance(Duration::from_secs(1));
    world.kill(1);
    world.set_backend(1, Backend::Accepts);
    world.advance(Duration::from_millis(1_200));
    assert!(world.rpc("/s/m") == 1);
    let before = world.plane.clone().expect("a snapshot");
    // A call that got this connection from an older picker would otherwise wait forever.
    world.kill(2);
    let after = world.plane.clone().expect("a snapshot");
    assert!(after.generation > before.generation);
    assert!(Arc::ptr_eq(&after.picker, &before.picker));
}

#[test]
fn a56_all_priorities_down_fails_with_the_reason() {
    let mut world = one_cluster(&[1, 2], &[(1, Backend::Refuses), (2, Backend::Refuses)]);
    let Rpc::Fails(why) = world.rpc("/s/m") else { panic!() };
    assert!(why.contains("connection refused"), "{why}");
}

#[test]
fn a37_27_localities_that_move_between_priorities_keep_their_connections() {
    let mut world = one_cluster(&[1, 2], &[(1, Backend::Refuses)]);
    assert!(world.rpc("/s/m") == 2);
    world.set_backend(1, Backend::Accepts);
    world.advance(Duration::from_secs(2));
    assert!(world.rpc("/s/m") == 1);
    assert_eq!(world.connected(), 2);
    world.take_connects();
    world.take_closes();
    world.set_endpoints("c", priorities(&[2, 1]));
    assert!(world.rpc("/s/m") == 2);
    // Both into one priority, then apart again.
    world.set_endpoints("c", assignment(vec![vec![locality("l1", 1, [1]), locality("l2", 1, [2])]]));
    world.set_endpoints("c", priorities(&[1, 2]));
    assert!(world.rpc("/s/m") == 1);
    world.advance(Duration::from_secs(1));
    assert!(world.take_connects().is_empty(), "{:?}", world.connects);
    assert!(world.take_closes().is_empty(), "{:?}", world.closes);
}

fn load(world: &mut World) {
    world.set_cluster("near", eds_cluster());
    world.set_cluster("far", eds_cluster());
    world.set_endpoints("near", priorities(&[1]));
    world.set_endpoints("far", priorities(&[2]));
}

fn aggregate() -> World {
    let mut world = World::with_routes(&[("/", "agg")]);
    load(&mut world);
    world.set_cluster("agg", aggregate_cluster(&["near", "far"]));
    world
}

#[test]
fn a75_07_an_aggregate_fails_over_and_back() {
    let mut world = aggregate();
    assert!(world.rpc("/s/m") == 1);
    world.advance(Duration::from_secs(1));
    world.kill(1);
    assert!(world.rpc("/s/m") == 2);
    world.set_backend(1, Backend::Accepts);
    world.advance(Duration::from_millis(1_200));
    assert!(world.rpc("/s/m") == 1);
}

#[test]
fn a56_a_silent_leaf_is_left_at_the_timer() {
    let mut world = World::with_routes(&[("/", "agg")]);
    world.set_backend(1, Backend::Silent);
    load(&mut world);
    world.set_cluster("agg", aggregate_cluster(&["near", "far"]));
    world.advance(Duration::from_millis(9_999));
    assert!(matches!(world.rpc("/s/m"), Rpc::Waits));
    world.advance(Duration::from_millis(1));
    assert!(world.rpc("/s/m") == 2);
}

#[test]
fn a99_12_a_new_cluster_config_alone_reorders_the_leaves() {
    let mut world = World::with_routes(&[("/", "agg")]);
    load(&mut world);
    let leaves = |names: &[&str]| {
        let clusters = names.iter().map(|&name| name.into()).collect();
        Resource::AggregateClusterConfig(Arc::new(AggregateClusterConfig { clusters }))
    };
    world.set_cluster("agg", cluster(ClusterKind::AggregateResource { name: "leaves".into() }));
    assert!(matches!(world.rpc("/s/m"), Rpc::Waits));
    world.set("leaves", leaves(&["near", "far"]));
    assert!(world.rpc("/s/m") == 1);
    world.set("leaves", leaves(&["far", "near"]));
    assert!(world.rpc("/s/m") == 2);
    world.set("leaves", leaves(&["near"]));
    assert!(world.rpc("/s/m") == 1);
    world.advance(Duration::from_secs(60));
    assert_eq!(world.connected(), 1);
}

#[test]
fn a99_12_reordering_the_leaves_moves_traffic_without_a_gap() {
    let mut world = aggregate();
    assert!(world.rpc("/s/m") == 1);
    world.set_backend(2, Backend::Silent);
    world.set_cluster("agg", aggregate_cluster(&["far", "near"]));
    assert!(world.rpc("/s/m") == 1, "the old leaf serves until the new first one is READY");
    world.take_closes();
    world.set_cluster("agg", aggregate_cluster(&["near", "far"]));
    assert!(world.rpc("/s/m") == 1);
    world.set_backend(2, Backend::Accepts);
    world.advance(Duration::from_secs(30));
    world.set_cluster("agg", aggregate_cluster(&["far", "near"]));
    assert!(world.rpc("/s/m") == 2);
}

#[test]
fn a_lower_leaf_that_is_not_loaded_holds_up_nothing() {
    let mut world = World::with_routes(&[("/", "agg")]);
    world.set_cluster("near", eds_cluster());
    world.set_endpoints("near", priorities(&[1]));
    world.set_cluster("agg", aggregate_cluster(&["near", "far"]));
    assert!(world.rpc("/s/m") == 1);
    world.kill(1);
    assert!(matches!(world.rpc("/s/m"), Rpc::Waits), "the far leaf is still to come: never a failure");
    world.set_cluster("far", eds_cluster());
    world.set("far", Resource::ClusterLoadAssignment(Arc::new(priorities(&[2]))));
    assert!(world.rpc("/s/m") == 2);
}
