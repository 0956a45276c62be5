//! The amount of a response that is buffered for a caller that does not read, and the setting that limits it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use proxyless::XdsChannel;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use tonic::Request;

use crate::Turn;
use crate::case::{ask_in_time, options, plane_of, start};
use crate::common::raw::{data, frame, grpc_headers, header_block, headers};
use crate::common::{PATIENCE, ask_within};
use crate::frames::setting;
use crate::memory::Measure;
use crate::server::{Behaviour, Hostile};

/// The memory that may remain after a test: that of the runtime and the libraries.
const SLACK: usize = 2 << 20;

/// Waits until a flood has stalled, its connection has ended, or this much was sent. Returns the amount.
async fn flooded(hostile: &Hostile, most: usize) -> usize {
    const STILL: Duration = Duration::from_millis(700);
    let (begin, mut last, mut since) = (Instant::now(), 0, Instant::now());
    loop {
        let now = hostile.flooded();
        if now > last {
            (last, since) = (now, Instant::now());
        }
        let stalled = last > 0 && since.elapsed() > STILL;
        if stalled || last > most || begin.elapsed() > PATIENCE {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A caller that reads one message of an endless response, and pauses. Returns the peak memory.
async fn paused_reader(
    window: Option<u32>,
    size: u32,
    again: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
) -> Result<usize, String> {
    let hostile = start(Behaviour::Stream(Box::new(grpc_headers), Box::new(again), size)).await;
    let plane = plane_of(&[hostile.address()]).await;
    let options = options(&plane);
    let options =
        window.into_iter().fold(options, |options, bytes| options.initial_stream_window_size(bytes));
    let channel: XdsChannel = options.build().map_err(|error| error.to_string())?;
    channel.ready().await.map_err(|error| error.to_string())?;
    let measure = Measure::start();
    let mut request = Request::new(EchoRequest::new("hello"));
    request.set_timeout(2 * PATIENCE);
    let response =
        EchoClient::new(channel.clone()).repeat(request).await.map_err(|error| error.to_string())?;
    let mut messages = response.into_inner();
    messages.message().await.map_err(|error| error.to_string())?.ok_or("no message")?;
    flooded(&hostile, 1 << 30).await;
    let peak = measure.peak();
    let next = tokio::time::timeout(PATIENCE, messages.message()).await;
    next.map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())?
        .ok_or("the response ended")?;
    drop((messages, channel));
    hostile.left_alone().await?;
    // h2 keeps the capacity for the most unread frames as long as the connection lives.
    measure.returned(SLACK).await?;
    Ok(peak)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_reader_buffers_up_to_the_configured_window() {
    let turn = Turn::take().await;
    // One message of 16,000 bytes in a frame.
    let large =
        |stream| data(stream, 0, &[&[0, 0, 0, 0x3e, 0x80, 0x12, 0xfd, 0x7c][..], &[b'x'; 15_997]].concat());
    let default = paused_reader(None, 16_005, large).await.expect("bounded");
    assert!(default > 0 && default < 3 << 20, "{default} bytes");
    let least = paused_reader(Some(0), 16_005, large).await.expect("bounded");
    assert!(least < 512 << 10, "{least} bytes");
    // Empty messages, each in a separate frame.
    let small = |stream| data(stream, 0, &[0; 5]).repeat(100);
    let default = paused_reader(None, 500, small).await.expect("bounded");
    // h2 takes about 250 bytes for each unread frame, and half as much again while its slab grows.
    assert!(default > 0 && default < 128 << 20, "{default} bytes");
    let least = paused_reader(Some(0), 500, small).await.expect("bounded");
    assert!(least < 8 << 20, "{least} bytes");
    turn.end();
}

/// h2 keeps interim responses until the final one is polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interim_responses_of_a_call_that_nobody_polls_are_bounded() {
    let turn = Turn::take().await;
    let hostile = start(Behaviour::Flood(
        Box::new(|_| Vec::new()),
        Box::new(|stream| {
            headers(stream, 0, &[(":status", "100"), ("x-early", &"x".repeat(1000))]).repeat(10)
        }),
    ))
    .await;
    let plane = plane_of(&[hostile.address()]).await;
    let channel = options(&plane).build().expect("a channel");
    channel.ready().await.expect("READY");
    let measure = Measure::start();
    let mut call = pin!(ask_within(&channel, PATIENCE));
    // Polled until it is sent, and not again.
    while hostile.requests() == 0 {
        assert!(poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await.is_pending());
        tokio::task::yield_now().await;
    }
    flooded(&hostile, 256 << 20).await;
    assert!(measure.peak() < 32 << 20, "{} bytes", measure.peak());
    turn.end();
}

/// A backend that reads no request bodies: they wait in the client, and are freed with their RPCs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_not_taken_go_with_their_rpcs() {
    const SIZE: usize = 100_000;
    const RPCS: usize = 100;
    let turn = Turn::take().await;
    let hostile = start(Behaviour::Settings(setting(4, 0))).await;
    let plane = plane_of(&[hostile.address()]).await;
    let channel = options(&plane).build().expect("a channel");
    channel.ready().await.expect("READY");
    let measure = Measure::start();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..RPCS {
        let mut request = Request::new(EchoRequest::new("x".repeat(SIZE)));
        request.set_timeout(Duration::from_millis(500));
        let channel = channel.clone();
        calls.spawn(async move { EchoClient::new(channel).unary(request).await.map(drop) });
    }
    while let Some(ended) = calls.join_next().await {
        assert_eq!(ended.expect("no panic").expect_err("no answer").code(), tonic::Code::DeadlineExceeded);
    }
    // The message, its encoding, and the growth of tonic's buffer.
    assert!(measure.peak() < 5 * SIZE * RPCS, "{} bytes", measure.peak());
    measure.returned(SLACK).await.expect("memory is given back while the connection is there");
    drop(channel);
    hostile.left_alone().await.expect("closed");
    turn.end();
}

/// Header blocks up to the limit are decoded, regardless of content, and freed with the RPC.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn header_blocks_are_not_kept() {
    let turn = Turn::take().await;
    let block = header_block(&vec![("x-name".to_owned(), "v".repeat(100)); 100]);
    let hostile = start(Behaviour::Reply(Box::new(move |stream| {
        let head = [header_block(&[(":status", "200"), ("content-type", "application/grpc")]), block.clone()];
        let last = header_block(&[("grpc-status", "0")]);
        let trailers = frame(1, 5, stream, &[&last, &block[..]].concat());
        [frame(1, 4, stream, &head.concat()), data(stream, 0, &[0; 5]), trailers].concat()
    })))
    .await;
    let plane = plane_of(&[hostile.address()]).await;
    let channel = options(&plane).build().expect("a channel");
    ask_in_time(&channel, PATIENCE).await.expect("an answer");
    let measure = Measure::start();
    for _ in 0..300 {
        ask_in_time(&channel, PATIENCE).await.expect("an answer");
    }
    assert!(measure.peak() < 2 << 20, "{} bytes", measure.peak());
    measure.returned(512 << 10).await.expect("given back");
    turn.end();
}
