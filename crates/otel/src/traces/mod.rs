//! Traces (A72): the spans of RPCs and attempts.

mod attempt;
mod call;

use std::sync::Arc;

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanBuilder, SpanRef, Status};
use proxyless::telemetry::{CallStart, CallTracer, Code};

use crate::propagation::MetadataInjector;
use call::CallSpan;

/// Starts a span below a context, and returns the context of the span.
pub(crate) type StartSpan = Arc<dyn Fn(SpanBuilder, &Context) -> Context + Send + Sync>;

/// The tracer and the propagator of the user.
pub(crate) struct Traces {
    start: StartSpan,
    propagator: Option<Arc<dyn TextMapPropagator + Send + Sync>>,
}

impl Traces {
    pub(crate) fn new(
        start: StartSpan,
        propagator: Option<Arc<dyn TextMapPropagator + Send + Sync>>,
    ) -> Self {
        Self { start, propagator }
    }

    /// The span of an RPC.
    pub(crate) fn call(self: &Arc<Self>, call: &CallStart<'_>) -> Box<dyn CallTracer> {
        Box::new(CallSpan::start(Arc::clone(self), call))
    }

    fn inject(&self, context: &Context, headers: &mut HeaderMap) {
        if let Some(propagator) = &self.propagator {
            propagator.inject_context(context, &mut MetadataInjector(headers));
        }
    }
}

/// A72: OK is Ok; other codes are errors, described by the code and the message.
fn end(span: &SpanRef<'_>, code: Code, message: &str) {
    span.set_status(match (code, message) {
        (Code::Ok, _) => Status::Ok,
        (code, "") => Status::error(code.to_string()),
        (code, message) => Status::error(format!("{code}, {message}")),
    });
    span.end();
}
