//! The metrics of weighted_round_robin (gRFCs A78, A89).

use proxyless_sans_io::Time;
use proxyless_sans_io::metrics::instruments::{WRR_NOT_YET_USABLE, WRR_RR_FALLBACK, WRR_STALE, WRR_WEIGHTS};
use proxyless_sans_io::metrics::{BoundSeries, Meter, PlaceId};

use super::weight::{Periods, Weight};

/// The series of the policy's place, bound with the first weights.
#[derive(Default)]
pub(super) struct Metrics {
    place: PlaceId,
    series: Option<Box<WrrSeries>>,
}

struct WrrSeries {
    fallback: BoundSeries,
    not_yet_usable: BoundSeries,
    stale: BoundSeries,
    weights: BoundSeries,
}

impl Metrics {
    pub(super) fn locate(&mut self, place: PlaceId) {
        if self.place != place {
            *self = Self { place, series: None };
        }
    }

    /// Records the weights of a scheduler update; `None` is an endpoint without a subchannel.
    pub(super) fn record<'a>(
        &mut self,
        endpoints: impl Iterator<Item = Option<&'a Weight>>,
        now: Time,
        periods: Periods,
        meter: &Meter,
    ) {
        let place = self.place;
        let series = self.series.get_or_insert_with(|| {
            let bind = |instrument| meter.bind(instrument, place, &[]);
            Box::new(WrrSeries {
                fallback: bind(&WRR_RR_FALLBACK),
                not_yet_usable: bind(&WRR_NOT_YET_USABLE),
                stale: bind(&WRR_STALE),
                weights: bind(&WRR_WEIGHTS),
            })
        });
        let mut usable = 0;
        for weight in endpoints {
            let used = weight.map_or(0.0, |weight| weight.usable(now, periods));
            // A78: endpoints without a usable weight are recorded as 0.
            series.weights.record(used);
            if used > 0.0 {
                usable += 1;
            } else if weight.is_some_and(|weight| weight.is_stale(now, periods)) {
                series.stale.record(1.0);
            } else {
                series.not_yet_usable.record(1.0);
            }
        }
        // A58: with fewer than two weights the policy is round_robin.
        if usable < 2 {
            series.fallback.record(1.0);
        }
    }
}
