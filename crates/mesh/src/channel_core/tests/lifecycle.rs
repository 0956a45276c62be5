//! A channel from its start to its shutdown.

use std::time::Duration;

use proxyless_balancer::api::ConnectivityState;
use proxyless_xds::resource::{ClusterKind, ResourceType};

use super::world::{Backend, Rpc, World};
use crate::channel_core::ChannelInput;
use crate::policies::fixtures::{assignment, cluster, eds_cluster, locality};

#[test]
fn a27_35_nothing_happens_before_the_first_use() {
    let mut world = World::new();
    world.input(ChannelInput::Tick);
    assert!(world.watched(ResourceType::Listener).is_empty());
    assert!(world.core.next_deadline().is_none());
    world.input(ChannelInput::ExitIdle);
    assert_eq!(world.watched(ResourceType::Listener), ["service"]);
}

#[test]
fn first_rpc_waits_for_each_resource_and_then_goes_out() {
    let mut world = World::with_routes(&[("/", "c")]);
    assert!(world.plane.is_none(), "routes without their clusters are not published");
    world.set_cluster("c", eds_cluster());
    assert!(world.plane.is_none());
    assert!(matches!(world.rpc("/s/m"), Rpc::Waits));
    world.set_endpoints("c", assignment(vec![vec![locality("l", 1, [1])]]));
    assert_eq!(world.state(), Some(ConnectivityState::Ready));
    assert!(world.rpc("/s/m") == 1);
}

#[test]
fn a74_an_error_drops_the_configuration_and_fails_rpcs() {
    let mut world = World::with_routes(&[("/", "c")]);
    world.set_cluster("c", eds_cluster());
    world.set_endpoints("c", assignment(vec![vec![locality("l", 1, [1])]]));
    world.remove(ResourceType::Listener, "service");
    assert_eq!(world.state(), Some(ConnectivityState::TransientFailure));
    let Rpc::Fails(why) = world.rpc("/s/m") else { panic!() };
    assert!(why.contains("service") && why.contains("does not exist"), "{why}");
    assert!(world.watched(ResourceType::Cluster).is_empty(), "{:?}", world.watched(ResourceType::Cluster));
    world.advance(Duration::from_secs(60));
    assert_eq!(world.connected(), 0);
    // It comes back.
    world.set_routes(&[("/", "c")]);
    assert!(world.rpc("/s/m") == 1);
}

#[test]
fn a_repeated_error_is_not_published() {
    let mut world = World::new();
    world.input(ChannelInput::ExitIdle);
    world.remove(ResourceType::Listener, "service");
    let publishes = world.publishes;
    world.remove(ResourceType::Listener, "service");
    assert_eq!((publishes, world.publishes), (1, 1));
}

#[test]
fn reset_backoff_tries_again_at_once() {
    let mut world = World::with_routes(&[("/", "c")]);
    world.set_backend(1, Backend::Refuses);
    world.set_cluster("c", eds_cluster());
    world.set_endpoints("c", assignment(vec![vec![locality("l", 1, [1])]]));
    assert!(matches!(world.rpc("/s/m"), Rpc::Fails(_)));
    world.set_backend(1, Backend::Accepts);
    world.input(ChannelInput::ResetBackoff);
    assert!(world.rpc("/s/m") == 1);
}

#[test]
fn a74_a_cluster_that_does_not_exist_fails_only_its_own_rpcs() {
    let mut world = World::with_routes(&[("/a", "a"), ("/b", "b")]);
    for name in ["a", "b"] {
        world.set_cluster(name, eds_cluster());
    }
    world.set_endpoints("a", assignment(vec![vec![locality("l", 1, [1])]]));
    world.set_endpoints("b", assignment(vec![vec![locality("l", 1, [2])]]));
    world.remove(ResourceType::Cluster, "b");
    assert!(world.rpc("/a") == 1);
    let Rpc::Fails(why) = world.rpc("/b") else { panic!() };
    assert!(why.contains("Cluster b"), "{why}");
}

#[test]
fn a_snapshot_comes_only_with_news() {
    let mut world = World::with_routes(&[("/", "c")]);
    world.set_cluster("c", eds_cluster());
    world.set_endpoints("c", assignment(vec![vec![locality("l", 1, [1])]]));
    let (publishes, plane) = (world.publishes, world.plane.clone().expect("a snapshot"));
    // Equal endpoints in another allocation, equal routes, and the passing of time.
    world.set_endpoints("c", assignment(vec![vec![locality("l", 1, [1])]]));
    world.input(ChannelInput::Tick);
    world.input(ChannelInput::Wake);
    assert_eq!(world.publishes, publishes);
    // A lost connection makes waiting RPCs look again.
    world.kill(1);
    assert!(world.publishes > publishes);
    assert!(world.plane.expect("a snapshot").generation > plane.generation);
}

#[test]
fn shutdown_closes_everything() {
    let mut world = World::with_routes(&[("/a", "a"), ("/d", "d")]);
    world.set_cluster("a", eds_cluster());
    world.set_cluster("d", cluster(ClusterKind::LogicalDns { host: "host".into(), port: 80 }));
    world.set_endpoints("a", assignment(vec![vec![locality("l", 1, [1, 2])]]));
    world.answer_dns("host", Ok(&[3]));
    assert_eq!(world.connected(), 3);
    world.set_cluster("d", cluster(ClusterKind::LogicalDns { host: "other".into(), port: 80 }));
    assert_eq!(world.queries.len(), 1);
    assert!(!world.core.is_drained());
    world.input(ChannelInput::Shutdown);
    assert_eq!(world.connected(), 0);
    assert!(world.queries.is_empty());
    for resource_type in ResourceType::ALL {
        assert!(world.watched(resource_type).is_empty(), "{resource_type:?}");
    }
    assert!(world.core.is_drained());
    assert!(world.core.next_deadline().is_none());
    // Late inputs change nothing.
    world.input(ChannelInput::ExitIdle);
    assert!(world.core.is_drained());
}
