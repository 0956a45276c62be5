//! Loom models of the striped call counter: concurrent adds and reads.

use std::sync::Arc;

use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::thread;

use super::*;
use crate::api::use_stripe;

/// The sum of the stripes is the number of adds, for any thread that allocates them first; a reader never sees more,
/// nor less than it has seen before.
fn the_sum_is_the_number_of_adds(stripes: [usize; 2]) {
    check(3, move || {
        let counter = Arc::new(CallCounter::default());
        let calls = stripes.map(|stripe| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                use_stripe(stripe);
                counter.succeeded();
                counter.absorb(CallCounts { succeeded: 2, failed: 1 });
            })
        });
        let (first, second) = (counter.counts(), counter.counts());
        assert!(first.succeeded <= second.succeeded && first.failed <= second.failed);
        assert!(second.succeeded <= 6 && second.failed <= 2);
        calls.into_iter().for_each(|call| call.join().unwrap());
        assert_eq!(counter.counts(), CallCounts { succeeded: 6, failed: 2 });
    });
}

#[test]
fn threads_with_a_stripe_each_lose_no_add() {
    the_sum_is_the_number_of_adds([0, 1]);
}

#[test]
fn threads_that_share_a_stripe_lose_no_add() {
    the_sum_is_the_number_of_adds([1, 1]);
}
