//! Messages in both directions on open streams.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::service::{BenchClient, Channel, Payload};

/// Runs this many streams, each with one message after the other.
pub(super) async fn run<T: Channel>(
    client: BenchClient<T>,
    concurrency: usize,
    seconds: f64,
    payload: usize,
) -> Value {
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let mut streams = JoinSet::new();
    for _ in 0..concurrency {
        streams.spawn(stream(client.clone(), Payload::of_length(payload), end));
    }
    total(streams, start).await
}

/// The messages of all streams, once they have ended.
pub(super) async fn total(mut streams: JoinSet<Result<u64, Status>>, start: Instant) -> Value {
    let (mut messages, mut failed, mut reason) = (0, 0, None);
    while let Some(result) = streams.join_next().await {
        match result {
            Ok(Ok(count)) => messages += count,
            Ok(Err(status)) => {
                failed += 1;
                reason = Some(status.to_string());
            }
            Err(_) => failed += 1,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    json!({ "messages": messages, "failed": failed, "reason": reason, "seconds": seconds })
}

async fn stream<T: Channel>(
    mut client: BenchClient<T>,
    payload: Payload,
    end: Instant,
) -> Result<u64, Status> {
    let (requests, receiver) = mpsc::channel(1);
    let gone = |_| Status::internal("the request stream ended early");
    requests.send(payload.clone()).await.map_err(gone)?;
    let mut answers = client.stream(ReceiverStream::new(receiver)).await?.into_inner();
    let mut count = 0;
    while answers.message().await?.is_some() {
        count += 1;
        if Instant::now() >= end {
            break;
        }
        requests.send(payload.clone()).await.map_err(gone)?;
    }
    Ok(count)
}
