//! The upload of a request's body to h2.
//!
//! A body that is available at once and fits the window of its stream, like that of most unary calls, is uploaded in
//! the caller's own poll. Only others get a task: their stream must progress even while the caller does not poll.
//!
//! The end of a request is not passed to h2 before the window of the stream covers all of it. h2 considers a request
//! with its end finished: what it still holds when the response ends, it holds until the server extends the window; a
//! server that has answered early never does, and the stream would count against the server's limit for the lifetime of
//! the connection.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::{Body, Frame};
use tokio::task::AbortHandle;

use crate::state::Shared;

/// The part of a chunk larger than the window that waits here. h2 sends the rest as the window allows, at the lowest
/// cost.
const TAIL: usize = 16 << 10;

/// Passes a body to h2, frame by frame. Completes when all of it was passed, or the rest is not needed.
pub(crate) struct Upload<B> {
    body: B,
    stream: SendStream<Bytes>,
    /// Read, but not passed to h2.
    chunk: Option<Bytes>,
    /// The number of bytes that need not wait for the window of the stream: all of it, before anything was passed.
    free: usize,
}

/// The rest of an upload after its first poll. Dropping it cancels the rest.
#[must_use = "dropping it ends the upload"]
pub(crate) struct Rest(Option<AbortHandle>);

impl Drop for Rest {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            // The task owns its side of the stream; h2 sends RST_STREAM(CANCEL) once the other side is dropped too.
            task.abort();
        }
    }
}

impl Rest {
    /// Nothing is left.
    pub(crate) fn none() -> Self {
        Self(None)
    }
}

impl<B> Upload<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    /// Starts the upload: sends as much as possible at once, and leaves the rest to a task.
    pub(crate) fn begin(body: B, stream: SendStream<Bytes>, cx: &mut Context<'_>, shared: &Shared) -> Rest {
        let free = shared.initial_send_window();
        let mut upload = Self { body, stream, chunk: None, free };
        match Pin::new(&mut upload).poll(cx) {
            Poll::Ready(()) => Rest::none(),
            Poll::Pending => Rest(Some(shared.spawn(upload))),
        }
    }
}

impl<B> Upload<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.body.is_end_stream() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    /// Waits until the server accepts some of `wanted` bytes. Returns how many; `None` if it never will.
    fn poll_window(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<Option<usize>> {
        // No more than needed: a larger reservation would keep other streams waiting.
        self.stream.reserve_capacity(wanted);
        loop {
            match self.stream.capacity() {
                0 if matches!(ready!(self.stream.poll_capacity(cx)), Some(Ok(_))) => {}
                0 => return Poll::Ready(None),
                room => return Poll::Ready(Some(room)),
            }
        }
    }

    /// Passes all of a chunk but its tail, and waits until the window covers that. `false` if the stream or the
    /// connection has ended.
    fn poll_pieces(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while let Some(length) = self.chunk.as_ref().map(Bytes::len)
            && length > self.free
        {
            // The first chunk does not wait: it takes the same memory here or in h2.
            let first = self.free > 0 && length > TAIL;
            let room = if first { Some(0) } else { ready!(self.poll_window(cx, length.min(TAIL))) };
            let Some(room) = room else { return Poll::Ready(false) };
            if room >= length {
                break;
            }
            let piece = if length > TAIL { length - TAIL } else { room };
            let piece = self.chunk.as_mut().map(|chunk| chunk.split_to(piece)).unwrap_or_default();
            if self.stream.send_data(piece, false).is_err() {
                return Poll::Ready(false);
            }
            self.free = 0;
        }
        Poll::Ready(true)
    }
}

impl<B> Drop for Upload<B> {
    fn drop(&mut self) {
        // The caller's body has panicked in our task: its call must not wait for ever.
        if std::thread::panicking() {
            self.stream.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}

impl<B> Future for Upload<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // Errors below mean that the stream or the connection has ended, and the response has the reason.
        loop {
            if !ready!(this.poll_pieces(cx)) {
                return Poll::Ready(());
            }
            // One frame ahead, so that the last one carries END_STREAM.
            let next = this.poll_body(cx);
            if let Some(chunk) = this.chunk.take() {
                let last = matches!(next, Poll::Ready(None));
                if this.stream.send_data(chunk, last).is_err() || last {
                    return Poll::Ready(());
                }
                this.free = 0;
            }
            match next {
                Poll::Pending => {
                    // Ready if the server has reset the stream, or the connection is closed.
                    return this.stream.poll_reset(cx).map(drop);
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data().map_err(Frame::into_trailers) {
                    Ok(data) => this.chunk = Some(data),
                    Err(Ok(trailers)) => {
                        let _ = this.stream.send_trailers(trailers);
                        return Poll::Ready(());
                    }
                    // Neither data nor trailers: not valid in HTTP/2.
                    Err(Err(_)) => {}
                },
                Poll::Ready(Some(Err(_))) => {
                    this.stream.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => {
                    let _ = this.stream.send_data(Bytes::new(), true);
                    return Poll::Ready(());
                }
            }
        }
    }
}
