//! (e) The time to the first successful RPC, from the start of the process and from the creation of the channel.

use super::Round;
use crate::clock;
use crate::field::{Backends, Contestant, Scene, live_endpoints};
use crate::service::BoxError;

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    let backends = Backends::start("live", 1).await?;
    let addresses = &backends.addresses;
    for contestant in round.among(&Contestant::XDS) {
        let scene = Scene::with_endpoints(addresses, live_endpoints("bench", addresses)).await?;
        if let Err(error) = one(round, contestant, &scene, "plain").await {
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
    let mut running = contestant.start(round.tools, scene).await?;
    running.hello().await?;
    let hello = clock::monotonic_ns();
    running.first().await?;
    let done = clock::monotonic_ns();
    let mut add = |from: &str, since: u64| {
        let value = done.saturating_sub(since) as f64 / 1e6;
        round.results.add(&format!("startup/{what}/{from}"), "ms", contestant, value);
    };
    add("channel", hello);
    add("process", running.started_ns);
    running.end().await;
    Ok(())
}
