//! The metrics of outlier detection (gRFC A91).

use proxyless_sans_io::metrics::instruments::{EJECTIONS_ENFORCED, EJECTIONS_UNENFORCED};
use proxyless_sans_io::metrics::{Label, Meter, PlaceId};

use super::ejection::{Detected, Outliers};

/// Counts what a sweep has found in the cluster of this place.
pub(super) fn record(detected: &Detected, place: PlaceId, meter: &Meter) {
    if !meter.is_enabled() {
        return;
    }
    let Detected { by_success_rate, by_failure_percentage } = detected;
    for (method, outliers) in
        [("success_rate", by_success_rate), ("failure_percentage", by_failure_percentage)]
    {
        let Outliers { ejected, not_enforced, overflow } = *outliers;
        let method = (Label::DetectionMethod, method.into());
        if ejected > 0 {
            meter.bind(&EJECTIONS_ENFORCED, place, std::slice::from_ref(&method)).record(ejected as f64);
        }
        for (reason, count) in [("enforcement_percentage", not_enforced), ("max_ejection_overflow", overflow)]
        {
            if count > 0 {
                let labels = [method.clone(), (Label::UnenforcedReason, reason.into())];
                meter.bind(&EJECTIONS_UNENFORCED, place, &labels).record(count as f64);
            }
        }
    }
}
