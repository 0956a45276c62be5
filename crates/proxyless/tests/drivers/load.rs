//! RPCs in the background, and their results.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proxyless::XdsChannel;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, interval};
use tonic::{Request, Status};

use crate::backend::RPC_ID;

/// The time that an RPC may take after its deadline.
const OVERTIME: Duration = Duration::from_millis(10);

/// The number and kind of RPCs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) every: Duration,
    pub(crate) timeout: Duration,
    pub(crate) bytes: usize,
}

impl Rate {
    pub(crate) const fn per_second(rpcs: u32) -> Self {
        let every = Duration::from_micros(1_000_000 / rpcs as u64);
        Self { every, timeout: Duration::from_secs(1), bytes: 1000 }
    }
}

/// A steady load. It ends when dropped.
pub(crate) struct Load {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    sent: u64,
    succeeded: u64,
    failed: u64,
    last_failure: Option<(Instant, Status)>,
    /// The time of each backend's last response.
    answered: BTreeMap<String, Instant>,
    /// An RPC that continued after its deadline.
    late: Option<String>,
}

impl Load {
    pub(crate) fn start(channel: &XdsChannel, rate: Rate) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (channel, shared) = (channel.clone(), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            let mut calls = JoinSet::new();
            let mut ticks = interval(rate.every);
            loop {
                ticks.tick().await;
                calls.spawn(one(channel.clone(), rate, Arc::clone(&shared)));
                while calls.try_join_next().is_some() {}
            }
        });
        Self { seen, task }
    }

    /// The time of this backend's last response.
    pub(crate) fn answered(&self, backend: &str) -> Option<Instant> {
        lock(&self.seen).answered.get(backend).copied()
    }

    /// RPCs that succeeded and that failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let seen = lock(&self.seen);
        (seen.succeeded, seen.failed)
    }

    /// The last failure of an RPC, if it is not older than this.
    pub(crate) fn failure_since(&self, since: Instant) -> Option<Status> {
        lock(&self.seen).last_failure.clone().filter(|(at, _)| *at >= since).map(|(_, status)| status)
    }

    /// An RPC that continued after its deadline.
    pub(crate) fn late(&self) -> Option<String> {
        lock(&self.seen).late.clone()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn one(channel: XdsChannel, rate: Rate, seen: Arc<Mutex<Seen>>) {
    let number = {
        let mut seen = lock(&seen);
        seen.sent += 1;
        seen.sent
    };
    let mut request = Request::new(EchoRequest::new("x".repeat(rate.bytes)));
    request.set_timeout(rate.timeout);
    request.metadata_mut().insert(RPC_ID, number.to_string().parse().expect("a number is a value"));
    let start = Instant::now();
    let answer = EchoClient::new(channel).unary(request).await;
    let now = Instant::now();
    let mut seen = lock(&seen);
    match answer {
        Ok(answer) => {
            seen.succeeded += 1;
            seen.answered.insert(answer.into_inner().backend, now);
        }
        Err(status) => {
            seen.failed += 1;
            seen.last_failure = Some((now, status));
        }
    }
    if start.elapsed() > rate.timeout + OVERTIME {
        seen.late = Some(format!("RPC {number} took {:?} of {:?}", start.elapsed(), rate.timeout));
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
