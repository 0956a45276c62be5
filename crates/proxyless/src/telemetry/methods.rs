//! The series of each method of a channel.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use http::request;
use proxyless_balancer::api::{Code, Striped};
use proxyless_sans_io::metrics::{
    BoundAttempts, BoundSeries, EndedAttempt, Instrument, Label, LabelValue, Meter, PlaceId, Recorder,
    instruments,
};

use super::append_map::AppendMap;

/// The number of methods that have series of their own; others are recorded as `other`.
const MOST_METHODS: usize = 1_000;

/// The number of places of a method that are found sooner than others.
const FIRST_PLACES: usize = 4;

/// The number of status codes.
const CODES: usize = 17;

/// The methods of a channel.
pub(crate) struct Methods {
    meter: Meter,
    by_path: AppendMap<Handles>,
    other: OnceLock<Handles>,
}

/// A reference to the series of a method.
#[repr(align(64))]
pub(crate) struct MethodHandle(Arc<MethodMetrics>);

impl Deref for MethodHandle {
    type Target = MethodMetrics;

    fn deref(&self) -> &MethodMetrics {
        &self.0
    }
}

/// The handles of a method, one for each stripe of threads: an RPC writes the reference count of its handle, and threads that
/// write the same cache line wait for each other.
#[derive(Clone)]
struct Handles(Arc<Striped<Arc<MethodHandle>>>);

impl Handles {
    fn new(method: MethodMetrics) -> Self {
        Self(Arc::new(Striped::new(Arc::new(MethodHandle(Arc::new(method))))))
    }

    fn own(&self) -> Arc<MethodHandle> {
        let Self(handles) = self;
        Arc::clone(handles.own_or(|| Arc::new(MethodHandle(Arc::clone(&handles.first().0)))))
    }
}

impl Methods {
    /// `None` without recorders.
    pub(crate) fn new(meter: &Meter) -> Option<Self> {
        let new = || Self { meter: meter.clone(), by_path: AppendMap::default(), other: OnceLock::new() };
        meter.is_enabled().then(new)
    }

    /// The series of the method of a request.
    pub(crate) fn of(&self, head: &request::Parts) -> Arc<MethodHandle> {
        let path = head.uri.path();
        if let Some(handles) = self.by_path.get(path) {
            return handles.own();
        }
        self.of_new(path, head)
    }

    /// Not inlined: it needs much more of the stack.
    #[inline(never)]
    fn of_new(&self, path: &str, head: &request::Parts) -> Arc<MethodHandle> {
        // A66: only the names of methods known in advance are labels. Those of generated clients are.
        let generated = head.extensions.get::<tonic::GrpcMethod<'static>>().is_some();
        let name = path.trim_start_matches('/');
        let names = |recorder: &&Arc<dyn Recorder>| generated || recorder.records_generic_method(name);
        if self.by_path.len() >= MOST_METHODS
            || !self.meter.recorders().iter().any(|recorder| names(&recorder))
        {
            let other = || Handles::new(MethodMetrics::new(&self.meter, "other", |_| true));
            return self.other.get_or_init(other).own();
        }
        let new = || Handles::new(MethodMetrics::new(&self.meter, name, |recorder| names(&recorder)));
        self.by_path.get_or_insert(path, new).map_or_else(|| new().own(), Handles::own)
    }
}

/// The series of one method.
pub(crate) struct MethodMetrics {
    meter: Meter,
    /// The recorders that have the name, and those that have `other`.
    recorders: [Named; 2],
    pub(crate) started: BoundSeries,
    durations: ByStatus<BoundSeries>,
    retries: OnceLock<BoundSeries>,
    transparent_retries: OnceLock<BoundSeries>,
    retry_delay: OnceLock<BoundSeries>,
    /// The attempts at the first places: most methods have few.
    first: [OnceLock<(PlaceId, Box<AttemptsAt>)>; FIRST_PLACES],
    /// The attempts at the other places, in order.
    others: ArcSwap<Vec<(PlaceId, Arc<AttemptsAt>)>>,
}

/// Recorders, and the label that the method has for them.
struct Named {
    recorders: Vec<Arc<dyn Recorder>>,
    method: Arc<str>,
}

/// The series of attempts that went to one place.
#[derive(Default)]
struct AttemptsAt {
    /// The call went on.
    retried: ByStatus<BoundAttempts>,
    last: ByStatus<BoundAttempts>,
}

impl AttemptsAt {
    /// Not inlined: it needs much of the stack, which is cold when a call ends.
    #[cold]
    #[inline(never)]
    fn first_at(place: PlaceId) -> (PlaceId, Box<Self>) {
        (place, Box::default())
    }
}

/// Series that are bound when their status occurs.
struct ByStatus<T>([OnceLock<T>; CODES]);

impl<T> ByStatus<T> {
    fn of(&self, code: Code, bind: impl FnOnce() -> T) -> Option<&T> {
        self.0.get(code as usize).map(|series| series.get_or_init(bind))
    }
}

impl<T> Default for ByStatus<T> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; CODES])
    }
}

/// The retries of a call (A96).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryCounts {
    pub(crate) retries: u32,
    pub(crate) transparent: u32,
    /// The seconds without an attempt between the first and the last one.
    pub(crate) delay: f64,
}

impl MethodMetrics {
    fn new(meter: &Meter, name: &str, names: impl Fn(&Arc<dyn Recorder>) -> bool) -> Self {
        let (named, unnamed) = meter.recorders().iter().cloned().partition(names);
        let mut method = Self {
            meter: meter.clone(),
            recorders: [
                Named { recorders: named, method: name.into() },
                Named { recorders: unnamed, method: "other".into() },
            ],
            started: BoundSeries::default(),
            durations: ByStatus::default(),
            retries: OnceLock::new(),
            transparent_retries: OnceLock::new(),
            retry_delay: OnceLock::new(),
            first: Default::default(),
            others: ArcSwap::default(),
        };
        method.started = method.bind(&instruments::ATTEMPT_STARTED, PlaceId::default(), None);
        method
    }

    fn bind(&self, instrument: &'static Instrument, place: PlaceId, code: Option<Code>) -> BoundSeries {
        let mut series = BoundSeries::default();
        for Named { recorders, method } in &self.recorders {
            let mut labels: Vec<LabelValue> = vec![(Label::Method, Arc::clone(method))];
            labels.extend(code.map(|code| (Label::Status, code.to_string().into())));
            series.extend(self.meter.bind_for(recorders, instrument, place, &labels));
        }
        series
    }

    /// Records the end of a call, with its duration unless it ended with an attempt.
    #[inline]
    pub(crate) fn call_ended(&self, code: Code, seconds: Option<f64>, retries: RetryCounts) {
        // A96: calls without retries are not recorded.
        if seconds.is_some() || retries.retries + retries.transparent > 0 {
            self.record_call(code, seconds, retries);
        }
    }

    #[cold]
    fn record_call(&self, code: Code, seconds: Option<f64>, retries: RetryCounts) {
        let nowhere = PlaceId::default();
        let bind = |instrument, code| self.bind(instrument, nowhere, code);
        if let Some(seconds) = seconds
            && let Some(durations) = self.durations.of(code, || bind(&instruments::CALL_DURATION, Some(code)))
        {
            durations.record(seconds);
        }
        if retries.retries > 0 {
            let series = self.retries.get_or_init(|| bind(&instruments::CALL_RETRIES, None));
            series.record(retries.retries.into());
        }
        if retries.transparent > 0 {
            let series =
                self.transparent_retries.get_or_init(|| bind(&instruments::CALL_TRANSPARENT_RETRIES, None));
            series.record(retries.transparent.into());
        }
        if retries.retries + retries.transparent > 0 {
            let series = self.retry_delay.get_or_init(|| bind(&instruments::CALL_RETRY_DELAY, None));
            series.record(retries.delay);
        }
    }

    /// Records the end of an attempt.
    pub(crate) fn attempt_ended(&self, place: PlaceId, code: Code, ended: &EndedAttempt) {
        for slot in &self.first {
            let (at, attempts) = slot.get_or_init(|| AttemptsAt::first_at(place));
            if *at == place {
                return self.record_at(attempts, place, code, ended);
            }
        }
        // Not cloned: all threads would write its reference count.
        let others = self.others.load();
        match position(&others, place).ok().and_then(|position| others.get(position)) {
            Some((_, attempts)) => self.record_at(attempts, place, code, ended),
            None => self.record_at(&self.add_other(place), place, code, ended),
        }
    }

    #[inline]
    fn record_at(&self, attempts: &AttemptsAt, place: PlaceId, code: Code, ended: &EndedAttempt) {
        let is_last = ended.call_seconds.is_some();
        let by_status = if is_last { &attempts.last } else { &attempts.retried };
        if let Some(series) = by_status.of(code, || self.bind_attempts(place, code, is_last)) {
            series.record(ended);
        }
    }

    #[cold]
    fn bind_attempts(&self, place: PlaceId, code: Code, are_last: bool) -> BoundAttempts {
        let mut attempts = BoundAttempts::default();
        for Named { recorders, method } in &self.recorders {
            let labels = [(Label::Method, Arc::clone(method)), (Label::Status, code.to_string().into())];
            self.meter.bind_attempts_for(&mut attempts, recorders, place, &labels, are_last);
        }
        attempts
    }

    #[cold]
    fn add_other(&self, place: PlaceId) -> Arc<AttemptsAt> {
        let new = Arc::new(AttemptsAt::default());
        self.others.rcu(|others| {
            let mut others = Vec::clone(others);
            if let Err(position) = position(&others, place) {
                others.insert(position, (place, Arc::clone(&new)));
            }
            others
        });
        new
    }
}

fn position(others: &[(PlaceId, Arc<AttemptsAt>)], place: PlaceId) -> Result<usize, usize> {
    others.binary_search_by_key(&place, |&(at, _)| at)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use proxyless_sans_io::metrics::Series;

    use super::*;

    /// The number of attempts and the sum of their durations, by backend service.
    #[derive(Clone, Default)]
    struct Durations(Arc<Mutex<BTreeMap<String, (u32, f64)>>>);

    struct At(String, Durations);

    impl Series for At {
        fn record(&self, value: f64) {
            let mut all = self.1.0.lock().unwrap();
            let (count, sum) = all.entry(self.0.clone()).or_default();
            (*count, *sum) = (*count + 1, *sum + value);
        }
    }

    impl Recorder for Durations {
        fn is_enabled(&self, instrument: &'static Instrument) -> bool {
            instrument.name == instruments::ATTEMPT_DURATION.name
        }

        fn series(&self, _: &'static Instrument, labels: &[LabelValue]) -> Arc<dyn Series> {
            let service = labels.iter().find(|(label, _)| *label == Label::BackendService);
            Arc::new(At(service.unwrap().1.to_string(), self.clone()))
        }
    }

    #[test]
    fn a89_attempts_at_more_places_than_the_first_are_recorded_at_their_own() {
        let durations = Durations::default();
        let meter = Meter::new("xds:///x".into(), vec![Arc::new(durations.clone())]);
        let method = MethodMetrics::new(&meter, "s/M", |_| true);
        // The last places first, so that places are inserted before others.
        let services: Vec<u8> = (0..FIRST_PLACES as u8 + 3).rev().collect();
        let places: Vec<_> =
            services.iter().map(|number| meter.place(&format!("s{number}").into(), None)).collect();
        for _ in 0..2 {
            for (number, &place) in services.iter().zip(&places).rev() {
                method.attempt_ended(place, Code::Ok, &EndedAttempt::new(f64::from(*number), 0, 0));
            }
        }
        let expected = services.iter().map(|number| (format!("s{number}"), (2, 2.0 * f64::from(*number))));
        assert_eq!(*durations.0.lock().unwrap(), expected.collect());
    }
}
