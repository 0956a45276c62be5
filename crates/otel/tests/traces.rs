//! The spans of RPCs and attempts (gRFC A72), as OpenTelemetry's SDK exports them.

mod common;

use common::*;
use http_body_util::{BodyExt as _, Full};
use opentelemetry::trace::{
    FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, Value};
use opentelemetry_sdk::trace::SpanData;
use proxyless::XdsChannel;
use proxyless_otel::{OpenTelemetry, OpenTelemetryBuilder};
use proxyless_testkit::LDS;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use tonic::body::Body;
use tonic::{Code, Request};
use tower_service::Service as _;

const SENT: &str = "Sent.proxyless.testkit.Echo.Unary";
const ATTEMPT: &str = "Attempt.proxyless.testkit.Echo.Unary";

/// A channel whose RPCs are traced.
fn traced(mesh: &Mesh) -> (Tracers, XdsChannel) {
    traced_by(mesh, |builder| builder)
}

fn traced_by(
    mesh: &Mesh,
    configure: impl FnOnce(OpenTelemetryBuilder) -> OpenTelemetryBuilder,
) -> (Tracers, XdsChannel) {
    let tracers = Tracers::new();
    let otel = configure(OpenTelemetry::builder().tracer_provider(&tracers.provider)).build().unwrap();
    let channel = mesh.builder().tracer(otel).build().unwrap();
    (tracers, channel)
}

fn attribute(span: &SpanData, key: &str) -> Option<Value> {
    span.attributes.iter().find(|attribute| attribute.key.as_str() == key).map(|it| it.value.clone())
}

/// The events of a span with their attributes, as text.
fn events(span: &SpanData) -> Vec<String> {
    let text = |event: &opentelemetry::trace::Event| {
        let attributes = event.attributes.iter().map(|it| format!(" {}={}", it.key, it.value));
        format!("{}{}", event.name, attributes.collect::<String>())
    };
    span.events.iter().map(text).collect()
}

/// The spans of one RPC, the RPC itself first, after a check of their relation.
fn family(spans: &[SpanData]) -> (&SpanData, &[SpanData]) {
    let (call, attempts) = spans.split_last().expect("the RPC ends last");
    for attempt in attempts {
        assert_eq!(attempt.parent_span_id, call.span_context.span_id());
        assert_eq!(attempt.span_context.trace_id(), call.span_context.trace_id());
        assert!(attempt.start_time >= call.start_time && attempt.end_time <= call.end_time);
    }
    (call, attempts)
}

#[tokio::test]
async fn a72_an_rpc_has_a_span_and_its_attempt_a_child() -> TestResult {
    let mesh = Mesh::start().await;
    let (tracers, channel) = traced(&mesh);
    ask(&channel).await?;
    let first = tracers.spans(2).await;
    let (call, attempts) = family(&first);
    assert_eq!((&*call.name, &call.span_kind, &call.status), (SENT, &SpanKind::Client, &Status::Ok));
    assert!(call.attributes.is_empty());
    assert_eq!(call.instrumentation_scope.name(), "proxyless");
    assert_eq!(call.instrumentation_scope.version(), Some(env!("CARGO_PKG_VERSION")));
    let [attempt] = attempts else { panic!("{attempts:#?}") };
    assert_eq!(
        (&*attempt.name, &attempt.span_kind, &attempt.status),
        (ATTEMPT, &SpanKind::Internal, &Status::Ok)
    );
    assert_eq!(attribute(attempt, "previous-rpc-attempts"), Some(Value::I64(0)));
    assert_eq!(attribute(attempt, "transparent-retry"), Some(Value::Bool(false)));
    // The first RPC waits for its route and for a connection.
    assert_eq!(events(call), ["Delayed name resolution complete"]);
    let sent = "Outbound message sequence-number=0 message-size=7";
    let received = "Inbound message sequence-number=0 message-size=10";
    assert_eq!(events(attempt), ["Delayed LB pick complete", sent, received]);

    ask(&channel).await?;
    let both = tracers.spans(4).await;
    let (call, attempts) = family(&both[2..]);
    assert_eq!((events(call), events(&attempts[0])), (vec![], vec![sent.to_owned(), received.to_owned()]));
    assert_ne!(call.span_context.trace_id(), both[0].span_context.trace_id(), "without a parent");
    Ok(())
}

#[tokio::test]
async fn a72_an_rpc_that_waits_for_its_configuration_is_delayed() -> TestResult {
    let mesh = Mesh::start().await;
    mesh.plane.withhold(LDS);
    let (tracers, channel) = traced(&mesh);
    let call = tokio::spawn(async move { ask(&channel).await });
    mesh.plane.wait_subscriptions(LDS, &[SERVICE]).await?;
    mesh.plane.release(LDS);
    call.await??;
    let spans = tracers.spans(2).await;
    let (call, attempts) = family(&spans);
    assert_eq!(events(call), ["Delayed name resolution complete"]);
    let resolved = call.events.iter().next().expect("the event").timestamp;
    assert!(resolved >= call.start_time && resolved <= attempts[0].start_time);
    Ok(())
}

#[tokio::test]
async fn a72_failures_have_the_code_and_the_message_in_their_status() -> TestResult {
    let mesh = Mesh::start().await;
    mesh.backend.fail_with(Code::NotFound);
    let (tracers, channel) = traced(&mesh);
    ask(&channel).await.unwrap_err();
    for span in tracers.spans(2).await {
        assert_eq!(span.status, Status::error("NOT_FOUND, the backend was told to fail"));
    }
    Ok(())
}

#[tokio::test]
async fn a72_a_cancelled_rpc_ends_its_spans() -> TestResult {
    let mesh = Mesh::start().await;
    mesh.backend.hang();
    let (tracers, channel) = traced(&mesh);
    let call = tokio::spawn(async move { ask(&channel).await });
    mesh.backend.wait_in_flight(1).await?;
    call.abort();
    for span in tracers.spans(2).await {
        let Status::Error { description } = &span.status else { panic!("{span:#?}") };
        assert!(description.starts_with("CANCELLED, "), "{description}");
    }
    Ok(())
}

#[tokio::test]
async fn a72_each_attempt_of_a_retried_rpc_has_a_span() -> TestResult {
    let mesh = Mesh::start().await;
    mesh.retry();
    mesh.backend.fail_with(Code::Unavailable);
    let (tracers, channel) = traced(&mesh);
    ask(&channel).await.unwrap_err();
    let spans = tracers.spans(3).await;
    let (call, attempts) = family(&spans);
    let failed = Status::error("UNAVAILABLE, the backend was told to fail");
    assert_eq!(call.status, failed);
    assert_eq!(attempts.len(), 2);
    for (attempt, previous) in attempts.iter().zip(0..) {
        assert_eq!(attempt.status, failed);
        assert_eq!(attribute(attempt, "previous-rpc-attempts"), Some(Value::I64(previous)));
        assert_eq!(attribute(attempt, "transparent-retry"), Some(Value::Bool(false)));
        // Each attempt counts its own messages.
        assert!(events(attempt).contains(&"Outbound message sequence-number=0 message-size=7".to_owned()));
    }
    Ok(())
}

#[tokio::test]
async fn a72_transparent_retries_are_not_previous_attempts() -> TestResult {
    let mesh = Mesh::start().await;
    let server = RefusingServer::start().await?;
    mesh.plane.set(priorities("cluster", [[server.address()]]));
    let (tracers, channel) = traced(&mesh);
    assert_eq!(ask(&channel).await.unwrap_err().code(), Code::NotFound);
    let spans = tracers.spans(3).await;
    let (call, attempts) = family(&spans);
    assert_eq!(call.status, Status::error("NOT_FOUND, not here"));
    let of = |attempt| (attribute(attempt, "previous-rpc-attempts"), attribute(attempt, "transparent-retry"));
    let kinds: Vec<_> = attempts.iter().map(of).collect();
    let kind = |transparent| (Some(Value::I64(0)), Some(Value::Bool(transparent)));
    assert_eq!(kinds, [kind(false), kind(true)]);
    Ok(())
}

#[tokio::test]
async fn a72_messages_of_streams_are_numbered() -> TestResult {
    let mesh = Mesh::start().await;
    let (tracers, channel) = traced(&mesh);
    let messages = ["", "x", "hello"].map(EchoRequest::new);
    let mut answers = EchoClient::new(channel).chat(tokio_stream::iter(messages)).await?.into_inner();
    while answers.message().await?.is_some() {}
    drop(answers);
    let spans = tracers.spans(2).await;
    let (call, attempts) = family(&spans);
    assert_eq!(call.name, "Sent.proxyless.testkit.Echo.Chat");
    let events = events(&attempts[0]);
    let of = |direction| events.iter().filter(|event| event.starts_with(direction)).collect::<Vec<_>>();
    let expected = |direction: &str, sizes: [usize; 3]| {
        let event = |(number, size)| format!("{direction} sequence-number={number} message-size={size}");
        sizes.iter().enumerate().map(event).collect::<Vec<_>>()
    };
    assert_eq!(of("Outbound"), expected("Outbound message", [0, 3, 7]).iter().collect::<Vec<_>>());
    // The name of the backend is in each.
    assert_eq!(of("Inbound"), expected("Inbound message", [3, 6, 10]).iter().collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn a72_compressed_messages_have_their_compressed_size() -> TestResult {
    let mesh = Mesh::start().await;
    let (tracers, mut channel) = traced(&mesh);
    let request = http::Request::post("/proxyless.testkit.Echo/Unary");
    let request = request.header("content-type", "application/grpc").header("grpc-encoding", "gzip");
    let message = Full::from(&[1, 0, 0, 0, 3, 1, 2, 3][..]);
    let response = channel.call(request.body(Body::new(message))?).await?;
    drop(response.into_body().collect().await);
    let spans = tracers.spans(2).await;
    let (_, attempts) = family(&spans);
    let event = "Outbound message sequence-number=0 message-size-compressed=3".to_owned();
    assert!(events(&attempts[0]).contains(&event), "{:?}", events(&attempts[0]));
    Ok(())
}

#[tokio::test]
async fn a72_the_parent_is_in_the_request_or_in_the_task() -> TestResult {
    let mesh = Mesh::start().await;
    let (tracers, channel) = traced(&mesh);
    let tracer = tracers.provider.tracer("the application");
    let parents = ["in the task", "in the request"].map(|name| Context::new().with_span(tracer.start(name)));
    ask(&channel).with_context(parents[0].clone()).await?;
    let mut request = Request::new(EchoRequest::new("hello"));
    request.extensions_mut().insert(parents[1].clone());
    EchoClient::new(channel).unary(request).with_context(parents[0].clone()).await?;
    let spans = tracers.spans(4).await;
    for (spans, parent) in spans.chunks(2).zip(&parents) {
        let (call, _) = family(spans);
        assert_eq!(call.parent_span_id, parent.span().span_context().span_id());
        assert_eq!(call.span_context.trace_id(), parent.span().span_context().trace_id());
        assert!(!call.parent_span_is_remote);
    }
    Ok(())
}

#[tokio::test]
async fn a79_channels_out_of_scope_are_not_traced() -> TestResult {
    let mesh = Mesh::start().await;
    let (tracers, channel) = traced_by(&mesh, |builder| builder.channel_scope(|target| target != TARGET));
    ask(&channel).await?;
    assert!(tracers.spans(0).await.is_empty());
    Ok(())
}
