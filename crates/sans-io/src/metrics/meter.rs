//! The recorders of one channel.

use std::fmt;
use std::sync::Arc;

use super::attempts::Separate;
use super::place::Places;
use super::{BoundAttempts, Instrument, Label, LabelValue, PlaceId, Recorder, Series, instruments};
use crate::values::Locality;

/// Binds the series of one channel: adds its target to their labels, and knows its places. Clones share everything.
///
/// The default has no recorders: it binds nothing and interns nothing.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<Shared>>);

struct Shared {
    target: Arc<str>,
    recorders: Vec<Arc<dyn Recorder>>,
    places: Places,
}

impl Meter {
    /// A meter of the channel to `target`.
    #[must_use]
    pub fn new(target: Arc<str>, recorders: Vec<Arc<dyn Recorder>>) -> Self {
        if recorders.is_empty() {
            return Self::default();
        }
        Self(Some(Arc::new(Shared { target, recorders, places: Places::default() })))
    }

    /// Whether there are recorders.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// The target of the channel; empty without recorders.
    #[must_use]
    pub fn target(&self) -> &str {
        self.0.as_ref().map_or("", |shared| &shared.target)
    }

    /// The recorders.
    #[must_use]
    pub fn recorders(&self) -> &[Arc<dyn Recorder>] {
        self.0.as_ref().map_or(&[], |shared| &shared.recorders)
    }

    /// Whether a recorder records this instrument.
    #[must_use]
    pub fn records(&self, instrument: &'static Instrument) -> bool {
        self.recorders().iter().any(|recorder| recorder.is_enabled(instrument))
    }

    /// The number of a cluster and a locality.
    #[must_use]
    pub fn place(&self, service: &Arc<str>, locality: Option<&Locality>) -> PlaceId {
        let Some(shared) = &self.0 else { return PlaceId::default() };
        shared.places.intern(service, &locality.map_or_else(|| "".into(), locality_label))
    }

    /// The same backend service in this locality.
    #[must_use]
    pub fn with_locality(&self, place: PlaceId, locality: Option<&Locality>) -> PlaceId {
        let Some(shared) = &self.0 else { return PlaceId::default() };
        self.place(&shared.places.labels(place).0, locality)
    }

    /// Binds a series. Its labels are those of the instrument: the target, the labels of the place, and `labels`; a label
    /// without a value is empty.
    #[must_use]
    pub fn bind(
        &self,
        instrument: &'static Instrument,
        place: PlaceId,
        labels: &[LabelValue],
    ) -> BoundSeries {
        self.bind_for(self.recorders(), instrument, place, labels)
    }

    /// As [`Self::bind`], for some of the recorders.
    #[must_use]
    pub fn bind_for(
        &self,
        recorders: &[Arc<dyn Recorder>],
        instrument: &'static Instrument,
        place: PlaceId,
        labels: &[LabelValue],
    ) -> BoundSeries {
        let enabled: Vec<_> = recorders.iter().filter(|recorder| recorder.is_enabled(instrument)).collect();
        if enabled.is_empty() {
            return BoundSeries::default();
        }
        let labels = self.labels(instrument, place, labels);
        enabled.into_iter().map(|recorder| recorder.series(instrument, &labels)).collect()
    }

    /// Adds the series of attempts that end, and of calls if these end with them, for some of the recorders.
    pub fn bind_attempts_for(
        &self,
        attempts: &mut BoundAttempts,
        recorders: &[Arc<dyn Recorder>],
        place: PlaceId,
        labels: &[LabelValue],
        with_calls: bool,
    ) {
        let of_attempt = self.labels(&instruments::ATTEMPT_DURATION, place, labels);
        let of_call = with_calls.then(|| self.labels(&instruments::CALL_DURATION, place, labels));
        for recorder in recorders {
            attempts.push(recorder.attempts(&of_attempt, of_call.as_deref()).unwrap_or_else(|| {
                let bind =
                    |instrument| self.bind_for(std::slice::from_ref(recorder), instrument, place, labels);
                Arc::new(Separate {
                    durations: bind(&instruments::ATTEMPT_DURATION),
                    sent: bind(&instruments::ATTEMPT_SENT),
                    received: bind(&instruments::ATTEMPT_RECEIVED),
                    calls: if with_calls {
                        bind(&instruments::CALL_DURATION)
                    } else {
                        BoundSeries::default()
                    },
                })
            }));
        }
    }

    /// The labels of an instrument.
    fn labels(
        &self,
        instrument: &'static Instrument,
        place: PlaceId,
        labels: &[LabelValue],
    ) -> Vec<LabelValue> {
        let Some(shared) = &self.0 else { return Vec::new() };
        let (service, locality) = shared.places.labels(place);
        let value = |&label: &Label| {
            let value = match label {
                Label::Target => Some(&shared.target),
                Label::BackendService => Some(&service),
                Label::Locality => Some(&locality),
                _ => labels.iter().find(|(other, _)| *other == label).map(|(_, value)| value),
            };
            (label, value.cloned().unwrap_or_else(|| "".into()))
        };
        instrument.labels.iter().chain(instrument.optional_labels).map(value).collect()
    }
}

/// A78: the form of the label `grpc.lb.locality`.
fn locality_label(Locality { region, zone, sub_zone }: &Locality) -> Arc<str> {
    format!("{{region=\"{region}\", zone=\"{zone}\", sub_zone=\"{sub_zone}\"}}").into()
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("recorders", &self.recorders().len()).finish_non_exhaustive()
    }
}

/// The series of all recorders for one set of labels; usually none or one.
#[derive(Clone, Default)]
pub struct BoundSeries {
    /// Not in a list: usually it is the only one, and recording runs on the data path.
    first: Option<Arc<dyn Series>>,
    more: Box<[Arc<dyn Series>]>,
}

impl BoundSeries {
    /// Records a value in each of them.
    #[inline]
    pub fn record(&self, value: f64) {
        if let Some(first) = &self.first {
            first.record(value);
        }
        if !self.more.is_empty() {
            self.more.iter().for_each(|series| series.record(value));
        }
    }

    /// Whether there are none, so that a value need not be measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Adds the series of other recorders.
    pub fn extend(&mut self, other: Self) {
        let mut series = other.first.into_iter().chain(other.more);
        if self.first.is_none() {
            self.first = series.next();
        }
        self.more = std::mem::take(&mut self.more).into_iter().chain(series).collect();
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<dyn Series>> {
        self.first.iter().chain(&self.more)
    }
}

impl FromIterator<Arc<dyn Series>> for BoundSeries {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Series>>>(series: I) -> Self {
        let mut series = series.into_iter();
        Self { first: series.next(), more: series.collect() }
    }
}

impl fmt::Debug for BoundSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoundSeries({})", self.iter().count())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::metrics::EndedAttempt;
    use crate::metrics::instruments::{ATTEMPT_DURATION, ATTEMPT_STARTED, DISCONNECTIONS};

    /// Records everything but DISCONNECTIONS, as text.
    #[derive(Default)]
    struct Text(Arc<Mutex<Vec<String>>>);

    struct Line(String, Arc<Mutex<Vec<String>>>);

    impl Series for Line {
        fn record(&self, value: f64) {
            self.1.lock().unwrap().push(format!("{} {value}", self.0));
        }
    }

    impl Recorder for Text {
        fn is_enabled(&self, instrument: &'static Instrument) -> bool {
            instrument.name != DISCONNECTIONS.name
        }

        fn series(&self, instrument: &'static Instrument, labels: &[LabelValue]) -> Arc<dyn Series> {
            let labels: Vec<_> =
                labels.iter().map(|(label, value)| format!("{}={value}", label.key())).collect();
            Arc::new(Line(format!("{} {}", instrument.name, labels.join(",")), Arc::clone(&self.0)))
        }
    }

    #[test]
    fn a66_a78_a89_series_have_the_labels_of_their_instrument() {
        let text = Text::default();
        let lines = Arc::clone(&text.0);
        let meter = Meter::new("xds:///greeter".into(), vec![Arc::new(text)]);
        let locality = Locality { region: "eu".into(), zone: "a".into(), sub_zone: String::new() };
        let place = meter.place(&"blue".into(), Some(&locality));
        assert_eq!(meter.with_locality(meter.place(&"blue".into(), None), Some(&locality)), place);
        let method = [(Label::Method, "s/M".into()), (Label::Status, "OK".into())];
        meter.bind(&ATTEMPT_DURATION, place, &method).record(0.5);
        meter.bind(&ATTEMPT_STARTED, place, &method).record(1.0);
        let disconnections = meter.bind(&DISCONNECTIONS, place, &[]);
        assert!(disconnections.is_empty());
        disconnections.record(1.0);
        let place = r#"grpc.lb.locality={region="eu", zone="a", sub_zone=""},grpc.lb.backend_service=blue"#;
        let target = "grpc.method=s/M,grpc.target=xds:///greeter";
        assert_eq!(
            *lines.lock().unwrap(),
            [
                format!("grpc.client.attempt.duration {target},grpc.status=OK,{place} 0.5"),
                format!("grpc.client.attempt.started {target} 1"),
            ]
        );
    }

    #[test]
    fn a66_an_attempt_is_recorded_in_the_series_of_each_instrument() {
        let text = Text::default();
        let lines = Arc::clone(&text.0);
        let meter = Meter::new("xds:///greeter".into(), vec![Arc::new(text)]);
        let mut attempts = BoundAttempts::default();
        let labels = [(Label::Method, "s/M".into()), (Label::Status, "OK".into())];
        meter.bind_attempts_for(&mut attempts, meter.recorders(), PlaceId::default(), &labels, true);
        attempts.record(&EndedAttempt::new(0.5, 7, 8));
        attempts.record(&EndedAttempt::new(0.25, 1, 2).with_call(0.75));
        let lines = lines.lock().unwrap();
        let lines: Vec<_> = lines
            .iter()
            .filter_map(|line| Some((line.split_once(' ')?.0, line.rsplit_once(' ')?.1)))
            .collect();
        let of_attempt = |seconds, sent, received| {
            [
                ("grpc.client.attempt.duration", seconds),
                ("grpc.client.attempt.sent_total_compressed_message_size", sent),
                ("grpc.client.attempt.rcvd_total_compressed_message_size", received),
            ]
        };
        let call = ("grpc.client.call.duration", "0.75");
        assert_eq!(
            lines,
            [&of_attempt("0.5", "7", "8")[..], &of_attempt("0.25", "1", "2"), &[call]].concat()
        );
    }

    #[test]
    fn a_meter_without_recorders_does_nothing() {
        let meter = Meter::default();
        assert_eq!(meter.place(&"blue".into(), None), PlaceId::default());
        assert!(meter.bind(&ATTEMPT_STARTED, PlaceId::default(), &[]).is_empty());
        assert!(!Meter::new("xds:///x".into(), Vec::new()).is_enabled());
    }
}
