//! Metrics and traces of a failover, over OTLP: `cargo run -p proxyless-otel --example otlp`.
//!
//! A control plane, two backends and a stand-in of an OpenTelemetry collector run inside the process. RPCs go to the near
//! backend until it dies, and then to the far one. The metrics and spans go to the collector over gRPC. The program prints
//! what has arrived there, and fails if something is missing.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use opentelemetry::Context;
use opentelemetry::trace::{FutureExt as _, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig as _};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use proxyless::{Bootstrap, XdsChannel};
use proxyless_otel::OpenTelemetry;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let received = Arc::new(Received::default());
    let services = Routes::new(MetricsServiceServer::from_arc(Arc::clone(&received)))
        .add_service(TraceServiceServer::from_arc(Arc::clone(&received)));
    let collector = Backend::serve("collector", services).await?;
    let endpoint = format!("http://{}", collector.address());

    // What an application does: exporters, providers, one line for all channels.
    let resource = Resource::builder().with_service_name("otlp-example").build();
    let metrics = MetricExporter::builder().with_tonic().with_endpoint(&endpoint).build()?;
    let meters =
        SdkMeterProvider::builder().with_periodic_exporter(metrics).with_resource(resource.clone()).build();
    let spans = SpanExporter::builder().with_tonic().with_endpoint(&endpoint).build()?;
    let tracers = SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource).build();
    OpenTelemetry::builder()
        .meter_provider(&meters)
        .enable_metrics(["grpc.subchannel.disconnections", "grpc.subchannel.open_connections"])
        .optional_labels(["grpc.lb.backend_service", "grpc.lb.locality"])
        .tracer_provider(&tracers)
        .text_map_propagator(TraceContextPropagator::new())
        .build()?
        .install();

    let mesh = Mesh::start().await?;
    let calls = mesh.fail_over(&tracers).await?;

    // Sends what has not been sent yet.
    tokio::task::spawn_blocking(move || meters.shutdown().and(tracers.shutdown())).await??;
    received.print();
    let missing = received.missing(&calls);
    for what in &missing {
        println!("MISSING: {what}");
    }
    if missing.is_empty() {
        println!("\nall metrics and spans have arrived");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

/// Two backends of different priority, and a channel to them.
struct Mesh {
    near: Backend,
    far: Backend,
    channel: XdsChannel,
    _plane: ControlPlane,
}

impl Mesh {
    async fn start() -> Result<Self, Box<dyn Error>> {
        let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
        let plane = ControlPlane::start().await?;
        plane.set_all([
            listener("greeter", "route").into(),
            simple_route_config("route", "greeters").into(),
            eds_cluster("greeters").into(),
            priorities("greeters", [[&near], [&far]]).into(),
        ]);
        let bootstrap = Bootstrap::from_json(&plane.bootstrap_json())?;
        let channel = XdsChannel::builder("xds:///greeter").bootstrap(bootstrap).build()?;
        Ok(Self { near, far, channel, _plane: plane })
    }

    /// Makes RPCs to the near backend, and after its end to the far one. Returns the number of answers of each.
    async fn fail_over(&self, tracers: &SdkTracerProvider) -> Result<BTreeMap<String, u64>, Box<dyn Error>> {
        let shopping = Context::new().with_span(tracers.tracer("otlp-example").start("shopping"));
        let mut calls = BTreeMap::new();
        for call in 0..10 {
            if call == 5 {
                self.near.kill().await;
                // The channel has noticed.
                self.far.wait_connections(1).await?;
            }
            let request = Request::new(EchoRequest::new("hello"));
            let mut client = EchoClient::new(self.channel.clone());
            let answer = client.unary(request).with_context(shopping.clone()).await?;
            *calls.entry(answer.into_inner().backend).or_default() += 1;
        }
        shopping.span().end();
        let traced = self.far.calls().iter().all(|call| call.header("traceparent").is_some());
        println!("answers: {calls:?}; the far backend knows the trace of its calls: {traced}\n");
        Ok(calls)
    }
}

/// What the collector has received.
#[derive(Default)]
struct Received {
    /// The latest points of each metric, by its name.
    metrics: Mutex<BTreeMap<String, Metric>>,
    spans: Mutex<Vec<Span>>,
}

/// A metric: its unit, and the sum of a counter or the number of values in a distribution, by labels.
struct Metric {
    unit: String,
    points: BTreeMap<String, u64>,
}

#[tonic::async_trait]
impl MetricsService for Received {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let scopes = request.into_inner().resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
        let mut metrics = self.metrics.lock().expect("no holder panics");
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let points: BTreeMap<_, _> = match metric.data {
                Some(Data::Sum(sum)) => {
                    let number = |value| match value {
                        Some(Number::AsInt(value)) => u64::try_from(value).unwrap_or(0),
                        _ => 0,
                    };
                    sum.data_points.iter().map(|it| (labels(&it.attributes), number(it.value))).collect()
                }
                Some(Data::Histogram(all)) => {
                    all.data_points.iter().map(|it| (labels(&it.attributes), it.count)).collect()
                }
                _ => BTreeMap::new(),
            };
            metrics.insert(metric.name, Metric { unit: metric.unit, points });
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let scopes = request.into_inner().resource_spans.into_iter().flat_map(|it| it.scope_spans);
        self.spans.lock().expect("no holder panics").extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Received {
    fn print(&self) {
        for (name, Metric { unit, points }) in &*self.metrics.lock().expect("no holder panics") {
            println!("{name} [{unit}]");
            points.iter().for_each(|(labels, value)| println!("  {value:>3}  {labels}"));
        }
        let spans = self.spans.lock().expect("no holder panics");
        println!("\n{} spans, of which the last RPC:", spans.len());
        let last =
            spans.iter().filter(|span| span.name.starts_with("Sent.")).max_by_key(|it| it.end_time_unix_nano);
        if let Some(call) = last {
            println!("  {}", call.name);
            for attempt in spans.iter().filter(|span| span.parent_span_id == call.span_id) {
                println!("    {} {}", attempt.name, labels(&attempt.attributes));
                attempt.events.iter().for_each(|it| println!("      {} {}", it.name, labels(&it.attributes)));
            }
        }
    }

    /// What should have arrived and has not.
    fn missing(&self, calls: &BTreeMap<String, u64>) -> Vec<String> {
        let total = calls.values().sum::<u64>();
        let metrics = self.metrics.lock().expect("no holder panics");
        let sum = |name: &str, label: &str| {
            let points = metrics.get(name).into_iter().flat_map(|metric| &metric.points);
            points.filter(|(labels, _)| labels.contains(label)).map(|(_, value)| value).sum::<u64>()
        };
        let spans = self.spans.lock().expect("no holder panics");
        let children = |parent: &Span, name: &str| {
            let child = |span: &&Span| span.parent_span_id == parent.span_id && span.name == name;
            spans.iter().filter(child).count() as u64
        };
        let sent: Vec<_> = spans.iter().filter(|span| span.name.starts_with("Sent.")).collect();
        let root = spans.iter().find(|span| span.name == "shopping");
        let attempts = "grpc.client.attempt.duration";
        let checks = [
            (
                "a started attempt for each call",
                sum("grpc.client.attempt.started", "xds:///greeter") == total,
            ),
            ("the duration of each call", sum("grpc.client.call.duration", "grpc.status=OK") == total),
            ("attempts in the near locality", sum(attempts, r#"zone="priority-0""#) == 5),
            ("attempts in the far locality", sum(attempts, r#"zone="priority-1""#) == 5),
            ("attempts with their cluster", sum(attempts, "grpc.lb.backend_service=greeters") == total),
            ("the disconnection", sum("grpc.subchannel.disconnections", "greeters") == 1),
            ("the open connection", sum("grpc.subchannel.open_connections", r#"zone="priority-1""#) == 1),
            (
                "RPCs below the span of the application",
                root.is_some_and(|root| children(root, "Sent.proxyless.testkit.Echo.Unary") == total),
            ),
            (
                "an attempt below each RPC",
                sent.iter().all(|call| children(call, "Attempt.proxyless.testkit.Echo.Unary") == 1),
            ),
        ];
        checks.iter().filter(|(_, arrived)| !arrived).map(|(what, _)| (*what).to_owned()).collect()
    }
}

fn labels(attributes: &[KeyValue]) -> String {
    let value = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|it| it.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        other => format!("{other:?}"),
    };
    let labels: Vec<_> = attributes.iter().map(|it| format!("{}={}", it.key, value(it))).collect();
    labels.join(" ")
}
