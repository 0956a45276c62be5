//! The span of an RPC.

use std::sync::Arc;

use opentelemetry::Context;
use opentelemetry::trace::{SpanBuilder, SpanKind, TraceContextExt as _};
use proxyless::telemetry::{AttemptStart, AttemptTracer, CallStart, CallTracer, Code};

use super::Traces;
use super::attempt::AttemptSpan;

/// The span `Sent.<service>.<method>`.
pub(super) struct CallSpan {
    traces: Arc<Traces>,
    /// `<service>.<method>`.
    name: String,
    context: Context,
}

impl CallSpan {
    pub(super) fn start(traces: Arc<Traces>, call: &CallStart<'_>) -> Self {
        let name = call.method.replace('/', ".");
        // The kinds of spans are those of grpc-go; A72 has none.
        let span = SpanBuilder::from_name(format!("Sent.{name}")).with_kind(SpanKind::Client);
        let context = match call.extensions.get::<Context>() {
            Some(parent) => (traces.start)(span, parent),
            None => (traces.start)(span, &Context::current()),
        };
        Self { traces, name, context }
    }
}

impl CallTracer for CallSpan {
    fn name_resolution_delayed(&mut self) {
        self.context.span().add_event("Delayed name resolution complete", Vec::new());
    }

    fn attempt(&mut self, attempt: AttemptStart) -> Arc<dyn AttemptTracer> {
        Arc::new(AttemptSpan::start(Arc::clone(&self.traces), &self.name, &self.context, attempt))
    }

    fn ended(&mut self, code: Code, message: &str) {
        super::end(&self.context.span(), code, message);
    }
}
