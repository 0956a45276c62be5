//! How many streams the server lets us have open at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, TryAcquireError};

/// A count of free streams with a limit that the server moves. Waiters are served in order.
///
/// Taking a stream without waiting is one compare-and-swap.
pub(crate) struct Quota {
    free: Semaphore,
    /// Streams to swallow on release, because the limit fell below what was in use.
    debt: AtomicUsize,
    /// Written by the connection's reader only.
    limit: AtomicUsize,
}

/// No more streams will be handed out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QuotaClosed;

/// Semaphores have an upper bound; this is far above any real count of streams.
const UNLIMITED: usize =
    if Semaphore::MAX_PERMITS > u32::MAX as usize { u32::MAX as usize } else { Semaphore::MAX_PERMITS };

impl Default for Quota {
    fn default() -> Self {
        Self {
            free: Semaphore::new(UNLIMITED),
            debt: AtomicUsize::new(0),
            limit: AtomicUsize::new(UNLIMITED),
        }
    }
}

impl Quota {
    /// Takes one stream, waiting in line if there is none. Every success must be paired with [`Self::release`].
    pub(crate) async fn acquire(&self) -> Result<(), QuotaClosed> {
        match self.free.try_acquire() {
            Ok(permit) => permit.forget(),
            Err(TryAcquireError::NoPermits) => self.free.acquire().await.map_err(|_| QuotaClosed)?.forget(),
            Err(TryAcquireError::Closed) => return Err(QuotaClosed),
        }
        Ok(())
    }

    pub(crate) fn release(&self) {
        if !self.pay_debt() {
            self.free.add_permits(1);
        }
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        let limit = usize::try_from(limit).unwrap_or(UNLIMITED).min(UNLIMITED);
        let before = self.limit.swap(limit, Ordering::Relaxed);
        if limit < before {
            self.debt.fetch_add(before - limit, Ordering::Relaxed);
            // What is free now pays at once, what is in use pays on release.
            while self.debt.load(Ordering::Relaxed) > 0 {
                let paid = self.free.forget_permits(self.debt.load(Ordering::Relaxed));
                if paid == 0 {
                    break;
                }
                self.forgive(paid);
            }
        } else {
            let mut gained = limit - before;
            while gained > 0 && self.pay_debt() {
                gained -= 1;
            }
            self.free.add_permits(gained);
        }
    }

    /// How many streams are out. Only roughly right while the limit moves.
    pub(crate) fn in_use(&self) -> usize {
        let limit = self.limit.load(Ordering::Relaxed) + self.debt.load(Ordering::Relaxed);
        limit.saturating_sub(self.free.available_permits())
    }

    /// Nobody gets a stream any more; those who wait hear of it.
    pub(crate) fn close(&self) {
        self.free.close();
    }

    fn pay_debt(&self) -> bool {
        // Only the count itself matters; no other memory is ordered by it.
        self.debt.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |debt| debt.checked_sub(1)).is_ok()
    }

    /// Takes `paid` off the debt; if releases paid meanwhile, gives the difference back.
    fn forgive(&self, paid: usize) {
        let debt = self
            .debt
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |debt| Some(debt.saturating_sub(paid)));
        let (Ok(before) | Err(before)) = debt;
        self.free.add_permits(paid.saturating_sub(before));
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
