//! Valid and invalid HTTP/2 frames.

use std::sync::Arc;

use prost::Message as _;
use proxyless_testkit::resources::listener;
use proxyless_testkit::{LDS, Resource};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::common::SERVICE;
use super::exchange::{framed, response};
use super::hostile::{Attack, Log};
use super::memory::{measured, unmeasured};
use super::world::{World, starts_after, survives};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block without compression. Names and values are shorter than 127 bytes.
fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("a short text")], text.as_bytes()].concat();
    headers.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

fn headers(flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, 1, &block(fields))
}

fn grpc() -> Vec<u8> {
    headers(0, &[(":status", "200"), ("content-type", "application/grpc")])
}

/// The first stream of the client is number 1.
fn reset(code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, 1, &code.to_be_bytes())
}

fn go_away(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

fn half_a_message() -> Vec<u8> {
    frame(DATA, 0, 1, &framed(&[0; 1000])[..500])
}

/// The state of the connection before the attack.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Accepted,
    Settings,
    Request,
    Headers,
    HalfMessage,
}

const POINTS: [Point; 5] =
    [Point::Accepted, Point::Settings, Point::Request, Point::Headers, Point::HalfMessage];

/// The action after the bytes are written.
#[derive(Clone, Copy, Debug)]
enum Then {
    Silence,
    /// Closes the write side; the client can continue to write.
    HalfClose,
    Close,
}

/// Reaches the state, writes the bytes, and takes the action.
fn attack(point: Point, bytes: Vec<u8>, then: Then) -> Attack {
    let bytes = Arc::new(bytes);
    Attack::raw(move |io, log| {
        let bytes = Arc::clone(&bytes);
        async move {
            // The client may end the connection first.
            let _ = run(io, log.clone(), point, &bytes, then).await;
            log.done();
        }
    })
}

async fn run(mut io: TcpStream, log: Log, point: Point, bytes: &[u8], then: Then) -> std::io::Result<()> {
    if point != Point::Accepted {
        io.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
        io.read_exact(&mut [0; 24]).await?;
    }
    if !matches!(point, Point::Accepted | Point::Settings) {
        io.write_all(&frame(SETTINGS, ACK, 0, &[])).await?;
        read_to(&mut io, DATA).await?;
        if point != Point::Request {
            io.write_all(&grpc()).await?;
        }
        if point == Point::HalfMessage {
            io.write_all(&half_a_message()).await?;
        }
    }
    let (mut from, mut to) = io.into_split();
    let reading = tokio::spawn(async move { tokio::io::copy(&mut from, &mut tokio::io::sink()).await });
    let written = to.write_all(bytes).await;
    match then {
        Then::Close => reading.abort(),
        Then::HalfClose => to.shutdown().await?,
        Then::Silence => {}
    }
    log.done();
    written?;
    if !matches!(then, Then::Close) {
        // Until the client ends it.
        let _ = reading.await;
    }
    Ok(())
}

async fn read_to(io: &mut TcpStream, kind: u8) -> std::io::Result<()> {
    loop {
        let mut header = [0; 9];
        io.read_exact(&mut header).await?;
        let [a, b, c, found, ..] = header;
        io.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize]).await?;
        if found == kind {
            return Ok(());
        }
    }
}

type Case = (String, Attack);

/// All at once, each with its own channel, with and without a configuration.
async fn all_survive(cases: Vec<Case>) {
    for some in cases.chunks(12) {
        let mut running = tokio::task::JoinSet::new();
        for (what, attack) in some.iter().cloned() {
            let (unconfigured, again) = (format!("{what}, no configuration"), attack.clone());
            running.spawn(async move { drop(survives(&what, attack, |seen| seen.done >= 1).await) });
            running.spawn(async move { starts_after(&unconfigured, again, |seen| seen.done >= 1).await });
        }
        while let Some(ended) = running.join_next().await {
            ended.expect("no panic");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_at_each_point() {
    let _shared = unmeasured().await;
    let mut cases = Vec::new();
    for point in POINTS {
        cases.push((format!("half-close, {point:?}"), attack(point, Vec::new(), Then::HalfClose)));
        cases.push((format!("close, {point:?}"), attack(point, Vec::new(), Then::Close)));
        if point != Point::Accepted {
            let bytes = go_away(0, 0);
            cases.push((format!("GOAWAY, {point:?}"), attack(point, bytes, Then::Silence)));
        }
        if !matches!(point, Point::Accepted | Point::Settings) {
            let bytes = reset(8);
            cases.push((format!("RST_STREAM, {point:?}"), attack(point, bytes, Then::Silence)));
            let bytes = go_away(1, 11);
            cases.push((format!("GOAWAY of others, {point:?}"), attack(point, bytes, Then::Close)));
        }
    }
    all_survive(cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_not_grpc() {
    let _shared = unmeasured().await;
    let html = [
        headers(0, &[(":status", "200"), ("content-type", "text/html")]),
        frame(DATA, END_STREAM, 1, b"<h1>It works!</h1>"),
    ];
    let cases = [
        ("HTTP 404", headers(END_STREAM, &[(":status", "404")])),
        ("HTTP 503 that goes on", headers(0, &[(":status", "503")])),
        ("text/html", html.concat()),
        ("no content type, no trailers", headers(END_STREAM, &[(":status", "200")])),
        ("no trailers", [grpc(), frame(DATA, END_STREAM, 1, &framed(b""))].concat()),
        (
            "trailers in a message",
            [grpc(), half_a_message(), headers(END_STREAM, &[("grpc-status", "0")])].concat(),
        ),
        ("OK at once", headers(END_STREAM, &[(":status", "200"), ("grpc-status", "0")])),
        ("UNIMPLEMENTED", headers(END_STREAM, &[(":status", "200"), ("grpc-status", "12")])),
        ("a status that is not a number", headers(END_STREAM, &[(":status", "200"), ("grpc-status", "x")])),
        ("no status", headers(0, &[("content-type", "application/grpc")])),
        ("informational, a thousand times", headers(0, &[(":status", "103")]).repeat(1000)),
        ("informational at the end", headers(END_STREAM, &[(":status", "103")])),
    ];
    let cases = cases.map(|(what, bytes)| (what.to_owned(), attack(Point::Request, bytes, Then::Silence)));
    all_survive(cases.into()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_http2() {
    let _shared = unmeasured().await;
    let garbage: Vec<u8> = (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let setting =
        |id: u16, value: u32| frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
    let cases = [
        ("garbage", Point::Accepted, garbage.clone()),
        ("garbage after SETTINGS", Point::Settings, garbage),
        ("HTTP/1.1", Point::Accepted, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("a TLS alert", Point::Accepted, vec![0x15, 3, 1, 0, 2, 2, 0x46]),
        ("half a frame", Point::Settings, vec![0, 0, 8, 6]),
        ("DATA before HEADERS", Point::Request, frame(DATA, 0, 1, &framed(b""))),
        ("HEADERS twice", Point::Headers, grpc()),
        ("a stream that nobody opened", Point::Request, frame(DATA, 0, 77, b"x")),
        ("PUSH_PROMISE", Point::Request, frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x88])),
        ("unknown frames", Point::Request, frame(0xaa, 0xff, 1, &[0; 100]).repeat(1000)),
        (
            "a frame of 16 MiB",
            Point::Request,
            [&[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1], &[0; 1000][..]].concat(),
        ),
        (
            "a window beyond 2^31",
            Point::Request,
            frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]).repeat(2),
        ),
        ("a window of nothing", Point::Request, frame(WINDOW_UPDATE, 0, 1, &[0; 4])),
        ("no window for requests", Point::Settings, setting(4, 0)),
        ("no streams", Point::Settings, setting(3, 0)),
        ("bad SETTINGS", Point::Settings, setting(5, 1)),
        ("bad compression", Point::Request, frame(HEADERS, END_HEADERS, 1, &[0xff; 50])),
        ("SETTINGS flood", Point::Settings, setting(1, 0).repeat(2000)),
        ("PING flood", Point::Settings, frame(PING, 0, 0, &[0; 8]).repeat(2000)),
        ("empty DATA flood", Point::Headers, frame(DATA, 0, 1, &[]).repeat(20_000)),
    ];
    let cases = cases.map(|(what, point, bytes)| (what.to_owned(), attack(point, bytes, Then::Silence)));
    all_survive(cases.into()).await;
}

/// Headers that never end, in one block and in many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_headers() {
    let mut memory = measured().await;
    let field = block(&[("x-padding", &"x".repeat(100))]);
    let long = [frame(HEADERS, 0, 1, &block(&[(":status", "200")])), {
        frame(CONTINUATION, 0, 1, &field.repeat(140)).repeat(2000)
    }]
    .concat();
    let informational = headers(0, &[(":status", "103"), ("x-padding", &"x".repeat(100))]).repeat(50_000);
    let (one, other) =
        (World::configured(|builder| builder).await, World::configured(|builder| builder).await);
    let attacks = [long, informational].map(|bytes| attack(Point::Request, bytes, Then::Silence));
    memory.begin();
    let [long, informational] = attacks;
    let hostile = (one.attack(long), other.attack(informational));
    hostile.0.wait("endless CONTINUATION", |seen| seen.done >= 1).await;
    hostile.1.wait("endless 103", |seen| seen.done >= 1).await;
    memory.expect("endless headers", 16, 8);
    let one = one.recovers("endless CONTINUATION", hostile.0);
    tokio::join!(one, other.recovers("endless 103", hostile.1));
}

/// A server that grants no window, so that the client cannot send ACKs and does not read, and sends frames of one byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_frames_while_the_client_does_not_read() {
    let mut memory = measured().await;
    let world = World::configured(|builder| builder).await;
    let good = Resource::from(listener(SERVICE, "route")).value().clone();
    let message = framed(&response(LDS, "1", vec![good]).encode_to_vec());
    // Their ACKs are longer than the window of 64 KiB.
    let responses = frame(DATA, 0, 1, &message).repeat(1500);
    let bytes = [responses, frame(DATA, 0, 1, &[0]).repeat(300_000)].concat();
    let attack = attack(Point::Headers, bytes, Then::Silence);
    memory.begin();
    let hostile = world.attack(attack);
    hostile.wait("the connection is given up", |seen| seen.connections >= 2).await;
    memory.expect("tiny frames", 64, 64);
    world.recovers_after(memory, "tiny frames", hostile).await;
}
