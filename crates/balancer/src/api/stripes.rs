//! Striping of data that every call writes: threads use different cache lines, to avoid contention.

#[cfg(proxyless_loom)]
use model::own_stripe;
#[cfg(proxyless_loom)]
pub use model::use_stripe;

/// The number of stripes; with more threads, some share a stripe.
pub const STRIPES: usize = if cfg!(proxyless_loom) { 2 } else { 8 };

/// A value with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Padded<T>(pub T);

/// One value per stripe.
#[derive(Debug)]
pub struct Striped<T>([T; STRIPES]);

impl<T> Striped<T> {
    /// The values that `make` returns for each stripe.
    pub fn from_fn(make: impl FnMut(usize) -> T) -> Self {
        Self(std::array::from_fn(make))
    }

    /// The value of the current thread's stripe.
    #[must_use]
    pub fn own(&self) -> &T {
        self.at(own_stripe())
    }

    /// The value of this stripe.
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "the index is below STRIPES")]
    pub fn at(&self, stripe: usize) -> &T {
        &self.0[stripe % STRIPES]
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

/// The stripe of the current thread, below [`STRIPES`].
#[cfg(not(proxyless_loom))]
fn own_stripe() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static STRIPE: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES));
    // The thread-local is gone when a thread ends; any stripe will do.
    STRIPE.try_with(Cell::get).unwrap_or(0)
}

/// Models say which thread has which stripe.
#[cfg(proxyless_loom)]
mod model {
    use std::cell::Cell;

    use proxyless_sans_io::sync::loom;

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
