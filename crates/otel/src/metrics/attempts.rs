//! The series of attempts, which are recorded in batches.

use opentelemetry::metrics::Meter;
use proxyless::telemetry::{AttemptSeries, Batches, EndedAttempt};

use super::series::Bound;

/// The series of attempts with one set of labels, and of the calls that end with them.
pub(super) struct Attempts {
    pub(super) durations: Bound,
    pub(super) sent: Bound,
    pub(super) received: Bound,
    pub(super) calls: Bound,
}

impl AttemptSeries for Attempts {
    fn record(&self, attempt: &EndedAttempt) {
        self.record_all(std::slice::from_ref(attempt));
    }

    /// One series after the other: the second value of a series finds it in the cache.
    fn record_all(&self, attempts: &[EndedAttempt]) {
        self.durations.record_each(attempts.iter().map(|attempt| attempt.seconds));
        self.sent.record_each(attempts.iter().map(|attempt| attempt.sent as f64));
        self.received.record_each(attempts.iter().map(|attempt| attempt.received as f64));
        self.calls.record_each(attempts.iter().filter_map(|attempt| attempt.call_seconds));
    }
}

/// Has the SDK record what waits before it reads the series: it calls observable instruments first. This one observes
/// nothing, so it is never exported.
pub(super) fn flush_when_collected(meter: &Meter, attempts: &Batches<Attempts>) {
    let attempts = attempts.clone();
    // The callback belongs to the meter; there is nothing to keep.
    let _ = meter
        .u64_observable_gauge("proxyless.batches")
        .with_description("Has no values: its callback records the attempts that wait.")
        .with_callback(move |_| attempts.flush())
        .build();
}
