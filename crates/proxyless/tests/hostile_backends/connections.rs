//! Connections that are not HTTP/2, end at once, or are told to go away.

use std::time::Duration;

use tonic::Code;

use crate::Turn;
use crate::answers::EMPTY;
use crate::case::{Case, play};
use crate::common::raw::{data, frame, grpc_headers};
use crate::frames::good;
use crate::server::Behaviour;

/// GOAWAY.
fn go_away(last: u32, code: u32, debug: &[u8]) -> Vec<u8> {
    frame(7, 0, 0, &[&last.to_be_bytes(), &code.to_be_bytes(), debug].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_http2_is_named() {
    let turn = Turn::take().await;
    let lost = Code::Unavailable;
    let greet = |name, cause, greeting: Vec<u8>| {
        Case::new(name, lost, cause, move || Behaviour::Greet(greeting.clone()))
    };
    let close = |name, cause, greeting: Vec<u8>| {
        Case::new(name, lost, cause, move || Behaviour::GreetAndClose(greeting.clone()))
    };
    let late = "no HTTP/2 SETTINGS from the server";
    play(vec![
        greet("HTTP/1.1", "the server answered with HTTP/1", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        close(
            "HTTP/1.1 and closed",
            "the server answered with HTTP/1",
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        ),
        greet("SSH", "did not begin with a SETTINGS frame", b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()),
        greet("TLS alert", "the server speaks TLS", vec![0x15, 3, 3, 0, 2, 2, 70]),
        greet("zeros", "did not begin with a SETTINGS frame", vec![0; 4096]),
        greet("SETTINGS ACK first", "did not begin with a SETTINGS frame", frame(4, 1, 0, &[])),
        greet("silence", late, Vec::new()).or(Code::DeadlineExceeded).impatient(),
        greet("part of SETTINGS", late, vec![0, 0, 6, 4, 0, 0]).or(Code::DeadlineExceeded).impatient(),
        greet("SETTINGS of 16 MiB", "", [&[255, 255, 255, 4, 0, 0, 0, 0, 0][..], &[0; 40_000]].concat())
            .or(Code::DeadlineExceeded)
            .impatient(),
        close("closed at once", "the server closed the connection", Vec::new()),
        close("closed after SETTINGS", "the server closed the connection", frame(4, 0, 0, &[])),
        close("GOAWAY and closed", "GOAWAY", [frame(4, 0, 0, &[]), go_away(0, 2, b"no")].concat()),
        Case::new("reset at once", lost, "", || Behaviour::Abort),
    ])
    .await;
    turn.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_end_during_rpcs_are_named() {
    let turn = Turn::take().await;
    let lost = Code::Unavailable;
    let closed = "the server closed the connection";
    play(vec![
        Case::new("closed after the request", lost, closed, || Behaviour::Close(Box::new(|_| Vec::new()))),
        Case::new("closed after headers", lost, closed, || Behaviour::Close(Box::new(grpc_headers))),
        Case::new("closed within a frame", lost, closed, || {
            Behaviour::Close(Box::new(|stream| data(stream, 0, EMPTY)[..11].to_vec()))
        }),
        Case::new("half closed after the request", lost, closed, || {
            Behaviour::HalfClose(Box::new(|_| Vec::new()))
        }),
        Case::new("half closed after the answer", Code::Ok, "", || Behaviour::HalfClose(Box::new(good)))
            .or(lost),
        Case::new("drips", Code::DeadlineExceeded, "waiting for the response", || {
            Behaviour::Drip(Duration::from_millis(100), Box::new(good))
        }),
    ])
    .await;
    turn.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_aways_lose_no_rpc_that_is_answered_and_storm_nobody() {
    let turn = Turn::take().await;
    let refused = |name, frames: fn(u32) -> Vec<u8>| {
        Case::reply(name, Code::DeadlineExceeded, "GOAWAY", frames).copies(11).or(Code::Unavailable)
    };
    let answered = |name, frames: fn(u32) -> Vec<u8>| {
        Case::reply(name, Code::Ok, "", frames).or(Code::Unavailable).copies(11)
    };
    play(vec![
        refused("GOAWAY of 0 after each request", |_| go_away(0, 0, b"")),
        refused("GOAWAY of the stream before", |stream| go_away(stream.saturating_sub(2), 0, b"")),
        refused("GOAWAY with an error", |_| go_away(0, 2, b"internal")),
        refused("a thousand GOAWAYs", |_| go_away(0, 0, b"").repeat(1000)),
        refused("GOAWAY that shrinks", |stream| {
            [go_away(u32::MAX >> 1, 0, b""), go_away(stream, 0, b""), go_away(0, 0, b"")].concat()
        }),
        refused("too_many_pings", |_| go_away(0, 11, b"too_many_pings")),
        refused("GOAWAY with 16 KB of debug data", |_| go_away(0, 0, &[b'\x1b'; 16_000])),
        answered("GOAWAY and an answer", |stream| [go_away(stream, 0, b""), good(stream)].concat()),
        answered("GOAWAY of all and an answer", |stream| {
            [go_away(u32::MAX >> 1, 0, b""), good(stream)].concat()
        }),
        answered("GOAWAY of all, twice, and an answer", |stream| {
            [go_away(u32::MAX >> 1, 0, b""), go_away(stream, 0, b""), good(stream)].concat()
        }),
        Case::reply("GOAWAY that grows", Code::DeadlineExceeded, "", |stream| {
            [go_away(0, 0, b""), go_away(stream, 0, b""), good(stream)].concat()
        })
        .copies(11)
        .or(Code::Unavailable)
        .or(Code::Ok),
        Case::reply("GOAWAY, and no answer", Code::DeadlineExceeded, "", |stream| go_away(stream, 0, b""))
            .or(Code::Unavailable)
            .copies(11),
    ])
    .await;
    turn.end();
}
