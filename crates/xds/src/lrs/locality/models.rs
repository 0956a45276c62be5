//! Loom models of the load counters of a locality: calls that are counted during a report.

use std::sync::Arc;

use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::thread;

use super::*;

/// No report has more ends than starts, whatever runs meanwhile; and in the end every call is counted.
#[test]
fn every_end_that_is_seen_has_its_start() {
    check(4, || {
        let load = Arc::new(LocalityLoad::new(MetricSelection::AllNamed));
        let ends: [fn(&LocalityLoad); 3] =
            [LocalityLoad::succeeded, LocalityLoad::failed, LocalityLoad::withdrawn];
        let calls = ends.map(|end| {
            let load = Arc::clone(&load);
            thread::spawn(move || {
                load.started();
                end(&load);
            })
        });
        let totals = load.totals();
        assert!(totals.finished() <= totals.issued, "{totals:?}");
        calls.into_iter().for_each(|call| call.join().unwrap());
        assert_eq!(load.totals(), Totals { issued: 2, succeeded: 1, failed: 1 });
    });
}
