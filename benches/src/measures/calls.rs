//! (a) Unary calls at several concurrencies: four backends, 32 bytes or 64 KiB.

use serde_json::{Value, json};

use super::{Round, h2load};
use crate::field::{Backends, Contestant, Running, Scene, live_endpoints};
use crate::service::BoxError;

/// Calls of one size.
struct Size {
    /// The prefix of their measures.
    name: &'static str,
    payload: usize,
    concurrencies: &'static [usize],
}

const SIZES: [Size; 2] = [
    Size { name: "calls", payload: 32, concurrencies: &[1, 16, 128] },
    Size { name: "calls-64k", payload: 64 * 1024, concurrencies: &[16, 128] },
];

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    let backends = Backends::start("backend", 4).await?;
    let endpoints = live_endpoints("bench", &backends.addresses);
    let scene = Scene::with_endpoints(&backends.addresses, endpoints).await?;
    let with_h2load = [Contestant::CALLERS, &[Contestant::H2load]].concat();
    for contestant in round.among(&with_h2load) {
        let measured = match contestant {
            Contestant::H2load => of_h2load(round, &scene).await,
            _ => one(round, contestant, &scene).await,
        };
        if let Err(error) = measured {
            round.failed("calls", contestant, &format!("{error} ({})", scene.heard()).into());
        }
    }
    Ok(())
}

async fn one(round: &mut Round<'_>, contestant: Contestant, scene: &Scene) -> Result<(), BoxError> {
    let mut running = contestant.start(round.tools, scene).await?;
    running.first().await?;
    for Size { name, payload, concurrencies } in &SIZES {
        warm_up(&mut running, *payload).await?;
        for concurrency in *concurrencies {
            unary(round, contestant, &mut running, name, *concurrency, *payload).await?;
        }
    }
    running.end().await;
    Ok(())
}

async fn of_h2load(round: &mut Round<'_>, scene: &Scene) -> Result<(), BoxError> {
    for Size { name, payload, concurrencies } in &SIZES {
        for concurrency in *concurrencies {
            h2load::unary(round, scene, name, *concurrency, *payload).await?;
        }
    }
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
    let (answer, cpu) = timed(running, concurrency, seconds, 32).await?;
    let rpcs = answer["rpcs"].as_f64().ok_or_else(|| format!("no rpcs in {answer}"))?;
    Ok(Slice { rpcs, cpu })
}

/// Makes calls until all connections are established and all code paths warm.
pub(super) async fn warm_up(running: &mut Running, payload: usize) -> Result<(), BoxError> {
    timed(running, 128, 0.4, payload).await.map(drop)
}

/// Unary calls at one concurrency. The names of the results begin with `prefix` and the concurrency.
pub(super) async fn unary(
    round: &mut Round<'_>,
    contestant: Contestant,
    running: &mut Running,
    prefix: &str,
    concurrency: usize,
    payload: usize,
) -> Result<(), BoxError> {
    let (answer, cpu) = timed(running, concurrency, round.seconds, payload).await?;
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

/// The response to `calls`, and the CPU time that it took.
async fn timed(
    running: &mut Running,
    concurrency: usize,
    seconds: f64,
    payload: usize,
) -> Result<(Value, f64), BoxError> {
    let before = running.cpu_seconds();
    let command =
        json!({ "cmd": "calls", "concurrency": concurrency, "seconds": seconds, "payload": payload });
    let answer = running.ask(command).await?;
    Ok((answer, running.cpu_seconds() - before))
}
