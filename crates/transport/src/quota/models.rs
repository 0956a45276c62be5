//! Loom models of the quota of streams.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use proxyless_sans_io::sync::atomic::Ordering::Relaxed;
use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::future::block_on;
use proxyless_sans_io::sync::loom::thread;

use super::*;

/// A quota, and the number of open streams by the model's own count. Relaxed: it is exact, and orders nothing for
/// others.
struct Model {
    quota: Quota<Self>,
    out: AtomicUsize,
}

impl Member for Model {
    fn quota(&self) -> &Quota<Self> {
        &self.quota
    }
}

impl Model {
    fn limited(limit: u32) -> Arc<Self> {
        Self::in_line(&Arc::default(), limit)
    }

    /// One of the connections of a line.
    fn in_line(line: &Arc<Line<Self>>, limit: u32) -> Arc<Self> {
        let model = Arc::new(Self { quota: Quota::new(Arc::clone(line)), out: AtomicUsize::new(0) });
        model.quota.set_limit(limit);
        Quota::join_line(&model);
        model
    }

    /// Takes a stream of this connection, or waits.
    async fn acquire(&self) -> Result<Option<Arc<Self>>, QuotaClosed> {
        if self.quota.try_acquire() { Ok(None) } else { Ok(Some(self.quota.wait().await?)) }
    }

    /// Waits for a stream. (If it is called but never woken, loom finds that all threads wait.)
    fn take(&self, limit: usize) -> Result<(), QuotaClosed> {
        block_on(self.acquire())?;
        assert!(self.out.fetch_add(1, Relaxed) < limit, "more than {limit} streams");
        Ok(())
    }

    fn give_back(&self) {
        self.out.fetch_sub(1, Relaxed);
        self.quota.release();
    }

    /// Asks for a stream, and gives up if there is none.
    fn try_once(&self) {
        let mut context = Context::from_waker(Waker::noop());
        let mut turn = Box::pin(self.acquire());
        if let Poll::Ready(Ok(_)) = turn.as_mut().poll(&mut context) {
            self.quota.release();
        }
    }

    /// Nothing leaks: all streams are back, nobody is in the line, and as many as `limit` can be taken.
    fn check_all_back(&self, limit: usize) {
        assert_eq!(self.quota.in_use(), 0);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..limit {
            assert!(pin!(self.acquire()).poll(&mut context).is_ready(), "a lost stream");
        }
        assert_eq!(self.quota.line.lock().queued(), 0, "a lost waiter");
    }
}

fn spawn(model: &Arc<Model>, run: impl FnOnce(&Model) + 'static) -> thread::JoinHandle<()> {
    let model = Arc::clone(model);
    thread::spawn(move || run(&model))
}

/// All waiters get a stream, and never more streams than the limit are open.
#[test]
fn waiters_are_served_and_the_limit_holds() {
    check(2, || {
        let model = Model::limited(1);
        let use_one = |model: &Model| {
            assert_eq!(model.take(1), Ok(()));
            model.give_back();
        };
        let users = [spawn(&model, use_one), spawn(&model, use_one)];
        use_one(&model);
        users.into_iter().for_each(|user| user.join().unwrap());
        model.check_all_back(1);
    });
}

/// A waiter that is dropped, at any moment, loses no stream, and delays no other waiter.
#[test]
fn a_waiter_that_gives_up_loses_no_stream() {
    check(3, || {
        let model = Model::limited(1);
        assert_eq!(model.take(1), Ok(()));
        let impatient = spawn(&model, Model::try_once);
        let patient = spawn(&model, |model| {
            assert_eq!(model.take(1), Ok(()));
            model.give_back();
        });
        model.give_back();
        impatient.join().unwrap();
        patient.join().unwrap();
        model.check_all_back(1);
    });
}

/// A raised limit is seen by waiters that have just begun to wait.
#[test]
fn a_raised_limit_wakes_waiters() {
    check(3, || {
        let model = Model::limited(0);
        let users = [(); 2].map(|()| spawn(&model, |model| assert_eq!(model.take(2), Ok(()))));
        model.quota.set_limit(1);
        model.quota.set_limit(2);
        users.into_iter().for_each(|user| user.join().unwrap());
        model.give_back();
        model.give_back();
        model.check_all_back(2);
    });
}

/// A lowered limit is exceeded only by streams that were open before.
#[test]
fn a_lowered_limit_is_paid_by_releases() {
    check(3, || {
        let model = Model::limited(2);
        assert_eq!(model.take(2), Ok(()));
        let user = spawn(&model, |model| {
            assert_eq!(model.take(2), Ok(()));
            model.give_back();
        });
        model.quota.set_limit(1);
        model.give_back();
        user.join().unwrap();
        model.check_all_back(1);
    });
}

/// All waiters are woken at the end.
#[test]
fn the_end_wakes_waiters() {
    check(3, || {
        let model = Model::limited(1);
        assert_eq!(model.take(1), Ok(()));
        let users = [(); 2].map(|()| {
            spawn(&model, |model| {
                if model.take(1).is_ok() {
                    model.give_back();
                }
            })
        });
        let closer = spawn(&model, |model| model.quota.close(model));
        model.give_back();
        users.into_iter().for_each(|user| user.join().unwrap());
        closer.join().unwrap();
        assert_eq!(model.quota.in_use(), 0);
        assert!(block_on(model.acquire()).is_err());
    });
}

/// Streams that are abandoned while the socket is unblocked do not leave the quota congested.
#[test]
fn a_socket_that_goes_on_ends_the_congestion() {
    check(3, || {
        let model = Model::limited(2);
        model.quota.set_socket(Socket::Blocked);
        for _ in 0..2 {
            assert_eq!(model.take(2), Ok(()));
        }
        let callers = [1, 3].map(|stream| {
            spawn(&model, move |model| {
                model.out.fetch_sub(1, Relaxed);
                model.quota.abandon(stream);
            })
        });
        // As the connection's task does when the socket has accepted everything.
        model.quota.set_socket(Socket::Writable);
        model.quota.on_all_written();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        assert_eq!(model.take(2), Ok(()));
    });
}

/// The same for resets that are written one by one: when all are written, streams can be had.
#[test]
fn resets_that_are_written_end_the_congestion() {
    check(3, || {
        let model = Model::limited(2);
        model.quota.set_socket(Socket::Blocked);
        for _ in 0..2 {
            assert_eq!(model.take(2), Ok(()));
        }
        model.quota.abandon(1);
        let caller = spawn(&model, |model| model.quota.abandon(3));
        let user = spawn(&model, |model| drop(block_on(model.acquire()).unwrap()));
        model.quota.on_reset_written(1);
        caller.join().unwrap();
        model.quota.on_reset_written(3);
        user.join().unwrap();
        assert_eq!(model.quota.in_use(), 1);
    });
}

/// Two connections of one line: a stream that is released on either serves a waiter, and a connection that joins too.
#[test]
fn waiters_get_the_streams_of_any_connection() {
    check(3, || {
        let line = Arc::default();
        let old = Model::in_line(&line, 1);
        assert!(old.quota.try_acquire());
        let users = [(); 2].map(|()| {
            spawn(&old, |old| {
                // None: it is the old one's.
                let of = block_on(old.acquire()).unwrap();
                of.as_deref().unwrap_or(old).quota.release();
            })
        });
        let new = Model::in_line(&line, 1);
        old.quota.release();
        users.into_iter().for_each(|user| user.join().unwrap());
        [old, new].iter().for_each(|connection| connection.check_all_back(1));
    });
}

/// A connection that ends while requests wait: the other one serves them, and they fail only with the last.
#[test]
fn a_connection_that_leaves_the_line_loses_no_waiter() {
    check(3, || {
        let line = Arc::default();
        let (old, new) = (Model::in_line(&line, 0), Model::in_line(&line, 1));
        assert!(new.quota.try_acquire());
        let user = spawn(&old, |old| {
            let of = block_on(old.acquire()).unwrap();
            of.unwrap().quota.release();
        });
        let closer = spawn(&old, |old| old.quota.close(old));
        new.quota.release();
        user.join().unwrap();
        closer.join().unwrap();
        new.check_all_back(1);
    });
}
