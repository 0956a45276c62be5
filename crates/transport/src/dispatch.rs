//! The requests that hyper has taken and not yet given a stream.
//!
//! hyper asks h2 twice about each request, before and after it opens the stream. If a GOAWAY comes in between, it drops
//! the stream and reports the GOAWAY, although the stream may be on the wire and covered by it: a request that the
//! server may be working on would look as if it had been refused. So the tap shows a GOAWAY to h2 only when no request
//! is in between.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A count of such requests, which can be closed and waited for.
#[derive(Default)]
pub(crate) struct Dispatch {
    /// Sequentially consistent, like `closed`: of a request that enters and a closing, at least one sees the other.
    count: AtomicUsize,
    closed: AtomicBool,
    waiter: Mutex<Option<Waker>>,
}

impl Dispatch {
    /// Lets a request in, unless closed. Every success must be paired with [`Self::leave`].
    pub(crate) fn enter(&self) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst);
        let entered = !self.closed.load(Ordering::SeqCst);
        if !entered {
            self.leave();
        }
        entered
    }

    /// The request has its stream, or will never have one.
    pub(crate) fn leave(&self) {
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) {
            let waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }
    }

    /// Lets no more requests in.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Ready when closed and empty.
    pub(crate) fn poll_empty(&self, cx: &Context<'_>) -> Poll<()> {
        *self.waiter.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        if self.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(dispatch: &Dispatch) -> Poll<()> {
        dispatch.poll_empty(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn who_came_before_the_closing_is_waited_for() {
        let dispatch = Dispatch::default();
        assert!(dispatch.enter());
        dispatch.close();
        assert_eq!(poll(&dispatch), Poll::Pending);
        assert!(!dispatch.enter());
        assert_eq!(poll(&dispatch), Poll::Pending);
        dispatch.leave();
        assert_eq!(poll(&dispatch), Poll::Ready(()));
    }

    #[tokio::test]
    async fn the_last_to_leave_wakes_the_waiter() {
        let dispatch = std::sync::Arc::new(Dispatch::default());
        assert!(dispatch.enter() && dispatch.enter());
        dispatch.close();
        let waiting = tokio::spawn({
            let dispatch = std::sync::Arc::clone(&dispatch);
            async move { std::future::poll_fn(|cx| dispatch.poll_empty(cx)).await }
        });
        tokio::task::yield_now().await;
        dispatch.leave();
        dispatch.leave();
        waiting.await.expect("woken");
    }
}
