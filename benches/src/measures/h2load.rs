//! The floor of a C client: h2load of nghttp2 sends the same requests. It knows neither gRPC nor xDS.

use std::process::Stdio;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use prost::Message;
use tokio::process::Command;

use super::Round;
use crate::field::{Contestant, Scene};
use crate::service::{BoxError, Payload, UNARY};

/// The connections of h2load if there are that many callers, all to one backend.
const CONNECTIONS: usize = 4;

/// Unary calls at one concurrency. The names of the results begin with `prefix` and the concurrency.
pub(super) async fn unary(
    round: &mut Round<'_>,
    scene: &Scene,
    prefix: &str,
    concurrency: usize,
    payload: usize,
) -> Result<(), BoxError> {
    let backend = scene.addresses.first().ok_or("no backend")?;
    let body = round.tools.folder().join(format!("h2load-{payload}.bin"));
    std::fs::write(&body, message(payload)?)?;
    let connections = CONNECTIONS.min(concurrency);
    let streams = concurrency / connections;
    let mut command = Command::new("h2load");
    command.args(["--clients", &connections.to_string(), "--max-concurrent-streams", &streams.to_string()]);
    let duration = format!("{:.0}ms", round.seconds * 1e3);
    command.args(["--duration", &duration, "--data"]).arg(&body);
    command.args(["--header", "content-type: application/grpc", "--header", "te: trailers"]);
    command.arg(format!("http://{backend}{UNARY}"));
    let (before, started) = (cpu_of_children()?, Instant::now());
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let cpu = cpu_of_children()? - before;
    // h2load has one thread. More CPU time is that of another child which has ended meanwhile, for instance after a failure.
    if cpu > started.elapsed().as_secs_f64() {
        return Err("another child process ended during the run".into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let Counts { succeeded, per_second } = counts(&text).ok_or_else(|| format!("h2load said {text}"))?;
    let mut add = |what: &str, unit, value| {
        let name = format!("{prefix}/{concurrency:03}/{what}");
        round.results.add(&name, unit, Contestant::H2load, value);
    };
    add("rps", "RPC/s", per_second);
    add("cpu", "us/RPC", cpu / succeeded * 1e6);
    Ok(())
}

/// A message with its prefix.
fn message(payload: usize) -> Result<Vec<u8>, BoxError> {
    let message = Payload::of_length(payload).encode_to_vec();
    Ok([&[0], u32::try_from(message.len())?.to_be_bytes().as_slice(), &message].concat())
}

fn cpu_of_children() -> Result<f64, BoxError> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(micros as f64 / 1e6)
}

#[derive(Debug, PartialEq)]
struct Counts {
    succeeded: f64,
    per_second: f64,
}

/// `None` if a request failed, or the text is not from h2load.
fn counts(text: &str) -> Option<Counts> {
    let finished = text.lines().find_map(|line| line.strip_prefix("finished in "))?;
    let per_second = finished.split(", ").find_map(|part| part.strip_suffix(" req/s"))?;
    let requests = text.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let number = |what: &str| requests.split(", ").find_map(|part| part.strip_suffix(what)?.parse().ok());
    if number(" failed")? > 0.0 || number(" errored")? > 0.0 {
        return None;
    }
    Some(Counts { succeeded: number(" succeeded")?, per_second: per_second.parse().ok()? })
}
