//! The tasks that hyper spawns, counted; and the one of them that can be aborted.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Counts the tasks of one or more connections. Clones share the count.
#[derive(Clone, Default)]
pub struct Tasks(Arc<Count>);

#[derive(Default)]
struct Count {
    live: AtomicUsize,
    none_left: Notify,
}

impl Tasks {
    /// How many tasks live now.
    pub fn live(&self) -> usize {
        // Acquire, with Release in `drop`: who sees 0 sees all effects of the tasks.
        self.0.live.load(Ordering::Acquire)
    }

    /// Completes when no task lives.
    pub async fn finished(&self) {
        loop {
            let none_left = self.0.none_left.notified();
            if self.live() == 0 {
                return;
            }
            none_left.await;
        }
    }

    pub(crate) fn spawn<F>(&self, future: F) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(self.counted(future)).abort_handle()
    }

    fn counted<F>(&self, future: F) -> Counted<F> {
        self.0.live.fetch_add(1, Ordering::Relaxed);
        Counted { future, _one: One(Arc::clone(&self.0)) }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tasks").field(&self.live()).finish()
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

/// hyper's executor for one connection.
///
/// The first task that hyper spawns owns the socket. Aborting it is enough: when it goes, all streams end with an
/// error, and with them the tasks of their requests and responses.
#[derive(Clone)]
pub(crate) struct Executor {
    tasks: Tasks,
    io_task: Arc<OnceLock<AbortHandle>>,
}

impl Executor {
    pub(crate) fn new(tasks: Tasks) -> Self {
        Self { tasks, io_task: Arc::default() }
    }

    /// Drops the socket.
    pub(crate) fn abort(&self) {
        if let Some(task) = self.io_task.get() {
            task.abort();
        }
    }
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let task = self.tasks.spawn(future);
        self.io_task.get_or_init(|| task);
    }
}

#[cfg(test)]
mod tests {
    use hyper::rt::Executor as _;

    use super::*;

    #[tokio::test]
    async fn counts_tasks_until_they_end() {
        let tasks = Tasks::default();
        tasks.finished().await;
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn(async move { drop(ended.await) });
        assert_eq!(tasks.live(), 1);
        drop(end);
        tasks.finished().await;
        assert_eq!(tasks.live(), 0);
    }

    #[tokio::test]
    async fn abort_ends_the_first_task_only() {
        let tasks = Tasks::default();
        let executor = Executor::new(tasks.clone());
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (first_lives, first_ended) = tokio::sync::oneshot::channel::<()>();
        executor.execute(async move {
            let _lives = first_lives;
            std::future::pending().await
        });
        executor.execute(async move { drop(ended.await) });
        executor.abort();
        assert!(first_ended.await.is_err());
        assert!(!end.is_closed());
        drop(end);
        tasks.finished().await;
    }
}
