//! Loom models of signals that are raised while the tree handles or drops them.

use proxyless_sans_io::sync::loom::sync::Notify;
use proxyless_sans_io::sync::loom::thread;
use proxyless_sans_io::sync::{Step, check};

use super::*;
use crate::api::Timer;

/// The task of the tree: sleeps until it is woken.
struct Bell(Notify);

impl Wake for Bell {
    fn wake(&self) {
        self.0.notify();
    }
}

impl Bell {
    /// Sleeps until something is raised. (If nothing ever is, loom finds that all threads wait.)
    fn wait_for(&self, queue: &SignalQueue) -> HandleId {
        loop {
            if let Some(id) = queue.next() {
                return id;
            }
            self.0.wait();
        }
    }
}

fn queue() -> (SignalQueue, Arc<Bell>) {
    let bell = Arc::new(Bell(Notify::new()));
    (SignalQueue::new(Arc::clone(&bell) as Arc<dyn Wake>), bell)
}

/// A raise is never lost: the tree is woken, and then finds it. Concurrent raises are found once.
#[test]
fn a_raise_wakes_the_tree_and_is_found() {
    check(3, || {
        let (queue, bell) = queue();
        let signal = queue.signal(HandleId(7), Releases::new());
        let picks = [signal.raiser(), signal.raiser()].map(|raiser| thread::spawn(move || raiser.raise()));
        assert_eq!(bell.wait_for(&queue), HandleId(7));
        picks.into_iter().for_each(|pick| pick.join().unwrap());
        assert_eq!(queue.next(), None);
    });
}

/// A lowered signal can be raised again: a pick with the picker that the policy published in response is not lost.
#[test]
fn a_signal_that_was_lowered_can_be_raised_again() {
    check(3, || {
        let (queue, bell) = queue();
        let signal = queue.signal(HandleId(7), Releases::new());
        let published = Arc::new((Notify::new(), Step::default()));
        let pick = {
            let (raiser, published) = (signal.raiser(), Arc::clone(&published));
            thread::spawn(move || {
                raiser.raise();
                while published.1.count() == 0 {
                    published.0.wait();
                }
                raiser.raise();
            })
        };
        for _ in 0..2 {
            assert_eq!(bell.wait_for(&queue), HandleId(7));
            signal.lower();
            published.1.take();
            published.0.notify();
        }
        pick.join().unwrap();
        assert_eq!(queue.next(), None);
    });
}

/// Each handle that is dropped is found once, also while others are dropped.
#[test]
fn dropped_handles_are_found_once() {
    check(3, || {
        let releases = Releases::new();
        let handles = [1, 2].map(|id| {
            let handle = Timer::new(HandleId(id), Arc::clone(&releases));
            thread::spawn(move || drop(handle))
        });
        let mut found = releases.drain();
        found.extend(releases.drain());
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        found.extend(releases.drain());
        found.sort_unstable();
        assert_eq!(found, [HandleId(1), HandleId(2)]);
    });
}
