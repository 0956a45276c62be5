//! (a) Unary calls at several concurrencies, and streams: four backends, 32 bytes.

use serde_json::{Value, json};

use super::Round;
use crate::field::{Backends, Contestant, Running, Scene, live_endpoints};
use crate::service::BoxError;

const CONCURRENCIES: [usize; 3] = [1, 16, 128];

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    let backends = Backends::start("backend", 4).await?;
    let endpoints = live_endpoints("bench", &backends.addresses);
    let scene = Scene::with_endpoints(&backends.addresses, endpoints).await?;
    for contestant in round.among(Contestant::CALLERS) {
        if let Err(error) = one(round, contestant, &scene).await {
            round.failed("calls", contestant, &format!("{error} ({})", scene.heard()).into());
        }
    }
    Ok(())
}

async fn one(round: &mut Round<'_>, contestant: Contestant, scene: &Scene) -> Result<(), BoxError> {
    let mut running = contestant.start(round.tools, scene).await?;
    running.first().await?;
    warm_up(&mut running).await?;
    for concurrency in CONCURRENCIES {
        unary(round, contestant, &mut running, "calls", concurrency).await?;
    }
    let (answer, cpu) = timed(&mut running, "stream", 4, round.seconds).await?;
    let number = |name: &str| answer[name].as_f64().ok_or_else(|| format!("no {name} in {answer}"));
    round.results.add("stream/mps", "messages/s", contestant, number("messages")? / number("seconds")?);
    round.results.add("stream/cpu", "us/message", contestant, cpu / number("messages")? * 1e6);
    running.end().await;
    Ok(())
}

/// Calls of a short time.
pub(super) struct Slice {
    pub(super) rpcs: f64,
    /// Seconds.
    pub(super) cpu: f64,
}

/// Unary calls for a short time.
pub(super) async fn slice(
    running: &mut Running,
    concurrency: usize,
    seconds: f64,
) -> Result<Slice, BoxError> {
    let (answer, cpu) = timed(running, "calls", concurrency, seconds).await?;
    let rpcs = answer["rpcs"].as_f64().ok_or_else(|| format!("no rpcs in {answer}"))?;
    Ok(Slice { rpcs, cpu })
}

/// Makes calls until all connections are established and all code paths warm.
pub(super) async fn warm_up(running: &mut Running) -> Result<(), BoxError> {
    timed(running, "calls", 128, 0.4).await.map(drop)
}

/// Unary calls at one concurrency. The names of the results begin with `prefix` and the concurrency.
pub(super) async fn unary(
    round: &mut Round<'_>,
    contestant: Contestant,
    running: &mut Running,
    prefix: &str,
    concurrency: usize,
) -> Result<(), BoxError> {
    let (answer, cpu) = timed(running, "calls", concurrency, round.seconds).await?;
    let number = |name: &str| answer[name].as_f64().ok_or_else(|| format!("no {name} in {answer}"));
    let rpcs = number("rpcs")?;
    if number("failed")? > 0.0 {
        return Err(format!("RPCs failed: {answer}").into());
    }
    let mut add = |what: &str, unit, value| {
        round.results.add(&format!("{prefix}/{concurrency:03}/{what}"), unit, contestant, value);
    };
    add("rps", "RPC/s", rpcs / number("seconds")?);
    add("cpu", "us/RPC", cpu / rpcs * 1e6);
    add("p50", "us", number("p50_us")?);
    add("p99", "us", number("p99_us")?);
    Ok(())
}

/// The response to a command, and the CPU time that it took.
async fn timed(
    running: &mut Running,
    command: &str,
    concurrency: usize,
    seconds: f64,
) -> Result<(Value, f64), BoxError> {
    let before = running.cpu_seconds();
    let command = json!({ "cmd": command, "concurrency": concurrency, "seconds": seconds, "payload": 32 });
    let answer = running.ask(command).await?;
    Ok((answer, running.cpu_seconds() - before))
}
