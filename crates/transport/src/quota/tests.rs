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

/// A connection.
struct Connection {
    name: u32,
    quota: Quota<Self>,
}

impl Member for Connection {
    fn quota(&self) -> &Quota<Self> {
        &self.quota
    }
}

impl std::ops::Deref for Connection {
    type Target = Quota<Self>;

    fn deref(&self) -> &Quota<Self> {
        &self.quota
    }
}

impl Connection {
    /// The connection `name` of a line, with this limit.
    fn of(line: &Arc<Line<Self>>, name: u32, limit: u32) -> Arc<Self> {
        let connection = Self::unlimited(line, name);
        connection.set_limit(limit);
        Quota::join_line(&connection);
        connection
    }

    fn unlimited(line: &Arc<Line<Self>>, name: u32) -> Arc<Self> {
        Arc::new(Self { name, quota: Quota::new(Arc::clone(line)) })
    }

    /// Takes a stream, and returns the name of its connection.
    async fn take(&self) -> Result<u32, QuotaClosed> {
        if self.try_acquire() { Ok(self.name) } else { Ok(self.wait().await?.name) }
    }

    async fn acquire(&self) -> Result<(), QuotaClosed> {
        self.take().await.map(drop)
    }
}

fn limited(limit: u32) -> Arc<Connection> {
    Connection::of(&Arc::default(), 0, limit)
}

/// How many streams can be taken now.
fn take_all(quota: &Connection) -> usize {
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
    quota.close(&quota);
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
    let left = quota.line.lock().waiters.len();
    assert!(left < 100, "{left}");
    quota.set_limit(1);
    assert_eq!(poll_once(patient.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn abandoned_streams_are_limited_while_the_socket_is_blocked() {
    let most = u32::try_from(MAX_ABANDONED).expect("small");
    let quota = Connection::unlimited(&Arc::default(), 0);
    Quota::join_line(&quota);
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
    assert_eq!(quota.facts().abandoned.len(), 0);
}

/// For all interleavings of threads, the final counts add up.
#[test]
fn moving_limits_under_load_lose_no_stream() {
    let quota = limited(8);
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

#[test]
fn a105_21_waiters_get_the_streams_of_any_connection_in_order() {
    let line = Arc::default();
    let (old, new) = (Connection::of(&line, 1, 1), Connection::of(&line, 2, 1));
    // The older one is asked first where both have streams.
    assert!(old.has_room() && old.try_acquire());
    assert_eq!(poll_once(Box::pin(old.take()).as_mut()), Poll::Ready(Ok(2)), "the other one");
    assert!(!old.has_room() && !new.has_room());
    let mut waiters = [(); 3].map(|()| Box::pin(old.take()));
    waiters.iter_mut().for_each(|waiter| assert_eq!(poll_once(waiter.as_mut()), Poll::Pending));
    new.release();
    assert!(!new.try_acquire(), "waiters come first");
    let [first, second, third] = &mut waiters;
    assert_eq!(poll_once(second.as_mut()), Poll::Pending);
    assert_eq!(poll_once(first.as_mut()), Poll::Ready(Ok(2)));
    old.release();
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(1)));
    // A105-20: a raised limit serves waiters too.
    new.set_limit(2);
    assert_eq!(poll_once(third.as_mut()), Poll::Ready(Ok(2)));
}

#[test]
fn a105_20_a_new_connection_takes_the_waiters_over() {
    let line = Arc::default();
    let old = Connection::of(&line, 1, 0);
    let mut waiters = [(); 3].map(|()| Box::pin(old.take()));
    waiters.iter_mut().for_each(|waiter| assert_eq!(poll_once(waiter.as_mut()), Poll::Pending));
    let _new = Connection::of(&line, 2, 2);
    let results = waiters.each_mut().map(|waiter| poll_once(waiter.as_mut()));
    assert_eq!(results, [Poll::Ready(Ok(2)), Poll::Ready(Ok(2)), Poll::Pending]);
}

#[test]
fn a105_13_waiters_fail_with_the_last_connection_only() {
    let line = Arc::default();
    let (old, new) = (Connection::of(&line, 1, 0), Connection::of(&line, 2, 0));
    let mut waiter = Box::pin(old.take());
    assert_eq!(poll_once(waiter.as_mut()), Poll::Pending);
    old.close(&old);
    assert_eq!(poll_once(waiter.as_mut()), Poll::Pending, "the new one may serve it");
    new.close(&new);
    assert_eq!(poll_once(waiter.as_mut()), Poll::Ready(Err(QuotaClosed)));
    // A connection that is closed before it joins does not.
    let late = Connection::unlimited(&line, 3);
    late.close(&late);
    Quota::join_line(&late);
    assert_eq!(poll_once(Box::pin(late.take()).as_mut()), Poll::Ready(Err(QuotaClosed)));
    // The line serves later connections.
    let next = Connection::of(&line, 4, 1);
    assert_eq!(poll_once(Box::pin(next.take()).as_mut()), Poll::Ready(Ok(4)));
}

#[test]
fn a105_07_the_number_of_waiters_is_reported_as_it_changes() {
    let line = Arc::new(Line::default());
    let connection = Connection::of(&line, 1, 0);
    let mut early = Box::pin(connection.take());
    assert_eq!(poll_once(early.as_mut()), Poll::Pending);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let take = || std::mem::take(&mut *reports.lock().unwrap());
    let to = Arc::clone(&reports);
    line.observe(Box::new(move |count| to.lock().unwrap().push(count)));
    assert_eq!(take(), [1], "those that wait already");
    let mut late = Box::pin(connection.take());
    assert_eq!(poll_once(late.as_mut()), Poll::Pending);
    assert_eq!(take(), [2]);
    connection.set_limit(1);
    assert_eq!(take(), [1], "before the waiter has run");
    drop(late);
    assert_eq!(take(), [0]);
    assert_eq!(poll_once(early.as_mut()), Poll::Ready(Ok(1)));
    let mut last = Box::pin(connection.take());
    assert_eq!(poll_once(last.as_mut()), Poll::Pending);
    connection.close(&connection);
    assert_eq!(take(), [1, 0]);
}
