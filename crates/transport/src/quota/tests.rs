//! Tests of the quota of streams.

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

#[test]
fn abandoned_streams_are_limited_while_the_socket_is_blocked() {
    let most = u32::try_from(MAX_ABANDONED).expect("small");
    let quota = Quota::default();
    let abandon = |stream| {
        assert_eq!(poll_once(Box::pin(quota.acquire()).as_mut()), Poll::Ready(Ok(())), "{stream}");
        quota.abandon(stream);
    };
    // Not while it takes everything.
    (0..2 * most).for_each(abandon);
    quota.set_socket(Socket::Blocked);
    (0..most).for_each(abandon);
    let mut waiter = Box::pin(quota.acquire());
    assert_eq!(poll_once(waiter.as_mut()), Poll::Pending);
    // The server's limit does not matter now, but later.
    quota.set_limit(1);
    assert_eq!(poll_once(waiter.as_mut()), Poll::Pending);
    quota.on_reset_written(0);
    assert_eq!(poll_once(waiter.as_mut()), Poll::Pending);
    quota.on_reset_written(most / 2);
    assert_eq!(poll_once(waiter.as_mut()), Poll::Ready(Ok(())));
    assert_eq!(take_all(&quota), 0);
    quota.release();
    // Those whose reset is never written go when the socket has taken everything.
    (0..=most / 2).for_each(abandon);
    assert_eq!(take_all(&quota), 0);
    quota.on_all_written();
    assert_eq!(take_all(&quota), 0);
    quota.set_socket(Socket::Writable);
    quota.on_all_written();
    assert_eq!(take_all(&quota), 1);
    assert_eq!(quota.line().abandoned.len(), 0);
}

/// For all interleavings of threads, the final counts add up.
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
