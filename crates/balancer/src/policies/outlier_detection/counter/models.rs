//! Loom models of the interval counter: calls that end while the policy swaps the buckets.

use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::thread;

use super::*;

/// A call counts for one interval: whenever it ends, for exactly one.
#[test]
fn a_call_counts_for_exactly_one_interval() {
    check(3, || {
        let counter = Arc::new(IntervalCounter::default());
        let calls = [Code::Ok, Code::Internal].map(|code| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || counter.count(code))
        });
        let mut intervals = vec![counter.swap(), counter.swap()];
        calls.into_iter().for_each(|call| call.join().unwrap());
        intervals.extend([counter.swap(), counter.swap()]);
        assert_eq!(intervals.iter().map(|counts| counts.succeeded).sum::<u64>(), 1, "{intervals:?}");
        assert_eq!(intervals.iter().map(|counts| counts.failed).sum::<u64>(), 1, "{intervals:?}");
    });
}
