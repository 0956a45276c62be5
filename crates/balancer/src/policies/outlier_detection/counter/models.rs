//! Loom models of the interval counter: calls that end while the policy swaps the buckets.

use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::thread;

use super::*;
use crate::api::use_stripe;

/// A call counts for one interval: whenever it ends, for exactly one.
fn a_call_counts_once(stripes: [usize; 2]) {
    check(3, move || {
        let counter = Arc::new(IntervalCounter::default());
        let mut stripes = stripes.into_iter();
        let calls = [Code::Ok, Code::Internal].map(|code| {
            let counter = Arc::clone(&counter);
            let stripe = stripes.next().unwrap();
            thread::spawn(move || {
                use_stripe(stripe);
                counter.count(code);
            })
        });
        let mut intervals = vec![counter.swap(), counter.swap()];
        calls.into_iter().for_each(|call| call.join().unwrap());
        intervals.extend([counter.swap(), counter.swap()]);
        assert_eq!(intervals.iter().map(|counts| counts.succeeded).sum::<u64>(), 1, "{intervals:?}");
        assert_eq!(intervals.iter().map(|counts| counts.failed).sum::<u64>(), 1, "{intervals:?}");
    });
}

#[test]
fn a_call_of_threads_that_share_a_stripe_counts_for_exactly_one_interval() {
    a_call_counts_once([0, 0]);
}

#[test]
fn a_call_of_threads_with_a_stripe_each_counts_for_exactly_one_interval() {
    a_call_counts_once([0, 1]);
}
