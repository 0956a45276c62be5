//! (g) Unary calls over TLS: four backends, 32 bytes, one cipher suite for all contestants.

use super::Round;
use super::calls::{unary, warm_up};
use crate::field::{Backends, Certificates, Contestant, Scene};
use crate::service::BoxError;

const CONCURRENCIES: [usize; 2] = [1, 128];

/// Envoy's template and tonic-xds as it is built here have no TLS.
const CONTESTANTS: [Contestant; 6] = [
    Contestant::BareHyper,
    Contestant::TonicChannel,
    Contestant::BalanceList,
    Contestant::Proxyless,
    Contestant::GrpcGo,
    Contestant::CCore,
];

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    let certificates = Certificates::issue()?;
    let backends = Backends::start_tls("backend", 4, &certificates).await?;
    let scene = Scene::with_tls(&backends.addresses, certificates).await?;
    for contestant in round.among(&CONTESTANTS) {
        if let Err(error) = one(round, contestant, &scene).await {
            round.failed("calls over TLS", contestant, &format!("{error} ({})", scene.heard()).into());
        }
    }
    Ok(())
}

async fn one(round: &mut Round<'_>, contestant: Contestant, scene: &Scene) -> Result<(), BoxError> {
    let mut running = contestant.start(round.tools, scene).await?;
    running.first().await?;
    warm_up(&mut running, 32).await?;
    for concurrency in CONCURRENCIES {
        unary(round, contestant, &mut running, "tls", concurrency, 32).await?;
    }
    running.end().await;
    Ok(())
}
