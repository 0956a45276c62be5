//! Random sequences of faults: several servers at a time, one round after the other, in one world.

use std::time::Duration;

use proxyless_sans_io::Rng;

use crate::fault::Fault;
use crate::load::Rate;
use crate::oracles::{check_end, cold_trial, trial};
use crate::storm::Storm;
use crate::world::{Host, World, simulate};

/// Seeds that have failed. In 60026 and 60060 tasks were counted while the LRS stream was in backoff; in 80491 the
/// control plane failed before it could announce a backend.
const FOUND: &[u64] = &[60026, 60060, 80491];

/// A number from the environment.
fn variable(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")),
        Err(_) => default,
    }
}

fn one_of<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[usize::try_from(rng.below(from.len() as u64)).expect("a small number")]
}

/// Faults of one to four servers.
fn faults(rng: &mut Rng) -> Vec<(Host, Fault)> {
    let mut hosts = vec![Host::Plane, Host::Backend(0), Host::Backend(1), Host::Backend(2)];
    rng.shuffle(&mut hosts);
    hosts.truncate(1 + usize::try_from(rng.below(4)).expect("a small number"));
    let fault = |host| match host {
        Host::Plane => one_of(rng, &Fault::of_planes()),
        Host::Backend(_) => one_of(rng, &Fault::of_backends()),
    };
    let of_hosts: Vec<Fault> = hosts.iter().copied().map(fault).collect();
    hosts.into_iter().zip(of_hosts).collect()
}

/// Half a second to a minute and a half.
fn storm(rng: &mut Rng) -> Storm {
    let lasting = Duration::from_millis(500 + rng.below(90_000));
    let seconds = |rng: &mut Rng| Duration::from_millis(100 + rng.below(10_000));
    let flapping = (rng.below(3) == 0).then(|| seconds(rng));
    let churn = (rng.below(3) == 0).then(|| seconds(rng));
    Storm { lasting, flapping, churn, rng: Rng::new(rng.next_u64()) }
}

/// One world with one to three rounds of faults. Equal runs return equal numbers.
fn run(seed: u64) -> u64 {
    simulate(seed, async {
        let mut rng = Rng::new(seed);
        let rate = Rate::per_second(one_of(&mut rng, &[2, 5]));
        let world = if rng.below(4) == 0 {
            let (world, faults) = (World::cold(&seed.to_string(), |builder| builder), faults(&mut rng));
            cold_trial(&world, &faults, storm(&mut rng), rate).await;
            world
        } else {
            World::start(&seed.to_string()).await
        };
        for _ in 0..=rng.below(3) {
            let faults = faults(&mut rng);
            trial(&world, &faults, storm(&mut rng), rate).await;
        }
        let trace = world.network.trace().clone();
        check_end(world).await;
        trace.hash()
    })
}

#[test]
fn everything_recovers_without_floods_or_leaks_under_random_faults() {
    let first = variable("DRIVER_SEED", 1);
    let runs = variable("DRIVER_RUNS", 6);
    // The seeds that once failed, unless seeds are given.
    let fixed = if std::env::var_os("DRIVER_SEED").is_some() { &[] } else { FOUND };
    let mut failed = Vec::new();
    for seed in (first..first + runs).chain(fixed.iter().copied()) {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            failed.push(seed);
        }
    }
    let all = runs as usize + fixed.len();
    assert!(failed.is_empty(), "{} of {all} seeds failed: {failed:?}", failed.len());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let seed = variable("DRIVER_SEED", 3);
    assert_eq!(run(seed), run(seed));
}
