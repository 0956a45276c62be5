//! Loom models of the call counts of a connection slot and their heir.

use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::sync::Arc as LoomArc;
use proxyless_sans_io::sync::loom::thread;

use super::*;
use crate::api::{CallCounts, use_stripe};

/// The last holder of a slot passes all that was counted in it to the heir.
#[test]
fn the_heir_of_a_slot_gets_every_count() {
    check(3, || {
        let heir = Arc::new(CallCounter::default());
        // Loom's `Arc`, so that loom knows the ordering it implies.
        let slot = LoomArc::new(ConnectionSlot::with_heir(Arc::clone(&heir)));
        let calls: Vec<_> = (0..2)
            .map(|stripe| {
                let slot = LoomArc::clone(&slot);
                thread::spawn(move || {
                    use_stripe(stripe);
                    slot.calls().succeeded();
                    slot.calls().failed();
                })
            })
            .collect();
        drop(slot);
        calls.into_iter().for_each(|call| call.join().unwrap());
        assert_eq!(heir.counts(), CallCounts { succeeded: 2, failed: 2 });
    });
}
