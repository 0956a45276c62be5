//! (f) The primary fails under load: the time until the next priority answers, the failed RPCs, and the way back.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proxyless_testkit::resources::priorities;
use serde_json::{Value, json};

use super::Round;
use crate::clock;
use crate::field::{Backends, Contestant, Running, Scene};
use crate::service::BoxError;

const CONCURRENCY: usize = 16;
const TIMEOUT: Duration = Duration::from_millis(1000);

/// The failure of the primary.
#[derive(Clone, Copy)]
enum Death {
    /// Its connections are closed and its port refuses.
    Refused,
    /// Its connections, old and new, are reset.
    Reset,
    /// It sends GOAWAY; its port refuses.
    Goaway,
    /// It stops responding.
    BlackHoled,
}

impl Death {
    const ALL: [Self; 4] = [Self::Refused, Self::Reset, Self::Goaway, Self::BlackHoled];

    const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Goaway => "goaway",
            Self::BlackHoled => "black hole",
        }
    }

    /// The time limit of the failover.
    const fn patience(self) -> Duration {
        // Keepalive first (grpc-go's is 10 s), then the failover timer of gRFC A56 (10 s).
        Duration::from_secs(if matches!(self, Self::BlackHoled) { 30 } else { 8 })
    }

    async fn kill(self, primary: &mut Backends) -> Result<(), BoxError> {
        match self {
            Self::Refused => primary.become_("close").await,
            Self::Reset => primary.become_("reset").await,
            Self::Goaway => primary.become_("goaway").await,
            Self::BlackHoled => Ok(kill(pid(primary)?, Signal::SIGSTOP)?),
        }
    }

    async fn revive(self, primary: &mut Backends) -> Result<(), BoxError> {
        match self {
            Self::BlackHoled => Ok(kill(pid(primary)?, Signal::SIGCONT)?),
            _ => primary.become_("open").await,
        }
    }
}

fn pid(backends: &Backends) -> Result<Pid, BoxError> {
    Ok(Pid::from_raw(i32::try_from(backends.pid())?))
}

pub(super) async fn run(round: &mut Round<'_>) -> Result<(), BoxError> {
    // tonic-xds has no priorities, so it has no primary.
    for contestant in round.among(&[Contestant::Proxyless, Contestant::GrpcGo, Contestant::CCore]) {
        for death in Death::ALL {
            // A black hole is detected only by keepalive, which is off by default everywhere. It is slow, so it runs
            // once.
            let arguments: &[&str] = match death {
                Death::BlackHoled if round.number > 1 => continue,
                Death::BlackHoled => &["--keepalive-ms", "1000"],
                _ => &[],
            };
            if let Err(error) = one(round, contestant, death, arguments).await {
                round.failed(&format!("failover ({})", death.name()), contestant, &error);
            }
        }
    }
    Ok(())
}

async fn one(
    round: &mut Round<'_>,
    contestant: Contestant,
    death: Death,
    arguments: &[&str],
) -> Result<(), BoxError> {
    let mut primary = Backends::start("primary", 1).await?;
    let spare = Backends::start("spare", 1).await?;
    let endpoints = priorities("bench", [primary.addresses.clone(), spare.addresses.clone()]);
    let scene = Scene::with_endpoints(&primary.addresses, endpoints).await?;
    let mut running = contestant.start_with(round.tools, &scene, arguments).await?;
    running.first().await?;
    let load = json!({ "cmd": "load", "concurrency": CONCURRENCY, "timeout_ms": TIMEOUT.as_millis() as u64 });
    running.ask(load).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mark = json!({ "cmd": "mark" });
    running.ask(mark.clone()).await?;

    let killed = clock::monotonic_ns();
    death.kill(&mut primary).await?;
    let over = watch(&mut running, "spare", killed, death.patience()).await?;
    let mut add = |what: &str, unit, value| {
        round.results.add(&format!("failover/{}/{what}", death.name()), unit, contestant, value);
    };
    add("time", "ms", over.millis);
    add("failed", "RPCs", over.failed);

    let revived = clock::monotonic_ns();
    death.revive(&mut primary).await?;
    let back = watch(&mut running, "primary", revived, death.patience()).await?;
    add("back time", "ms", back.millis);
    add("back failed", "RPCs", back.failed);
    running.end().await;
    Ok(())
}

/// The observations until a backend answered.
struct Seen {
    /// Infinite if it never answered.
    millis: f64,
    failed: f64,
}

async fn watch(
    running: &mut Running,
    backend: &str,
    since: u64,
    patience: Duration,
) -> Result<Seen, BoxError> {
    let mut seen = Seen { millis: f64::INFINITY, failed: 0.0 };
    let mut look = async |running: &mut Running| -> Result<bool, BoxError> {
        let mark: Value = running.ask(json!({ "cmd": "mark" })).await?;
        seen.failed += mark["failed"].as_f64().unwrap_or(0.0);
        let first = mark["backends"][backend]["first_ns"].as_u64();
        // The response to an RPC that was in flight before the change does not count.
        if let Some(first) = first.filter(|first| *first > since) {
            seen.millis = (first - since) as f64 / 1e6;
        }
        Ok(seen.millis.is_finite())
    };
    let steps = patience.as_millis() / 50;
    for _ in 0..steps {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if look(running).await? {
            break;
        }
    }
    // RPCs in flight when the change was noticed may still fail.
    tokio::time::sleep(TIMEOUT).await;
    let millis = seen.millis;
    let mark: Value = running.ask(json!({ "cmd": "mark" })).await?;
    seen.failed += mark["failed"].as_f64().unwrap_or(0.0);
    Ok(Seen { millis, failed: seen.failed })
}
