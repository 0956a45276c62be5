//! Striping of data that every call writes: threads use different cache lines, to avoid contention.

use std::num::NonZero;
use std::sync::OnceLock;

#[cfg(proxyless_loom)]
use model::own_stripe;
#[cfg(proxyless_loom)]
pub use model::use_stripe;

/// The maximum number of stripes; with more threads, some share a stripe.
pub const MOST_STRIPES: usize = if cfg!(proxyless_loom) { 2 } else { 8 };

/// The number of stripes, a power of two: twice the number of cores, because threads that run at the same time may
/// otherwise get the same stripe, and at most [`MOST_STRIPES`].
#[must_use]
pub fn stripes() -> usize {
    // A plain `std` cell in models too: it is set once and orders nothing.
    static STRIPES: OnceLock<usize> = OnceLock::new();
    *STRIPES.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(MOST_STRIPES, NonZero::get);
        (2 * cores).next_power_of_two().min(MOST_STRIPES)
    })
}

/// A value with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Padded<T>(pub T);

/// One value per stripe.
#[derive(Debug)]
pub struct Striped<T>(Box<[T]>);

impl<T> Striped<T> {
    /// The values that `make` returns for each stripe.
    pub fn from_fn(make: impl FnMut(usize) -> T) -> Self {
        Self((0..stripes()).map(make).collect())
    }

    /// The value of the current thread's stripe.
    #[inline]
    #[must_use]
    pub fn own(&self) -> &T {
        self.at(own_stripe())
    }

    /// The value of this stripe.
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "the length is a power of two, which the mask stays below")]
    pub fn at(&self, stripe: usize) -> &T {
        &self.0[stripe & (self.0.len() - 1)]
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Self::from_fn(|_| T::default())
    }
}

/// The number of the current thread, which says its stripe.
#[cfg(not(proxyless_loom))]
#[inline]
fn own_stripe() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static THREADS: AtomicUsize = AtomicUsize::new(0);
    // Constant, so that reading it is one instruction: several times per RPC.
    thread_local!(static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) });
    #[cold]
    fn next() -> usize {
        let number = THREADS.fetch_add(1, Ordering::Relaxed) % MOST_STRIPES;
        STRIPE.set(number);
        number
    }
    match STRIPE.get() {
        usize::MAX => next(),
        number => number,
    }
}

/// Models say which thread has which stripe.
#[cfg(proxyless_loom)]
mod model {
    use std::cell::Cell;

    use crate::sync::loom;

    loom::thread_local!(static STRIPE: Cell<usize> = Cell::new(0));

    /// The number of the thread's stripe.
    pub(super) fn own_stripe() -> usize {
        STRIPE.with(Cell::get)
    }

    /// Sets it.
    pub fn use_stripe(stripe: usize) {
        STRIPE.with(|own| own.set(stripe));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stripe_has_a_value_and_a_thread_stays_with_its_own() {
        let striped = Striped::from_fn(|stripe| stripe);
        assert!(stripes().is_power_of_two() && stripes() <= MOST_STRIPES);
        assert_eq!(striped.iter().copied().collect::<Vec<_>>(), (0..stripes()).collect::<Vec<_>>());
        assert_eq!(striped.at(stripes() + 1), striped.at(1));
        assert_eq!(striped.own(), striped.own());
    }
}
