//! Sits between the socket and h2: passes all bytes through, and reports to [`Shared`] what h2 does not expose.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::connector::BoxedIo;
use crate::disconnect::Disconnect;
use crate::frame::split;
use crate::frame_parser::{Event, FrameParser};
use crate::interim;
use crate::quota::Socket;
use crate::sent_frames::SentFrames;
use crate::state::Shared;

/// With this many streams, it is likely that several have data to send.
const BUSY: usize = 4;

/// The time limit for draining the read side of a socket that can no longer be written.
const LONGEST_DRAIN: Duration = Duration::from_secs(1);

/// The socket as h2 sees it.
pub(crate) struct FrameTap {
    io: BoxedIo,
    received: FrameParser,
    sent: SentFrames,
    shared: Arc<Shared>,
    /// The server has closed the connection, or a write failed. Further writes are discarded.
    deaf: bool,
    /// Set when a write failed. Data that the server sent before it closed (a GOAWAY says which requests it never saw)
    /// is still read, so h2 learns of the failure from the read side, within this time.
    drain: Option<Pin<Box<Sleep>>>,
    /// Runs while the socket accepts no writes.
    stalled: Option<Pin<Box<Sleep>>>,
    /// A write has started: continues until everything is written.
    writing: bool,
    /// The server has exceeded the limit of interim responses.
    abused: bool,
}

impl FrameTap {
    pub(crate) fn new(io: BoxedIo, shared: Arc<Shared>) -> Self {
        Self {
            io,
            received: FrameParser::default(),
            sent: SentFrames::default(),
            shared,
            deaf: false,
            drain: None,
            stalled: None,
            writing: false,
            abused: false,
        }
    }

    /// A hint about a connection that ends. A TLS server that receives the HTTP/2 preface instead of a ClientHello
    /// often closes silently.
    fn hint(&self) -> &'static str {
        if self.received.is_untouched() { " before it sent anything (does it expect TLS?)" } else { "" }
    }

    /// Parses received bytes.
    fn observe(&mut self, bytes: &[u8]) {
        let (shared, mut abused) = (&self.shared, false);
        self.received.expect_responses(shared.quota.in_use());
        shared.on_read();
        self.received.push(bytes, |event| match event {
            Event::Settings(settings) => shared.on_settings(settings),
            Event::SettingsAck => shared.receive_window.on_settings_acknowledged(),
            Event::GoAway(go_away) => shared.on_go_away(go_away),
            Event::NotHttp2 { why } => shared.on_io_end(why.into(), Disconnect::Unknown),
            Event::TooManyInterim => {
                let most = interim::MOST;
                let what = format!("the server sent more than {most} interim responses to a request");
                shared.on_io_end(what, Disconnect::Unknown);
                abused = true;
            }
        });
        self.abused |= abused;
        shared.on_header_blocks(self.received.largest_block());
    }

    /// Parses bytes that the socket has taken, or may have: one that encrypts can fail after sending them.
    fn observe_sent(&mut self, bytes: &[u8]) {
        let quota = &self.shared.quota;
        if let Some(stream) = self.sent.push(bytes, |stream| quota.on_reset_written(stream)) {
            self.shared.on_written(stream);
        }
    }

    /// Lets the other ready tasks run before the first write, so that their data is part of it: with many calls,
    /// writing to the socket is the largest cost.
    fn poll_gather(&mut self, cx: &Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.writing, true) || self.shared.quota.in_use() < BUSY {
            return Poll::Ready(());
        }
        // A task that wakes itself runs after all others that are ready.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Waits for the socket to accept a write, with a time limit: a hung peer leaves its window closed, and requests
    /// that callers send and cancel meanwhile would exhaust memory.
    fn poll_unstalled<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let socket = if outcome.is_pending() { Socket::Blocked } else { Socket::Writable };
        self.shared.quota.set_socket(socket);
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let Some(timeout) = self.shared.write_timeout else { return Poll::Pending };
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(timer.as_mut().poll(cx));
        let reason = format!("the socket has taken nothing for {timeout:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }

    /// Passes on the result of a write, unless it failed: then the bytes count as written, and reading continues to the
    /// end.
    fn wrote<T>(&mut self, cx: &Context<'_>, result: io::Result<T>, all: T) -> Poll<io::Result<T>> {
        Poll::Ready(Ok(result.unwrap_or_else(|error| {
            self.deaf = true;
            let failure = format!("writing failed: {error}");
            // A hung peer sends nothing more; one that closed may have sent a reason.
            if error.kind() == io::ErrorKind::TimedOut {
                self.shared.on_io_end(failure, error.kind().into());
            } else {
                self.shared.on_write_failed(failure, error.kind().into());
            }
            self.drain = Some(Box::pin(sleep(LONGEST_DRAIN)));
            // h2 writes after it has read everything: it must read again to start the drain.
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
        let before = buf.filled().len();
        let asked = buf.remaining() > 0;
        let Poll::Ready(read) = Pin::new(&mut self.io).poll_read(cx, buf) else {
            // Only if a write failed.
            let Some(drain) = &mut self.drain else { return Poll::Pending };
            ready!(drain.as_mut().poll(cx));
            self.shared.close();
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if let Err(error) = read {
            self.deaf = true;
            let what = format!("reading failed: {error}{}", self.hint());
            self.shared.on_io_end(what, error.kind().into());
            return Poll::Ready(Err(error));
        }
        let new = buf.filled().get(before..).unwrap_or_default();
        if new.is_empty() && asked {
            self.deaf = true;
            let what = format!("the server closed the connection{}", self.hint());
            self.shared.on_io_end(what, Disconnect::Socket);
        }
        self.observe(new);
        if self.abused {
            self.deaf = true;
            buf.set_filled(before);
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FrameTap {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.deaf {
            return Poll::Ready(Ok(buf.len()));
        }
        ready!(self.poll_gather(cx));
        let outcome = Pin::new(&mut self.io).poll_write(cx, buf);
        let result = ready!(self.poll_unstalled(cx, outcome));
        let left = *result.as_ref().unwrap_or(&buf.len());
        self.observe_sent(split(buf, left).0);
        self.wrote(cx, result, buf.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.deaf {
            return Poll::Ready(Ok(()));
        }
        self.writing = false;
        let outcome = Pin::new(&mut self.io).poll_flush(cx);
        let result = ready!(self.poll_unstalled(cx, outcome));
        self.wrote(cx, result, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An error here adds nothing: the caller of shutdown knows the reason.
        let outcome = Pin::new(&mut self.io).poll_shutdown(cx);
        self.poll_unstalled(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = bufs.iter().map(|buf| buf.len()).sum();
        if self.deaf {
            return Poll::Ready(Ok(all));
        }
        ready!(self.poll_gather(cx));
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        let result = ready!(self.poll_unstalled(cx, outcome));
        let mut left = *result.as_ref().unwrap_or(&all);
        for buf in bufs {
            let (written, _) = split(buf, left);
            self.observe_sent(written);
            left -= written.len();
        }
        self.wrote(cx, result, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
#[cfg(test)]
mod tests;
