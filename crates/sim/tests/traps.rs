//! The known traps of this design, each as a scenario on the real cores.

mod common;

use std::time::Duration;

use common::{
    PATH, Result, Scenario as _, add_cluster, failed, idle_world, one_cluster, reached, world, world_of_seed,
    world_with,
};
use proxyless_sim::Behaviour;
use proxyless_sim::script::config::{
    Assignment, Cluster, Endpoint, Health, Listener, Locality, Mesh, backend, route,
};
use proxyless_sim::script::{Action, Change, Fault, Loss, ServerHabits};
use proxyless_sim::world::{Outcome, World};
use proxyless_xds::client::ResourceStatus;
use proxyless_xds::resource::ResourceType;

const SECOND: Duration = Duration::from_secs(1);
const SLOW: Behaviour = Behaviour::Accepts(Duration::from_secs(15));

#[test]
fn trap_01_failover_timer_is_not_restarted_by_another_connecting() -> Result {
    let mut world = world(one_cluster(&[&[1], &[2]]));
    for silent in [1, 3, 4] {
        world.behave(silent, Behaviour::Silent)?;
    }
    world.start()?;
    // Each new locality makes the first priority report CONNECTING again.
    let mut edit = Assignment::of(&[&[1], &[2]]);
    for (n, zone) in [(3, "x"), (4, "y")] {
        world.run_secs(4.5)?;
        edit.priorities[0].push(Locality { zone: zone.into(), weight: 1, endpoints: vec![Endpoint::new(n)] });
        world.set(Change::Assignment("e0".into(), edit.clone()))?;
    }
    world.run_secs(0.5)?;
    assert_eq!(world.rpc()?, Outcome::Waits);
    world.run_secs(1.0)?;
    reached(&world.rpc()?, 2);
    // Nor does it take RPCs from the serving priority.
    edit.priorities[0].remove(1);
    world.set(Change::Assignment("e0".into(), edit))?;
    world.serves(SECOND, &[2])?;
    Ok(())
}

#[test]
fn trap_01_failover_timer_starts_again_after_ready() -> Result {
    let mut world = world(one_cluster(&[&[1], &[2]]));
    world.start()?;
    world.run_secs(1.0)?;
    reached(&world.rpc()?, 1);
    world.behave(1, Behaviour::Silent)?;
    world.run_secs(9.5)?;
    assert_eq!(world.rpc()?, Outcome::Waits);
    world.run_secs(1.0)?;
    reached(&world.rpc()?, 2);
    Ok(())
}

#[test]
fn trap_02_end_of_the_failover_timer_does_not_fail_the_child() -> Result {
    let mut world = world(one_cluster(&[&[1], &[2]]));
    world.behave(1, SLOW)?;
    world.behave(2, Behaviour::Refuses)?;
    world.start()?;
    world.run_secs(13.0)?;
    assert_eq!(world.rpc()?, Outcome::Waits, "the first priority still connects");
    world.run_secs(3.0)?;
    reached(&world.rpc()?, 1);
    Ok(())
}

#[test]
fn trap_03_update_of_all_priorities_is_one_step() -> Result {
    let mut world = world(one_cluster(&[&[1], &[2], &[3]]));
    world.start()?;
    world.run_secs(1.0)?;
    for priorities in [[&[2][..], &[3], &[1]], [&[3], &[1], &[2]], [&[1], &[2], &[3]]] {
        world.set(Change::Assignment("e0".into(), Assignment::of(&priorities)))?;
        // More than one snapshot per input breaks an invariant; a choice in the middle would make RPCs wait.
        world.serves(SECOND, &[1, 2, 3])?;
        let first = priorities[0][0];
        reached(&world.rpc()?, first);
    }
    Ok(())
}

#[test]
fn trap_06_does_not_exist_timer_waits_for_the_stream() -> Result {
    let mut world = world(one_cluster(&[&[1]]));
    world.act(Action::OpenDelay(Duration::from_secs(40)))?;
    world.start()?;
    world.run_secs(39.0)?;
    assert_eq!(world.rpc()?, Outcome::Waits);
    world.run_secs(2.0)?;
    reached(&world.rpc()?, 1);
    Ok(())
}

#[test]
fn trap_06_does_not_exist_timer_ends_with_its_stream() -> Result {
    let mut world = world(one_cluster(&[&[1]]));
    world.act(Action::Fault((ResourceType::RouteConfiguration, "r0".into()), Fault::Withheld))?;
    world.start()?;
    // Long enough for the next stream to follow at once.
    world.run_secs(10.5)?;
    world.act(Action::CutStream(Loss::Nothing))?;
    world.run_secs(14.0)?;
    assert_eq!((world.rpc()?, world.streams()), (Outcome::Waits, 2));
    world.run_secs(1.5)?;
    failed(&world.rpc()?, "does not exist");
    world.act(Action::Heal((ResourceType::RouteConfiguration, "r0".into())))?;
    world.run_secs(1.0)?;
    reached(&world.rpc()?, 1);
    Ok(())
}

#[test]
fn trap_06_cached_resources_have_no_timer_on_the_next_stream() -> Result {
    let mut world = world(one_cluster(&[&[1]]));
    world.start()?;
    world.run_secs(1.0)?;
    for kind in ResourceType::ALL.into_iter().filter(|kind| !kind.all_resources_required_in_sotw()) {
        for name in ["r0", "e0"] {
            world.act(Action::Fault((kind, name.into()), Fault::Withheld))?;
        }
    }
    world.act(Action::CutStream(Loss::Everything))?;
    assert_eq!(world.serves(Duration::from_secs(40), &[1])?, [1]);
    for resource in world.xds().dump() {
        assert_eq!(resource.status, ResourceStatus::Acked, "{}", resource.name);
    }
    Ok(())
}

#[test]
fn trap_07_rejected_resource_is_not_missing() -> Result {
    let cluster = || (ResourceType::Cluster, "c0".to_owned());
    let mut world = world(one_cluster(&[&[1]]));
    world.act(Action::Fault(cluster(), Fault::Bad))?;
    world.start()?;
    world.run_secs(1.0)?;
    failed(&world.rpc()?, "rejected");
    world.run_secs(30.0)?;
    failed(&world.rpc()?, "rejected");
    world.act(Action::Heal(cluster()))?;
    world.run_secs(1.0)?;
    // A bad update and a lost stream keep the good resources in use.
    world.act(Action::Fault(cluster(), Fault::Bad))?;
    world.serves(Duration::from_secs(20), &[1])?;
    world.act(Action::RefuseStreams)?;
    world.act(Action::CutStream(Loss::Everything))?;
    world.serves(Duration::from_secs(20), &[1])?;
    Ok(())
}

#[test]
fn trap_08_cascading_watches_do_not_stop_the_stream() -> Result {
    for seed in 0..50 {
        let mut mesh = one_cluster(&[&[1]]);
        mesh.listeners.insert("l1".into(), Listener::Rds("r0".into()));
        mesh.routes.insert("r0".into(), vec![route("/a/", "g0")]);
        mesh.clusters.insert("g0".into(), Cluster::list("x0"));
        mesh.lists.insert("x0".into(), vec!["g1".into(), "c0".into()]);
        mesh.clusters.insert("g1".into(), Cluster::aggregate(&["c1"]));
        add_cluster(&mut mesh, 1, &[&[2]]);
        let mut world = world_of_seed(mesh, seed);
        world.start()?;
        world.act(Action::Start(1))?;
        world.run_secs(8.0)?;
        for channel in [0, 1] {
            reached(&world.probe(channel, PATH)?.1, 2);
        }
    }
    Ok(())
}

#[test]
fn trap_07_server_that_resends_what_was_rejected_gets_one_nack_a_second() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    add_cluster(&mut mesh, 1, &[&[2]]);
    let mut world = world_with(mesh, 1, ServerHabits { resends_rejected: true, ..ServerHabits::default() });
    let assignment = || (ResourceType::ClusterLoadAssignment, "e0".to_owned());
    world.start()?;
    world.run_secs(1.0)?;
    world.act(Action::Fault(assignment(), Fault::Bad))?;
    world.serves(Duration::from_secs(30), &[1])?;
    let nacks = world.model().nacks();
    assert!((25..=32).contains(&nacks), "{nacks} NACKs in 30 s");
    // Meanwhile new names of the same type are requested.
    world.set_routes(vec![route("/a/", "c1")])?;
    world.run_secs(2.0)?;
    reached(&world.rpc()?, 2);
    world.act(Action::Heal(assignment()))?;
    world.set_routes(vec![route("/a/", "c0")])?;
    world.run_secs(2.0)?;
    reached(&world.rpc()?, 1);
    world.model().at_rest(&world.watched())
}

#[test]
fn trap_09_nonces_end_with_their_stream_and_versions_do_not() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    mesh.clusters.insert("d0".into(), Cluster::dns("h.test"));
    mesh.hosts.insert("h.test".into(), vec![backend(2)]);
    let mut world = world(mesh);
    world.start()?;
    world.run_secs(1.0)?;
    // The ADS model checks every request from here on.
    world.act(Action::CutStream(Loss::Nothing))?;
    world.run_secs(2.0)?;
    assert_eq!(world.streams(), 2);
    world.act(Action::Fault((ResourceType::ClusterLoadAssignment, "e0".into()), Fault::Bad))?;
    world.run_secs(1.0)?;
    // No endpoints are watched: the empty list must be sent, and must not mean a wildcard.
    world.set_routes(vec![route("/a/", "d0")])?;
    world.run_secs(1.0)?;
    reached(&world.rpc()?, 2);
    world.model().at_rest(&world.watched())?;
    world.act(Action::Heal((ResourceType::ClusterLoadAssignment, "e0".into())))?;
    world.set_routes(vec![route("/a/", "c0")])?;
    world.run_secs(1.0)?;
    reached(&world.rpc()?, 1);
    world.model().at_rest(&world.watched())
}

#[test]
fn trap_10_routes_and_clusters_change_together() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    add_cluster(&mut mesh, 1, &[&[2]]);
    mesh.clusters.insert("g0".into(), Cluster::aggregate(&["c0", "c1"]));
    let mut world = world(mesh);
    world.start()?;
    world.run_secs(1.0)?;
    world.act(Action::ServerDelay(Duration::from_secs(3)))?;
    world.set_routes(vec![route("/a/", "c1")])?;
    let served = world.serves(Duration::from_secs(8), &[1])?;
    assert_eq!(served, [1], "routes, clusters and endpoints take three answers");
    // New endpoints have to connect first; RPCs wait for nothing else.
    world.run_secs(1.5)?;
    reached(&world.rpc()?, 2);
    // A resource that was unsubscribed a moment ago would be known at once.
    world.run_secs(30.0)?;
    // An aggregate counts as known when its first leaf is.
    world.set_routes(vec![route("/a/", "g0")])?;
    assert_eq!(world.serves(Duration::from_secs(11), &[2])?, [2], "and here it takes four");
    world.run_secs(1.5)?;
    reached(&world.rpc()?, 1);
    Ok(())
}

#[test]
fn trap_11_cluster_lives_as_long_as_its_calls() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    add_cluster(&mut mesh, 1, &[&[2]]);
    let mut world = world(mesh);
    world.behave(1, Behaviour::Accepts(Duration::from_secs(5)))?;
    world.start()?;
    world.run_secs(1.0)?;
    world.call(Duration::from_secs(20))?;
    world.set_routes(vec![route("/a/", "c1")])?;
    world.run_secs(10.0)?;
    reached(&world.rpc()?, 2);
    let watched = |world: &World| world.watched().contains(&(ResourceType::Cluster, "c0".into()));
    assert!(watched(&world), "the waiting call is in flight");
    world.run_secs(20.0)?;
    assert_eq!((world.calls().succeeded, world.calls().failed), (1, 0));
    assert!(!watched(&world));
    Ok(())
}

#[test]
fn trap_12_aggregates_keep_their_order_share_leaves_and_may_be_knotted() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    add_cluster(&mut mesh, 1, &[&[2]]);
    mesh.routes.insert("r0".into(), vec![route("/a/", "g0"), route("/b/", "g2")]);
    mesh.clusters.insert("g0".into(), Cluster::aggregate(&["g1", "c0"]));
    mesh.clusters.insert("g1".into(), Cluster::aggregate(&["ghost", "c1", "g0"]));
    mesh.clusters.insert("g2".into(), Cluster::aggregate(&["c1", "c0", "g2"]));
    let mut world = world(mesh);
    world.start()?;
    // RPCs wait for the missing cluster above the first leaf until the resource timer expires.
    world.run_secs(16.0)?;
    for path in [PATH, "/b/m"] {
        reached(&world.probe(0, path)?.1, 2);
    }
    world.behave(2, Behaviour::Refuses)?;
    world.run_secs(5.0)?;
    for path in [PATH, "/b/m"] {
        reached(&world.probe(0, path)?.1, 1);
    }
    Ok(())
}

#[test]
fn trap_13_change_of_an_aggregates_list_leaves_no_gap() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    add_cluster(&mut mesh, 1, &[&[2]]);
    add_cluster(&mut mesh, 2, &[&[3]]);
    mesh.routes.insert("r0".into(), vec![route("/a/", "g0")]);
    mesh.clusters.insert("g0".into(), Cluster::list("x0"));
    mesh.lists.insert("x0".into(), vec!["c0".into()]);
    mesh.lists.insert("x1".into(), vec!["c2".into(), "c0".into()]);
    let mut world = world(mesh);
    world.start()?;
    world.run_secs(1.0)?;
    world.act(Action::ServerDelay(SECOND))?;
    // A different list under the same name, a different name, an inline list, and back.
    world.set(Change::List("x0".into(), vec!["c1".into(), "c0".into()]))?;
    assert_eq!(world.serves(Duration::from_secs(6), &[1, 2])?, [1, 2]);
    world.set(Change::Cluster("g0".into(), Cluster::list("x1")))?;
    assert_eq!(world.serves(Duration::from_secs(6), &[1, 2, 3])?.last(), Some(&3));
    world.set(Change::Cluster("g0".into(), Cluster::aggregate(&["c1", "c2"])))?;
    assert_eq!(world.serves(Duration::from_secs(6), &[2, 3])?.last(), Some(&2));
    world.set(Change::Cluster("g0".into(), Cluster::list("x0")))?;
    assert_eq!(world.serves(Duration::from_secs(6), &[1, 2])?.last(), Some(&2));
    Ok(())
}

#[test]
fn trap_15_edits_of_endpoints_do_not_reconnect() -> Result {
    let mut world = world(one_cluster(&[&[1, 2]]));
    world.start()?;
    world.run_secs(1.0)?;
    let connects = |world: &World| world.channel(0).map(|channel| channel.connects);
    assert_eq!(connects(&world), Some(2));
    // A different order, weight and locality, and a new priority below.
    let mut edits = vec![Assignment::of(&[&[2, 1]]); 4];
    edits[1].priorities[0][0].weight = 7;
    edits[2].priorities[0][0].zone = "elsewhere".into();
    edits[3] = Assignment::of(&[&[1, 2], &[3]]);
    for edit in edits {
        world.set(Change::Assignment("e0".into(), edit))?;
        world.serves(SECOND, &[1, 2])?;
    }
    assert_eq!(connects(&world), Some(2));
    Ok(())
}

#[test]
fn trap_16_what_is_sent_again_wakes_nobody() -> Result {
    let mut world = world(one_cluster(&[&[1, 2], &[3]]));
    world.start()?;
    world.run_secs(1.0)?;
    let publishes = |world: &World| world.channel(0).map(|channel| channel.publishes);
    let before = publishes(&world);
    for kind in ResourceType::ALL {
        world.act(Action::SendAgain(kind))?;
        world.run_secs(1.0)?;
    }
    world.act(Action::CutStream(Loss::Nothing))?;
    world.run_secs(1.0)?;
    // Different bytes with the same meaning: an endpoint that is not usable.
    let mut edit = Assignment::of(&[&[1, 2], &[3]]);
    edit.priorities[0][0].endpoints.push(Endpoint { health: Health::Unhealthy, ..Endpoint::new(4) });
    world.set(Change::Assignment("e0".into(), edit))?;
    world.run_secs(1.0)?;
    assert_eq!(publishes(&world), before);
    Ok(())
}

/// The mesh is served at all: the scenarios above depend on it.
#[test]
fn an_empty_mesh_fails_calls_after_fifteen_seconds() -> Result {
    let mut world = world(Mesh::default());
    world.start()?;
    world.run_secs(14.5)?;
    assert_eq!(world.rpc()?, Outcome::Waits);
    world.run_secs(1.0)?;
    failed(&world.rpc()?, "does not exist");
    world.shut_down()
}

#[test]
fn trap_a_backend_that_hangs_up_at_once_gets_one_connection_per_backoff() -> Result {
    let mut world = world(one_cluster(&[&[1], &[2]]));
    world.behave(1, Behaviour::HangsUp)?;
    world.start()?;
    // The simulator limits the rate of attempts; and the next priority serves as after any failure.
    world.run_secs(60.0)?;
    reached(&world.rpc()?, 2);
    let connects: u64 = world.channels().map(|channel| channel.connects).sum();
    assert!((5..=12).contains(&connects), "{connects}");
    // A connection that stays up is used, and its end is followed by the next attempt at once.
    world.behave(1, Behaviour::Accepts(Duration::from_millis(1)))?;
    world.run_secs(60.0)?;
    reached(&world.rpc()?, 1);
    world.act(Action::GoAway(backend(1)))?;
    world.run_secs(1.0)?;
    reached(&world.rpc()?, 1);
    Ok(())
}

/// An RPC that begins when its channel has just been found unused waits for fresh configuration; it does not fail.
#[test]
fn trap_25_rpcs_outlive_a_channel_that_goes_idle_under_them() -> Result {
    let timeout = Duration::from_secs(10);
    // Calls on a connection that is then closed, and calls that wait for one.
    for behaviour in [Behaviour::Accepts(Duration::ZERO), SLOW] {
        let mut races = 0;
        for seed in 0..200 {
            let mut mesh = one_cluster(&[&[1]]);
            add_cluster(&mut mesh, 1, &[&[2]]);
            let mut world = idle_world(mesh, seed, timeout);
            world.behave(1, behaviour)?;
            world.start()?;
            // The channel asks at the end of the timeout, and gets the answer a moment later.
            world.run_for(timeout + Duration::from_micros(seed / 4))?;
            let idles = |world: &World| world.channel(0).expect("it runs").idles;
            let was_idle = idles(&world);
            world.call(SECOND)?;
            // When the channel leaves IDLE, no route names the cluster of the call, and its endpoints arrive late.
            let endpoints = (ResourceType::ClusterLoadAssignment, "e0".to_owned());
            world.act(Action::Fault(endpoints.clone(), Fault::Withheld))?;
            world.set_routes(vec![route("/b/", "c1")])?;
            world.run_secs(3.0)?;
            races += idles(&world) - was_idle;
            world.act(Action::Heal(endpoints))?;
            world.run_secs(40.0)?;
            let calls = world.calls();
            assert!(calls.is_empty(), "seed {seed}");
            if was_idle == 0 {
                assert_eq!((calls.failed, calls.succeeded), (0, 1), "seed {seed}: {:?}", calls.last_failure);
            }
        }
        assert!(races > 20, "the channel went IDLE under {races} calls");
    }
    Ok(())
}
