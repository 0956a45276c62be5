//! (h) A long link: one stream of large messages with 50 ms of delay there and back, each way.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::Round;
use super::streams::{MIB, complete};
use crate::field::{Backends, Contestant, Relay, Scene, live_endpoints};
use crate::service::BoxError;

const CONTESTANTS: [Contestant; 4] =
    [Contestant::BareHyper, Contestant::TonicChannel, Contestant::Proxyless, Contestant::GrpcGo];

/// The flow-control windows of the backend: larger than those of any client, so that an upload shows the client's limits.
const WINDOW: usize = 16 * MIB;
/// The messages of 1 MiB whose time shows how windows grow.
const FIRST: usize = 16;

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    let window = WINDOW.to_string();
    let windows = ["--connection-window", &window, "--stream-window", &window];
    let backends = Backends::start_with("far", 1, &windows).await?;
    let backend = *backends.addresses.first().ok_or("no backend")?;
    let relay = Relay::start(backend).await?;
    for contestant in round.among(&CONTESTANTS) {
        for direction in ["down", "up"] {
            if let Err(error) = one(round, contestant, relay.address(), direction).await {
                round.failed(&format!("long link ({direction})"), contestant, &error);
            }
        }
    }
    Ok(())
}

async fn one(
    round: &mut Round<'_>,
    contestant: Contestant,
    relay: SocketAddr,
    direction: &str,
) -> Result<(), BoxError> {
    let scene = Scene::with_endpoints(&[relay], live_endpoints("bench", &[relay])).await?;
    let mut running = contestant.start(round.tools, &scene).await?;
    running.first().await?;
    let command = |seconds: f64| -> Value {
        json!({ "cmd": "flood", "direction": direction, "concurrency": 1, "seconds": seconds, "payload": MIB })
    };
    let mut some = command(60.0);
    some["messages"] = json!(FIRST);
    let first = complete(&running.ask(some).await?)?;
    if first.messages < FIRST as f64 {
        return Err(format!("only {} of {FIRST} messages in {} s", first.messages, first.seconds).into());
    }
    let rate = complete(&running.ask(command(round.seconds)).await?)?;
    running.end().await;
    round.results.add(&format!("link/{direction}/first 16 MiB"), "ms", contestant, first.seconds * 1e3);
    round.results.add(&format!("link/{direction}/rate"), "MiB/s", contestant, rate.per_second());
    Ok(())
}
