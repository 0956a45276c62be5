//! One line for all channels of a process. It is alone in its process.

mod common;

use common::*;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use proxyless_otel::OpenTelemetry;

#[tokio::test]
async fn a66_a72_installed_for_all_channels() -> TestResult {
    let mesh = Mesh::start().await;
    let (meters, tracers) = (Meters::new(), Tracers::new());
    let before = mesh.builder().build()?;
    OpenTelemetry::builder()
        .meter_provider(&meters.provider)
        .tracer_provider(&tracers.provider)
        .text_map_propagator(TraceContextPropagator::new())
        .build()?
        .install();
    ask(&before).await?;
    assert!(meters.collect().await.names().is_empty(), "the channel was built before");
    assert!(tracers.spans(0).await.is_empty());
    for channel in [mesh.builder().build()?, mesh.builder().build()?] {
        ask(&channel).await?;
    }
    assert_eq!(meters.collect().await.sum("grpc.client.attempt.started", &[]), 2.0);
    assert_eq!(tracers.spans(4).await.len(), 4);
    let sent: Vec<_> = mesh.backend.calls().iter().map(|call| call.header("traceparent").is_some()).collect();
    assert_eq!(sent, [false, true, true]);
    Ok(())
}
