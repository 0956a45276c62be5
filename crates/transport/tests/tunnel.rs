//! Connections through an HTTP CONNECT proxy (gRFC A86).

mod support;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use proxyless_transport::{
    Address, BoxedIo, ConnectError, ConnectOptions, Connecting, Connection, Connector, Tunnel, connect,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use support::TestBody;

const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const OK: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

/// Opens pipes, notes the addresses and returns the other ends.
struct Pipes {
    ends: UnboundedSender<DuplexStream>,
    dialed: Arc<Mutex<Vec<Address>>>,
}

impl Connector for Pipes {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        self.dialed.lock().unwrap().push(address.clone());
        let (client, server) = duplex(1 << 16);
        self.ends.send(server).unwrap();
        Box::pin(async move { Ok(BoxedIo::new(client)) })
    }
}

/// Fails, or never answers.
struct Dead(Option<io::ErrorKind>);

impl Connector for Dead {
    fn connect<'a>(&'a self, _: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            match self.0 {
                Some(kind) => Err(kind.into()),
                None => std::future::pending().await,
            }
        })
    }
}

struct Proxy {
    tunnel: Arc<Tunnel>,
    ends: UnboundedReceiver<DuplexStream>,
    dialed: Arc<Mutex<Vec<Address>>>,
}

impl Proxy {
    fn new() -> Self {
        let (ends, incoming) = unbounded_channel();
        let dialed = Arc::default();
        let pipes = Pipes { ends, dialed: Arc::clone(&dialed) };
        Self { tunnel: Arc::new(Tunnel::new(Arc::new(pipes), proxy_address())), ends: incoming, dialed }
    }

    /// Starts an attempt; returns its end at the proxy after the request.
    async fn asked(&mut self, server: &str) -> (DuplexStream, Attempt) {
        let attempt = start(&self.tunnel, server);
        let mut end = self.ends.recv().await.unwrap();
        let expected = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
        let mut request = vec![0; expected.len()];
        end.read_exact(&mut request).await.unwrap();
        assert_eq!(String::from_utf8(request).unwrap(), expected);
        (end, attempt)
    }

    /// The reason of an attempt that the proxy answers like this.
    async fn reason_after(&mut self, answer: &[u8]) -> String {
        let (mut end, attempt) = self.asked("192.0.2.1:80").await;
        end.write_all(answer).await.unwrap();
        self.tunnel.reason(&attempt.await.unwrap().expect_err("no tunnel"))
    }
}

type Attempt = tokio::task::JoinHandle<Result<Connection<TestBody>, ConnectError>>;

fn proxy_address() -> SocketAddr {
    "192.0.2.9:3128".parse().unwrap()
}

fn start(tunnel: &Arc<Tunnel>, server: &str) -> Attempt {
    let (tunnel, address) = (Arc::clone(tunnel), Address::Tcp(server.parse().unwrap()));
    let options = ConnectOptions { connect_timeout: Duration::from_secs(20), ..ConnectOptions::default() };
    tokio::spawn(async move { connect::<TestBody>(&*tunnel, &address, &options).await })
}

#[tokio::test(start_paused = true)]
async fn a86_14_the_proxy_is_dialed_and_asked_for_the_endpoint() {
    for server in ["192.0.2.1:80", "[2001:db8::1]:443"] {
        let mut proxy = Proxy::new();
        let (mut end, attempt) = proxy.asked(server).await;
        assert_eq!(*proxy.dialed.lock().unwrap(), [Address::Tcp(proxy_address())]);
        end.write_all(b"HTTP/1.1 200 Connection established\r\nVia: proxy\r\n\r\n").await.unwrap();
        // The client speaks HTTP/2 right after the head.
        let mut preface = [0; 24];
        end.read_exact(&mut preface).await.unwrap();
        assert!(preface.starts_with(b"PRI * HTTP/2.0"));
        end.write_all(&SETTINGS).await.unwrap();
        attempt.await.unwrap().expect("a connection");
    }
}

#[tokio::test(start_paused = true)]
async fn a86_14_bytes_of_the_tunnel_that_come_with_the_head_are_kept() {
    // A server may send its SETTINGS first.
    let all = [OK, &SETTINGS].concat();
    for split in 0..=all.len() {
        let mut proxy = Proxy::new();
        let (mut end, attempt) = proxy.asked("192.0.2.1:80").await;
        for part in [&all[..split], &all[split..]] {
            end.write_all(part).await.unwrap();
            // The other side reads what there is before it waits.
            tokio::task::yield_now().await;
        }
        attempt.await.unwrap().unwrap_or_else(|error| panic!("split at {split}: {error}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_proxy_endpoint_status_and_reason() {
    let mut proxy = Proxy::new();
    let reason = proxy.reason_after(b"HTTP/1.1 403 Forbidden by policy\r\nContent-Length: 2\r\n\r\nno").await;
    assert_eq!(reason, "the proxy 192.0.2.9:3128 refused CONNECT 192.0.2.1:80: 403 Forbidden by policy");
    let reason = proxy.reason_after(b"HTTP/1.0 502\r\n\r\n").await;
    assert_eq!(reason, "the proxy 192.0.2.9:3128 refused CONNECT 192.0.2.1:80: 502");
}

#[tokio::test(start_paused = true)]
async fn garbage_and_endless_heads_are_rejected_before_the_time_limit() {
    let start = tokio::time::Instant::now();
    let mut proxy = Proxy::new();
    for (answer, why) in [
        (b"SSH-2.0-x".to_vec(), "it is not HTTP/1, but \"SSH-2.0-x\""),
        (
            [b"HTTP/1.1 200 OK\r\na: ".to_vec(), vec![b'b'; 1 << 15]].concat(),
            "does not end within 16384 bytes",
        ),
        (vec![b'\n'; 1], "it is not HTTP/1"),
    ] {
        let reason = proxy.reason_after(&answer).await;
        let named = "the proxy 192.0.2.9:3128 sent an invalid response to CONNECT 192.0.2.1:80: ";
        assert!(reason.starts_with(named) && reason.contains(why), "{reason}");
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_hangs_up_is_named() {
    let mut proxy = Proxy::new();
    for answer in [&b""[..], b"HTTP/1.1 2"] {
        let (mut end, attempt) = proxy.asked("192.0.2.1:80").await;
        end.write_all(answer).await.unwrap();
        drop(end);
        let reason = proxy.tunnel.reason(&attempt.await.unwrap().expect_err("no tunnel"));
        let expected =
            "the proxy 192.0.2.9:3128 closed the connection before its response to CONNECT 192.0.2.1:80";
        assert_eq!(reason, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_holds_in_every_stage_and_the_error_names_it() {
    let begin = tokio::time::Instant::now();
    let dead = Arc::new(Tunnel::new(Arc::new(Dead(None)), proxy_address()));
    let error = start(&dead, "192.0.2.1:80").await.unwrap().expect_err("no proxy");
    assert_eq!(dead.reason(&error), "no connection to the proxy 192.0.2.9:3128 within 20s");
    assert_eq!(begin.elapsed().as_secs(), 20);

    let mut proxy = Proxy::new();
    let (mut end, attempt) = proxy.asked("192.0.2.1:80").await;
    end.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
    let error = attempt.await.unwrap().expect_err("no answer");
    let expected = "the proxy 192.0.2.9:3128 did not answer CONNECT 192.0.2.1:80 within 20s";
    assert_eq!(proxy.tunnel.reason(&error), expected);
    assert_eq!(begin.elapsed().as_secs(), 40);

    let (mut end, attempt) = proxy.asked("192.0.2.1:80").await;
    end.write_all(OK).await.unwrap();
    let error = attempt.await.unwrap().expect_err("no SETTINGS");
    let reason = proxy.tunnel.reason(&error);
    assert!(
        reason.starts_with("through the proxy 192.0.2.9:3128: connected, but no HTTP/2 SETTINGS"),
        "{reason}"
    );
}

#[tokio::test]
async fn an_unreachable_proxy_is_named() {
    let refused = Dead(Some(io::ErrorKind::ConnectionRefused));
    let tunnel = Arc::new(Tunnel::new(Arc::new(refused), proxy_address()));
    let error = start(&tunnel, "192.0.2.1:80").await.unwrap().expect_err("no proxy");
    assert_eq!(tunnel.reason(&error), "connecting to the proxy 192.0.2.9:3128: connection refused");
}

#[tokio::test]
async fn a_unix_socket_is_not_reached_through_a_proxy() {
    let proxy = Proxy::new();
    let error = proxy.tunnel.connect(&Address::Unix("/a".into())).await.expect_err("no tunnel");
    assert!(error.to_string().contains("cannot be reached through a proxy"), "{error}");
    assert!(proxy.dialed.lock().unwrap().is_empty());
}
