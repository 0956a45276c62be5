//! Loom models of stripes: threads that use them for the first time.

use std::sync::Arc;

use super::*;
use crate::sync::atomic::AtomicU64;
use crate::sync::check;
use crate::sync::loom::thread;

/// Each thread adds twice to its stripe. Nothing is lost, and a thread always finds its own additions.
fn no_addition_is_lost(stripes: [usize; 2]) {
    check(3, move || {
        let striped = Arc::new(Striped::<Box<AtomicU64>>::default());
        let threads = stripes.map(|stripe| {
            let striped = Arc::clone(&striped);
            thread::spawn(move || {
                use_stripe(stripe);
                let first = striped.own().fetch_add(1, Ordering::Relaxed);
                assert!(striped.own().fetch_add(1, Ordering::Relaxed) > first, "another value");
            })
        });
        assert!(sum(&striped) <= 4);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(sum(&striped), 4);
        let apart = stripes[0] != stripes[1];
        let used = striped.iter().filter(|value| value.load(Ordering::Relaxed) > 0).count();
        assert_eq!(
            used,
            if apart { 2 } else { 1 },
            "threads share a value if, and only if, they share a stripe"
        );
    });
}

fn sum(striped: &Striped<Box<AtomicU64>>) -> u64 {
    striped.iter().map(|value| value.load(Ordering::Relaxed)).sum()
}

#[test]
fn threads_with_a_stripe_each_lose_no_addition() {
    no_addition_is_lost([0, 1]);
}

#[test]
fn threads_that_share_a_stripe_lose_no_addition() {
    no_addition_is_lost([1, 1]);
}
