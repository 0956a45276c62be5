//! One stream of a connection: its place in the quota, and the request's body.

use std::error::Error;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::state::Shared;

/// A place among the connection's streams. It is free again when both directions have let go.
pub(crate) struct Stream {
    shared: Arc<Shared>,
    over: AtomicBool,
    request_task: Mutex<Option<Waker>>,
}

impl Stream {
    /// Waits for a place, and returns its two directions. `None` if the connection takes no more streams.
    pub(crate) async fn open(shared: &Arc<Shared>) -> Option<(Receiving, SendingEnd)> {
        shared.quota.acquire().await.ok()?;
        let shared = Arc::clone(shared);
        let stream = Arc::new(Self { shared, over: AtomicBool::new(false), request_task: Mutex::default() });
        let entered = stream.shared.dispatch.enter();
        entered.then(|| (Receiving(Arc::clone(&stream)), SendingEnd { stream, dispatching: true }))
    }

    fn is_over(&self) -> bool {
        // Acquire and Release order nothing but this flag with the waker's lock.
        self.over.load(Ordering::Acquire)
    }

    /// Whether the response is over; if not, the task is woken when it is.
    fn poll_over(&self, cx: &Context<'_>) -> bool {
        *self.request_task.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        self.is_over()
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
        let waker = self.request_task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.quota.release();
    }
}

/// The receiving direction. Dropping it ends the stream: a gRPC call is over when its response is, or when nobody
/// wants the response any more.
pub(crate) struct Receiving(Arc<Stream>);

impl Receiving {
    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The sending direction.
pub(crate) struct SendingEnd {
    stream: Arc<Stream>,
    /// hyper has not given it a stream yet.
    dispatching: bool,
}

impl SendingEnd {
    fn dispatched(&mut self) {
        if std::mem::take(&mut self.dispatching) {
            self.stream.shared.dispatch.leave();
        }
    }
}

impl Drop for SendingEnd {
    fn drop(&mut self) {
        self.dispatched();
    }
}

/// The user's body, which hyper pulls until the stream is over.
pub(crate) struct Sending<B> {
    body: B,
    end: SendingEnd,
}

impl<B> Sending<B> {
    pub(crate) fn new(body: B, end: SendingEnd) -> Self {
        Self { body, end }
    }

    pub(crate) fn into_body(self) -> B {
        self.body
    }

    /// hyper turns this error into RST_STREAM(CANCEL). Left alone, it would pull the body for ever.
    fn cancelled() -> Box<dyn Error + Send + Sync> {
        Box::new(h2::Error::from(h2::Reason::CANCEL))
    }
}

impl<B> Body for Sending<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        // hyper pulls once the stream is open.
        self.end.dispatched();
        if self.end.stream.is_over() {
            return Poll::Ready(Some(Err(Self::cancelled())));
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending if self.end.stream.poll_over(cx) => Poll::Ready(Some(Err(Self::cancelled()))),
            Poll::Pending => Poll::Pending,
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
