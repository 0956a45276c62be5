//! The plugin: a recorder and a tracer for channels.

use std::fmt;
use std::sync::{Arc, Weak};

use proxyless::telemetry::{
    AttemptSeries, CallStart, CallTracer, GaugeSource, Instrument, LabelValue, Recorder, Series, Tracer,
    install, install_tracer,
};

use crate::Filter;
use crate::builder::OpenTelemetryBuilder;
use crate::metrics::Metrics;
use crate::traces::Traces;

/// Records and traces the RPCs of channels with OpenTelemetry. Clones share everything.
///
/// It is a [`Recorder`] and a [`Tracer`]: [`install`](Self::install) it for all channels, or give it to the builder of one.
/// There can be several with different providers (A66).
#[derive(Clone)]
pub struct OpenTelemetry(Arc<Inner>);

struct Inner {
    metrics: Option<Metrics>,
    traces: Option<Arc<Traces>>,
    scope: Option<Filter>,
}

impl OpenTelemetry {
    /// Configures one.
    pub fn builder() -> OpenTelemetryBuilder {
        OpenTelemetryBuilder::new()
    }

    pub(crate) fn new(metrics: Option<Metrics>, traces: Option<Arc<Traces>>, scope: Option<Filter>) -> Self {
        Self(Arc::new(Inner { metrics, traces, scope }))
    }

    /// Records and traces all channels of the process that are built from now on, beside the recorders and tracers that
    /// are installed already. Each call installs once more: once is enough.
    pub fn install(self) {
        if self.0.metrics.is_some() {
            install(self.clone());
        }
        if self.0.traces.is_some() {
            install_tracer(self);
        }
    }

    /// A79: whether the channels to this target are recorded and traced.
    fn has_channel(&self, target: &str) -> bool {
        self.0.scope.as_ref().is_none_or(|scope| scope(target))
    }
}

impl Recorder for OpenTelemetry {
    fn is_enabled(&self, instrument: &'static Instrument) -> bool {
        self.0.metrics.as_ref().is_some_and(|metrics| metrics.is_enabled(instrument))
    }

    fn series(&self, instrument: &'static Instrument, labels: &[LabelValue]) -> Arc<dyn Series> {
        match &self.0.metrics {
            Some(metrics) => metrics.series(instrument, labels),
            None => Arc::new(Nothing),
        }
    }

    fn attempts(
        &self,
        attempt: &[LabelValue],
        call: Option<&[LabelValue]>,
    ) -> Option<Arc<dyn AttemptSeries>> {
        self.0.metrics.as_ref().map(|metrics| metrics.attempts(attempt, call))
    }

    fn records_channel(&self, target: &str) -> bool {
        self.0.metrics.is_some() && self.has_channel(target)
    }

    fn observe(&self, source: Weak<dyn GaugeSource>) {
        if let Some(metrics) = &self.0.metrics {
            metrics.observe(source);
        }
    }

    fn records_generic_method(&self, method: &str) -> bool {
        self.0.metrics.as_ref().is_some_and(|metrics| metrics.records_generic_method(method))
    }
}

impl Tracer for OpenTelemetry {
    fn call(&self, call: &CallStart<'_>) -> Option<Box<dyn CallTracer>> {
        let traces = self.0.traces.as_ref()?;
        self.has_channel(call.target).then(|| traces.call(call))
    }
}

impl fmt::Debug for OpenTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTelemetry")
            .field("metrics", &self.0.metrics.is_some())
            .field("traces", &self.0.traces.is_some())
            .finish_non_exhaustive()
    }
}

/// The series without a meter provider (A66).
struct Nothing;

impl Series for Nothing {
    fn record(&self, _: f64) {}
}
