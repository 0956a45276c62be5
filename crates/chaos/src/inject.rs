//! Injects random faults: kind, target, time and duration.

use std::io;
use std::time::Duration;

use proxyless_sans_io::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::faults::{FaultKind, Target};
use crate::network::Network;
use crate::topology::{BACKENDS, EDS_CLUSTERS, is_linked};
use crate::wire::Command;
use crate::world::{Shared, listening};

/// The maximum number of concurrent faults.
const AT_ONCE: usize = 5;

/// Injects faults until the time is over, and returns when the last one has ended.
pub(crate) async fn faults(world: &Shared, mut rng: Rng, until: Instant) -> io::Result<()> {
    let mut under_way = JoinSet::new();
    while Instant::now() < until && world.borrow().notes.problems.is_empty() {
        sleep(Duration::from_millis(50 + rng.below(700))).await;
        while let Some(ended) = under_way.try_join_next() {
            ended.map_err(io::Error::other)??;
        }
        let has_network = world.borrow().network.is_some();
        let (kind, target) = match rng.below(40) {
            0 if has_network => (FaultKind::Loss, Target::Network),
            1..4 if has_network => {
                let direct = 2 * rng.below(BACKENDS as u64 / 2) as usize;
                (FaultKind::BlackHole, Target::Backend(direct))
            }
            _ => choose(&mut rng),
        };
        if under_way.len() < AT_ONCE && !world.borrow().is_hurt(target) {
            under_way.spawn_local(inject(world.clone(), kind, target, Rng::new(rng.next_u64())));
        }
    }
    while let Some(ended) = under_way.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    Ok(())
}

fn choose(rng: &mut Rng) -> (FaultKind, Target) {
    use FaultKind::{BlackHole, Cut, Delay, Deleted, Drain, Emptied, EndStreams, Kill, Loss, Refuse, Stop};
    match rng.below(100) {
        0..15 => {
            let kinds = [Kill, Stop, Drain, Cut, BlackHole, Delay, EndStreams];
            (kinds[rng.below(kinds.len() as u64) as usize], Target::ControlPlane)
        }
        15..20 => {
            let kind = if rng.below(2) == 0 { Emptied } else { Deleted };
            (kind, Target::Cluster(rng.below(EDS_CLUSTERS.len() as u64) as usize))
        }
        _ => {
            let backend = rng.below(BACKENDS as u64) as usize;
            let all = [Kill, Kill, Stop, Drain, Drain, Cut, Refuse, BlackHole, Delay, Loss];
            // The first ones need no link.
            let kinds = if is_linked(backend) { &all[..] } else { &all[..5] };
            (kinds[rng.below(kinds.len() as u64) as usize], Target::Backend(backend))
        }
    }
}

/// One fault from start to end.
async fn inject(world: Shared, kind: FaultKind, target: Target, mut rng: Rng) -> io::Result<()> {
    let fault = world.borrow_mut().begin(kind, target);
    let lasts = Duration::from_millis(match kind {
        // Long faults are rarer than short ones.
        FaultKind::Kill | FaultKind::Refuse => 20 + rng.below(60) * rng.below(60),
        // Long enough for keepalive and the write timeout to close connections.
        FaultKind::Stop | FaultKind::BlackHole if rng.below(25) == 0 => 12_000 + rng.below(15_000),
        FaultKind::Stop | FaultKind::BlackHole => 50 + rng.below(75) * rng.below(75),
        FaultKind::Delay | FaultKind::Loss => 1_000 + rng.below(5_000),
        FaultKind::Emptied | FaultKind::Deleted => 50 + rng.below(500),
        FaultKind::Cut | FaultKind::Drain | FaultKind::EndStreams => 0,
    });
    match target {
        Target::Backend(backend) => hurt_backend(&world, kind, backend, lasts, &mut rng).await?,
        Target::ControlPlane => hurt_plane(&world, kind, lasts, &mut rng).await?,
        Target::Network => {
            on_network(&world, Network::squeeze)?;
            sleep(lasts.min(Duration::from_secs(3))).await;
            on_network(&world, Network::relax)?;
        }
        Target::Cluster(cluster) => {
            let set = |done: bool| {
                let mut world = world.borrow_mut();
                let (item, effect) = match kind {
                    FaultKind::Emptied => world.config.set_listed(cluster, done),
                    _ => world.config.set_exists(cluster, done),
                };
                world.update(vec![item], &[effect]);
            };
            set(false);
            sleep(lasts).await;
            set(true);
        }
    }
    world.borrow_mut().end(fault);
    Ok(())
}

async fn hurt_backend(
    world: &Shared,
    kind: FaultKind,
    backend: usize,
    lasts: Duration,
    rng: &mut Rng,
) -> io::Result<()> {
    match kind {
        FaultKind::Kill => {
            world.borrow_mut().backends[backend].kill();
            sleep(lasts).await;
            let ready = world.borrow_mut().restart_backend(backend)?;
            listening(ready).await?;
        }
        FaultKind::Stop => {
            world.borrow().backends[backend].stop();
            sleep(lasts).await;
            world.borrow().backends[backend].resume();
        }
        FaultKind::Drain => world.borrow().backends[backend].tell("goaway"),
        FaultKind::BlackHole if !is_linked(backend) => {
            let address = world.borrow().notes.addresses[backend].ip();
            on_network(world, |network| network.block(address))?;
            sleep(lasts).await;
            on_network(world, |network| network.unblock(address))?;
        }
        _ => {
            let delay = Duration::from_millis(1 + rng.below(100));
            if let Some(link) = &world.borrow().links[backend] {
                hurt_link(link, kind, delay);
            }
            sleep(lasts).await;
            if let Some(link) = &world.borrow().links[backend] {
                link.heal();
            }
        }
    }
    Ok(())
}

async fn hurt_plane(world: &Shared, kind: FaultKind, lasts: Duration, rng: &mut Rng) -> io::Result<()> {
    match kind {
        FaultKind::Kill => {
            world.borrow_mut().plane.kill();
            sleep(lasts).await;
            let ready = world.borrow_mut().restart_plane()?;
            listening(ready).await?;
        }
        FaultKind::Stop => {
            world.borrow().plane.stop();
            sleep(lasts).await;
            world.borrow().plane.resume();
        }
        FaultKind::Drain => world.borrow().command(&Command::Goaway),
        FaultKind::EndStreams => {
            let command = if rng.below(2) == 0 { Command::CloseStreams } else { Command::FailStreams };
            world.borrow().command(&command);
        }
        _ => {
            hurt_link(&world.borrow().plane_link, kind, Duration::from_millis(1 + rng.below(100)));
            sleep(lasts).await;
            world.borrow().plane_link.heal();
        }
    }
    Ok(())
}

/// Applies a change to the network namespace, if there is one.
fn on_network(world: &Shared, action: impl FnOnce(&Network) -> io::Result<()>) -> io::Result<()> {
    world.borrow().network.as_ref().map_or(Ok(()), action)
}

fn hurt_link(link: &crate::link::Link, kind: FaultKind, delay: Duration) {
    match kind {
        FaultKind::Refuse => link.refuse(),
        FaultKind::BlackHole => link.block(),
        FaultKind::Delay => link.delay(delay),
        FaultKind::Loss => link.lose(),
        _ => link.cut(),
    }
}
