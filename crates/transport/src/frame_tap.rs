//! Sits between the socket and hyper: passes all bytes through, and tells [`Shared`] what hyper keeps to itself.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use crate::connector::BoxedIo;
use crate::frame_parser::{Event, FrameParser};
use crate::state::Shared;

/// How long a GOAWAY may be held back. Requests leave hyper's queue in microseconds, unless h2 wants to hear from the
/// server first; then waiting would be for ever.
const LONGEST_HOLD: Duration = Duration::from_millis(100);

/// How long the read side of a socket that can no longer be written is read on.
const LONGEST_DRAIN: Duration = Duration::from_secs(1);

/// The socket as hyper sees it.
pub(crate) struct FrameTap {
    io: BoxedIo,
    parser: FrameParser,
    shared: Arc<Shared>,
    held: Option<Held>,
    /// Set when a write failed. What the server sent before it closed (a GOAWAY says which requests it never saw) is
    /// still to be read, so hyper learns of the failure from the read side, within this time.
    drain: Option<Pin<Box<Sleep>>>,
    /// Dropped with the socket.
    _alive: oneshot::Sender<()>,
}

/// The end of a GOAWAY and what came after it, while requests are being dispatched (see [`crate::dispatch`]).
struct Held {
    bytes: Bytes,
    limit: Pin<Box<Sleep>>,
}

impl FrameTap {
    /// `alive` is dropped with the socket.
    pub(crate) fn new(io: BoxedIo, shared: Arc<Shared>, alive: oneshot::Sender<()>) -> Self {
        Self { io, parser: FrameParser::default(), shared, held: None, drain: None, _alive: alive }
    }

    /// Looks at bytes that arrived. Returns how many of them hyper may see now.
    fn observe(&mut self, bytes: &[u8]) -> usize {
        let shared = &self.shared;
        let mut visible = bytes.len();
        self.parser.push(bytes, |event, rest| match event {
            Event::Settings { max_concurrent_streams } => shared.on_settings(max_concurrent_streams),
            Event::GoAway(go_away) => {
                shared.on_go_away(go_away);
                if !shared.dispatch.is_empty() {
                    // All but the last byte of the frame.
                    visible = visible.min((bytes.len() - rest).saturating_sub(1));
                }
            }
            Event::NotHttp2 { why } => shared.on_io_end(why.into()),
        });
        visible
    }

    /// Reads on. Ready with no progress only at the end of the stream.
    fn poll_socket(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let asked = buf.remaining() > 0;
        let Poll::Ready(read) = Pin::new(&mut self.io).poll_read(cx, buf) else {
            // Never ready while writes succeed.
            ready!(self.drain.as_mut().map_or(Poll::Pending, |drain| drain.as_mut().poll(cx)));
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if let Err(error) = read {
            self.shared.on_io_end(format!("reading failed: {error}"));
            return Poll::Ready(Err(error));
        }
        let new = buf.filled().get(before..).unwrap_or_default();
        if new.is_empty() && asked {
            self.shared.on_io_end("the server closed the connection".into());
        }
        let visible = self.observe(new);
        if let Some(hidden) = new.get(visible..).filter(|hidden| !hidden.is_empty()) {
            self.held =
                Some(Held { bytes: Bytes::copy_from_slice(hidden), limit: Box::pin(sleep(LONGEST_HOLD)) });
            buf.set_filled(before + visible);
            if visible == 0 {
                return self.poll_held(cx, buf);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Hands out what is held, when the time has come.
    fn poll_held(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(held) = &mut self.held else { return Poll::Ready(Ok(())) };
        if self.shared.dispatch.poll_empty(cx).is_pending() {
            ready!(held.limit.as_mut().poll(cx));
        }
        let part = held.bytes.split_to(held.bytes.len().min(buf.remaining()));
        buf.put_slice(&part);
        if !held.bytes.has_remaining() {
            self.held = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Passes a write's outcome on, unless it failed: then the bytes count as written, and reading goes on to the end.
    fn wrote<T>(&mut self, cx: &Context<'_>, result: io::Result<T>, all: T) -> Poll<io::Result<T>> {
        Poll::Ready(Ok(result.unwrap_or_else(|error| {
            self.shared.on_io_end(format!("writing failed: {error}"));
            self.drain = Some(Box::pin(sleep(LONGEST_DRAIN)));
            // h2 writes after it has read all there was: it must read again for the drain to begin.
            cx.waker().wake_by_ref();
            all
        })))
    }
}

impl AsyncRead for FrameTap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.held.is_some() { self.poll_held(cx, buf) } else { self.poll_socket(cx, buf) }
    }
}

impl AsyncWrite for FrameTap {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.drain.is_some() {
            return Poll::Ready(Ok(buf.len()));
        }
        let result = ready!(Pin::new(&mut self.io).poll_write(cx, buf));
        self.wrote(cx, result, buf.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.drain.is_some() {
            return Poll::Ready(Ok(()));
        }
        let result = ready!(Pin::new(&mut self.io).poll_flush(cx));
        self.wrote(cx, result, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A failure here says nothing new: whoever shuts down knows why.
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = bufs.iter().map(|buf| buf.len()).sum();
        if self.drain.is_some() {
            return Poll::Ready(Ok(all));
        }
        let result = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, bufs));
        self.wrote(cx, result, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
