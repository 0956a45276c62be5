//! How many streams the server lets us have open at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// A count of streams with a limit that the server moves. Waiters are served in order.
///
/// Taking a stream without waiting is one compare-and-swap, giving it back one subtraction. The atomics are
/// sequentially consistent: of one who begins to wait and one who gives back, at least one sees the other.
pub(crate) struct Quota {
    in_use: AtomicUsize,
    limit: AtomicUsize,
    /// Somebody waits, or is about to. Written under the lock of `line`.
    waiting: AtomicBool,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    waiters: VecDeque<oneshot::Sender<()>>,
    /// About how many of the waiters have given up.
    gone: usize,
    closed: bool,
}

/// No more streams will be handed out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QuotaClosed;

impl Default for Quota {
    fn default() -> Self {
        Self {
            in_use: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            waiting: AtomicBool::new(false),
            line: Mutex::default(),
        }
    }
}

impl Quota {
    /// Takes one stream, waiting in line if there is none. Every success must be paired with [`Self::release`].
    pub(crate) async fn acquire(&self) -> Result<(), QuotaClosed> {
        // Who already waits comes first.
        if !self.waiting.load(SeqCst) && self.try_take() {
            return Ok(());
        }
        match self.line_up()? {
            Some(mut turn) => {
                let called = (&mut turn.come).await;
                turn.heard = true;
                called.map_err(|_| QuotaClosed)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn release(&self) {
        self.in_use.fetch_sub(1, SeqCst);
        if self.waiting.load(SeqCst) {
            self.serve(&mut self.line());
        }
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        let mut line = self.line();
        if !line.closed {
            self.limit.store(usize::try_from(limit).unwrap_or(usize::MAX), SeqCst);
            self.serve(&mut line);
        }
    }

    /// How many streams are out.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(SeqCst)
    }

    /// Nobody gets a stream any more; those who wait hear of it.
    pub(crate) fn close(&self) {
        let waiters = {
            let mut line = self.line();
            line.closed = true;
            self.limit.store(0, SeqCst);
            self.waiting.store(false, SeqCst);
            std::mem::take(&mut line.waiters)
        };
        drop(waiters);
    }

    fn try_take(&self) -> bool {
        let limit = self.limit.load(SeqCst);
        self.in_use.fetch_update(SeqCst, SeqCst, |n| (n < limit).then_some(n + 1)).is_ok()
    }

    /// A turn to wait for; `None` if a stream was free after all.
    fn line_up(&self) -> Result<Option<Turn<'_>>, QuotaClosed> {
        let mut line = self.line();
        if line.closed {
            return Err(QuotaClosed);
        }
        self.waiting.store(true, SeqCst);
        if line.waiters.is_empty() && self.try_take() {
            self.waiting.store(false, SeqCst);
            return Ok(None);
        }
        let (call, come) = oneshot::channel();
        line.waiters.push_back(call);
        Ok(Some(Turn { quota: self, come, heard: false }))
    }

    /// A waiter has given up. The line is cleared of such once they are the greater part: it stays as short as those who
    /// wait, at a constant cost for each.
    fn give_up(&self) {
        const FEW: usize = 16;
        let mut line = self.line();
        line.gone += 1;
        if line.gone > FEW.max(line.waiters.len() / 2) {
            line.waiters.retain(|waiter| !waiter.is_closed());
            let room = 2 * FEW.max(line.waiters.len());
            line.waiters.shrink_to(room);
            line.gone = 0;
            if !line.closed {
                self.waiting.store(!line.waiters.is_empty(), SeqCst);
            }
        }
    }

    /// Gives what is free to those who wait.
    fn serve(&self, line: &mut Line) {
        while let Some(first) = line.waiters.pop_front() {
            if first.is_closed() {
                line.gone = line.gone.saturating_sub(1);
                continue;
            }
            if !self.try_take() {
                line.waiters.push_front(first);
                break;
            }
            if first.send(()).is_err() {
                self.in_use.fetch_sub(1, SeqCst);
            }
        }
        self.waiting.store(!line.waiters.is_empty(), SeqCst);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Every holder leaves the line in order, so a panic elsewhere does not spoil it.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the line.
struct Turn<'a> {
    quota: &'a Quota,
    come: oneshot::Receiver<()>,
    heard: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.heard {
            return;
        }
        self.come.close();
        match self.come.try_recv() {
            // Called, but gone before it heard.
            Ok(()) => self.quota.release(),
            Err(_) => self.quota.give_up(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Poll;

    use tokio_test_poll::poll_once;

    use super::*;

    /// Polls futures by hand, so that order is exact.
    mod tokio_test_poll {
        use std::pin::Pin;
        use std::task::{Context, Poll, Waker};

        pub(super) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
            future.poll(&mut Context::from_waker(Waker::noop()))
        }
    }

    fn limited(limit: u32) -> Quota {
        let quota = Quota::default();
        quota.set_limit(limit);
        quota
    }

    /// How many streams can be taken now.
    fn take_all(quota: &Quota) -> usize {
        let mut taken = 0;
        while poll_once(Box::pin(quota.acquire()).as_mut()) == Poll::Ready(Ok(())) {
            taken += 1;
        }
        taken
    }

    #[test]
    fn waiters_are_served_in_order() {
        let quota = limited(1);
        assert_eq!(take_all(&quota), 1);
        let mut first = Box::pin(quota.acquire());
        let mut second = Box::pin(quota.acquire());
        assert_eq!(poll_once(first.as_mut()), Poll::Pending);
        assert_eq!(poll_once(second.as_mut()), Poll::Pending);
        quota.release();
        assert_eq!(poll_once(second.as_mut()), Poll::Pending);
        assert_eq!(poll_once(first.as_mut()), Poll::Ready(Ok(())));
        quota.release();
        assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_waiter_that_gives_up_passes_its_turn_on() {
        let quota = limited(1);
        assert_eq!(take_all(&quota), 1);
        let mut first = Box::pin(quota.acquire());
        let mut second = Box::pin(quota.acquire());
        assert_eq!(poll_once(first.as_mut()), Poll::Pending);
        assert_eq!(poll_once(second.as_mut()), Poll::Pending);
        quota.release();
        drop(first);
        assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_lowered_limit_is_paid_by_releases() {
        let quota = limited(3);
        assert_eq!(take_all(&quota), 3);
        quota.set_limit(1);
        quota.release();
        quota.release();
        assert_eq!(take_all(&quota), 0);
        quota.release();
        assert_eq!(take_all(&quota), 1);
    }

    #[test]
    fn a_raised_limit_pays_the_debt_first() {
        let quota = limited(3);
        assert_eq!(take_all(&quota), 3);
        quota.set_limit(0);
        quota.set_limit(2);
        assert_eq!(take_all(&quota), 0);
        quota.release();
        assert_eq!(take_all(&quota), 0);
        quota.release();
        assert_eq!(take_all(&quota), 1);
        quota.set_limit(5);
        assert_eq!(take_all(&quota), 3);
    }

    #[test]
    fn close_sends_waiters_away() {
        let quota = limited(0);
        let mut waiter = Box::pin(quota.acquire());
        assert_eq!(poll_once(waiter.as_mut()), Poll::Pending);
        quota.close();
        assert_eq!(poll_once(waiter.as_mut()), Poll::Ready(Err(QuotaClosed)));
        assert_eq!(poll_once(Box::pin(quota.acquire()).as_mut()), Poll::Ready(Err(QuotaClosed)));
    }

    #[test]
    fn waiters_that_gave_up_do_not_stay_in_the_line() {
        let quota = limited(0);
        let mut patient = Box::pin(quota.acquire());
        assert_eq!(poll_once(patient.as_mut()), Poll::Pending);
        for _ in 0..10_000 {
            assert_eq!(poll_once(Box::pin(quota.acquire()).as_mut()), Poll::Pending);
        }
        assert!(quota.line().waiters.len() < 100, "{}", quota.line().waiters.len());
        quota.set_limit(1);
        assert_eq!(poll_once(patient.as_mut()), Poll::Ready(Ok(())));
    }

    /// However threads interleave, the books balance in the end.
    #[test]
    fn moving_limits_under_load_lose_no_stream() {
        let quota = Arc::new(limited(8));
        let users: Vec<_> = (0..4)
            .map(|_| {
                let quota = Arc::clone(&quota);
                std::thread::spawn(move || {
                    for _ in 0..2_000 {
                        if poll_once(Box::pin(quota.acquire()).as_mut()) == Poll::Ready(Ok(())) {
                            quota.release();
                        }
                    }
                })
            })
            .collect();
        for limit in [1, 5, 0, 16, 2, 100, 3].into_iter().cycle().take(700) {
            quota.set_limit(limit);
        }
        for user in users {
            user.join().expect("the user does not panic");
        }
        quota.set_limit(7);
        assert_eq!(take_all(&quota), 7);
    }
}
