//! A background load that records the backend and time of each response.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::clock;
use crate::service::{BenchClient, Channel, Payload};

/// A running load. Ends when dropped.
pub(super) struct Load {
    seen: Arc<Mutex<Seen>>,
    callers: JoinSet<()>,
}

/// The events since the last mark.
#[derive(Default, Serialize)]
struct Seen {
    ok: u64,
    failed: u64,
    codes: BTreeMap<String, u64>,
    backends: BTreeMap<String, Answers>,
}

/// The responses of one backend; times are of the monotonic clock.
#[derive(Serialize)]
struct Answers {
    count: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Load {
    pub(super) fn start<T: Channel>(client: &BenchClient<T>, concurrency: usize, timeout_ms: u64) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut callers = JoinSet::new();
        for _ in 0..concurrency {
            callers.spawn(caller(client.clone(), Duration::from_millis(timeout_ms), Arc::clone(&seen)));
        }
        Self { seen, callers }
    }

    pub(super) fn mark(&self) -> Value {
        json!(std::mem::take(&mut *lock(&self.seen)))
    }

    pub(super) async fn stop(mut self) -> Value {
        self.callers.shutdown().await;
        self.mark()
    }
}

async fn caller<T: Channel>(mut client: BenchClient<T>, timeout: Duration, seen: Arc<Mutex<Seen>>) {
    loop {
        let mut request = tonic::Request::new(Payload::of_length(32));
        request.set_timeout(timeout);
        let call = client.unary(request);
        // Some stacks only send the deadline to the server.
        let result = tokio::time::timeout(timeout + Duration::from_millis(50), call).await;
        let result = result.unwrap_or_else(|_| {
            Err(tonic::Status::deadline_exceeded("the stack does not enforce the deadline"))
        });
        match result {
            Ok(answer) => lock(&seen).answered(answer.get_ref().backend()),
            Err(status) => {
                lock(&seen).failed(&status);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

impl Seen {
    fn answered(&mut self, backend: &str) {
        let now = clock::monotonic_ns();
        self.ok += 1;
        if let Some(answers) = self.backends.get_mut(backend) {
            answers.count += 1;
            answers.last_ns = now;
        } else {
            self.backends.insert(backend.to_owned(), Answers { count: 1, first_ns: now, last_ns: now });
        }
    }

    fn failed(&mut self, status: &tonic::Status) {
        self.failed += 1;
        *self.codes.entry(format!("{:?}", status.code())).or_default() += 1;
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // The counts are consistent even if a holder panicked.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
