//! The number of ended calls, counted without contention between cores.

use std::ops::{Add, AddAssign};

use proxyless_sans_io::sync::OnceLock;
use proxyless_sans_io::sync::atomic::{AtomicU64, Ordering};
use serde::{Deserialize, Serialize};

use super::{Padded, Striped};

/// The number of ended calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallCounts {
    /// Calls with status OK.
    pub succeeded: u64,
    /// Calls with any other status, and cancelled calls.
    pub failed: u64,
}

impl CallCounts {
    /// Counts of calls.
    #[must_use]
    pub const fn new(succeeded: u64, failed: u64) -> Self {
        Self { succeeded, failed }
    }

    /// All ended calls.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed
    }

    /// The increase since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            succeeded: self.succeeded.saturating_sub(earlier.succeeded),
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }
}

impl Add for CallCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { succeeded: self.succeeded + other.succeeded, failed: self.failed + other.failed }
    }
}

impl AddAssign for CallCounts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Counts ended calls: one relaxed add each, on a cache line that other cores do not use.
///
/// Allocates on the first call of each stripe; that of the first one exists after [`Self::prepare`].
#[derive(Debug, Default)]
pub struct CallCounter(OnceLock<Striped<Box<Padded<Stripe>>>>);

#[derive(Debug, Default)]
struct Stripe {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl CallCounter {
    /// Allocates now.
    pub fn prepare(&self) {
        self.0.get_or_init(Striped::default);
    }

    /// Counts a call that ended with status OK.
    pub fn succeeded(&self) {
        // Relaxed: the counters order nothing else.
        self.stripe().succeeded.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that ended with any other status.
    pub fn failed(&self) {
        self.stripe().failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the counts of another counter.
    pub fn absorb(&self, counts: CallCounts) {
        if counts.ended() > 0 {
            let stripe = self.stripe();
            stripe.succeeded.fetch_add(counts.succeeded, Ordering::Relaxed);
            stripe.failed.fetch_add(counts.failed, Ordering::Relaxed);
        }
    }

    /// The sum. Concurrent calls may or may not be included.
    #[must_use]
    pub fn counts(&self) -> CallCounts {
        let stripes = self.0.get().into_iter().flat_map(|stripes| stripes.iter());
        stripes.fold(CallCounts::default(), |sum, stripe| {
            sum + CallCounts {
                succeeded: stripe.0.succeeded.load(Ordering::Relaxed),
                failed: stripe.0.failed.load(Ordering::Relaxed),
            }
        })
    }

    fn stripe(&self) -> &Stripe {
        &self.0.get_or_init(Striped::default).own().0
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use proxyless_sans_io::stripes::MOST_STRIPES;

    #[test]
    fn no_call_of_any_thread_is_lost() {
        let counter = CallCounter::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * MOST_STRIPES {
                scope.spawn(|| (0..1000).for_each(|_| counter.succeeded()));
            }
            scope.spawn(|| counter.failed());
        });
        assert_eq!(counter.counts(), CallCounts { succeeded: 2_000 * MOST_STRIPES as u64, failed: 1 });
    }

    #[test]
    fn a_counter_that_nobody_uses_takes_no_memory() {
        let counter = CallCounter::default();
        counter.absorb(CallCounts::default());
        assert_eq!(counter.counts().ended(), 0);
        assert!(counter.0.get().is_none());
    }

    #[test]
    fn absorbed_counts_add_up() {
        let counter = CallCounter::default();
        counter.failed();
        counter.absorb(CallCounts { succeeded: 2, failed: 3 });
        assert_eq!(counter.counts(), CallCounts { succeeded: 2, failed: 4 });
        assert_eq!(
            counter.counts().since(&CallCounts { succeeded: 1, failed: 9 }),
            CallCounts { succeeded: 1, failed: 0 }
        );
    }
}
