//! Striping of data that every call writes: threads use different cache lines, to avoid contention.

#[cfg(proxyless_loom)]
pub use model::{own_stripe, use_stripe};

/// The number of stripes; with more threads, some share a stripe.
pub const STRIPES: usize = if cfg!(proxyless_loom) { 2 } else { 8 };

/// A value with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Padded<T>(pub T);

/// The stripe of the current thread, below [`STRIPES`].
#[cfg(not(proxyless_loom))]
#[must_use]
pub fn own_stripe() -> usize {
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
    #[must_use]
    pub fn own_stripe() -> usize {
        STRIPE.with(Cell::get)
    }

    /// Sets it.
    pub fn use_stripe(stripe: usize) {
        STRIPE.with(|own| own.set(stripe));
    }
}
