//! Servers that are scripted frame by frame.

#![allow(dead_code, clippy::expect_used)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::Request;
use http_body::Frame;
use proxyless_transport::{
    Address, BoxedIo, ConnectOptions, Connecting, Connection, Connector, TcpConnector,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const ACK: u8 = 1;

/// A request body: the queued frames, then (if open) those from the channel.
pub(crate) struct TestBody {
    queued: VecDeque<Bytes>,
    more: Option<mpsc::UnboundedReceiver<Bytes>>,
}

impl TestBody {
    pub(crate) fn of(data: &'static [u8]) -> Self {
        Self { queued: [Bytes::from_static(data)].into(), more: None }
    }

    pub(crate) fn none() -> Self {
        Self { queued: VecDeque::new(), more: None }
    }

    pub(crate) fn open() -> (mpsc::UnboundedSender<Bytes>, Self) {
        let (sender, more) = mpsc::unbounded_channel();
        (sender, Self { queued: VecDeque::new(), more: Some(more) })
    }

    pub(crate) fn queued(&self) -> Vec<Bytes> {
        self.queued.iter().cloned().collect()
    }
}

impl http_body::Body for TestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(data) = self.queued.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match &mut self.more {
            Some(more) => more.poll_recv(cx).map(|data| data.map(|data| Ok(Frame::data(data)))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.queued.is_empty() && self.more.is_none()
    }
}

pub(crate) fn request(body: TestBody) -> Request<TestBody> {
    Request::post("http://test/service/method").body(body).expect("a request")
}

pub(crate) fn ping() -> Request<TestBody> {
    request(TestBody::of(b"ping"))
}

/// Polls by hand, so that order is exact.
pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Hands out one end of a pipe: with no socket, paused time moves only when all tasks wait.
pub(crate) struct Pipe(Mutex<Option<DuplexStream>>);

/// A connector, and the server's end of the only stream that it opens.
pub(crate) fn pipe() -> (Pipe, DuplexStream) {
    let (client, server) = duplex(1 << 16);
    (Pipe(Mutex::new(Some(client))), server)
}

impl Connector for Pipe {
    fn connect<'a>(&'a self, _: &'a Address) -> Connecting<'a> {
        let io = self.0.lock().expect("not poisoned").take();
        Box::pin(async move { io.map(BoxedIo::new).ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }
}

/// A TCP socket that takes only so many more bytes, until it is told otherwise.
pub(crate) struct Gated {
    io: TcpStream,
    budget: Arc<AtomicUsize>,
}

/// Opens one [`Gated`] socket.
pub(crate) struct Gate {
    pub(crate) budget: Arc<AtomicUsize>,
}

impl Gate {
    pub(crate) fn open() -> Self {
        Self { budget: Arc::new(AtomicUsize::new(usize::MAX)) }
    }
}

impl Connector for Gate {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            let Address::Tcp(address) = address else { return Err(io::ErrorKind::Unsupported.into()) };
            let io = TcpStream::connect(address).await?;
            Ok(BoxedIo::new(Gated { io, budget: Arc::clone(&self.budget) }))
        })
    }
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gated {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let budget = self.budget.load(Ordering::SeqCst);
        let part = buf.get(..budget).unwrap_or(buf);
        if part.is_empty() {
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, part))?;
        self.budget.fetch_sub(written, Ordering::SeqCst);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// An address for connectors that do not look at it.
pub(crate) fn anywhere() -> Address {
    Address::Tcp(([192, 0, 2, 1], 80).into())
}

pub(crate) async fn listen() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = Address::Tcp(listener.local_addr().expect("an address"));
    (listener, address)
}

/// Completes when all these tasks have ended.
pub(crate) async fn finished(tasks: &TaskTracker) {
    tasks.close();
    tasks.wait().await;
}

pub(crate) async fn connect(address: &Address) -> Connection<TestBody> {
    proxyless_transport::connect(&TcpConnector::default(), address, &ConnectOptions::default())
        .await
        .expect("a connection")
}

/// A connection to a server that reads and writes frames by hand. Its SETTINGS carry `settings`.
pub(crate) async fn raw(settings: &[u8]) -> (Connection<TestBody>, Raw<TcpStream>) {
    raw_with(&TcpConnector::default(), settings).await
}

/// Like [`raw`], on a stream opened by `connector`.
pub(crate) async fn raw_with<B>(connector: &dyn Connector, settings: &[u8]) -> (Connection<B>, Raw<TcpStream>)
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    raw_options(connector, &ConnectOptions::default(), settings).await
}

/// Like [`raw_with`], with these options.
pub(crate) async fn raw_options<B>(
    connector: &dyn Connector,
    options: &ConnectOptions,
    settings: &[u8],
) -> (Connection<B>, Raw<TcpStream>)
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    let (listener, address) = listen().await;
    let client = proxyless_transport::connect(connector, &address, options);
    let server = async {
        let mut server = Raw::accept(&listener).await;
        server.write(SETTINGS, 0, 0, settings).await;
        server
    };
    let (connection, server) = tokio::join!(client, server);
    (connection.expect("a connection"), server)
}

pub(crate) fn max_concurrent_streams(limit: u32) -> Vec<u8> {
    [&3_u16.to_be_bytes()[..], &limit.to_be_bytes()].concat()
}

/// A server that reads and writes frames by hand.
pub(crate) struct Raw<T>(pub T);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Raw<TcpStream> {
    /// Accepts one connection and reads the client's preface.
    pub(crate) async fn accept(listener: &TcpListener) -> Self {
        let io = listener.accept().await.expect("a client").0;
        io.set_nodelay(true).expect("an option of every TCP socket");
        Self::begin(io).await
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Raw<T> {
    pub(crate) async fn begin(mut io: T) -> Self {
        let mut preface = [0; 24];
        io.read_exact(&mut preface).await.expect("a preface");
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        Self(io)
    }

    pub(crate) async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = u32::try_from(payload.len()).expect("short").to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.expect("the client is there");
    }

    /// The next frame, or `None` at the end of the connection.
    pub(crate) async fn read(&mut self) -> Option<RawFrame> {
        let mut header = [0; 9];
        self.0.read_exact(&mut header).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(RawFrame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// Skips to the next frame of a kind.
    pub(crate) async fn read_kind(&mut self, kind: u8) -> RawFrame {
        loop {
            let frame = self.read().await.expect("the client is there");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Waits for the headers of the next request, and returns its stream.
    pub(crate) async fn next_request(&mut self) -> u32 {
        self.read_kind(HEADERS).await.stream
    }

    /// Reads everything that the client has sent, up to its answer to a PING. Returns the frames.
    pub(crate) async fn sync(&mut self) -> Vec<RawFrame> {
        self.write(PING, 0, 0, b"sync1234").await;
        let mut frames = Vec::new();
        loop {
            let frame = self.read().await.expect("the client is there");
            if frame.kind == PING && frame.flags == ACK && frame.payload == b"sync1234" {
                return frames;
            }
            frames.push(frame);
        }
    }

    /// Response headers: `:status: 200`.
    pub(crate) async fn respond(&mut self, stream: u32, flags: u8) {
        self.write(HEADERS, END_HEADERS | flags, stream, &[0x88]).await;
    }

    /// Trailers: `grpc-status: 0`.
    pub(crate) async fn end(&mut self, stream: u32) {
        let trailers = [&[0, 11][..], b"grpc-status", &[1], b"0"].concat();
        self.write(HEADERS, END_HEADERS | END_STREAM, stream, &trailers).await;
    }

    pub(crate) async fn reset(&mut self, stream: u32, code: u32) {
        self.write(RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    pub(crate) async fn go_away(&mut self, last: u32, code: u32, debug: &[u8]) {
        let payload = [&last.to_be_bytes()[..], &code.to_be_bytes(), debug].concat();
        self.write(GOAWAY, 0, 0, &payload).await;
    }

    /// Reads until the client has closed.
    pub(crate) async fn drained(&mut self) {
        while self.read().await.is_some() {}
    }
}
