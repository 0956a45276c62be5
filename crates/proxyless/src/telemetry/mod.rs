//! gRPC's standard metrics, for any exporter.
//!
//! A [`Recorder`] gets the measurements of channels: of calls and attempts (gRFC A66), and of retries (gRFC A96), with the
//! names, units, labels and bucket bounds of [`instruments`]. [`install`] it for all channels that are built from then on,
//! or give it to one channel with [`XdsChannelBuilder::recorder`](crate::XdsChannelBuilder::recorder).
//! [`proxyless-admin`](https://docs.rs/proxyless-admin) has one that serves `/metrics` for Prometheus.
//!
//! Channels without recorders pay a test for each RPC. With recorders, an RPC looks up its method and adds to series that
//! exist already: label values are built when a cluster, a method or a status is seen for the first time.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use proxyless::telemetry::{Instrument, LabelValue, Recorder, Series, instruments};
//!
//! /// Counts the attempts of all channels.
//! #[derive(Default)]
//! struct Attempts(Arc<AtomicU64>);
//!
//! struct Counter(Arc<AtomicU64>);
//!
//! impl Series for Counter {
//!     fn record(&self, value: f64) {
//!         self.0.fetch_add(value as u64, Ordering::Relaxed);
//!     }
//! }
//!
//! impl Recorder for Attempts {
//!     fn is_enabled(&self, instrument: &'static Instrument) -> bool {
//!         instrument.name == instruments::ATTEMPT_STARTED.name
//!     }
//!
//!     fn series(&self, _: &'static Instrument, _: &[LabelValue]) -> Arc<dyn Series> {
//!         Arc::new(Counter(Arc::clone(&self.0)))
//!     }
//! }
//!
//! proxyless::telemetry::install(Attempts::default());
//! ```

mod append_map;
mod methods;
mod tracer;

use std::sync::{Arc, Mutex, PoisonError};

use http::request;
use proxyless_sans_io::metrics::Meter;

pub use proxyless_sans_io::metrics::{
    AttemptSeries, Batches, Default, EndedAttempt, GaugeSource, Instrument, Kind, Label, LabelValue,
    Recorder, Series, instruments,
};
pub use proxyless_sans_io::values::Code;

pub use tracer::{AttemptStart, AttemptTracer, CallStart, CallTracer, Message, Tracer};

pub(crate) use methods::{MethodHandle, Methods, RetryCounts};

/// The recorders and tracers of the RPCs of one channel. Exists only if there are any.
pub(crate) struct ChannelTelemetry {
    target: Arc<str>,
    methods: Option<Methods>,
    tracers: Vec<Arc<dyn Tracer>>,
}

impl ChannelTelemetry {
    pub(crate) fn new(target: Arc<str>, meter: &Meter, tracers: Vec<Arc<dyn Tracer>>) -> Option<Self> {
        let methods = Methods::new(meter);
        (methods.is_some() || !tracers.is_empty()).then_some(Self { target, methods, tracers })
    }

    /// The series of the method of a request.
    pub(crate) fn method(&self, head: &request::Parts) -> Option<Arc<MethodHandle>> {
        self.methods.as_ref().map(|methods| methods.of(head))
    }

    /// The tracers of an RPC that starts.
    pub(crate) fn traces(&self, head: &request::Parts) -> Vec<Box<dyn CallTracer>> {
        if self.tracers.is_empty() {
            return Vec::new();
        }
        let method = head.uri.path().trim_start_matches('/');
        let call =
            CallStart { target: &self.target, method, headers: &head.headers, extensions: &head.extensions };
        self.tracers.iter().filter_map(|tracer| tracer.call(&call)).collect()
    }
}

static INSTALLED: Mutex<Vec<Arc<dyn Recorder>>> = Mutex::new(Vec::new());

/// Installs a recorder for all channels of the process that are built from now on, beside those that are installed
/// already.
pub fn install(recorder: impl Recorder + 'static) {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(recorder));
}

/// The installed recorders.
pub(crate) fn installed() -> Vec<Arc<dyn Recorder>> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

static TRACERS: Mutex<Vec<Arc<dyn Tracer>>> = Mutex::new(Vec::new());

/// Installs a tracer for all channels of the process that are built from now on, beside those that are installed already.
pub fn install_tracer(tracer: impl Tracer + 'static) {
    TRACERS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(tracer));
}

/// The installed tracers.
pub(crate) fn installed_tracers() -> Vec<Arc<dyn Tracer>> {
    TRACERS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
