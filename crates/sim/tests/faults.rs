//! Faults that need exact timing: each of these was a bug.

mod common;

use std::time::Duration;

use common::{PATH, Result, Scenario as _, add_cluster, failed, one_cluster, reached, world};
use http::HeaderMap;
use proxyless_balancer::api::{CallAttributes, PickArgs, PickResult};
use proxyless_sans_io::Rng;
use proxyless_sim::Behaviour;
use proxyless_sim::script::config::{Cluster, Listener, Mesh, backend, route};
use proxyless_sim::script::{Action, CallSpec, Change, Loss, Script, Settings};
use proxyless_sim::world::{Outcome, World};

const SECOND: Duration = Duration::from_secs(1);

fn world_with_sessions(mesh: Mesh, seed: u64) -> World {
    let settings = Settings { sessions: true, ..Settings::default() };
    World::new(&Script { seed, settings, mesh, steps: Vec::new() })
}

fn call_of_session(world: &mut World) -> Result {
    world.act(Action::Call(CallSpec {
        channel: 0,
        path: PATH.into(),
        takes: Duration::from_millis(10),
        wait_for_ready: false,
        session: Some(0),
        gives_up: false,
    }))
}

#[test]
fn a75_52_sessions_leave_a_host_whose_attempts_outlast_their_backoff() -> Result {
    for seed in 0..20 {
        let mut world = world_with_sessions(one_cluster(&[&[1], &[2]]), seed);
        world.start()?;
        world.run_secs(1.0)?;
        call_of_session(&mut world)?;
        world.run_secs(1.0)?;
        world.behave(1, Behaviour::Silent)?;
        world.run_secs(11.0)?;
        reached(&world.rpc()?, 2);
        // Attempts to the session's host never stop. Each call waits for one attempt at most.
        for _ in 0..10 {
            call_of_session(&mut world)?;
            world.run_secs(0.5)?;
        }
        world.run_secs(40.0)?;
        assert_eq!((world.calls().succeeded, world.calls().failed), (11, 0), "seed {seed}");
        world.shut_down()?;
    }
    Ok(())
}

#[test]
fn a55_a56_adding_or_removing_a_session_filter_delays_no_rpc() -> Result {
    let mut world = world_with_sessions(one_cluster(&[&[1], &[2]]), 1);
    world.behave(1, Behaviour::Silent)?;
    world.start()?;
    world.run_secs(11.0)?;
    for _ in 0..4 {
        world.act(Action::ToggleSessions(0))?;
        world.serves(SECOND, &[2])?;
    }
    Ok(())
}

/// g0 refers to the list x0, which c0 serves; the control plane also has x1, which names c1.
fn lists() -> Mesh {
    let mut mesh = one_cluster(&[&[1]]);
    add_cluster(&mut mesh, 1, &[&[2]]);
    mesh.routes.insert("r0".into(), vec![route("/a/", "g0")]);
    mesh.clusters.insert("g0".into(), Cluster::list("x0"));
    mesh.lists.insert("x0".into(), vec!["c0".into()]);
    mesh.lists.insert("x1".into(), vec!["c1".into()]);
    mesh
}

/// The control plane makes a change and becomes unreachable when the client has received part of it; RPCs continue.
/// When it returns, they go where the change says.
fn gone_mid_switch(mesh: &Mesh, change: &Change) -> Result {
    // The time until the change arrives is random: every moment is tried.
    for moment in 0..40 {
        let mut world = world(mesh.clone());
        world.start()?;
        world.run_secs(1.0)?;
        reached(&world.rpc()?, 1);
        world.act(Action::ServerDelay(Duration::from_millis(100)))?;
        world.set(change.clone())?;
        world.run_for(Duration::from_millis(10 * moment))?;
        world.act(Action::RefuseStreams)?;
        world.act(Action::CutStream(Loss::Everything))?;
        world.serves(30 * SECOND, &[1, 2])?;
        world.act(Action::AcceptStreams)?;
        world.run_secs(60.0)?;
        assert_eq!(world.rpc()?, Outcome::Reached(backend(2)), "moment {moment}");
    }
    Ok(())
}

#[test]
fn a99_26_control_plane_gone_while_a_list_is_renamed() -> Result {
    gone_mid_switch(&lists(), &Change::Cluster("g0".into(), Cluster::list("x1")))
}

#[test]
fn a27_88_control_plane_gone_while_endpoints_move() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    add_cluster(&mut mesh, 1, &[&[2]]);
    gone_mid_switch(&mesh, &Change::Cluster("c0".into(), Cluster::eds("e1")))
}

#[test]
fn a74_control_plane_gone_while_routes_change() -> Result {
    let mut mesh = one_cluster(&[&[1]]);
    add_cluster(&mut mesh, 1, &[&[2]]);
    gone_mid_switch(&mesh, &Change::Routes("r0".into(), vec![route("/a/", "c1")]))?;
    mesh.routes.insert("r1".into(), vec![route("/a/", "c1")]);
    gone_mid_switch(&mesh, &Change::Listener("l0".into(), Listener::Rds("r1".into())))
}

#[test]
fn a57_resources_known_to_be_missing_are_not_waited_for() -> Result {
    let mut mesh = lists();
    mesh.lists.remove("x1");
    let mut world = world(mesh);
    world.start()?;
    world.run_secs(1.0)?;
    world.set(Change::Cluster("g0".into(), Cluster::list("x1")))?;
    world.run_secs(0.5)?;
    world.act(Action::RefuseStreams)?;
    world.act(Action::CutStream(Loss::Everything))?;
    world.serves(30 * SECOND, &[1])?;
    world.act(Action::AcceptStreams)?;
    world.run_secs(60.0)?;
    failed(&world.rpc()?, "does not exist");
    Ok(())
}

/// The simulator picks on one thread. Threads that pick concurrently from a world's tree must not drop each other's
/// RPCs.
#[test]
fn a32_picks_of_several_threads_that_wait_are_not_dropped_at_a_small_limit() -> Result {
    for limit in 1..=2 {
        let mut mesh = one_cluster(&[&[1], &[2]]);
        let cluster = mesh.clusters.get_mut("c0").expect("it is there");
        cluster.max_requests = Some(limit);
        let mut world = world(mesh);
        world.behave(1, Behaviour::Silent)?;
        world.start()?;
        world.run_secs(1.0)?;
        let plane =
            world.channel(0).and_then(|channel| channel.plane.clone()).expect("it has its configuration");
        let routes = plane.routes.as_ref().expect("it has routes");
        let headers = HeaderMap::new();
        let cluster = routes.select(PATH, &headers, &mut Rng::new(1)).expect("there is a route").cluster.id();
        let pick = |rng: &mut Rng| {
            let attributes = CallAttributes { cluster, ..CallAttributes::default() };
            plane.picker.pick(&mut PickArgs { path: PATH, headers: &headers, attributes, rng })
        };
        std::thread::scope(|threads| {
            for seed in 0..4 {
                threads.spawn(move || {
                    let mut rng = Rng::new(seed);
                    for _ in 0..20_000 {
                        assert!(matches!(pick(&mut rng), PickResult::Queue), "limit {limit}");
                    }
                });
            }
        });
        drop(plane);
        world.shut_down()?;
    }
    Ok(())
}
