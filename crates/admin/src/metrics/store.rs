//! The metrics of a process, in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use proxyless::telemetry::{
    AttemptSeries, Batches, GaugeSource, Instrument, Label, LabelValue, Recorder, Series, instruments,
};

use super::series::{Attempts, Values};

/// The number of series of one instrument. Beyond it, measurements go to the series without label values, so that names
/// that a peer chooses cannot fill the memory.
const MOST_SERIES: usize = 10_000;

/// The number of endpoints with durations of their own, which nothing but the live page reads.
const MOST_ENDPOINTS: usize = 1_000;

/// A recorder that keeps every instrument with all its labels, for `/metrics`. Clones share their values.
///
/// ```
/// let store = proxyless_admin::MetricStore::new();
/// // A channel of its own, or every channel: `proxyless::telemetry::install(store.clone())`.
/// let builder = proxyless::XdsChannel::builder("xds:///greeter").recorder(store.clone());
/// assert!(store.to_text().ends_with("# EOF\n"));
/// ```
#[derive(Clone, Default)]
pub struct MetricStore(Arc<Shared>);

#[derive(Default)]
struct Shared {
    families: Mutex<Families>,
    attempts: Batches<Attempts>,
    gauges: Mutex<Vec<Weak<dyn GaugeSource>>>,
}

/// The series of each instrument, by its name.
type Families = BTreeMap<&'static str, Family>;

#[derive(Clone)]
pub(super) struct Family {
    pub(super) instrument: &'static Instrument,
    pub(super) series: BTreeMap<Vec<LabelValue>, Values>,
}

impl MetricStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All metrics in the text format of OpenMetrics. It asks the xDS clients for their gauges and waits for the answers,
    /// so it is not to be called in an asynchronous task.
    #[must_use]
    pub fn to_text(&self) -> String {
        super::text::encode(self.clone())
    }

    /// Reads the counts of each series of a histogram: by bucket, not cumulative.
    pub(crate) fn distributions(
        &self,
        instrument: &'static Instrument,
        mut read: impl FnMut(&[LabelValue], &[u64]),
    ) {
        self.0.attempts.flush();
        let families = self.0.families.lock().unwrap_or_else(PoisonError::into_inner);
        for (labels, values) in families.get(instrument.name).iter().flat_map(|family| &family.series) {
            if let Some((_, distribution)) = values.distribution() {
                read(labels, &distribution.counts);
            }
        }
    }

    /// The values of an instrument with these labels.
    fn values(&self, instrument: &'static Instrument, labels: &[LabelValue]) -> Values {
        // The map is consistent even if a holder panicked.
        let mut families = self.0.families.lock().unwrap_or_else(PoisonError::into_inner);
        let family =
            families.entry(instrument.name).or_insert_with(|| Family { instrument, series: BTreeMap::new() });
        let mut labels = labels.to_vec();
        let most = if instrument == &instruments::ENDPOINT_DURATION { MOST_ENDPOINTS } else { MOST_SERIES };
        if family.series.len() >= most && !family.series.contains_key(&labels) {
            for (label, value) in &mut labels {
                if *label != Label::Target {
                    *value = "".into();
                }
            }
        }
        family.series.entry(labels).or_insert_with(|| Values::new(instrument.kind)).clone()
    }

    /// The instruments that have values, without gauges.
    pub(super) fn families(&self) -> Vec<Family> {
        self.0.attempts.flush();
        self.0.families.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The gauges, as they are now.
    pub(super) fn gauges(&self) -> Vec<Family> {
        let sources: Vec<_> = {
            let sources = self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner);
            sources.iter().filter_map(Weak::upgrade).collect()
        };
        let mut families = Families::new();
        for source in sources {
            source.read(&mut |instrument, labels, value| {
                let new = || Family { instrument, series: BTreeMap::new() };
                let family = families.entry(instrument.name).or_insert_with(new);
                family.series.insert(labels.to_vec(), Values::gauge(value));
            });
        }
        families.into_values().collect()
    }
}

impl Recorder for MetricStore {
    fn is_enabled(&self, _: &'static Instrument) -> bool {
        true
    }

    fn series(&self, instrument: &'static Instrument, labels: &[LabelValue]) -> Arc<dyn Series> {
        self.values(instrument, labels).series()
    }

    fn attempts(
        &self,
        attempt: &[LabelValue],
        call: Option<&[LabelValue]>,
    ) -> Option<Arc<dyn AttemptSeries>> {
        let histogram = |instrument, labels| self.values(instrument, labels).histogram();
        Some(self.0.attempts.add(Attempts {
            durations: histogram(&instruments::ATTEMPT_DURATION, attempt)?,
            sent: histogram(&instruments::ATTEMPT_SENT, attempt)?,
            received: histogram(&instruments::ATTEMPT_RECEIVED, attempt)?,
            calls: call.and_then(|labels| histogram(&instruments::CALL_DURATION, labels)),
        }))
    }

    fn observe(&self, source: Weak<dyn GaugeSource>) {
        let mut sources = self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|source| source.strong_count() > 0);
        sources.push(source);
    }
}

impl fmt::Debug for MetricStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricStore")
    }
}
