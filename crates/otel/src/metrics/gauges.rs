//! Gauges: read from their sources when the SDK collects.
//!
//! OpenTelemetry asks for each gauge on its own, and a source knows the values of all gauges. So the first gauge of a
//! collection reads all sources, and the others take their values from that reading.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use proxyless::telemetry::{GaugeSource, Instrument, LabelValue};

use super::attributes::{Attributes, to_key_values};

/// The age beyond which a reading is not of the same collection.
const ONE_COLLECTION: Duration = Duration::from_secs(5);

/// The sources of gauges, and their latest reading.
pub(super) struct Gauges {
    attributes: Arc<Attributes>,
    sources: Mutex<Vec<Weak<dyn GaugeSource>>>,
    reading: Mutex<Reading>,
}

#[derive(Default)]
struct Reading {
    at: Option<Instant>,
    /// The values of each gauge, by its name, until they are taken.
    values: BTreeMap<&'static str, Values>,
}

type Values = Vec<(Vec<KeyValue>, u64)>;

impl Gauges {
    /// Creates the gauges. They are observed as long as the result exists.
    pub(super) fn register(
        meter: &Meter,
        gauges: Vec<&'static Instrument>,
        attributes: Arc<Attributes>,
    ) -> Arc<Self> {
        let this = Arc::new(Self { attributes, sources: Mutex::default(), reading: Mutex::default() });
        for instrument in gauges {
            let weak = Arc::downgrade(&this);
            let gauge = meter.u64_observable_gauge(instrument.name).with_description(instrument.description);
            // The callback belongs to the meter; there is nothing to keep.
            let _ = gauge
                .with_unit(instrument.unit)
                .with_callback(move |observer| {
                    if let Some(this) = weak.upgrade() {
                        this.observe(instrument, observer);
                    }
                })
                .build();
        }
        this
    }

    pub(super) fn add(&self, source: Weak<dyn GaugeSource>) {
        // The list is consistent even if a holder panicked.
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|source| source.strong_count() > 0);
        sources.push(source);
    }

    fn observe(&self, instrument: &'static Instrument, observer: &dyn AsyncInstrument<u64>) {
        for (attributes, value) in self.take(instrument) {
            observer.observe(value, &attributes);
        }
    }

    /// The values of a gauge for the current collection.
    fn take(&self, instrument: &'static Instrument) -> Values {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = reading.at.is_some_and(|at| at.elapsed() < ONE_COLLECTION);
        match reading.values.remove(instrument.name).filter(|_| fresh) {
            Some(values) => values,
            None => {
                *reading = self.read();
                reading.values.remove(instrument.name).unwrap_or_default()
            }
        }
    }

    /// Reads all sources.
    fn read(&self) -> Reading {
        let sources: Vec<_> = {
            let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
            sources.retain(|source| source.strong_count() > 0);
            sources.iter().filter_map(Weak::upgrade).collect()
        };
        // Several sources may have the same fact: the first one counts.
        let mut facts: BTreeMap<(&'static str, Vec<LabelValue>), (&'static Instrument, f64)> =
            BTreeMap::new();
        for source in sources {
            source.read(&mut |instrument, labels, value| {
                facts.entry((instrument.name, labels.to_vec())).or_insert((instrument, value));
            });
        }
        // Different facts may have the same labels, where targets are recorded as `other`.
        let mut merged: BTreeMap<&'static str, BTreeMap<Vec<LabelValue>, f64>> = BTreeMap::new();
        for ((name, labels), (instrument, value)) in facts {
            let labels = self.attributes.recorded(instrument, &labels);
            let merge = |sum: &mut f64| *sum = both(instrument, *sum, value);
            merged.entry(name).or_default().entry(labels).and_modify(merge).or_insert(value);
        }
        let values = |by_labels: BTreeMap<Vec<LabelValue>, f64>| {
            by_labels.into_iter().map(|(labels, value)| (to_key_values(labels), value as u64)).collect()
        };
        Reading {
            at: Some(Instant::now()),
            values: merged.into_iter().map(|(name, by_labels)| (name, values(by_labels))).collect(),
        }
    }
}

/// One value for two facts: whether both hold, or how many there are.
fn both(instrument: &Instrument, one: f64, other: f64) -> f64 {
    if instrument.unit == "{bool}" { one.min(other) } else { one + other }
}
