//! (d) Memory from outside: as the operating system reports it.

use serde_json::json;

use super::Round;
use super::updates::{CONNECTED, all_connected};
use crate::field::{Backends, Contestant, Scene, live_endpoints, spare_endpoints};
use crate::service::BoxError;

const ENDPOINTS: usize = 10_000;
const CLUSTERS: usize = 1_000;
const CHANNELS: usize = 50;

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    let live = Backends::start("live", 1).await?;
    let mut connected = Backends::start("connected", CONNECTED).await?;
    let addresses = &live.addresses;
    for contestant in round.among(&Contestant::XDS) {
        let alone = Scene::with_endpoints(addresses, live_endpoints("bench", addresses)).await?;
        let base = match used(round, contestant, &alone).await {
            Ok(base) => base,
            Err(error) => {
                round.failed("memory", contestant, &error);
                continue;
            }
        };
        let spare = spare_endpoints("bench", addresses, ENDPOINTS, 1);
        let spare = Scene::with_endpoints(addresses, spare).await?;
        let many = Scene::with_many_clusters(addresses, CLUSTERS).await?;
        for (what, count, bytes) in [
            ("endpoint", ENDPOINTS, used(round, contestant, &spare).await),
            ("cluster", CLUSTERS, used(round, contestant, &many).await),
            ("channel", CHANNELS, channels(round, contestant, &alone).await),
            ("connection", CONNECTED, connections(round, contestant, &mut connected).await),
        ] {
            match bytes {
                Ok(bytes) => {
                    let each = (bytes - base).max(0.0) / count as f64;
                    round.results.add(&format!("memory/{what}"), "bytes", contestant, each);
                }
                Err(error) => round.failed(&format!("memory per {what}"), contestant, &error),
            }
        }
    }
    Ok(())
}

/// The memory of a client with many channels.
async fn channels(round: &Round<'_>, contestant: Contestant, scene: &Scene) -> Result<f64, BoxError> {
    let mut running = contestant.start(round.tools, scene).await?;
    running.first().await?;
    running.ask(json!({ "cmd": "channels", "count": CHANNELS })).await?;
    running.settle().await;
    let bytes = running.memory();
    running.end().await;
    bytes
}

/// The memory of a client with many idle connections.
async fn connections(
    round: &Round<'_>,
    contestant: Contestant,
    connected: &mut Backends,
) -> Result<f64, BoxError> {
    let endpoints = live_endpoints("bench", &connected.addresses);
    let scene = Scene::with_endpoints(&connected.addresses, endpoints).await?;
    let mut running = contestant.start(round.tools, &scene).await?;
    running.first().await?;
    all_connected(connected, &running).await?;
    let open = connected.connections().await?;
    let bytes = running.memory();
    running.end().await;
    if open < CONNECTED as u64 {
        return Err(format!("only {open} of {CONNECTED} endpoints were connected").into());
    }
    bytes
}

/// The memory of a client that has made an RPC and is idle.
async fn used(round: &Round<'_>, contestant: Contestant, scene: &Scene) -> Result<f64, BoxError> {
    let mut running = contestant.start(round.tools, scene).await?;
    running.first().await.map_err(|error| format!("{error} ({})", scene.heard()))?;
    running.settle().await;
    let bytes = running.memory();
    running.end().await;
    bytes
}
