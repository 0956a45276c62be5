//! Unary calls in a closed loop.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::latency::Latencies;
use crate::service::{BenchClient, Channel, Payload};

/// Runs this many callers, each with one call after the other.
pub(super) async fn run<T: Channel>(
    client: BenchClient<T>,
    concurrency: usize,
    seconds: f64,
    payload: usize,
) -> Value {
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let mut callers = JoinSet::new();
    for _ in 0..concurrency {
        callers.spawn(caller(client.clone(), Payload::of_length(payload), end));
    }
    let (mut latencies, mut failed) = (Latencies::default(), 0);
    while let Some(result) = callers.join_next().await {
        if let Ok((own, failures)) = result {
            latencies.add(&own);
            failed += failures;
        }
    }
    json!({
        "rpcs": latencies.count(), "failed": failed, "seconds": start.elapsed().as_secs_f64(),
        "p50_us": latencies.quantile_us(0.5), "p99_us": latencies.quantile_us(0.99),
    })
}

async fn caller<T: Channel>(mut client: BenchClient<T>, payload: Payload, end: Instant) -> (Latencies, u64) {
    let (mut latencies, mut failed) = (Latencies::default(), 0);
    let mut now = Instant::now();
    while now < end {
        let result = client.unary(payload.clone()).await;
        let done = Instant::now();
        match result {
            Ok(_) => latencies.record(done - now),
            Err(_) => failed += 1,
        }
        now = done;
    }
    (latencies, failed)
}
