//! Messages in one direction, as fast as flow control permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::Status;

use super::streams;
use crate::service::{BenchClient, Channel, Payload};

/// The direction of the messages.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// The end of each stream: the first of both.
#[derive(Clone, Copy)]
struct End {
    at: Instant,
    messages: u64,
}

impl End {
    fn reached(self, messages: u64) -> bool {
        messages >= self.messages || Instant::now() >= self.at
    }
}

/// Runs this many streams, for a time or up to a number of messages on each.
pub(super) async fn run<T: Channel>(
    client: BenchClient<T>,
    direction: Direction,
    concurrency: usize,
    seconds: f64,
    payload: usize,
    messages: Option<u64>,
) -> Value {
    let start = Instant::now();
    let end = End { at: start + Duration::from_secs_f64(seconds), messages: messages.unwrap_or(u64::MAX) };
    let mut streams = JoinSet::new();
    for _ in 0..concurrency {
        let client = client.clone();
        match direction {
            Direction::Up => streams.spawn(up(client, Payload::of_length(payload), end)),
            Direction::Down => streams.spawn(down(client, payload, end)),
        };
    }
    streams::total(streams, start).await
}

/// Sends, and waits for the response that says that the server has read everything.
async fn up<T: Channel>(mut client: BenchClient<T>, payload: Payload, end: End) -> Result<u64, Status> {
    let sent = Arc::<AtomicU64>::default();
    let counter = Arc::clone(&sent);
    let requests = std::iter::from_fn(move || {
        if end.reached(counter.load(Ordering::Relaxed)) {
            return None;
        }
        counter.fetch_add(1, Ordering::Relaxed);
        Some(payload.clone())
    });
    client.sink(tokio_stream::iter(requests)).await?;
    Ok(sent.load(Ordering::Relaxed))
}

/// Reads, and cancels the stream at the end.
async fn down<T: Channel>(mut client: BenchClient<T>, payload: usize, end: End) -> Result<u64, Status> {
    let mut answers = client.source(Payload::text(&payload.to_string())).await?.into_inner();
    let mut count = 0;
    while !end.reached(count) {
        if answers.message().await?.is_none() {
            return Err(Status::internal("the server ended the stream"));
        }
        count += 1;
    }
    Ok(count)
}
