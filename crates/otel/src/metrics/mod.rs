//! The instruments of one meter: labels in, OpenTelemetry's measurements out.

mod attempts;
mod attributes;
mod gauges;
mod instrument;
mod series;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use opentelemetry::metrics::Meter;
use proxyless::telemetry::{
    AttemptSeries, Batches, GaugeSource, Instrument, Kind, LabelValue, Series, instruments,
};

use crate::Filter;
use attempts::{Attempts, flush_when_collected};
pub(crate) use attributes::Attributes;
use gauges::Gauges;
use instrument::Made;
use series::Bound;

/// The metrics that are recorded, and how.
pub(crate) struct Metrics {
    /// By [`Instrument::index`]; those that are not enabled are absent.
    made: Vec<Option<Made>>,
    attributes: Arc<Attributes>,
    generic_methods: Option<Filter>,
    attempts: Batches<Attempts>,
    gauges: Arc<Gauges>,
}

impl Metrics {
    pub(crate) fn new(
        meter: &Meter,
        enabled: &BTreeSet<&'static str>,
        attributes: Attributes,
        generic_methods: Option<Filter>,
    ) -> Self {
        let is_enabled = |instrument: &&'static Instrument| enabled.contains(instrument.name);
        let made = |instrument| Some(instrument).filter(is_enabled).map(|it| Made::new(meter, it));
        let attributes = Arc::new(attributes);
        let gauges = instruments::ALL.iter().copied().filter(is_enabled);
        let gauges = gauges.filter(|instrument| instrument.kind == Kind::Gauge).collect();
        let attempts = Batches::default();
        flush_when_collected(meter, &attempts);
        Self {
            made: instruments::ALL.iter().copied().map(made).collect(),
            gauges: Gauges::register(meter, gauges, Arc::clone(&attributes)),
            attributes,
            generic_methods,
            attempts,
        }
    }

    pub(crate) fn is_enabled(&self, instrument: &'static Instrument) -> bool {
        self.made(instrument).is_some()
    }

    pub(crate) fn series(&self, instrument: &'static Instrument, labels: &[LabelValue]) -> Arc<dyn Series> {
        Arc::new(self.bound(instrument, labels))
    }

    /// The series of attempts, and of the calls that end with them.
    pub(crate) fn attempts(
        &self,
        attempt: &[LabelValue],
        call: Option<&[LabelValue]>,
    ) -> Arc<dyn AttemptSeries> {
        self.attempts.add(Attempts {
            durations: self.bound(&instruments::ATTEMPT_DURATION, attempt),
            sent: self.bound(&instruments::ATTEMPT_SENT, attempt),
            received: self.bound(&instruments::ATTEMPT_RECEIVED, attempt),
            calls: call.map_or(Bound::Nothing, |labels| self.bound(&instruments::CALL_DURATION, labels)),
        })
    }

    /// The series of an instrument, which records nothing if the instrument is not enabled.
    fn bound(&self, instrument: &'static Instrument, labels: &[LabelValue]) -> Bound {
        let attributes = self.attributes.of(instrument, labels);
        Bound::new(self.made(instrument).cloned().unwrap_or(Made::Nothing), &attributes)
    }

    pub(crate) fn observe(&self, source: Weak<dyn GaugeSource>) {
        self.gauges.add(source);
    }

    /// A66: `other` unless the user says otherwise.
    pub(crate) fn records_generic_method(&self, method: &str) -> bool {
        self.generic_methods.as_ref().is_some_and(|filter| filter(method))
    }

    fn made(&self, instrument: &'static Instrument) -> Option<&Made> {
        self.made.get(instrument.index())?.as_ref()
    }
}
