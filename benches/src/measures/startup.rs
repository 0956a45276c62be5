//! (e) The time to the first successful RPC, from the start of the process and from the creation of the channel.
//!
//! Each program is started once before it is measured: its pages are in memory then, and none pays for being the first.

use super::Round;
use crate::clock;
use crate::field::{Backends, Contestant, Scene, live_endpoints};
use crate::service::BoxError;

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    let backends = Backends::start("live", 1).await?;
    let addresses = &backends.addresses;
    for contestant in round.among(&Contestant::XDS) {
        let scene = Scene::with_endpoints(addresses, live_endpoints("bench", addresses)).await?;
        let warmed_up = first(round, contestant, &scene).await;
        let measured = match warmed_up {
            Ok(_) => one(round, contestant, &scene, "plain").await,
            Err(error) => Err(error),
        };
        if let Err(error) = measured {
            round.failed("start-up", contestant, &error);
        }
        // Some peers wait as long as they can, in every round.
        if round.number > 1 && contestant != Contestant::Proxyless {
            continue;
        }
        let scene = Scene::with_slow_last_leaf(addresses).await?;
        if let Err(error) = one(round, contestant, &scene, "slow leaf").await {
            round.failed("start-up with a slow last leaf", contestant, &error);
        }
    }
    Ok(())
}

async fn one(
    round: &mut Round<'_>,
    contestant: Contestant,
    scene: &Scene,
    what: &str,
) -> Result<(), BoxError> {
    let times = first(round, contestant, scene).await?;
    round.results.add(&format!("startup/{what}/channel"), "ms", contestant, times.channel);
    round.results.add(&format!("startup/{what}/process"), "ms", contestant, times.process);
    Ok(())
}

/// Milliseconds to the first RPC.
struct Times {
    channel: f64,
    process: f64,
}

async fn first(round: &Round<'_>, contestant: Contestant, scene: &Scene) -> Result<Times, BoxError> {
    let mut running = contestant.start(round.tools, scene).await?;
    running.hello().await?;
    let hello = clock::monotonic_ns();
    running.first().await?;
    let done = clock::monotonic_ns();
    let millis = |since: u64| done.saturating_sub(since) as f64 / 1e6;
    let times = Times { channel: millis(hello), process: millis(running.started_ns) };
    running.end().await;
    Ok(times)
}
