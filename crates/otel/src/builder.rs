//! The configuration: providers, and the choice of metrics, labels and channels (A66, A79).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use opentelemetry::InstrumentationScope;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt as _, Tracer, TracerProvider};
use proxyless::telemetry::{Default as On, Instrument, Label, instruments};

use crate::Filter;
use crate::error::BuildError;
use crate::metrics::{Attributes, Metrics};
use crate::open_telemetry::OpenTelemetry;
use crate::traces::{StartSpan, Traces};

/// Configures an [`OpenTelemetry`].
#[must_use]
pub struct OpenTelemetryBuilder {
    meter: Option<Meter>,
    enabled: BTreeSet<&'static str>,
    unknown_metrics: Vec<String>,
    optional_labels: BTreeSet<Label>,
    unknown_labels: Vec<String>,
    generic_methods: Option<Filter>,
    targets: Option<Filter>,
    scope: Option<Filter>,
    start_span: Option<StartSpan>,
    propagator: Option<Arc<dyn TextMapPropagator + Send + Sync>>,
}

impl OpenTelemetryBuilder {
    pub(crate) fn new() -> Self {
        let on = instruments::ALL.iter().filter(|instrument| instrument.default == On::On);
        Self {
            meter: None,
            enabled: on.map(|instrument| instrument.name).collect(),
            unknown_metrics: Vec::new(),
            optional_labels: BTreeSet::new(),
            unknown_labels: Vec::new(),
            generic_methods: None,
            targets: None,
            scope: None,
            start_span: None,
            propagator: None,
        }
    }

    /// Records metrics with the meter `proxyless` of this provider. Without a provider no metrics are recorded: there is
    /// no fallback to the global one (A66). The provider stays the caller's, who shuts it down.
    pub fn meter_provider(mut self, provider: &(impl MeterProvider + ?Sized)) -> Self {
        self.meter = Some(provider.meter_with_scope(instrumentation_scope()));
        self
    }

    /// Records these metrics too. Unknown names are an error of [`build`](Self::build).
    ///
    /// The metrics that are enabled at first are those that the gRFCs have on by default. This method,
    /// [`disable_metrics`](Self::disable_metrics) and [`disable_all_metrics`](Self::disable_all_metrics) apply in the
    /// order of the calls.
    pub fn enable_metrics<I>(mut self, names: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let known = self.known(names);
        self.enabled.extend(known);
        self
    }

    /// Does not record these metrics. Unknown names are an error of [`build`](Self::build).
    pub fn disable_metrics<I>(mut self, names: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        for name in self.known(names) {
            self.enabled.remove(name);
        }
        self
    }

    /// Records no metrics but those that are enabled afterwards.
    pub fn disable_all_metrics(mut self) -> Self {
        self.enabled.clear();
        self
    }

    /// Records these optional labels with all metrics that have them (A79), such as `grpc.lb.locality` and
    /// `grpc.lb.backend_service`. Unknown keys are an error of [`build`](Self::build).
    pub fn optional_labels<I>(mut self, keys: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        for key in keys {
            let key = key.as_ref();
            let all = instruments::ALL.iter().flat_map(|instrument| instrument.optional_labels);
            match all.copied().find(|label| label.key() == key) {
                Some(label) => drop(self.optional_labels.insert(label)),
                None => self.unknown_labels.push(key.to_owned()),
            }
        }
        self
    }

    /// Chooses the generic methods, those that no generated client calls, whose names are recorded. Without a filter,
    /// and if the filter returns false, the method is `other` (A66).
    pub fn generic_method_filter(mut self, filter: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.generic_methods = Some(Arc::new(filter));
        self
    }

    /// Chooses the targets of channels that are recorded; if the filter returns false, the target is `other`. Without a
    /// filter all are recorded.
    pub fn target_filter(mut self, filter: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.targets = Some(Arc::new(filter));
        self
    }

    /// Chooses the channels that are recorded and traced, by their target (A79). Without a filter all are.
    pub fn channel_scope(mut self, filter: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.scope = Some(Arc::new(filter));
        self
    }

    /// Traces RPCs with the tracer `proxyless` of this provider. Without a provider there are no traces (A72), and nothing
    /// is propagated. The provider stays the caller's, who shuts it down.
    pub fn tracer_provider<P>(mut self, provider: &P) -> Self
    where
        P: TracerProvider,
        P::Tracer: Send + Sync + 'static,
        <P::Tracer as Tracer>::Span: Send + Sync + 'static,
    {
        let tracer = provider.tracer_with_scope(instrumentation_scope());
        self.start_span = Some(Arc::new(move |builder, parent| {
            parent.with_span(tracer.build_with_context(builder, parent))
        }));
        self
    }

    /// Sends the context of each attempt in its metadata (A72): W3C's `TraceContextPropagator` of the SDK,
    /// [`GrpcTraceBinPropagator`](crate::GrpcTraceBinPropagator), or several in a
    /// [`TextMapCompositePropagator`](opentelemetry::propagation::TextMapCompositePropagator). Without one nothing is
    /// sent.
    pub fn text_map_propagator(mut self, propagator: impl TextMapPropagator + Send + Sync + 'static) -> Self {
        self.propagator = Some(Arc::new(propagator));
        self
    }

    /// Creates the instruments.
    ///
    /// # Errors
    /// If metrics or optional labels are unknown. The error lists all of them.
    pub fn build(self) -> Result<OpenTelemetry, BuildError> {
        if !self.unknown_metrics.is_empty() || !self.unknown_labels.is_empty() {
            return Err(BuildError {
                unknown_metrics: self.unknown_metrics,
                unknown_optional_labels: self.unknown_labels,
            });
        }
        let attributes = Attributes { optional: self.optional_labels, targets: self.targets };
        let metrics =
            self.meter.map(|meter| Metrics::new(&meter, &self.enabled, attributes, self.generic_methods));
        let traces = self.start_span.map(|start| Arc::new(Traces::new(start, self.propagator)));
        Ok(OpenTelemetry::new(metrics, traces, self.scope))
    }

    /// The names that are in the catalogue. Takes note of the others.
    fn known<I>(&mut self, names: I) -> Vec<&'static str>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let mut known = Vec::new();
        for name in names {
            match Instrument::by_name(name.as_ref()) {
                Some(instrument) => known.push(instrument.name),
                None => self.unknown_metrics.push(name.as_ref().to_owned()),
            }
        }
        known
    }
}

impl fmt::Debug for OpenTelemetryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTelemetryBuilder")
            .field("enabled", &self.enabled)
            .field("optional_labels", &self.optional_labels)
            .finish_non_exhaustive()
    }
}

/// A66: the scope names the library and its version.
fn instrumentation_scope() -> InstrumentationScope {
    InstrumentationScope::builder("proxyless").with_version(env!("CARGO_PKG_VERSION")).build()
}
