//! The trace contexts that backends receive (gRFC A72).

mod common;

use common::*;
use opentelemetry::Context;
use opentelemetry::propagation::{TextMapCompositePropagator, TextMapPropagator};
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData};
use proxyless_otel::{GrpcTraceBinPropagator, MetadataExtractor, OpenTelemetry};
use proxyless_testkit::{Backend, Call};
use tonic::Code;

/// The span that a server reads from the metadata of a call.
fn received(propagator: &dyn TextMapPropagator, call: &Call) -> SpanContext {
    let context = propagator.extract_with_context(&Context::new(), &MetadataExtractor(call.headers()));
    context.span().span_context().clone()
}

/// The calls of a backend continue these attempts, in their order.
fn assert_continued(propagator: &dyn TextMapPropagator, backend: &Backend, attempts: &[SpanData]) {
    let calls = backend.calls();
    assert_eq!(calls.len(), attempts.len());
    for (call, attempt) in calls.iter().zip(attempts) {
        let received = received(propagator, call);
        assert_eq!(received.trace_id(), attempt.span_context.trace_id());
        assert_eq!(received.span_id(), attempt.span_context.span_id());
        assert!(received.is_remote() && received.is_sampled());
    }
}

#[tokio::test]
async fn a72_each_attempt_sends_its_own_context_by_all_propagators() -> TestResult {
    let mesh = Mesh::start().await;
    mesh.retry();
    mesh.backend.fail_with(Code::Unavailable);
    let tracers = Tracers::new();
    let both = TextMapCompositePropagator::new(vec![
        Box::new(TraceContextPropagator::new()),
        Box::new(GrpcTraceBinPropagator::new()),
    ]);
    let otel =
        OpenTelemetry::builder().tracer_provider(&tracers.provider).text_map_propagator(both).build()?;
    ask(&mesh.builder().tracer(otel).build()?).await.unwrap_err();
    let spans = tracers.spans(3).await;
    let attempts = &spans[..2];
    assert_ne!(attempts[0].span_context.span_id(), attempts[1].span_context.span_id());
    assert_continued(&TraceContextPropagator::new(), &mesh.backend, attempts);
    assert_continued(&GrpcTraceBinPropagator::new(), &mesh.backend, attempts);
    for (call, attempt) in mesh.backend.calls().iter().zip(attempts) {
        let span = &attempt.span_context;
        let parent = format!("00-{}-{}-01", span.trace_id(), span.span_id());
        assert_eq!(call.header("traceparent"), Some(&*parent));
        let values: Vec<_> = call.headers().get_all("grpc-trace-bin").iter().collect();
        assert_eq!(values.len(), 1);
        // 29 bytes without padding.
        assert_eq!(values[0].len(), 39);
        // It is binary metadata for tonic.
        let metadata = tonic::metadata::MetadataMap::from_headers(call.headers().clone());
        let bytes = metadata.get_bin("grpc-trace-bin").expect("the header").to_bytes()?;
        assert_eq!((bytes.len(), &bytes[2..18]), (29, &span.trace_id().to_bytes()[..]));
    }
    Ok(())
}

#[tokio::test]
async fn a72_without_a_propagator_nothing_is_sent() -> TestResult {
    let mesh = Mesh::start().await;
    let tracers = Tracers::new();
    let otel = OpenTelemetry::builder().tracer_provider(&tracers.provider).build()?;
    ask(&mesh.builder().tracer(otel).build()?).await?;
    tracers.spans(2).await;
    assert_eq!(mesh.backend.calls()[0].header("traceparent"), None);
    Ok(())
}

#[tokio::test]
async fn a72_without_a_tracer_provider_nothing_is_traced_or_sent() -> TestResult {
    let mesh = Mesh::start().await;
    let otel = OpenTelemetry::builder().text_map_propagator(TraceContextPropagator::new()).build()?;
    ask(&mesh.builder().tracer(otel).build()?).await?;
    assert_eq!(mesh.backend.calls()[0].header("traceparent"), None);
    Ok(())
}

#[tokio::test]
async fn a72_rpcs_that_are_not_sampled_tell_the_server() -> TestResult {
    let mesh = Mesh::start().await;
    let provider = SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOff).build();
    let otel = OpenTelemetry::builder().tracer_provider(&provider);
    let otel = otel.text_map_propagator(GrpcTraceBinPropagator::new()).build()?;
    ask(&mesh.builder().tracer(otel).build()?).await?;
    let received = received(&GrpcTraceBinPropagator::new(), &mesh.backend.calls()[0]);
    assert!(received.is_valid() && !received.is_sampled());
    Ok(())
}
