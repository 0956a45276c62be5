//! Tracks whether a channel is in use, without a cache line that all calls write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proxyless_balancer::api::{Padded, Striped};

/// The activity of one channel.
pub(crate) struct Activity {
    /// Whether a call has started since the last check. Calls write it only if it is not set.
    used: AtomicBool,
    /// Each call in flight holds a reference to the stripe of the thread that started it.
    stripes: Striped<Arc<Padded<()>>>,
}

/// A call in flight, until it is dropped. Does not keep the channel alive.
pub(crate) struct InUse {
    _stripe: Arc<Padded<()>>,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self { used: AtomicBool::new(false), stripes: Striped::default() }
    }

    /// Records the start of a call.
    pub(crate) fn begin(&self) -> InUse {
        // Relaxed: it orders nothing else. A call that the driver misses finds the channel IDLE and wakes it.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        InUse { _stripe: Arc::clone(self.stripes.own()) }
    }

    /// Whether calls are in flight, or some have started since the last check.
    pub(crate) fn take(&self) -> bool {
        let used = self.used.swap(false, Ordering::Relaxed);
        used || self.stripes.iter().any(|stripe| Arc::strong_count(stripe) > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_flight_and_calls_since_the_last_look_count() {
        let activity = Activity::new();
        assert!(!activity.take());
        drop(activity.begin());
        assert!(activity.take(), "one has begun and ended");
        assert!(!activity.take());
        let long = activity.begin();
        for _ in 0..3 {
            assert!(activity.take(), "one is in flight");
        }
        // It may be dropped on any thread, and after the channel.
        let ended = std::thread::spawn(move || drop(long));
        ended.join().unwrap();
        assert!(!activity.take());
        let outlives = activity.begin();
        drop(activity);
        drop(outlives);
    }
}
