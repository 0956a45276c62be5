//! Requests of pickers ("connect this"), passed from the data path to the tree without a lock.

use std::sync::Arc;

use proxyless_sans_io::sync::atomic::{AtomicBool, Ordering};
use proxyless_sans_io::sync::mpsc::{Receiver, Sender, channel};

use super::{HandleId, Releases};

/// Wakes the task that runs the tree.
pub trait Wake: Send + Sync {
    /// Makes the task check its signals soon. May be called from any thread, any number of times.
    fn wake(&self);
}

/// The tree's end of all signals.
pub struct SignalQueue {
    raised: Receiver<HandleId>,
    sender: Sender<HandleId>,
    wake: Arc<dyn Wake>,
}

impl SignalQueue {
    /// Creates a queue that wakes the tree's task when a signal is raised.
    #[must_use]
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        let (sender, raised) = channel();
        Self { raised, sender, wake }
    }

    /// Creates a signal. Its handle records `id` in `releases` when it is dropped.
    #[must_use]
    pub fn signal(&self, id: HandleId, releases: Arc<Releases>) -> Signal {
        let raiser = SignalRaiser {
            id,
            raised: AtomicBool::new(false),
            queue: self.sender.clone(),
            wake: Arc::clone(&self.wake),
        };
        Signal { raiser: Arc::new(raiser), releases }
    }

    /// The next raised signal, if any.
    pub fn next(&self) -> Option<HandleId> {
        self.raised.try_recv().ok()
    }
}

/// A policy's end of a signal.
pub struct Signal {
    raiser: Arc<SignalRaiser>,
    releases: Arc<Releases>,
}

impl Signal {
    /// The signal's id.
    #[must_use]
    pub fn id(&self) -> HandleId {
        self.raiser.id
    }

    /// The end for pickers.
    #[must_use]
    pub fn raiser(&self) -> Arc<SignalRaiser> {
        Arc::clone(&self.raiser)
    }

    /// Allows the signal to be raised again; called by the policy after it has acted.
    pub fn lower(&self) {
        // Release: a later raise sees the effects of the policy's actions.
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
    id: HandleId,
    raised: AtomicBool,
    queue: Sender<HandleId>,
    wake: Arc<dyn Wake>,
}

impl SignalRaiser {
    /// Raises the signal, unless it is raised already: a thousand picks in a row cost one wake-up.
    pub fn raise(&self) {
        // The plain load keeps the cache line shared while the signal is raised.
        if !self.raised.load(Ordering::Acquire) && !self.raised.swap(true, Ordering::AcqRel) {
            // The receiver is dropped only with the tree.
            if self.queue.send(self.id).is_ok() {
                self.wake.wake();
            }
        }
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
