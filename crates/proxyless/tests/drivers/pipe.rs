//! An in-memory connection: bytes have a delay, directions can stall, and it ends like a TCP connection.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The capacity of both kernels' buffers in one direction.
pub(crate) const CAPACITY: usize = 64 << 10;

/// One connection, as seen from outside.
#[derive(Clone)]
pub(crate) struct Link(Weak<Mutex<State>>);

/// An end of a connection. Dropping it is an orderly close: the other side reads everything, then the end.
pub(crate) struct End {
    state: Arc<Mutex<State>>,
    side: usize,
    arrival: Option<Pin<Box<Sleep>>>,
}

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

struct State {
    /// By the side that writes.
    ways: [Way; 2],
    latency: Duration,
    reset: Option<io::ErrorKind>,
}

/// One direction.
#[derive(Default)]
struct Way {
    /// With the time of arrival.
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    stalled: bool,
    finished: bool,
    /// The reader is gone.
    abandoned: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Way {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// Both ends of a new connection.
pub(crate) fn pipe(latency: Duration) -> (End, End) {
    let state = Arc::new(Mutex::new(State { ways: Default::default(), latency, reset: None }));
    let end = |side| End { state: Arc::clone(&state), side, arrival: None };
    (end(CLIENT), end(SERVER))
}

impl Link {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        let state = self.0.upgrade()?;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        Some(act(&mut state))
    }

    /// Whether both ends exist and neither has closed it.
    pub(crate) fn is_open(&self) -> bool {
        self.with(|state| state.reset.is_none() && state.ways.iter().all(|way| !way.abandoned))
            .unwrap_or(false)
    }

    /// Whether the bytes that this side writes arrive.
    pub(crate) fn set_stalled(&self, writer: usize, stalled: bool) {
        self.with(|state| {
            let way = &mut state.ways[writer];
            way.stalled = stalled;
            way.wake();
        });
    }

    pub(crate) fn is_stalled(&self, writer: usize) -> bool {
        self.with(|state| state.ways[writer].stalled).unwrap_or(false)
    }

    /// The time since which the oldest byte of this side waits to be read.
    pub(crate) fn unacknowledged_since(&self, writer: usize) -> Option<Instant> {
        self.with(|state| state.ways[writer].chunks.front().map(|(arrival, _)| *arrival))?
    }

    /// Ends it for both sides, with all bytes in transit.
    pub(crate) fn reset(&self, error: io::ErrorKind) {
        self.with(|state| {
            state.reset.get_or_insert(error);
            for way in &mut state.ways {
                way.chunks.clear();
                way.wake();
            }
        });
    }
}

impl End {
    pub(crate) fn link(&self) -> Link {
        Link(Arc::downgrade(&self.state))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(arrival) = &mut self.arrival {
                ready!(arrival.as_mut().poll(cx));
                self.arrival = None;
            }
            let mut state = self.lock();
            if let Some(error) = state.reset {
                return Poll::Ready(Err(error.into()));
            }
            let way = &mut state.ways[1 - self.side];
            if way.stalled {
                way.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let now = Instant::now();
            match way.chunks.front_mut() {
                Some((arrival, bytes)) if *arrival <= now => {
                    let taken = bytes.len().min(buf.remaining());
                    buf.put_slice(&bytes[..taken]);
                    way.bytes -= taken;
                    if taken == bytes.len() {
                        way.chunks.pop_front();
                    } else {
                        bytes.drain(..taken);
                    }
                    way.writer.take().into_iter().for_each(Waker::wake);
                    return Poll::Ready(Ok(()));
                }
                Some((arrival, _)) => {
                    let arrival = *arrival;
                    drop(state);
                    self.arrival = Some(Box::pin(sleep_until(arrival)));
                }
                None if way.finished => return Poll::Ready(Ok(())),
                None => {
                    way.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        if let Some(error) = state.reset {
            return Poll::Ready(Err(error.into()));
        }
        let latency = state.latency;
        let way = &mut state.ways[self.side];
        if way.abandoned || way.finished {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let taken = buf.len().min(CAPACITY - way.bytes.min(CAPACITY));
        if taken == 0 && !buf.is_empty() {
            way.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        way.bytes += taken;
        way.chunks.push_back((Instant::now() + latency, buf[..taken].to_vec()));
        way.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        let way = &mut state.ways[self.side];
        way.finished = true;
        way.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.lock();
        let way = &mut state.ways[self.side];
        way.finished = true;
        way.wake();
        let unread = &mut state.ways[1 - self.side];
        unread.abandoned = true;
        unread.chunks.clear();
        unread.wake();
    }
}
