//! Servers scripted byte by byte: control planes and backends that end at a bad moment.

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::*;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message as _;
use proxyless::{Bootstrap, ClientPool, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, BlackHole, ControlPlane, LDS, Resource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tonic::Code;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Reads to the next frame of a kind; returns its stream. `None` at the end of the connection.
async fn read_to(io: &mut TcpStream, kind: u8) -> Option<u32> {
    loop {
        let mut header = [0; 9];
        io.read_exact(&mut header).await.ok()?;
        let [a, b, c, found, _, stream @ ..] = header;
        io.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize]).await.ok()?;
        if found == kind {
            return Some(u32::from_be_bytes(stream));
        }
    }
}

/// Accepts one connection and exchanges SETTINGS.
async fn accept(listener: &TcpListener) -> TcpStream {
    let mut io = listener.accept().await.unwrap().0;
    io.read_exact(&mut [0; 24]).await.unwrap();
    read_to(&mut io, SETTINGS).await.unwrap();
    // The client's windows count from the moment that its SETTINGS are acknowledged.
    io.write_all(&[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat()).await.unwrap();
    io
}

/// A channel whose control plane has these addresses.
fn channel_of(servers: &[SocketAddr]) -> XdsChannel {
    let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
    let bootstrap = format!(
        r#"{{"xds_servers": [{{"server_uri": "ipv4:{}", "channel_creds": [{{"type": "insecure"}}]}}], "node": {{"id": "n"}}}}"#,
        servers.join(",")
    );
    let builder = XdsChannel::builder(&format!("xds:///{SERVICE}"));
    let bootstrap = Bootstrap::from_json(&bootstrap).unwrap();
    builder.bootstrap(bootstrap).client_pool(ClientPool::new()).build().unwrap()
}

/// The messages of several responses, each with a different version of one Listener, in DATA frames of a stream.
fn responses(count: usize, stream: u32) -> Vec<u8> {
    let resource = Resource::from(listener(SERVICE, "route"));
    let response = |version: usize| {
        let message = DiscoveryResponse {
            version_info: version.to_string(),
            nonce: version.to_string(),
            type_url: LDS.into(),
            resources: vec![resource.value().clone()],
            ..DiscoveryResponse::default()
        };
        let bytes = message.encode_to_vec();
        let prefix = [&[0][..], &u32::try_from(bytes.len()).unwrap().to_be_bytes()].concat();
        frame(DATA, 0, stream, &[prefix, bytes].concat())
    };
    (1..=count).flat_map(response).collect()
}

/// A control plane that has sent many responses at once.
struct Burst {
    server: TcpListener,
    io: TcpStream,
    stream: u32,
    _channel: (XdsChannel, Held),
}

/// The client's ACKs cannot be sent once the stream has ended, and it stops reading while many wait: unread responses
/// must not keep it from noticing the end, which `end` sends right after them.
async fn burst(end: impl FnOnce(u32) -> Vec<u8>) -> Burst {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channel = channel_of(&[server.local_addr().unwrap()]);
    // The RPC may fail in between; the channel stays usable.
    let held = hold(&channel, 1);
    let mut io = accept(&server).await;
    let stream = read_to(&mut io, HEADERS).await.unwrap();
    read_to(&mut io, DATA).await.unwrap();
    let head = [&[0x88, 0x0f, 0x10, 16][..], b"application/grpc"].concat();
    let head = frame(HEADERS, END_HEADERS, stream, &head);
    io.write_all(&[head, responses(200, stream), end(stream)].concat()).await.unwrap();
    Burst { server, io, stream, _channel: (channel, held) }
}

/// RFC 9113, section 3.4: a client may send requests right behind its preface.
#[tokio::test]
async fn the_first_request_does_not_wait_for_the_settings_of_the_server() -> TestResult {
    let server = TcpListener::bind("127.0.0.1:0").await?;
    let channel = channel_of(&[server.local_addr()?]);
    let _held = hold(&channel, 1);
    let mut io = server.accept().await?.0;
    io.read_exact(&mut [0; 24]).await?;
    let request = tokio::time::timeout(PATIENCE, read_to(&mut io, DATA)).await?;
    let stream = request.ok_or("the client has closed the connection")?;
    // The connection and the stream are used from then on.
    let settings = [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat();
    let head = [&[0x88, 0x0f, 0x10, 16][..], b"application/grpc"].concat();
    let head = frame(HEADERS, END_HEADERS, stream, &head);
    io.write_all(&[settings, head, responses(1, stream)].concat()).await?;
    let ack = tokio::time::timeout(PATIENCE, read_to(&mut io, DATA)).await?;
    assert_eq!(ack, Some(stream));
    Ok(())
}

/// A57: the timers of resources do not run while the server has not sent its SETTINGS, so the error is that of the
/// connection, although its time limit is longer.
#[tokio::test]
async fn a57_a_server_without_settings_is_unreachable_and_has_no_missing_resources() -> TestResult {
    let server = TcpListener::bind("127.0.0.1:0").await?;
    let channel = channel_of(&[server.local_addr()?]);
    let mut calls = hold(&channel, 1);
    let mut io = server.accept().await?.0;
    io.read_exact(&mut [0; 24]).await?;
    assert!(tokio::time::timeout(PATIENCE, read_to(&mut io, DATA)).await?.is_some());
    // Not a frame of HTTP/2: it ends the attempt sooner than the connect timeout does.
    io.write_all(b"220 mail.example ESMTP\r\n").await?;
    let status = calls.next().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("HTTP/2 handshake failed"), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a_connection_that_ends_with_many_responses_unread_is_replaced() -> TestResult {
    let mut burst = burst(|_| Vec::new()).await;
    burst.io.shutdown().await?;
    let mut io = tokio::time::timeout(PATIENCE, accept(&burst.server)).await?;
    assert!(read_to(&mut io, HEADERS).await.is_some());
    Ok(())
}

#[tokio::test]
async fn a_stream_that_is_reset_with_many_responses_unread_is_replaced() -> TestResult {
    const INTERNAL_ERROR: [u8; 4] = [0, 0, 0, 2];
    let mut burst = burst(|stream| frame(RST_STREAM, 0, stream, &INTERNAL_ERROR)).await;
    let next = tokio::time::timeout(PATIENCE, read_to(&mut burst.io, HEADERS)).await?;
    assert_eq!(next, Some(burst.stream + 2), "the same connection is used");
    Ok(())
}

#[tokio::test]
async fn a61_a_silent_address_of_the_control_plane_does_not_hold_up_the_others() -> TestResult {
    let backend = Backend::start("a").await?;
    let (silent, plane) = (BlackHole::start().await?, mesh(&[&backend]).await);
    let channel = channel_of(&[silent.address(), plane.address()]);
    // An attempt takes up to 20 seconds.
    assert_eq!(ask_within(&channel, Duration::from_secs(15)).await?, "a");
    assert!(silent.connections() > 0, "the first address was tried first");
    Ok(())
}

/// The behaviour of a backend on a connection after its SETTINGS.
#[derive(Clone, Copy)]
enum End {
    Close,
    GoAway,
}

/// A backend that ends each connection at once; returns the times of its connections.
async fn fickle(end: End) -> (SocketAddr, UnboundedReceiver<Instant>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (accepted, times) = unbounded_channel();
    tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            let mut io = accept(&listener).await;
            if accepted.send(Instant::now()).is_err() {
                return;
            }
            match end {
                End::Close => drop(io),
                End::GoAway => {
                    io.write_all(&frame(GOAWAY, 0, 0, &[0; 8])).await.unwrap();
                    held.push(io);
                }
            }
        }
    });
    (address, times)
}

async fn is_not_stormed(end: End) -> TestResult {
    let backend = Backend::start("a").await?;
    let (address, mut times) = fickle(end).await;
    let plane = ControlPlane::start().await?;
    plane.set_all([
        listener(SERVICE, "route").into(),
        simple_route_config("route", "cluster").into(),
        eds_cluster("cluster").into(),
        priorities("cluster", [[address, backend.address()]]).into(),
    ]);
    let channel = channel(&plane);
    until_only(&channel, &["a"]).await;
    let mut connected = Vec::new();
    while connected.len() < 4 {
        connected.push(tokio::time::timeout(PATIENCE, times.recv()).await?.unwrap());
    }
    // The first loss is followed at once; then 1.6 and 2.56 seconds pass, plus or minus 20 %.
    let waited = connected[3].duration_since(connected[1]);
    assert!(waited > Duration::from_secs(2), "{waited:?}");
    Ok(())
}

#[tokio::test]
async fn a_backend_that_closes_after_settings_gets_one_connection_per_backoff() -> TestResult {
    is_not_stormed(End::Close).await
}

#[tokio::test]
async fn a_backend_that_says_goaway_at_once_gets_one_connection_per_backoff() -> TestResult {
    is_not_stormed(End::GoAway).await
}

#[tokio::test]
async fn a48_11_calls_that_wait_for_a_stream_are_in_flight() -> TestResult {
    let one_at_a_time = TcpListener::bind("127.0.0.1:0").await?;
    let plane = mesh_of(&[one_at_a_time.local_addr()?]).await;
    plane.set(eds_cluster("cluster").lb_policy(wrr_locality(least_request(2))));
    let pool = ClientPool::new();
    let channel = builder(&plane).client_pool(pool.clone()).build()?;
    let mut calls = hold(&channel, 3);
    let mut io = one_at_a_time.accept().await?.0;
    let one_stream = [&3_u16.to_be_bytes()[..], &1_u32.to_be_bytes()].concat();
    io.write_all(&frame(SETTINGS, 0, 0, &one_stream)).await?;
    let in_flight = async || {
        let view = pool.channels().await.pop()?;
        let mut requests = None;
        view.tree.root?.walk(&mut |node| {
            let mut counts = node.details.iter().filter(|detail| detail.kind == "in_flight");
            requests = requests.or_else(|| counts.next_back()?.fields["requests"].as_u64());
        });
        requests
    };
    let counted = async {
        while in_flight().await != Some(3) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await?;
    io.shutdown().await?;
    drop((io, one_at_a_time));
    calls.next().await.unwrap_err();
    Ok(())
}

/// Its TCP window closes, and never opens again.
#[tokio::test]
async fn a_backend_that_hangs_is_given_up_after_the_write_timeout() -> TestResult {
    let hung = TcpListener::bind("127.0.0.1:0").await?;
    let plane = mesh_of(&[hung.local_addr()?]).await;
    let channel = builder(&plane).write_timeout(Duration::from_millis(300)).build()?;
    // More than the buffers of both sides hold.
    let request = EchoRequest { message: "x".repeat(32 << 20), repeat: 1 };
    let call = tokio::spawn(async move { EchoClient::new(channel).unary(request).await });
    let mut io = accept(&hung).await;
    // HTTP/2 allows all of it.
    let window = (1_u32 << 31) - 1;
    let settings = [&4_u16.to_be_bytes()[..], &window.to_be_bytes()].concat();
    let wider = frame(WINDOW_UPDATE, 0, 0, &(window - 65_535).to_be_bytes());
    io.write_all(&[frame(SETTINGS, 0, 0, &settings), wider].concat()).await?;
    let status = tokio::time::timeout(PATIENCE, call).await??.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("the socket has taken nothing for 300ms"), "{status:?}");
    Ok(())
}
