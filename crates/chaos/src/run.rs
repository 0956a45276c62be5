//! One run: start the mesh, warm it up, inject faults and change the configuration, let it rest, and judge.

use std::cell::RefCell;
use std::error::Error;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use proxyless_sans_io::Rng;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::clock::{self, Micros, watch_lateness};
use crate::config::Effect;
use crate::inject;
use crate::network::Network;
use crate::world::{Notes, Said, Shared, World};

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) lasts: Duration,
    pub(crate) seed: u64,
    /// Configuration changes per second.
    pub(crate) updates: u32,
}

/// Load without faults, before and after them.
const WARM_UP: Duration = Duration::from_secs(3);
/// Rest after the last fault: the longest backoff that these faults lead to.
const REST: Duration = Duration::from_secs(8);

/// Runs once. Needs a local task set on the main thread.
pub(crate) async fn run(plan: Plan, network: Option<Network>) -> Result<Notes, Box<dyn Error>> {
    let (said, mut heard) = mpsc::unbounded_channel::<Said>();
    let world: Shared = Rc::new(RefCell::new(World::start(plan.seed, network, said).await?));
    let (late, lateness) = std_mpsc::channel();
    watch_lateness(move |delay| {
        // The receiver may be gone at the very end.
        let _ = late.send(delay);
    });
    let listener = tokio::task::spawn_local({
        let world = world.clone();
        async move {
            while let Some(said) = heard.recv().await {
                world.borrow_mut().notes.hear(said);
            }
        }
    });
    world.borrow().client.tell("start");
    let progress = tokio::task::spawn_local(progress(world.clone(), plan));

    let mut rng = Rng::new(plan.seed);
    let churn = tokio::task::spawn_local(churn(world.clone(), Rng::new(rng.next_u64()), plan.updates));
    sleep(WARM_UP).await;
    let until = Instant::now() + plan.lasts;
    inject::faults(&world, Rng::new(rng.next_u64()), until).await?;
    churn.abort();
    world.borrow_mut().reset_config();
    sleep(REST + WARM_UP).await;
    world.borrow().client.tell("pause");
    wait_for(&world, |notes| notes.idle.is_some(), Duration::from_secs(40)).await;
    world.borrow().client.tell("finish");
    wait_for(&world, |notes| notes.end.is_some(), Duration::from_secs(40)).await;
    progress.abort();
    listener.abort();
    // Aborted tasks release their references when they are next polled.
    let _ = (progress.await, listener.await, churn.await);
    let world = Rc::into_inner(world).ok_or("a task of the run is still alive")?.into_inner();
    let World { mut notes, .. } = world;
    notes.late.extend(lateness.try_iter());
    Ok(notes)
}

async fn wait_for(world: &Shared, seen: impl Fn(&Notes) -> bool, limit: Duration) {
    let wait = async {
        while !seen(&world.borrow().notes) && world.borrow().notes.problems.is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(limit, wait).await.is_err() {
        world.borrow_mut().notes.problems.push(format!("the client did not end its load in {limit:?}"));
    }
}

/// Changes the configuration at a constant rate.
async fn churn(world: Shared, mut rng: Rng, per_second: u32) {
    const TICK: Duration = Duration::from_millis(20);
    let mut ticks = interval(TICK);
    // Late changes are caught up, so that the number of updates follows from the time.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut due = 0.0;
    loop {
        ticks.tick().await;
        due += f64::from(per_second) * TICK.as_secs_f64();
        while due >= 1.0 {
            due -= 1.0;
            let mut now = world.borrow_mut();
            let (item, effect) = now.config.churn(&mut rng);
            if effect == Effect::Rejected {
                let pause = Duration::from_millis(20 + rng.below(150));
                let (world, rejected) = (world.clone(), item.clone());
                let number = now.notes.rejected.len();
                now.notes.rejected.push((clock::now(), Micros::MAX));
                tokio::task::spawn_local(async move {
                    sleep(pause).await;
                    let mut world = world.borrow_mut();
                    world.notes.rejected[number].1 = clock::now();
                    let good = world.config.repair(&rejected);
                    world.update(vec![good], &[]);
                });
            }
            now.update(vec![item], &[effect]);
        }
    }
}

/// Prints a progress line every few seconds.
async fn progress(world: Shared, plan: Plan) {
    let began = Instant::now();
    let mut ticks = interval(Duration::from_secs(5));
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let world = world.borrow();
        let notes = &world.notes;
        let usage = notes.samples.last().cloned().unwrap_or_default();
        let line = format!(
            "{:4} s of {}: {} RPCs, {} failed, {} faults ({} now), {} updates, {} MiB, {} connections, {} tasks",
            began.elapsed().as_secs(),
            plan.lasts.as_secs() + 2 * WARM_UP.as_secs() + REST.as_secs(),
            notes.rpcs.len(),
            notes.failed,
            notes.faults.len(),
            world.under_way(),
            notes.history.updates,
            usage.rss_kib / 1024,
            usage.connections.len(),
            usage.tasks,
        );
        // A progress line that cannot be written is dropped.
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}
