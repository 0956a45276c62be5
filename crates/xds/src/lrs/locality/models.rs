//! Loom models of the load counters of a locality: calls that are counted during a report.

use std::sync::Arc;

use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::thread;

use super::*;

/// No report has more ends than starts, whatever runs meanwhile; and in the end every call is counted.
#[test]
fn every_end_that_is_seen_has_its_start() {
    check(3, || {
        let load = Arc::new(LocalityLoad::new(MetricSelection::AllNamed));
        // The models of stripes cover their creation, which would be too many interleavings here.
        let _ = (load.stripe(0), load.stripe(1));
        // Two calls share a stripe.
        let ends: [(usize, fn(&LoadStripe)); 3] =
            [(0, LoadStripe::succeeded), (1, LoadStripe::failed), (1, LoadStripe::withdrawn)];
        let calls = ends.map(|(stripe, end)| {
            let load = Arc::clone(&load);
            thread::spawn(move || {
                let stripe = load.stripe(stripe);
                stripe.started();
                end(stripe);
            })
        });
        let totals = load.totals();
        assert!(totals.finished() <= totals.issued, "{totals:?}");
        calls.into_iter().for_each(|call| call.join().unwrap());
        assert_eq!(load.totals(), Totals { issued: 2, succeeded: 1, failed: 1 });
    });
}
