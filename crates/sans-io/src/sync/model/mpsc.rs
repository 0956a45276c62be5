//! A double of `std::sync::mpsc`, as far as it is used. A receiver sees what was sent in order, but as late as the
//! orderings of a channel allow: what it sees happened before, and nothing else is promised.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize as Plain, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use std::sync::mpsc::{SendError, TryRecvError};

use super::atomic::AtomicUsize;

struct Channel<T> {
    /// The standard library's own: threads do not switch here.
    sent: Mutex<VecDeque<T>>,
    /// How many were ever sent, as far as the receiver can see.
    visible: AtomicUsize,
    taken: Plain,
    closed: AtomicBool,
}

/// The end that sends.
pub struct Sender<T>(Arc<Channel<T>>);

/// The end that receives.
pub struct Receiver<T>(Arc<Channel<T>>);

/// A channel.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel {
        sent: Mutex::default(),
        visible: AtomicUsize::new(0),
        taken: Plain::new(0),
        closed: AtomicBool::new(false),
    });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

impl<T> Sender<T> {
    /// Sends a value.
    ///
    /// # Errors
    /// The value, if the receiver is gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.0.closed.load(Ordering::SeqCst) {
            return Err(SendError(value));
        }
        // Threads may switch before the addition, not after it: the order of the numbers is that of the values.
        self.0.visible.fetch_add(1, Ordering::AcqRel);
        self.0.sent.lock().unwrap_or_else(PoisonError::into_inner).push_back(value);
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Receiver<T> {
    /// The next value that can be seen.
    ///
    /// # Errors
    /// If none can.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        if self.0.visible.load(Ordering::Acquire) <= self.0.taken.load(Ordering::SeqCst) {
            return Err(TryRecvError::Empty);
        }
        self.0.taken.fetch_add(1, Ordering::SeqCst);
        self.0.sent.lock().unwrap_or_else(PoisonError::into_inner).pop_front().ok_or(TryRecvError::Empty)
    }

    /// All values that can be seen.
    pub fn try_iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.try_recv().ok())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::SeqCst);
    }
}
