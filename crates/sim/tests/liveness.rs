//! Slow and stalled channels, and the time until they recover.

mod common;

use std::time::Duration;

use common::{Result, Scenario as _, add_cluster, failed, one_cluster, reached, world, world_of_seed};
use proxyless_sim::Behaviour;
use proxyless_sim::run::{Trace, plain_script, run};
use proxyless_sim::script::config::{Assignment, Cluster, Endpoint, Health, Listener, backend, route};
use proxyless_sim::script::{Action, Change, Loss, Script, Settings, Step};
use proxyless_sim::world::{Outcome, World};
use proxyless_xds::resource::ResourceType;

const SECOND: Duration = Duration::from_secs(1);

fn connects(world: &World) -> u64 {
    world.channels().map(|channel| channel.connects).sum()
}

#[test]
fn addresses_of_one_endpoint_that_hang_up_in_turn_get_one_connection_per_backoff_each() -> Result {
    for seed in 0..40 {
        let mut mesh = one_cluster(&[&[1]]);
        let both = Endpoint { addresses: vec![backend(1), backend(2)], health: Health::Healthy };
        let mut assignment = Assignment::of(&[&[]]);
        assignment.priorities[0][0].endpoints = vec![both];
        mesh.assignments.insert("e0".into(), assignment);
        let mut world = world_of_seed(mesh, seed);
        world.behave(1, Behaviour::HangsUp)?;
        world.behave(2, Behaviour::HangsUp)?;
        world.start()?;
        for _ in 0..120 {
            world.rpc()?;
            world.run_for(SECOND / 2)?;
        }
        let connects = connects(&world);
        assert!(connects <= 40, "seed {seed}: {connects} connections in a minute");
    }
    Ok(())
}

/// A world with stalls.
fn with_stalls(mut mesh: proxyless_sim::script::config::Mesh) -> World {
    mesh.listeners.insert("l1".into(), Listener::Rds("r0".into()));
    // The world expects stalls only if one of its steps is a stall.
    let steps = vec![Step { at: proxyless_sans_io::Time::ZERO, action: Action::Stall(7, SECOND) }];
    World::new(&Script { seed: 1, settings: Settings::default(), mesh, steps })
}

#[test]
fn a_stalled_channel_delays_no_other_and_gets_the_latest_resources_when_it_resumes() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    for i in 1..=4 {
        add_cluster(&mut mesh, i, &[&[1 + i as u8]]);
    }
    let mut world = with_stalls(mesh);
    world.start()?;
    world.act(Action::Start(1))?;
    world.run_secs(1.0)?;
    world.act(Action::Stall(1, Duration::from_secs(40)))?;
    for i in 1..=4u8 {
        world.set_routes(vec![route("/a/", &format!("c{i}"))])?;
        // The client waits for the channel once per pending resource.
        world.run_secs(if i == 1 { 6.0 } else { 1.0 })?;
        reached(&world.rpc()?, 1 + i);
        assert_eq!(world.probe(1, common::PATH)?.1, Outcome::Reached(backend(1)), "it has heard nothing");
    }
    world.run_secs(32.0)?;
    assert_eq!(world.probe(1, common::PATH)?.1, Outcome::Reached(backend(5)));
    world.model().at_rest(&world.watched())?;
    world.shut_down()
}

#[test]
fn a_flood_is_read_no_faster_than_it_is_answered_and_its_end_is_noticed() -> Result {
    let mut world = world(one_cluster(&[&[1]]));
    world.start()?;
    world.run_secs(11.0)?;
    world.act(Action::WriteDelay(Duration::from_secs(100_000)))?;
    // The ADS model limits the number of unanswered responses.
    world.act(Action::Flood(ResourceType::ClusterLoadAssignment, 300))?;
    world.serves(5 * SECOND, &[1])?;
    world.set(Change::Assignment("e0".into(), Assignment::of(&[&[2]])))?;
    world.act(Action::WriteDelay(Duration::ZERO))?;
    world.act(Action::CutStream(Loss::Nothing))?;
    world.run_secs(3.0)?;
    reached(&world.rpc()?, 2);
    world.model().at_rest(&world.watched())
}

#[test]
fn after_a_suspension_every_timer_fires_once_and_rpcs_go_on() -> Result {
    for span in [60, 3_600, 100_000] {
        let mut mesh = one_cluster(&[&[1], &[2]]);
        mesh.clusters.insert("d0".into(), Cluster::dns("h.test"));
        mesh.hosts.insert("h.test".into(), vec![backend(3)]);
        mesh.routes.insert("r0".into(), vec![route("/a/", "c0"), route("/b/", "d0")]);
        let mut world = world(mesh);
        world.behave(1, Behaviour::Silent)?;
        world.start()?;
        world.run_secs(2.0)?;
        // The failover timer, a connection attempt and the DNS refresh are all due at once.
        world.act(Action::Suspend(Duration::from_secs(span)))?;
        world.run_secs(1.0)?;
        reached(&world.rpc()?, 2);
        reached(&world.probe(0, "/b/m")?.1, 3);
        world.behave(1, Behaviour::Accepts(SECOND / 100))?;
        world.act(Action::Suspend(Duration::from_secs(span)))?;
        world.run_secs(25.0)?;
        reached(&world.rpc()?, 1);
        world.shut_down()?;
    }
    Ok(())
}

#[test]
fn a37_17_a_chain_of_sixteen_clusters_serves_and_a_longer_one_fails_alone() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    mesh.routes.insert("r0".into(), vec![route("/a/", "n1"), route("/b/", "n2")]);
    for level in 1..=15 {
        mesh.clusters.insert(format!("n{level}"), Cluster::aggregate(&[&format!("n{}", level + 1)]));
    }
    mesh.clusters.insert("n16".into(), Cluster::eds("e0"));
    let mut world = world(mesh);
    world.start()?;
    world.run_secs(20.0)?;
    reached(&world.rpc()?, 1);
    world.set(Change::Cluster("n16".into(), Cluster::aggregate(&["c0"])))?;
    world.run_secs(5.0)?;
    failed(&world.rpc()?, "more than 16 levels");
    reached(&world.probe(0, "/b/m")?.1, 1);
    Ok(())
}

#[test]
fn a37_57_channels_share_the_places_of_a_cluster() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    mesh.listeners.insert("l1".into(), Listener::Rds("r0".into()));
    mesh.clusters.get_mut("c0").expect("it is there").max_requests = Some(2);
    let mut world = world(mesh);
    world.start()?;
    world.act(Action::Start(1))?;
    world.run_secs(1.0)?;
    world.call(10 * SECOND)?;
    world.call(20 * SECOND)?;
    let full = |outcome: &Outcome| matches!(outcome, Outcome::Dropped(why) if why.contains("max_requests 2"));
    assert!(full(&world.probe(1, common::PATH)?.1));
    assert!(full(&world.rpc()?));
    world.run_secs(12.0)?;
    assert_eq!(world.probe(1, common::PATH)?.1, Outcome::Reached(backend(1)));
    world.run_secs(10.0)?;
    reached(&world.rpc()?, 1);
    world.shut_down()
}

#[test]
fn a_server_without_ads_takes_nothing_away() -> Result {
    let mut world = world(one_cluster(&[&[1]]));
    world.start()?;
    world.run_secs(11.0)?;
    world.act(Action::NoAdsService)?;
    world.act(Action::CutStream(Loss::Everything))?;
    world.serves(60 * SECOND, &[1])?;
    world.set(Change::Assignment("e0".into(), Assignment::of(&[&[2]])))?;
    world.act(Action::AcceptStreams)?;
    world.run_secs(60.0)?;
    reached(&world.rpc()?, 2);
    Ok(())
}

#[test]
fn plain_worlds_that_once_failed() {
    // A resource that was unsubscribed and subscribed again while a response crossed the request.
    let resubscribed = [5_003_929, 6_001_292, 6_009_738, 6_011_088, 6_028_305];
    // An RPC of a ring that waited although an endpoint was available.
    let rings = [233_605_918_858, 233_605_919_617, 55_298_871_295, 55_298_874_980];
    for seed in resubscribed.into_iter().chain(rings) {
        let result = run(&plain_script(seed), Trace::Off);
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}

#[test]
fn calls_beyond_the_limit_of_streams_get_one_in_turn_or_pick_again() -> Result {
    let mut world = world(one_cluster(&[&[1, 2]]));
    world.start()?;
    world.run_secs(1.0)?;
    for n in [1, 2] {
        world.act(Action::StreamLimit(backend(n), Some(1)))?;
    }
    for _ in 0..10 {
        world.call(SECOND)?;
    }
    // Two at a time; all of them count in the circuit breaker.
    assert_eq!(world.calls().running(), 10);
    world.run_secs(2.5)?;
    assert_eq!((world.calls().succeeded, world.calls().running()), (4, 6));
    // Calls that waited for the lost connection use the other one.
    world.behave(1, Behaviour::Refuses)?;
    world.run_secs(1.0)?;
    world.act(Action::StreamLimit(backend(2), None))?;
    world.run_secs(2.0)?;
    assert_eq!(world.calls().running(), 0);
    let failed = world.calls().failed;
    // One was on the connection that is gone, and another may have got its stream before the channel noticed.
    assert!((1..=2).contains(&failed), "{failed} failed: {:?}", world.calls().last_failure);
    assert_eq!(world.calls().succeeded + failed, 10);
    world.shut_down()
}

#[test]
fn a105_07_calls_beyond_the_limit_of_streams_get_more_connections() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    mesh.clusters.get_mut("c0").expect("it is there").max_connections = Some(3);
    let mut world = world(mesh);
    world.start()?;
    world.run_secs(1.0)?;
    world.act(Action::StreamLimit(backend(1), Some(1)))?;
    for _ in 0..5 {
        world.call(10 * SECOND)?;
    }
    world.run_secs(5.0)?;
    assert_eq!((world.calls().running(), world.connections_to(backend(1))), (5, 3));
    world.run_secs(6.0)?;
    assert_eq!((world.calls().succeeded, world.calls().running()), (3, 2));
    world.run_secs(10.0)?;
    assert_eq!((world.calls().succeeded, world.connections_to(backend(1))), (5, 3));
    world.shut_down()
}
