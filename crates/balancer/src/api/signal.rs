//! Wishes of pickers ("connect this"), carried from the data path to the tree without a lock.

use std::sync::Arc;

use proxyless_sans_io::sync::atomic::{AtomicBool, Ordering};
use proxyless_sans_io::sync::mpsc::{Receiver, Sender, channel};

use super::{Id, Releases};

/// Wakes the task that runs the tree.
pub trait Wake: Send + Sync {
    /// Makes the task look at its signals soon. May be called from any thread, any number of times.
    fn wake(&self);
}

/// The tree's end of all signals.
pub struct SignalQueue {
    raised: Receiver<Id>,
    sender: Sender<Id>,
    wake: Arc<dyn Wake>,
}

impl SignalQueue {
    /// A queue that wakes the tree's task when something is raised.
    #[must_use]
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        let (sender, raised) = channel();
        Self { raised, sender, wake }
    }

    /// A signal of this queue. Its handle notes `id` in `releases` when it is dropped.
    #[must_use]
    pub fn signal(&self, id: Id, releases: Arc<Releases>) -> Signal {
        let raiser = SignalRaiser {
            id,
            raised: AtomicBool::new(false),
            queue: self.sender.clone(),
            wake: Arc::clone(&self.wake),
        };
        Signal { raiser: Arc::new(raiser), releases }
    }

    /// The next raised signal, if any.
    pub fn next(&self) -> Option<Id> {
        self.raised.try_recv().ok()
    }
}

/// A policy's end of a signal.
pub struct Signal {
    raiser: Arc<SignalRaiser>,
    releases: Arc<Releases>,
}

impl Signal {
    /// The signal's name.
    #[must_use]
    pub fn id(&self) -> Id {
        self.raiser.id
    }

    /// The end that pickers hold.
    #[must_use]
    pub fn raiser(&self) -> Arc<SignalRaiser> {
        Arc::clone(&self.raiser)
    }

    /// Lets the signal be raised again; the policy calls it when it has acted.
    pub fn lower(&self) {
        // Release: a raise after this sees what the policy did before.
        self.raiser.raised.store(false, Ordering::Release);
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.releases.note(self.raiser.id);
    }
}

/// A picker's end of a signal.
pub struct SignalRaiser {
    id: Id,
    raised: AtomicBool,
    queue: Sender<Id>,
    wake: Arc<dyn Wake>,
}

impl SignalRaiser {
    /// Raises the signal, once until it is lowered: a thousand picks in a row cost one wake-up.
    pub fn raise(&self) {
        // The plain load keeps the cache line shared while the signal is up.
        if !self.raised.load(Ordering::Acquire) && !self.raised.swap(true, Ordering::AcqRel) {
            // The receiver is gone only when the tree is: nobody is left to act.
            if self.queue.send(self.id).is_ok() {
                self.wake.wake();
            }
        }
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
