//! The metrics of subchannels (gRFC A94).

use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_sans_io::metrics::instruments::{
    ATTEMPTS_FAILED, ATTEMPTS_SUCCEEDED, DISCONNECTIONS, OPEN_CONNECTIONS, PICK_FIRST_DISCONNECTIONS,
    PICK_FIRST_FAILED, PICK_FIRST_SUCCEEDED,
};
use proxyless_sans_io::metrics::{BoundSeries, Label, Meter, PlaceId};

use crate::api::Security;
use crate::tree::{AttemptId, ConnectionEvent, SecurityLevel};

/// The series of the places of a channel: a thousand subchannels have few of them.
#[derive(Default)]
pub(super) struct PoolMetrics {
    meter: Meter,
    places: BTreeMap<(PlaceId, SecurityLevel), Arc<PlaceSeries>>,
}

impl SecurityLevel {
    /// The level of an endpoint's connections.
    pub(super) fn of(security: Option<&Security>, fallback: Self) -> Self {
        if security.is_some() { Self::PrivacyAndIntegrity } else { fallback }
    }
}

struct PlaceSeries {
    meter: Meter,
    place: PlaceId,
    succeeded: BoundSeries,
    failed: BoundSeries,
    open: BoundSeries,
    /// A78's names of the same facts, which A94 keeps for a while.
    pick_first_disconnections: BoundSeries,
}

/// The metrics of one subchannel.
pub(super) struct SubchannelMetrics {
    /// Those of the place that new events belong to.
    series: Arc<PlaceSeries>,
    /// The open connections, with the series in which they were counted.
    open: Vec<(AttemptId, Arc<PlaceSeries>)>,
}

/// The part of a connection event that is counted.
pub(super) enum Happened {
    Connected,
    /// An attempt failed.
    Failed,
    /// A connection was lost, or the attempt before it.
    Lost(Arc<str>),
    Nothing,
}

impl Happened {
    pub(super) fn of(event: &ConnectionEvent) -> Self {
        match event {
            ConnectionEvent::Ready(_) => Self::Connected,
            ConnectionEvent::Failed(_) => Self::Failed,
            ConnectionEvent::GoAway(loss)
            | ConnectionEvent::TooManyPings(loss)
            | ConnectionEvent::Closed(loss) => Self::Lost(Arc::clone(&loss.disconnect_error)),
            ConnectionEvent::Load(..) => Self::Nothing,
        }
    }
}

impl PoolMetrics {
    pub(super) fn new(meter: Meter) -> Self {
        Self { meter, places: BTreeMap::new() }
    }

    /// New events of a subchannel belong to this place.
    pub(super) fn locate(
        &mut self,
        metrics: &mut Option<Box<SubchannelMetrics>>,
        place: PlaceId,
        level: SecurityLevel,
    ) {
        let meter = &self.meter;
        let series = self.places.entry((place, level)).or_insert_with(|| {
            let security = match level {
                SecurityLevel::None => "none",
                SecurityLevel::PrivacyAndIntegrity => "privacy_and_integrity",
            };
            let bind_both = |new, old| {
                let mut series = meter.bind(new, place, &[]);
                series.extend(meter.bind(old, place, &[]));
                series
            };
            Arc::new(PlaceSeries {
                meter: meter.clone(),
                place,
                succeeded: bind_both(&ATTEMPTS_SUCCEEDED, &PICK_FIRST_SUCCEEDED),
                failed: bind_both(&ATTEMPTS_FAILED, &PICK_FIRST_FAILED),
                open: meter.bind(&OPEN_CONNECTIONS, place, &[(Label::SecurityLevel, security.into())]),
                pick_first_disconnections: meter.bind(&PICK_FIRST_DISCONNECTIONS, place, &[]),
            })
        });
        let series = Arc::clone(series);
        match metrics {
            Some(metrics) => metrics.series = series,
            None => *metrics = Some(Box::new(SubchannelMetrics { series, open: Vec::new() })),
        }
    }
}

impl SubchannelMetrics {
    pub(super) fn count(&mut self, attempt: AttemptId, happened: &Happened) {
        match happened {
            Happened::Connected => {
                self.series.succeeded.record(1.0);
                self.series.open.record(1.0);
                self.open.push((attempt, Arc::clone(&self.series)));
            }
            Happened::Failed => self.series.failed.record(1.0),
            Happened::Lost(error) => {
                let Some(position) = self.open.iter().position(|(open, _)| *open == attempt) else {
                    return self.series.failed.record(1.0);
                };
                disconnected(&self.open.swap_remove(position).1, error);
            }
            Happened::Nothing => {}
        }
    }
}

impl Drop for SubchannelMetrics {
    /// The subchannel is removed. A94: an attempt in flight counts neither as succeeded nor as failed.
    fn drop(&mut self) {
        let error: Arc<str> = "subchannel shutdown".into();
        self.open.drain(..).for_each(|(_, series)| disconnected(&series, &error));
    }
}

fn disconnected(series: &PlaceSeries, error: &Arc<str>) {
    let label = (Label::DisconnectError, Arc::clone(error));
    series.meter.bind(&DISCONNECTIONS, series.place, &[label]).record(1.0);
    series.pick_first_disconnections.record(1.0);
    series.open.record(-1.0);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proxyless_sans_io::metrics::{Instrument, LabelValue, Recorder, Series};

    use super::*;

    /// The sum of each instrument without its labels.
    #[derive(Clone, Default)]
    struct Sums(Arc<Mutex<BTreeMap<&'static str, f64>>>);

    struct Sum(&'static str, Sums);

    impl Series for Sum {
        fn record(&self, value: f64) {
            *self.1.0.lock().unwrap().entry(self.0).or_default() += value;
        }
    }

    impl Recorder for Sums {
        fn is_enabled(&self, instrument: &'static Instrument) -> bool {
            instrument.name.starts_with("grpc.subchannel.")
        }

        fn series(&self, instrument: &'static Instrument, _: &[LabelValue]) -> Arc<dyn Series> {
            Arc::new(Sum(instrument.name, self.clone()))
        }
    }

    fn located(sums: &Sums) -> Box<SubchannelMetrics> {
        let mut pool = PoolMetrics::new(Meter::new("xds:///x".into(), vec![Arc::new(sums.clone())]));
        let mut metrics = None;
        pool.locate(&mut metrics, PlaceId::default(), SecurityLevel::None);
        metrics.unwrap()
    }

    #[test]
    fn a94_an_attempt_in_flight_at_the_end_is_not_counted() {
        let sums = Sums::default();
        // Nothing has happened when the subchannel is removed.
        drop(located(&sums));
        assert!(sums.0.lock().unwrap().is_empty());
        // Beside a connection, which ends with the subchannel.
        let mut metrics = located(&sums);
        metrics.count(AttemptId(1), &Happened::Connected);
        drop(metrics);
        let expected =
            [(ATTEMPTS_SUCCEEDED.name, 1.0), (DISCONNECTIONS.name, 1.0), (OPEN_CONNECTIONS.name, 0.0)];
        assert_eq!(*sums.0.lock().unwrap(), BTreeMap::from(expected));
    }

    #[test]
    fn a94_the_level_is_that_of_the_endpoint_or_else_of_the_fallback() {
        let security = Security::new(1, ());
        for fallback in [SecurityLevel::None, SecurityLevel::PrivacyAndIntegrity] {
            assert_eq!(SecurityLevel::of(None, fallback), fallback);
            assert_eq!(SecurityLevel::of(Some(&security), fallback), SecurityLevel::PrivacyAndIntegrity);
        }
    }
}
