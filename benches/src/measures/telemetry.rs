//! The cost of metrics and traces: the calls of `calls`, without and with them.
//!
//! All variants run at the same time against the same backends and take turns in short slices, so that each ratio is of
//! neighbours: the differences are far below the noise of a machine from minute to minute.

use super::Round;
use super::calls::{slice, warm_up};
use crate::field::{Backends, Contestant, Scene, live_endpoints};
use crate::service::BoxError;

const CONCURRENCIES: [usize; 2] = [1, 128];

/// The time of each variant at one concurrency, in durations of other rate measurements: the differences are small.
const LONGER: f64 = 4.0;

/// The turns of each variant.
const TURNS: u32 = 60;

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    let backends = Backends::start("backend", 4).await?;
    let endpoints = live_endpoints("bench", &backends.addresses);
    let scene = Scene::with_endpoints(&backends.addresses, endpoints).await?;
    let mut variants = Vec::new();
    for contestant in round.among(&Contestant::TELEMETRY) {
        let mut running = contestant.start(round.tools, &scene).await?;
        running.first().await?;
        warm_up(&mut running, 32).await?;
        variants.push((contestant, running));
    }
    for concurrency in CONCURRENCIES {
        let mut sums = vec![(0.0, 0.0); variants.len()];
        let seconds = LONGER * round.seconds / f64::from(TURNS);
        for turn in 0..TURNS {
            // Neither is always first.
            let mut order: Vec<_> = (0..variants.len()).collect();
            if turn % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let (Some((_, running)), Some((rpcs, cpu))) = (variants.get_mut(index), sums.get_mut(index))
                else {
                    continue;
                };
                let of_slice = slice(running, concurrency, seconds).await?;
                *rpcs += of_slice.rpcs;
                *cpu += of_slice.cpu;
            }
        }
        for ((contestant, _), (rpcs, cpu)) in variants.iter().zip(sums) {
            let name = format!("telemetry/{concurrency:03}/cpu");
            round.results.add(&name, "us/RPC", *contestant, cpu / rpcs * 1e6);
        }
    }
    for (_, running) in variants {
        running.end().await;
    }
    Ok(())
}
