//! Injected faults (gRFC A33), calls that report load (gRFC A58) and small subsets (gRFC A68), as scenarios.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Result, Scenario as _, one_cluster, world};
use proxyless_sim::run::script;
use proxyless_sim::script::config::{Cluster, Faults, Listener, Policy};
use proxyless_sim::world::{Outcome, World};

/// A world whose listener has this fault filter, and whose backend is connected.
fn faulty(faults: Faults) -> Result<World> {
    let mut mesh = one_cluster(&[&[1]]);
    let listener = Listener::WithFaults(faults, Box::new(Listener::Rds("r0".into())));
    mesh.listeners.insert("l0".into(), listener);
    let mut world = world(mesh);
    world.start()?;
    world.run_secs(5.0)?;
    Ok(world)
}

fn counts(world: &World) -> (u64, u64, u64) {
    let calls = world.calls();
    (calls.faults, calls.succeeded, calls.failed)
}

const NONE: Faults = Faults { delay: Duration::from_secs(5), delayed: 0, aborted: 0, max_active: None };

#[test]
fn a33_1_a_delayed_call_is_sent_after_the_delay() -> Result {
    let mut world = faulty(Faults { delayed: 100, ..NONE })?;
    world.call(Duration::from_millis(10))?;
    world.run_secs(4.9)?;
    assert_eq!(counts(&world), (1, 0, 0));
    world.run_secs(1.0)?;
    assert_eq!(counts(&world), (1, 1, 0));
    Ok(())
}

#[test]
fn a33_1_a_delay_beyond_the_deadline_ends_with_it() -> Result {
    let mut world = faulty(Faults { delayed: 100, delay: Duration::from_secs(90), ..NONE })?;
    world.call(Duration::from_millis(10))?;
    world.run_secs(61.0)?;
    assert_eq!(counts(&world), (1, 0, 1));
    assert_eq!(world.calls().last_failure.as_deref(), Some("deadline exceeded"));
    world.run_secs(60.0)?;
    Ok(())
}

#[test]
fn a33_2_a_14_an_abort_follows_the_delay() -> Result {
    let mut world = faulty(Faults { delayed: 100, aborted: 100, ..NONE })?;
    world.call(Duration::from_millis(10))?;
    world.run_secs(4.9)?;
    assert_eq!(counts(&world), (1, 0, 0));
    world.run_secs(0.2)?;
    assert_eq!(counts(&world), (1, 0, 1));
    Ok(())
}

#[test]
fn a33_3_beyond_the_limit_calls_pass_without_a_fault() -> Result {
    let mut world = faulty(Faults { delayed: 100, max_active: Some(2), ..NONE })?;
    (0..5).try_for_each(|_| world.call(Duration::from_millis(10)))?;
    world.run_secs(1.0)?;
    assert_eq!(counts(&world), (2, 3, 0));
    world.run_secs(10.0)?;
    assert_eq!(counts(&world), (2, 5, 0));
    Ok(())
}

#[test]
fn a68_a_small_subset_of_the_endpoints_serves() -> Result {
    let mut mesh = one_cluster(&[&[1, 2, 3, 4, 5]]);
    mesh.clusters.insert("c0".into(), Cluster { policy: Policy::SmallSubset, ..Cluster::eds("e0") });
    let mut world = world(mesh);
    world.start()?;
    world.run_secs(5.0)?;
    let mut reached = BTreeSet::new();
    for _ in 0..100 {
        let Outcome::Reached(address) = world.rpc()? else { panic!("not served") };
        reached.insert(address);
    }
    assert_eq!(reached.len(), 2);
    Ok(())
}

#[test]
fn a58_calls_report_load_that_becomes_a_weight() -> Result {
    let mut mesh = one_cluster(&[&[1, 8]]);
    mesh.clusters.insert("c0".into(), Cluster { policy: Policy::WeightedByCalls, ..Cluster::eds("e0") });
    let mut world = world(mesh);
    world.start()?;
    world.run_secs(5.0)?;
    // Longer than the blackout period and the update period.
    for _ in 0..60 {
        (0..4).try_for_each(|_| world.rpc().map(drop))?;
        world.run_secs(1.0)?;
    }
    let mut first = 0;
    for _ in 0..100 {
        first += usize::from(world.rpc()? == Outcome::Reached(proxyless_sim::script::config::backend(1)));
    }
    // Utilizations of 0.2 and 0.9.
    assert!((80..=84).contains(&first), "{first} of 100");
    Ok(())
}

#[test]
fn a33_seeds_have_faults() {
    let worlds = (0..100).filter(|&seed| script(seed).mesh.listeners.values().any(has_faults)).count();
    assert!(worlds > 5, "{worlds} of 100 worlds have fault filters");
}

fn has_faults(listener: &Listener) -> bool {
    match listener {
        Listener::WithFaults(..) => true,
        Listener::WithoutSessions(inner) => has_faults(inner),
        _ => false,
    }
}
