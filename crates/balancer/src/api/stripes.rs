//! For numbers that every call writes: each thread has its own, so that threads do not fight over one cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many threads can be kept apart; more of them share.
pub const STRIPES: usize = 8;

/// A value with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Padded<T>(pub T);

/// The number of the thread's stripe, below [`STRIPES`].
#[must_use]
pub fn own_stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static STRIPE: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES));
    // A thread that is ending has no number any more; any stripe will do.
    STRIPE.try_with(Cell::get).unwrap_or(0)
}
