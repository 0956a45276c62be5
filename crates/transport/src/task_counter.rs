//! A counter of the tasks of connections.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use proxyless_sans_io::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::sync::Notify;

/// Counts the tasks of one or more connections. Clones share the count.
#[derive(Clone, Default)]
pub struct TaskCounter(Arc<Count>);

#[derive(Default)]
struct Count {
    live: AtomicUsize,
    none_left: Notify,
}

impl TaskCounter {
    /// The number of live tasks.
    pub fn live(&self) -> usize {
        // Acquire, with Release in `drop`: a reader of 0 sees all effects of the tasks.
        self.0.live.load(Ordering::Acquire)
    }

    /// Completes when there are no live tasks.
    pub async fn finished(&self) {
        loop {
            let none_left = self.0.none_left.notified();
            if self.live() == 0 {
                return;
            }
            none_left.await;
        }
    }

    pub(crate) fn spawn<F>(&self, runtime: &Handle, future: F) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        runtime.spawn(self.counted(future)).abort_handle()
    }

    fn counted<F>(&self, future: F) -> Counted<F> {
        self.0.live.fetch_add(1, Ordering::Relaxed);
        Counted { future, _one: One(Arc::clone(&self.0)) }
    }
}

impl fmt::Debug for TaskCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskCounter").field(&self.live()).finish()
    }
}

struct One(Arc<Count>);

impl Drop for One {
    fn drop(&mut self) {
        if self.0.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}

pin_project! {
    // The future is dropped before its count: fields drop in order.
    struct Counted<F> {
        #[pin]
        future: F,
        _one: One,
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn counts_tasks_until_they_end() {
        let tasks = TaskCounter::default();
        tasks.finished().await;
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn(&Handle::current(), async move { drop(ended.await) });
        assert_eq!(tasks.live(), 1);
        drop(end);
        tasks.finished().await;
        assert_eq!(tasks.live(), 0);
    }
}
