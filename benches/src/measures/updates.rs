//! (c) The CPU time of an EDS update, measured from outside: the same for all clients that speak xDS.

use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use proxyless_testkit::EDS;
use proxyless_testkit::resources::{EndpointExt, LocalityExt, assignment, endpoint, locality};

use super::Round;
use crate::field::{Backends, Contestant, Running, Scene, spare_endpoints};
use crate::service::BoxError;

const SIZES: [usize; 4] = [10, 1_000, 10_000, 100_000];
/// The number of live backends where endpoints are connected.
pub(super) const CONNECTED: usize = 1_000;
const CLUSTERS: usize = 1_000;

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    let live = Backends::start("live", 1).await?;
    let mut connected = Backends::start("connected", CONNECTED).await?;
    for contestant in round.among(&Contestant::XDS) {
        for size in SIZES {
            // Takes minutes, so it runs once.
            if size > 10_000 && round.number > 1 {
                continue;
            }
            if let Err(error) = idle(round, contestant, &live, size).await {
                round.failed(&format!("update of {size} endpoints"), contestant, &error);
            }
        }
        if let Err(error) = ready(round, contestant, &mut connected).await {
            round.failed("update of connected endpoints", contestant, &error);
        }
        if let Err(error) = clusters(round, contestant, &live).await {
            round.failed("update of one cluster of many", contestant, &error);
        }
    }
    Ok(())
}

/// The endpoints are in a priority that is not in use.
async fn idle(
    round: &mut Round<'_>,
    contestant: Contestant,
    live: &Backends,
    size: usize,
) -> Result<(), BoxError> {
    let endpoints = |weight| spare_endpoints("bench", &live.addresses, size, weight);
    let scene = Scene::with_endpoints(&live.addresses, endpoints(1)).await?;
    let mut running = contestant.start(round.tools, &scene).await?;
    running.first().await?;
    let count = if size > 10_000 { 3 } else { 8 };
    let name = |what: &str| format!("update/idle/{size:06}/{what}");
    let mut all = (1..).map(|weight| all_weights(endpoints(1), weight));
    for (what, cpu) in [
        ("same", updates(&running, &scene, count, |_| endpoints(1)).await?),
        ("one", updates(&running, &scene, count, |number| endpoints(number + 1)).await?),
        ("all", updates(&running, &scene, count, |_| all.next().unwrap_or_default()).await?),
    ] {
        round.results.add(&name(what), "ms", contestant, cpu * 1e3);
    }
    running.end().await;
    Ok(())
}

/// The endpoints are connected.
async fn ready(round: &mut Round<'_>, contestant: Contestant, live: &mut Backends) -> Result<(), BoxError> {
    let addresses = live.addresses.clone();
    let endpoints = |weight: u32| {
        let endpoints = addresses.iter().enumerate();
        let endpoints =
            endpoints.map(|(at, address)| endpoint(*address).weight(if at == 0 { weight } else { 1 }));
        assignment("bench", [locality("live", endpoints)])
    };
    let scene = Scene::with_endpoints(&addresses, endpoints(1)).await?;
    let mut running = contestant.start(round.tools, &scene).await?;
    running.first().await?;
    all_connected(live, &running).await?;
    let cpu = updates(&running, &scene, 8, |number| endpoints(number + 1)).await?;
    round.results.add("update/connected/001000/one", "ms", contestant, cpu * 1e3);
    running.end().await;
    Ok(())
}

/// Waits until the client has all its connections.
pub(super) async fn all_connected(live: &mut Backends, running: &Running) -> Result<(), BoxError> {
    for _ in 0..100 {
        if live.connections().await? >= CONNECTED as u64 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    running.settle().await;
    Ok(())
}

/// One of many clusters changes.
async fn clusters(round: &mut Round<'_>, contestant: Contestant, live: &Backends) -> Result<(), BoxError> {
    let scene = Scene::with_many_clusters(&live.addresses, CLUSTERS).await?;
    let mut running = contestant.start(round.tools, &scene).await?;
    running.first().await?;
    let endpoints = |number| spare_endpoints("bench", &live.addresses, 10, number + 1);
    let cpu = updates(&running, &scene, 8, endpoints).await?;
    round.results.add("update/clusters/001000/one", "ms", contestant, cpu * 1e3);
    running.end().await;
    Ok(())
}

/// The CPU time of one update, the mean of several.
async fn updates(
    running: &Running,
    scene: &Scene,
    count: u32,
    mut endpoints: impl FnMut(u32) -> ClusterLoadAssignment,
) -> Result<f64, BoxError> {
    running.settle().await;
    // The first is not counted: it may change more than the others.
    let mut before = 0.0;
    for number in 0..=count {
        if number == 1 {
            before = running.cpu_seconds();
        }
        scene.control_plane.set(endpoints(number));
        scene.control_plane.wait_ack(EDS).await?;
        running.settle().await;
    }
    Ok((running.cpu_seconds() - before) / f64::from(count))
}

fn all_weights(mut endpoints: ClusterLoadAssignment, weight: u32) -> ClusterLoadAssignment {
    endpoints.endpoints = endpoints
        .endpoints
        .into_iter()
        .map(|mut locality| {
            for endpoint in &mut locality.lb_endpoints {
                *endpoint = std::mem::take(endpoint).weight(weight + 1);
            }
            LocalityExt::weight(locality, 1)
        })
        .collect();
    endpoints
}
