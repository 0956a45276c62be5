//! The span of an attempt.

use std::sync::Arc;

use http::HeaderMap;
use opentelemetry::trace::{SpanBuilder, SpanKind, TraceContextExt as _};
use opentelemetry::{Context, KeyValue};
use proxyless::telemetry::{AttemptStart, AttemptTracer, Code, Message};

use super::Traces;

/// The span `Attempt.<service>.<method>`, a child of the RPC's.
pub(super) struct AttemptSpan {
    traces: Arc<Traces>,
    context: Context,
    /// Whether the span is sampled, so that its events are kept.
    recording: bool,
}

impl AttemptSpan {
    pub(super) fn start(traces: Arc<Traces>, name: &str, call: &Context, attempt: AttemptStart) -> Self {
        let attributes = [
            KeyValue::new("previous-rpc-attempts", i64::from(attempt.previous_attempts)),
            KeyValue::new("transparent-retry", attempt.transparent_retry),
        ];
        let span = SpanBuilder::from_name(format!("Attempt.{name}"));
        let span = span.with_kind(SpanKind::Internal).with_attributes(attributes);
        let context = (traces.start)(span, call);
        let recording = context.span().is_recording();
        Self { traces, context, recording }
    }

    fn message(&self, name: &'static str, message: Message) {
        if !self.recording {
            return;
        }
        // A72 wants `message-size` of a compressed message too: the channel does not know it.
        let size = if message.compressed { "message-size-compressed" } else { "message-size" };
        let number = |key, value: u64| KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX));
        let attributes = vec![number("sequence-number", message.sequence_number), number(size, message.size)];
        self.context.span().add_event(name, attributes);
    }
}

impl AttemptTracer for AttemptSpan {
    fn inject(&self, headers: &mut HeaderMap) {
        self.traces.inject(&self.context, headers);
    }

    fn pick_delayed(&self) {
        self.context.span().add_event("Delayed LB pick complete", Vec::new());
    }

    fn sent(&self, message: Message) {
        self.message("Outbound message", message);
    }

    fn received(&self, message: Message) {
        self.message("Inbound message", message);
    }

    fn ended(&self, code: Code, message: &str) {
        super::end(&self.context.span(), code, message);
    }
}
