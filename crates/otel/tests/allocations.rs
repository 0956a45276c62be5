//! Recording a value allocates nothing, as `Series::record` runs on the data path. It is alone in its process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use proxyless::telemetry::{LabelValue, Recorder as _, instruments};
use proxyless_otel::OpenTelemetry;

/// Counts the allocations of each thread.
struct Counting;

thread_local!(static COUNT: Cell<usize> = const { Cell::new(0) });

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The counter is gone when a thread ends.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn recording_allocates_only_for_the_first_value_of_a_series() {
    let meters = Meters::new();
    let otel = OpenTelemetry::builder().meter_provider(&meters.provider).enable_metrics(all_metrics());
    let otel = otel.optional_labels(optional_labels()).build().unwrap();
    for instrument in instruments::ALL {
        let labels = instrument.labels.iter().chain(instrument.optional_labels);
        let labels: Vec<LabelValue> = labels.map(|label| (*label, "a value".into())).collect();
        let series = otel.series(instrument, &labels);
        series.record(1.0);
        let before = COUNT.get();
        (0..100).for_each(|_| series.record(1.0));
        assert_eq!(COUNT.get() - before, 0, "{}", instrument.name);
    }
}
