//! (a) Streams: ping-pong on a few and on many, floods in one direction, large messages. Four backends.

use serde_json::{Value, json};

use super::Round;
use crate::field::{Backends, Contestant, Scene, live_endpoints};
use crate::service::BoxError;

pub(super) const MIB: usize = 1 << 20;

/// What the streams do.
struct Shape {
    /// The prefix of its measures.
    name: &'static str,
    traffic: Traffic,
    concurrency: usize,
    payload: usize,
    /// Further arguments of the backends.
    backends: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum Traffic {
    /// A message is sent when the last one has been answered.
    PingPong,
    Up,
    Down,
}

const SHAPES: [Shape; 6] = [
    shape("stream", Traffic::PingPong, 4, 32),
    shape("stream-1000", Traffic::PingPong, 1_000, 32),
    // h2 closes a connection on which too many small DATA frames wait to be read, and grpc-go sends each message in a frame
    // of its own: a small window keeps them below the limit of the backends.
    Shape { backends: &["--stream-window", "16384"], ..shape("flood-up", Traffic::Up, 4, 32) },
    shape("flood-down", Traffic::Down, 4, 32),
    shape("large-up", Traffic::Up, 4, MIB),
    shape("large-down", Traffic::Down, 4, MIB),
];

const fn shape(name: &'static str, traffic: Traffic, concurrency: usize, payload: usize) -> Shape {
    Shape { name, traffic, concurrency, payload, backends: &[] }
}

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    for shape in &SHAPES {
        let backends = Backends::start_with("backend", 4, shape.backends).await?;
        let endpoints = live_endpoints("bench", &backends.addresses);
        let scene = Scene::with_endpoints(&backends.addresses, endpoints).await?;
        for contestant in round.among(Contestant::CALLERS) {
            if let Err(error) = one(round, contestant, &scene, shape).await {
                round.failed(shape.name, contestant, &format!("{error} ({})", scene.heard()).into());
            }
        }
    }
    Ok(())
}

/// A process of its own for each shape: one that fails does not disturb the next.
async fn one(
    round: &mut Round<'_>,
    contestant: Contestant,
    scene: &Scene,
    shape: &Shape,
) -> Result<(), BoxError> {
    let mut running = contestant.start(round.tools, scene).await?;
    running.first().await?;
    complete(&running.ask(shape.command(round.seconds.min(0.3))).await?)?;
    running.settle().await;
    let before = running.cpu_seconds();
    let rate = complete(&running.ask(shape.command(round.seconds)).await?)?;
    let cpu = running.cpu_seconds() - before;
    running.end().await;
    let mut add = |what: &str, unit, value| {
        round.results.add(&format!("{}/{what}", shape.name), unit, contestant, value);
    };
    match shape.payload {
        MIB => add("rate", "MiB/s", rate.per_second()),
        _ => add("mps", "messages/s", rate.per_second()),
    }
    add("cpu", "us/message", cpu / rate.messages * 1e6);
    Ok(())
}

impl Shape {
    fn command(&self, seconds: f64) -> Value {
        let mut command =
            json!({ "concurrency": self.concurrency, "seconds": seconds, "payload": self.payload });
        match self.traffic {
            Traffic::PingPong => command["cmd"] = json!("stream"),
            Traffic::Up => (command["cmd"], command["direction"]) = (json!("flood"), json!("up")),
            Traffic::Down => (command["cmd"], command["direction"]) = (json!("flood"), json!("down")),
        }
        command
    }
}

/// Messages in a time.
pub(super) struct Rate {
    pub(super) messages: f64,
    pub(super) seconds: f64,
}

impl Rate {
    pub(super) fn per_second(&self) -> f64 {
        self.messages / self.seconds
    }
}

/// The response to a command; an error if a stream failed or nothing was transferred.
pub(super) fn complete(answer: &Value) -> Result<Rate, BoxError> {
    let number = |name: &str| answer[name].as_f64().ok_or_else(|| format!("no {name} in {answer}"));
    let rate = Rate { messages: number("messages")?, seconds: number("seconds")? };
    if rate.messages == 0.0 || answer["failed"].as_f64().is_some_and(|failed| failed > 0.0) {
        return Err(format!("streams failed: {answer}").into());
    }
    Ok(rate)
}
