//! Timers of RPCs, on the channel's runtime: callers may poll from a different one, or from none.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until};

/// Completes at a point in time.
#[derive(Debug)]
pub(super) struct Timer(Source);

#[derive(Debug)]
enum Source {
    /// The caller is in the channel's runtime.
    Sleep(Pin<Box<Sleep>>),
    /// The caller is elsewhere: a [`Sleep`] panics when its runtime ends before the task that polls it, a task does
    /// not.
    Task(JoinHandle<()>),
    Over(End),
}

/// The end of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its time has passed.
    Elapsed,
    /// Its runtime ended first.
    Lost,
}

impl Timer {
    pub(super) fn at(at: Instant, runtime: &Handle) -> Self {
        let here = Handle::try_current().is_ok_and(|current| current.id() == runtime.id());
        Self(match here {
            true => Source::Sleep(Box::pin(sleep_until(at))),
            // Created inside the task, where there is a runtime.
            false => Source::Task(runtime.spawn(async move { sleep_until(at).await })),
        })
    }

    pub(super) fn after(delay: Duration, runtime: &Handle) -> Self {
        /// Practically never, and within the range of an instant.
        const LONGEST: Duration = Duration::from_secs(86_400 * 365);
        Self::at(Instant::now() + delay.min(LONGEST), runtime)
    }
}

impl Future for Timer {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<End> {
        let end = match &mut self.0 {
            Source::Sleep(sleep) => {
                ready!(sleep.as_mut().poll(cx));
                End::Elapsed
            }
            Source::Task(task) => match ready!(Pin::new(task).poll(cx)) {
                Ok(()) => End::Elapsed,
                Err(_) => End::Lost,
            },
            Source::Over(end) => *end,
        };
        self.0 = Source::Over(end);
        Poll::Ready(end)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Source::Task(task) = &self.0 {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn poll(timer: &mut Timer) -> Poll<End> {
        Pin::new(timer).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_timer_whose_runtime_ends_is_lost_and_does_not_panic() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let far = Instant::now() + Duration::from_secs(3600);
        let mut timer = Timer::at(far, runtime.handle());
        assert_eq!(poll(&mut timer), Poll::Pending);
        let handle = runtime.handle().clone();
        drop(runtime);
        assert_eq!(poll(&mut timer), Poll::Ready(End::Lost));
        assert_eq!(poll(&mut timer), Poll::Ready(End::Lost));
        assert_eq!(poll(&mut Timer::at(far, &handle)), Poll::Ready(End::Lost));
    }

    #[test]
    fn a_timer_elapses_outside_of_any_runtime_and_in_another_one() {
        let (one, other) = (runtime(), runtime());
        let soon = || Instant::now() + Duration::from_millis(1);
        assert_eq!(other.block_on(Timer::at(soon(), one.handle())), End::Elapsed);
        assert_eq!(other.block_on(async { Timer::at(soon(), one.handle()).await }), End::Elapsed);
        assert_eq!(one.block_on(async { Timer::at(soon(), one.handle()).await }), End::Elapsed);
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }
}
