//! Striping of data that every call writes: threads use different cache lines, to avoid contention.
//!
//! A stripe exists from the first use by one of its threads on, because most objects are used by few threads, if any.

use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicUsize, Ordering};

#[cfg(proxyless_loom)]
use model::own_stripe;
#[cfg(proxyless_loom)]
pub use model::use_stripe;

/// The maximum number of stripes; with more threads, some share a stripe.
pub const MOST_STRIPES: usize = if cfg!(proxyless_loom) { 2 } else { 8 };

/// A value with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Padded<T>(pub T);

/// One value per stripe, allocated when a thread of the stripe first uses it: for what a cluster has once.
#[derive(Debug)]
pub struct LazyStriped<T>(OnceLock<Box<[OnceLock<T>; MOST_STRIPES]>>);

impl<T> LazyStriped<T> {
    /// The value of the current thread's stripe; `make` returns it for the number of the stripe if there is none yet.
    #[inline]
    pub fn own_or(&self, make: impl FnOnce(usize) -> T) -> &T {
        self.at_or(own_stripe(), make)
    }

    /// The value of the current thread's stripe, if there is one.
    #[inline]
    #[must_use]
    pub fn own(&self) -> Option<&T> {
        self.slots().and_then(|slots| Self::slot(slots, own_stripe()).get())
    }

    /// The value of this stripe, which `make` returns if there is none yet.
    #[inline]
    pub fn at_or(&self, stripe: usize, make: impl FnOnce(usize) -> T) -> &T {
        let slots = self.0.get_or_init(Box::default);
        Self::slot(slots, stripe).get_or_init(|| make(stripe))
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots().into_iter().flatten().filter_map(OnceLock::get)
    }

    fn slots(&self) -> Option<&[OnceLock<T>; MOST_STRIPES]> {
        self.0.get().map(|slots| &**slots)
    }

    #[allow(clippy::indexing_slicing, reason = "the remainder is below the length")]
    fn slot(slots: &[OnceLock<T>; MOST_STRIPES], stripe: usize) -> &OnceLock<T> {
        &slots[stripe % MOST_STRIPES]
    }
}

impl<T> Default for LazyStriped<T> {
    fn default() -> Self {
        Self(OnceLock::default())
    }
}

/// One value per stripe. The first exists from the start, and belongs to the stripe that uses it first; so the calls of
/// a single thread do not allocate. For what endpoints have.
#[derive(Debug)]
pub struct Striped<T> {
    /// The stripe that owns the first value plus one; 0 until one uses it.
    owner: AtomicUsize,
    first: T,
    others: LazyStriped<T>,
}

impl<T> Striped<T> {
    /// The first value.
    pub fn new(first: T) -> Self {
        Self { owner: AtomicUsize::new(0), first, others: LazyStriped::default() }
    }

    /// The value of the current thread's stripe, which `make` returns if there is none yet.
    #[inline]
    pub fn own_or(&self, make: impl FnOnce() -> T) -> &T {
        let stripe = own_stripe();
        // Relaxed: the first value is there before the threads know of it. The owner never changes again, so a stripe
        // always has the same value.
        let mut owner = self.owner.load(Ordering::Relaxed);
        if owner == 0 {
            let claimed = self.owner.compare_exchange(0, stripe + 1, Ordering::Relaxed, Ordering::Relaxed);
            owner = claimed.err().unwrap_or(stripe + 1);
        }
        if owner == stripe + 1 { &self.first } else { self.others.at_or(stripe, |_| make()) }
    }

    /// The first value.
    pub fn first(&self) -> &T {
        &self.first
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(self.others.iter())
    }
}

impl<T: Default> Striped<T> {
    /// The value of the current thread's stripe.
    #[inline]
    #[must_use]
    pub fn own(&self) -> &T {
        self.own_or(T::default)
    }
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Self::new(T::default())
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

#[cfg(all(test, proxyless_loom))]
mod models;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What this many threads return, one after the other.
    fn in_threads<T: Send>(number: usize, run: impl Fn() -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| (0..number).map(|_| scope.spawn(&run).join().unwrap()).collect())
    }

    #[test]
    fn threads_have_values_of_their_own_and_stay_with_them() {
        let striped = Striped::<Box<u64>>::default();
        let own = || std::ptr::from_ref(&**striped.own()).addr();
        // Twice as many as needed: other tests take numbers meanwhile.
        let seen = in_threads(2 * MOST_STRIPES, || {
            assert_eq!(own(), own());
            own()
        });
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), MOST_STRIPES);
        assert!(seen.contains(&std::ptr::from_ref(&**striped.first()).addr()), "the first is not left over");
        assert_eq!(striped.iter().count(), MOST_STRIPES);
    }

    #[test]
    fn stripes_exist_when_they_are_used() {
        let lazy = LazyStriped::default();
        assert!(lazy.iter().next().is_none() && lazy.own().is_none());
        let stripe = *lazy.own_or(|stripe| stripe);
        assert_eq!(lazy.own(), Some(&stripe));
        assert_eq!((lazy.at_or(stripe, |_| 99), lazy.iter().count()), (&stripe, 1));
        assert_eq!(*lazy.at_or(stripe + 1, |_| 99), 99);
        assert_eq!(lazy.iter().count(), 2);
    }
}
