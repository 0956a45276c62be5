//! A backend that misbehaves by script, until it is told to behave.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::common::raw::{END_STREAM, Reply, frame, success};

/// Bytes of a stream.
pub(crate) type Frames = Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>;

/// The behaviour of a backend.
pub(crate) enum Behaviour {
    /// Answers each request with these bytes.
    Reply(Frames),
    /// Answers a request with these bytes, and closes the connection.
    Close(Frames),
    /// Answers a request with these bytes, and closes its half of the connection.
    HalfClose(Frames),
    /// Answers the first request of a connection with the first, then sends the second for ever.
    Flood(Frames, Frames),
    /// Answers the first request of a connection with the first, then sends the second for ever, which has so many bytes of
    /// DATA, as far as flow control allows.
    Stream(Frames, Frames, u32),
    /// Sends these bytes one by one for ever, `.0` apart.
    Drip(Duration, Frames),
    /// Begins with these bytes instead of SETTINGS, and reads on.
    Greet(Vec<u8>),
    /// Begins with these bytes instead of SETTINGS, and closes.
    GreetAndClose(Vec<u8>),
    /// Resets each connection at once.
    Abort,
    /// Begins with these SETTINGS, and answers well.
    Settings(Vec<u8>),
}

impl Behaviour {
    /// Whether connections become READY, at least for a moment.
    pub(crate) fn sends_settings(&self) -> bool {
        !matches!(self, Self::Greet(_) | Self::GreetAndClose(_) | Self::Abort)
    }
}

/// Counts of a backend.
#[derive(Default)]
struct Seen {
    accepted: AtomicUsize,
    requests: AtomicUsize,
    /// The bytes of floods that were sent.
    flooded: AtomicUsize,
}

pub(crate) struct Hostile {
    address: SocketAddr,
    seen: Arc<Seen>,
    open: watch::Sender<usize>,
    good: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hostile {
    pub(crate) async fn start(behaviour: Behaviour) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (seen, open, good) = (Arc::<Seen>::default(), watch::Sender::new(0), watch::Sender::new(false));
        let peer = Arc::new(Peer { behaviour, seen: Arc::clone(&seen), good: good.clone() });
        let opened = open.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                peer.seen.accepted.fetch_add(1, SeqCst);
                opened.send_modify(|open| *open += 1);
                let (peer, closed) = (Arc::clone(&peer), Closed(opened.clone()));
                connections.spawn(async move {
                    let _closed = closed;
                    // The client decides how a connection ends.
                    drop(peer.serve(socket).await);
                });
            }
        });
        Ok(Self { address, seen, open, good, task })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn accepted(&self) -> usize {
        self.seen.accepted.load(SeqCst)
    }

    /// The number of requests, including copies.
    pub(crate) fn requests(&self) -> usize {
        self.seen.requests.load(SeqCst)
    }

    /// The number of flood bytes that the client, or the socket, accepted.
    pub(crate) fn flooded(&self) -> usize {
        self.seen.flooded.load(SeqCst)
    }

    /// Answers requests correctly from now on. Closes connections where that is not possible.
    pub(crate) fn behave(&self) {
        self.good.send_replace(true);
    }

    /// Waits until the client has closed every connection.
    pub(crate) async fn left_alone(&self) -> Result<(), String> {
        let mut open = self.open.subscribe();
        let wait = tokio::time::timeout(crate::common::PATIENCE, open.wait_for(|open| *open == 0)).await;
        wait.map(drop).map_err(|_| format!("{} connections are left", *self.open.borrow()))
    }
}

struct Closed(watch::Sender<usize>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

struct Peer {
    behaviour: Behaviour,
    seen: Arc<Seen>,
    good: watch::Sender<bool>,
}

impl Peer {
    async fn serve(&self, socket: TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        if *self.good.borrow() {
            return self.answer(socket, &settings(&[])).await;
        }
        let mut good = self.good.subscribe();
        tokio::select! {
            ended = self.misbehave(socket) => ended,
            _ = good.wait_for(|good| *good), if !matches!(self.behaviour, Behaviour::Reply(_)) => Ok(()),
        }
    }

    async fn misbehave(&self, mut socket: TcpStream) -> io::Result<()> {
        match &self.behaviour {
            Behaviour::Abort => socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)),
            Behaviour::Settings(values) => self.answer(socket, &settings(values)).await,
            Behaviour::Greet(greeting) => {
                socket.write_all(greeting).await?;
                tokio::io::copy(&mut socket, &mut tokio::io::sink()).await.map(drop)
            }
            Behaviour::GreetAndClose(greeting) => {
                socket.write_all(greeting).await?;
                socket.shutdown().await
            }
            _ => self.answer(socket, &settings(&[])).await,
        }
    }

    /// Answers the requests of a connection.
    async fn answer(&self, socket: TcpStream, greeting: &[u8]) -> io::Result<()> {
        let (read, mut write) = socket.into_split();
        write.write_all(greeting).await?;
        let mut requests = Requests { io: read, seen: &self.seen, windows: Windows::default() };
        requests.io.read_exact(&mut [0; 24]).await?;
        // The client's windows count from the moment that its SETTINGS are acknowledged.
        write.write_all(&frame(4, 1, 0, &[])).await?;
        loop {
            let stream = requests.next().await?;
            let good = *self.good.borrow();
            match &self.behaviour {
                Behaviour::Reply(frames) if !good => write.write_all(&frames(stream)).await?,
                Behaviour::Close(frames) if !good => {
                    write.write_all(&frames(stream)).await?;
                    return write.shutdown().await;
                }
                Behaviour::HalfClose(frames) if !good => {
                    write.write_all(&frames(stream)).await?;
                    write.shutdown().await?;
                    return requests.drain().await;
                }
                Behaviour::Flood(first, again) if !good => {
                    return requests.beside(flood(write, first(stream), again(stream), &self.seen)).await;
                }
                Behaviour::Stream(first, again, size) if !good => {
                    let windows = requests.windows.clone();
                    let send = stream_on(write, first(stream), again(stream), *size, &self.seen, windows);
                    return requests.beside(send).await;
                }
                Behaviour::Drip(pause, frames) if !good => {
                    return requests.beside(drip(write, *pause, frames(stream))).await;
                }
                _ => {
                    if let Reply::Frames(frames) = success(stream) {
                        write.write_all(&frames).await?;
                    }
                }
            }
        }
    }
}

/// SETTINGS with these values; windows wide open.
fn settings(values: &[u8]) -> Vec<u8> {
    let window = (1_u32 << 30).to_be_bytes();
    [frame(4, 0, 0, values), frame(8, 0, 0, &window)].concat()
}

async fn flood(mut io: OwnedWriteHalf, first: Vec<u8>, again: Vec<u8>, seen: &Seen) -> io::Result<()> {
    io.write_all(&first).await?;
    loop {
        io.write_all(&again).await?;
        seen.flooded.fetch_add(again.len(), SeqCst);
        tokio::task::yield_now().await;
    }
}

async fn stream_on(
    mut io: OwnedWriteHalf,
    first: Vec<u8>,
    again: Vec<u8>,
    size: u32,
    seen: &Seen,
    windows: Windows,
) -> io::Result<()> {
    io.write_all(&first).await?;
    loop {
        for window in [&windows.stream, &windows.connection] {
            window.acquire_many(size).await.map_err(io::Error::other)?.forget();
        }
        io.write_all(&again).await?;
        seen.flooded.fetch_add(again.len(), SeqCst);
    }
}

async fn drip(mut io: OwnedWriteHalf, pause: Duration, bytes: Vec<u8>) -> io::Result<()> {
    for byte in bytes.iter().cycle() {
        io.write_all(&[*byte]).await?;
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// The requests of a connection.
struct Requests<'a> {
    io: OwnedReadHalf,
    seen: &'a Seen,
    windows: Windows,
}

/// The window of the connection, and of its only stream.
#[derive(Clone)]
struct Windows {
    stream: Arc<Semaphore>,
    connection: Arc<Semaphore>,
}

impl Default for Windows {
    fn default() -> Self {
        // RFC 9113, section 6.9.2. The SETTINGS of the client set it for streams.
        Self { stream: Arc::new(Semaphore::new(0)), connection: Arc::new(Semaphore::new(65_535)) }
    }
}

impl Windows {
    /// Handles a frame of the client.
    fn on_frame(&self, kind: u8, stream: u32, payload: &[u8]) {
        let add = |window: &Semaphore, value: &[u8]| {
            let value = value.try_into().map(u32::from_be_bytes).unwrap_or_default();
            window.add_permits(usize::try_from(value).unwrap_or_default());
        };
        match (kind, stream) {
            (4, _) => {
                let values = payload.chunks_exact(6).filter_map(|setting| setting.strip_prefix(&[0, 4]));
                values.for_each(|value| add(&self.stream, value));
            }
            (8, 0) => add(&self.connection, payload),
            (8, _) => add(&self.stream, payload),
            _ => {}
        }
    }
}

impl Requests<'_> {
    /// Waits for a complete request; returns its stream.
    async fn next(&mut self) -> io::Result<u32> {
        loop {
            let mut head = [0; 9];
            self.io.read_exact(&mut head).await?;
            let [a, b, c, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.io.read_exact(&mut payload).await?;
            self.windows.on_frame(kind, u32::from_be_bytes(stream), &payload);
            if kind <= 1 && flags & END_STREAM != 0 {
                self.seen.requests.fetch_add(1, SeqCst);
                return Ok(u32::from_be_bytes(stream));
            }
        }
    }

    /// Reads to the end without answering.
    async fn drain(&mut self) -> io::Result<()> {
        loop {
            self.next().await?;
        }
    }

    /// Keeps reading while writing, until either ends.
    async fn beside(mut self, write: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        tokio::select! {
            ended = write => ended,
            ended = self.drain() => ended,
        }
    }
}
