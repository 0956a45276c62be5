//! Channels that nobody uses.

use std::time::Duration;

use proxyless_balancer::api::{ConnectivityState, PickResult};
use proxyless_balancer::tree::{AttemptId, ConnectionEvent, SubchannelId, TreeStats};
use proxyless_xds::client::WatchEvent;
use proxyless_xds::resource::{ClusterKind, ResourceType};

use super::world::{Rpc, World};
use crate::channel_core::{Activity, ChannelInput};
use crate::dns::QueryId;
use crate::policies::fixtures::{assignment, cluster, eds_cluster, locality};

const TIMEOUT: Duration = Duration::from_secs(1800);

/// An EDS cluster behind `/a` and a DNS cluster behind `/d`, both connected.
fn serving() -> World {
    let mut world = World::with_routes(&[("/a", "a"), ("/d", "d")]);
    world.set_cluster("a", eds_cluster());
    world.set_cluster("d", cluster(ClusterKind::LogicalDns { host: "host".into(), port: 80 }));
    world.set_endpoints("a", assignment(vec![vec![locality("l", 1, [1, 2])]]));
    world.answer_dns("host", Ok(&[3]));
    assert_eq!((world.state(), world.connected()), (Some(ConnectivityState::Ready), 3));
    world
}

fn idle() -> World {
    let mut world = serving();
    world.activity = Activity::Unused;
    world.advance(TIMEOUT);
    assert!(world.core.is_idle());
    world
}

#[track_caller]
fn has_nothing(world: &World) {
    assert!(world.core.is_idle() && world.plane.is_none());
    assert_eq!((world.connected(), world.queries.len(), world.loads.len()), (0, 0, 0));
    assert_eq!(world.core.stats(), TreeStats::default());
    assert_eq!((world.core.next_deadline(), world.core.dns_names().count()), (None, 0));
    for resource_type in ResourceType::ALL {
        assert!(world.watched(resource_type).is_empty(), "{resource_type:?}");
    }
}

#[test]
fn a_channel_that_was_not_used_for_its_idle_timeout_gives_up_everything() {
    let mut world = serving();
    world.activity = Activity::Unused;
    world.advance(TIMEOUT - Duration::from_secs(1));
    assert_eq!((world.checks, world.connected()), (0, 3));
    world.advance(Duration::from_secs(1));
    assert_eq!(world.checks, 1);
    has_nothing(&world);
    assert_eq!(world.closed_before_idle, 0, "RPCs could have picked a connection that is closed");
    let tree = world.core.describe(world.now);
    assert_eq!((tree.state, tree.root, tree.routes.len()), (ConnectivityState::Idle, None, 0));
    // And stays so.
    world.advance(TIMEOUT * 10);
    assert_eq!(world.checks, 1);
}

#[test]
fn a_channel_in_use_is_asked_again_after_each_timeout() {
    let mut world = serving();
    world.advance(TIMEOUT * 5);
    assert_eq!((world.checks, world.connected()), (5, 3));
    world.activity = Activity::Unused;
    world.advance(TIMEOUT);
    has_nothing(&world);
}

#[test]
fn a_channel_without_idle_timeout_is_never_idle() {
    let mut world = World::with_idle_timeout(None);
    world.activity = Activity::Unused;
    world.set_routes(&[("/", "c")]);
    world.set_cluster("c", eds_cluster());
    world.set_endpoints("c", assignment(vec![vec![locality("l", 1, [1])]]));
    world.input(ChannelInput::ExitIdle);
    world.advance(TIMEOUT * 10);
    assert_eq!((world.checks, world.connected()), (0, 1));
}

#[test]
fn a_channel_that_waits_for_its_configuration_can_go_idle_too() {
    let mut world = World::new();
    world.input(ChannelInput::ExitIdle);
    world.activity = Activity::Unused;
    world.advance(TIMEOUT);
    has_nothing(&world);
}

#[test]
fn the_next_use_begins_as_the_first_one_did() {
    let mut world = idle();
    for _ in 0..3 {
        assert!(matches!(world.rpc("/a"), Rpc::Waits));
        world.input(ChannelInput::ExitIdle);
        assert_eq!(world.watched(ResourceType::Cluster), ["a", "d"]);
        world.answer_dns("host", Ok(&[4]));
        assert_eq!(world.state(), Some(ConnectivityState::Ready));
        assert!(world.rpc("/d") == 4);
        assert!(matches!(world.rpc("/a"), Rpc::To(_)));
        world.advance(TIMEOUT);
        has_nothing(&world);
    }
}

#[test]
fn changes_made_meanwhile_count() {
    let mut world = idle();
    world.set_endpoints("a", assignment(vec![vec![locality("l", 1, [7])]]));
    world.input(ChannelInput::ExitIdle);
    world.answer_dns("host", Ok(&[3]));
    assert!(world.rpc("/a") == 7);
}

#[test]
fn what_comes_late_changes_nothing() {
    let mut world = idle();
    let watch = proxyless_xds::client::WatchId(0);
    world.input(ChannelInput::Resources { events: vec![(watch, WatchEvent::Ambient(None))] });
    let event = ConnectionEvent::Closed("late".into());
    world.input(ChannelInput::Connections { events: vec![(SubchannelId(0), AttemptId(0), event)] });
    for input in [
        ChannelInput::DnsAnswer { query: QueryId(1), result: Err("late".into()) },
        ChannelInput::Activity(Activity::InUse),
        ChannelInput::Activity(Activity::Unused),
        ChannelInput::ResetBackoff,
        ChannelInput::Wake,
        ChannelInput::Tick,
    ] {
        world.input(input);
    }
    has_nothing(&world);
}

#[test]
fn an_answer_that_comes_after_the_end_is_ignored() {
    let mut world = serving();
    world.input(ChannelInput::Shutdown);
    world.input(ChannelInput::Activity(Activity::Unused));
    assert!(world.core.is_drained() && !world.core.is_idle());
}

/// An RPC that began when the driver had just counted: it holds its cluster while the channel goes IDLE under it.
#[test]
fn an_rpc_that_began_meanwhile_waits_for_its_cluster() {
    let mut world = serving();
    let (held, pick) = world.hold("/a");
    drop(pick);
    world.activity = Activity::Unused;
    world.advance(TIMEOUT);
    has_nothing(&world);
    assert!(matches!(world.pick_on(&held), PickResult::Queue));
    // Its cluster is in no route any more, and slower to come than the others.
    world.remove(ResourceType::Cluster, "a");
    world.set_routes(&[("/d", "d")]);
    world.input(ChannelInput::ExitIdle);
    world.answer_dns("host", Ok(&[3]));
    assert!(world.rpc("/d") == 3);
    assert!(matches!(world.pick_on(&held), PickResult::Queue), "it is still loading");
    world.set_cluster("a", eds_cluster());
    let PickResult::Complete(pick) = world.pick_on(&held) else { panic!("it has come") };
    drop((pick, held));
    world.run();
    assert_eq!(world.watched(ResourceType::Cluster), ["d"], "the last user is gone");
}
