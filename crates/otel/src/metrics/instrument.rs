//! The instruments of OpenTelemetry that hold recorded values.

use opentelemetry::metrics::{Counter, Histogram, HistogramBuilder, Meter, UpDownCounter};
use proxyless::telemetry::{Instrument, Kind};

/// An instrument by the type of its values.
#[derive(Clone)]
pub(super) enum Made {
    Counter(Counter<u64>),
    UpDownCounter(UpDownCounter<i64>),
    /// A distribution of bytes or counts.
    Whole(Histogram<u64>),
    /// A distribution of seconds or weights.
    Real(Histogram<f64>),
    /// A gauge, which is read instead, or a kind that is not known here.
    Nothing,
}

impl Made {
    pub(super) fn new(meter: &Meter, instrument: &'static Instrument) -> Self {
        let Instrument { name, description, unit, .. } = *instrument;
        match instrument.kind {
            Kind::Counter => {
                Self::Counter(meter.u64_counter(name).with_description(description).with_unit(unit).build())
            }
            Kind::UpDownCounter => Self::UpDownCounter(
                meter.i64_up_down_counter(name).with_description(description).with_unit(unit).build(),
            ),
            // A66, A78: latencies and weights are floating point numbers.
            Kind::Histogram(bounds) if matches!(unit, "s" | "{weight}") => {
                Self::Real(described(meter.f64_histogram(name), instrument, bounds).build())
            }
            Kind::Histogram(bounds) => {
                Self::Whole(described(meter.u64_histogram(name), instrument, bounds).build())
            }
            _ => Self::Nothing,
        }
    }
}

/// A66: the bounds are advice, which a view of the user overrides.
fn described<'a, T>(
    builder: HistogramBuilder<'a, T>,
    instrument: &'static Instrument,
    bounds: &[f64],
) -> HistogramBuilder<'a, T> {
    builder
        .with_description(instrument.description)
        .with_unit(instrument.unit)
        .with_boundaries(bounds.to_vec())
}
