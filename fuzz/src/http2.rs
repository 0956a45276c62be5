//! A complete HTTP/2 connection, including h2, against a server that sends arbitrary bytes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{io, panic};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use proxyless_sans_io::Rng;
use proxyless_transport::grpc::MessageReader;
use proxyless_transport::{Address, BoxedIo, ConnectOptions, Connecting, Connection, Connector, GoAway};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep, timeout};

/// The longest wait of a client on a connection that the server has closed, in virtual time.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time that the server waits for a request before it sends the bytes after its first frame.
const HOLD: Duration = Duration::from_secs(1);
/// The length of the client's connection preface.
const PREFACE: usize = 24;
/// The type of a frame that begins a request.
const HEADERS: u8 = 1;

/// The bytes that a server sends on a connection that it then closes; the first byte seeds how they are split. The
/// client connects, sends one request and reads the response.
///
/// Properties: no panic, also in the connection's own task; every wait ends; no task is left. Bytes that begin with
/// SETTINGS make the connection ready however they are split, unless later bytes end it.
pub fn http2(data: &[u8]) {
    let Some((&seed, data)) = data.split_first() else { return };
    let data = Bytes::copy_from_slice(data);
    let mut rng = Rng::new(u64::from(seed));
    let (mut rest, mut cut) = (data.clone(), VecDeque::new());
    while !rest.is_empty() {
        cut.push_back(rest.split_to(1 + rng.below(rest.len().min(40) as u64) as usize));
    }
    let whole = connection(VecDeque::from([data]));
    let parts = connection(cut);
    // A connection that becomes ready in one piece does so in parts: fewer bytes have arrived when its SETTINGS are
    // read.
    if let Some(go_away) = whole {
        assert!(parts.is_some(), "ready in one piece, and not in parts (GOAWAY: {go_away:?})");
    }
}

/// Runs one connection. `None` if it does not become ready; then the GOAWAY that was seen.
fn connection(chunks: VecDeque<Bytes>) -> Option<Option<GoAway>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // tokio catches the panic of a task.
        let next = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.set(true);
            next(info);
        }));
    });
    PANICKED.set(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread needs nothing from the system");
    let seen = runtime.block_on(async {
        let options = ConnectOptions::default();
        let address = Address::Tcp(([127, 0, 0, 1], 1).into());
        let server = Server(chunks);
        let connected: Result<Connection<Full<Bytes>>, _> =
            timeout(PATIENCE, proxyless_transport::connect(&server, &address, &options))
                .await
                .expect("connecting ends");
        let seen = match connected {
            Ok(connection) => {
                let call = async {
                    let request = Request::post("http://backend/service/method")
                        .body(Full::from(&b"\0\0\0\0\x01x"[..]))
                        .expect("a valid request");
                    let Ok(response) = connection.send(request).await else { return };
                    let Ok(mut reader) = MessageReader::new(response, 1 << 20) else { return };
                    while let Ok(Some(_)) = reader.next().await {}
                };
                timeout(PATIENCE, call).await.expect("the call ends");
                timeout(PATIENCE, connection.closed()).await.expect("the connection ends");
                Some(connection.go_away())
            }
            Err(error) => {
                let _ = error.to_string();
                None
            }
        };
        let no_tasks = async {
            while !options.tasks.is_empty() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(PATIENCE, no_tasks).await.expect("every task of the connection ends");
        seen
    });
    assert!(!PANICKED.get(), "a task of the connection panicked");
    seen
}

thread_local! {
    /// Whether a panic occurred on this thread, which also runs the connection's tasks.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Sends its chunks, one per read, and closes; the bytes after the first frame follow when a request has arrived, or
/// after a second. Accepts all writes.
struct Server(VecDeque<Bytes>);

impl Connector for Server {
    fn connect<'a>(&'a self, _address: &'a Address) -> Connecting<'a> {
        Box::pin(async { Ok(BoxedIo::new(Stream::new(self.0.clone()))) })
    }
}

struct Stream {
    chunks: VecDeque<Bytes>,
    /// The remaining length of the first frame.
    first: usize,
    written: Vec<u8>,
    /// The time limit for the request.
    hold: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    fn new(chunks: VecDeque<Bytes>) -> Self {
        let start: Vec<u8> = chunks.iter().flatten().copied().take(3).collect();
        let length = start.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
        Self { chunks, first: 9 + length, written: Vec::new(), hold: Some(Box::pin(sleep(HOLD))) }
    }

    /// Whether the client has sent the HEADERS of a request.
    fn has_request(&self) -> bool {
        let mut rest = self.written.get(PREFACE..).unwrap_or_default();
        while let Some((&[a, b, c, kind], _)) = rest.split_first_chunk::<4>() {
            if kind == HEADERS {
                return true;
            }
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            rest = rest.get(9 + length..).unwrap_or_default();
        }
        false
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A response to a request that was not sent yet is a protocol error: everything after it would be lost.
        if self.first == 0 && !self.has_request() {
            if let Some(hold) = &mut self.hold {
                ready!(hold.as_mut().poll(cx));
            }
            self.hold = None;
        }
        let limit = if self.first > 0 { self.first.min(buf.remaining()) } else { buf.remaining() };
        let Some(chunk) = self.chunks.front_mut() else { return Poll::Ready(Ok(())) };
        let part = chunk.split_to(chunk.len().min(limit));
        buf.put_slice(&part);
        if chunk.is_empty() {
            self.chunks.pop_front();
        }
        self.first = self.first.saturating_sub(part.len());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, _cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.written.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
