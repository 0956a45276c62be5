//! The propagator of gRPC's own header, `grpc-trace-bin`.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use opentelemetry::Context;
use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};

use super::GRPC_TRACE_BIN;

/// Sends and receives trace contexts in the header `grpc-trace-bin`, in OpenCensus's binary format (A72), for peers that
/// use gRPC with OpenCensus. Prefer W3C's propagator otherwise. The trace state is not sent: the format has no place for
/// it.
///
/// The value is base64 without padding, as binary metadata of gRPC is on the wire. Padding is accepted.
///
/// ```
/// use std::collections::HashMap;
///
/// use opentelemetry::propagation::TextMapPropagator as _;
/// use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
/// use proxyless_otel::GrpcTraceBinPropagator;
///
/// let propagator = GrpcTraceBinPropagator::new();
/// let (trace, span) = (TraceId::from(1), SpanId::from(2));
/// let sent = SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE);
/// let mut carrier = HashMap::new();
/// propagator.inject_context(&opentelemetry::Context::new().with_remote_span_context(sent), &mut carrier);
///
/// let received = propagator.extract(&carrier);
/// assert_eq!(received.span().span_context().trace_id(), trace);
/// assert!(received.span().span_context().is_remote());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcTraceBinPropagator(());

static FIELDS: LazyLock<[String; 1]> = LazyLock::new(|| [GRPC_TRACE_BIN.to_owned()]);

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const VERSION: u8 = 0;
const TRACE_ID: u8 = 0;
const SPAN_ID: u8 = 1;
const TRACE_OPTIONS: u8 = 2;
const LENGTH: usize = 29;

impl GrpcTraceBinPropagator {
    /// Creates a propagator.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl TextMapPropagator for GrpcTraceBinPropagator {
    fn inject_context(&self, context: &Context, injector: &mut dyn Injector) {
        let span = context.span();
        if span.span_context().is_valid() {
            injector.set(GRPC_TRACE_BIN, BASE64.encode(encode(span.span_context())));
        }
    }

    fn extract_with_context(&self, context: &Context, extractor: &dyn Extractor) -> Context {
        let bytes = extractor.get(GRPC_TRACE_BIN).and_then(|text| BASE64.decode(text).ok());
        match bytes.as_deref().and_then(decode) {
            Some(span) => context.with_remote_span_context(span),
            None => context.clone(),
        }
    }

    fn fields(&self) -> FieldIter<'_> {
        FieldIter::new(FIELDS.as_slice())
    }
}

fn encode(span: &SpanContext) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.extend([VERSION, TRACE_ID]);
    bytes.extend(span.trace_id().to_bytes());
    bytes.push(SPAN_ID);
    bytes.extend(span.span_id().to_bytes());
    bytes.extend([TRACE_OPTIONS, span.trace_flags().to_u8()]);
    bytes
}

/// A72: a value that does not have all fields, or other ones, is invalid.
fn decode(bytes: &[u8]) -> Option<SpanContext> {
    let (&[VERSION, TRACE_ID], rest) = bytes.split_first_chunk()? else { return None };
    let (&trace, rest) = rest.split_first_chunk()?;
    let (&[SPAN_ID], rest) = rest.split_first_chunk()? else { return None };
    let (&span, rest) = rest.split_first_chunk()?;
    let &[TRACE_OPTIONS, flags] = rest else { return None };
    let (trace, span) = (TraceId::from_bytes(trace), SpanId::from_bytes(span));
    let context = SpanContext::new(trace, span, TraceFlags::new(flags), true, TraceState::NONE);
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn carrier(value: String) -> HashMap<String, String> {
        HashMap::from([(GRPC_TRACE_BIN.to_owned(), value)])
    }

    fn extracted(value: String) -> SpanContext {
        let propagator = GrpcTraceBinPropagator::new();
        propagator.extract_with_context(&Context::new(), &carrier(value)).span().span_context().clone()
    }

    /// The example of OpenCensus's specification.
    fn example() -> Vec<u8> {
        let trace = 0x40..0x50;
        let span = 0x61..0x69;
        [0, 0].into_iter().chain(trace).chain([1]).chain(span).chain([2, 1]).collect()
    }

    #[test]
    fn a72_the_binary_format_is_that_of_opencensus() {
        let span = extracted(BASE64.encode(example()));
        assert_eq!(span.trace_id().to_string(), "404142434445464748494a4b4c4d4e4f");
        assert_eq!(span.span_id().to_string(), "6162636465666768");
        assert!(span.is_sampled() && span.is_remote());
        let mut sent = HashMap::new();
        let context = Context::new().with_remote_span_context(span);
        GrpcTraceBinPropagator::new().inject_context(&context, &mut sent);
        assert_eq!(sent, carrier(BASE64.encode(example())));
        assert_eq!(GrpcTraceBinPropagator::new().fields().collect::<Vec<_>>(), [GRPC_TRACE_BIN]);
    }

    #[test]
    fn a72_padding_is_accepted_and_not_sent() {
        let padded = base64::engine::general_purpose::STANDARD.encode(example());
        assert!(padded.ends_with('='));
        assert!(extracted(padded.clone()).is_valid());
        assert!(extracted(padded.trim_end_matches('=').to_owned()).is_valid());
        assert!(!BASE64.encode(example()).contains('='));
    }

    #[test]
    fn a72_invalid_values_are_ignored() {
        for length in 0..LENGTH {
            let cut: Vec<_> = example().into_iter().take(length).collect();
            assert!(!extracted(BASE64.encode(&cut)).is_valid(), "{length} bytes");
        }
        assert!(!extracted(BASE64.encode([example(), vec![0]].concat())).is_valid());
        for place in [0, 1, 18, 27] {
            let mut wrong = example();
            wrong.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 0x80);
            assert!(!extracted(BASE64.encode(&wrong)).is_valid(), "byte {place}");
        }
        let zeros: Vec<u8> = example().into_iter().map(|byte| if byte > 2 { 0 } else { byte }).collect();
        assert!(!extracted(BASE64.encode(zeros)).is_valid(), "ids of zeros");
        for text in ["", "not base64!", "\u{e9}"] {
            assert!(!extracted(text.to_owned()).is_valid(), "{text}");
        }
    }

    #[test]
    fn a72_a_context_without_a_span_is_not_sent() {
        let mut sent = HashMap::new();
        GrpcTraceBinPropagator::new().inject_context(&Context::new(), &mut sent);
        assert!(sent.is_empty());
    }
}
