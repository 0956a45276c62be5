//! An instrument with the attributes of one series.
//!
//! With the feature `bound-instruments` the SDK finds the values of the series once; without it, at every measurement.

use opentelemetry::KeyValue;
#[cfg(feature = "bound-instruments")]
use opentelemetry::metrics::{BoundCounter, BoundHistogram, BoundUpDownCounter};
use proxyless::telemetry::Series;

use super::instrument::Made;
#[cfg(not(feature = "bound-instruments"))]
use by_attributes::{BoundCounter, BoundHistogram, BoundUpDownCounter};

/// An instrument that knows its attributes.
pub(super) enum Bound {
    Counter(BoundCounter<u64>),
    UpDownCounter(BoundUpDownCounter<i64>),
    Whole(BoundHistogram<u64>),
    Real(BoundHistogram<f64>),
    Nothing,
}

impl Bound {
    #[cfg(feature = "bound-instruments")]
    pub(super) fn new(made: Made, attributes: &[KeyValue]) -> Self {
        match made {
            Made::Counter(counter) => Self::Counter(counter.bind(attributes)),
            Made::UpDownCounter(counter) => Self::UpDownCounter(counter.bind(attributes)),
            Made::Whole(histogram) => Self::Whole(histogram.bind(attributes)),
            Made::Real(histogram) => Self::Real(histogram.bind(attributes)),
            Made::Nothing => Self::Nothing,
        }
    }

    #[cfg(not(feature = "bound-instruments"))]
    pub(super) fn new(made: Made, attributes: &[KeyValue]) -> Self {
        let attributes = attributes.to_vec();
        match made {
            Made::Counter(counter) => Self::Counter(BoundCounter(counter, attributes)),
            Made::UpDownCounter(counter) => Self::UpDownCounter(BoundUpDownCounter(counter, attributes)),
            Made::Whole(histogram) => Self::Whole(BoundHistogram(histogram, attributes)),
            Made::Real(histogram) => Self::Real(BoundHistogram(histogram, attributes)),
            Made::Nothing => Self::Nothing,
        }
    }

    /// Records each of the values.
    #[inline]
    pub(super) fn record_each(&self, values: impl Iterator<Item = f64>) {
        // Casts of floating point numbers saturate.
        match self {
            Self::Counter(counter) => values.for_each(|value| counter.add(value as u64)),
            Self::UpDownCounter(counter) => values.for_each(|value| counter.add(value as i64)),
            Self::Whole(histogram) => values.for_each(|value| histogram.record(value as u64)),
            Self::Real(histogram) => values.for_each(|value| histogram.record(value)),
            Self::Nothing => {}
        }
    }
}

impl Series for Bound {
    fn record(&self, value: f64) {
        self.record_each(std::iter::once(value));
    }
}

/// The bound instruments of SDKs that have none.
#[cfg(not(feature = "bound-instruments"))]
mod by_attributes {
    use opentelemetry::KeyValue;
    use opentelemetry::metrics::{Counter, Histogram, UpDownCounter};

    pub(crate) struct BoundCounter<T>(pub(super) Counter<T>, pub(super) Vec<KeyValue>);
    pub(crate) struct BoundUpDownCounter<T>(pub(super) UpDownCounter<T>, pub(super) Vec<KeyValue>);
    pub(crate) struct BoundHistogram<T>(pub(super) Histogram<T>, pub(super) Vec<KeyValue>);

    impl<T> BoundCounter<T> {
        pub(super) fn add(&self, value: T) {
            self.0.add(value, &self.1);
        }
    }

    impl<T> BoundUpDownCounter<T> {
        pub(super) fn add(&self, value: T) {
            self.0.add(value, &self.1);
        }
    }

    impl<T> BoundHistogram<T> {
        pub(super) fn record(&self, value: T) {
            self.0.record(value, &self.1);
        }
    }
}
