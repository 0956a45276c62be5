//! A mesh whose metrics and spans are kept in memory by OpenTelemetry's SDK.
#![allow(dead_code, unused_imports)] // each test binary uses a part

mod exported;
mod prometheus;
mod refusing;

use std::collections::BTreeSet;
use std::time::Duration;

use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use proxyless::telemetry::instruments;
use proxyless::{Bootstrap, ClientPool, XdsChannel, XdsChannelBuilder};
use proxyless_otel::OpenTelemetry;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::envoy_types::pb::envoy::config::route::v3::RetryPolicy;
use proxyless_testkit::envoy_types::pb::envoy::config::route::v3::retry_policy::RetryBackOff;
use proxyless_testkit::envoy_types::pb::envoy::config::route::v3::route::Action;
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tonic::Request;

pub(crate) use exported::{Exported, Family, Shape};
pub(crate) use prometheus::Prometheus;
pub(crate) use refusing::RefusingServer;

pub(crate) const SERVICE: &str = "greeter.example:50051";
pub(crate) const TARGET: &str = "xds:///greeter.example:50051";
/// Far beyond anything a healthy test needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A control plane and one backend, `a`, in the cluster `cluster` of [`SERVICE`].
pub(crate) struct Mesh {
    pub(crate) plane: ControlPlane,
    pub(crate) backend: Backend,
}

impl Mesh {
    pub(crate) async fn start() -> Self {
        let backend = Backend::start("a").await.unwrap();
        let plane = ControlPlane::start().await.unwrap();
        plane.set_all([
            listener(SERVICE, "route").into(),
            simple_route_config("route", "cluster").into(),
            eds_cluster("cluster").into(),
            priorities("cluster", [[&backend]]).into(),
        ]);
        Self { plane, backend }
    }

    /// A builder of a channel with its own xDS client.
    pub(crate) fn builder(&self) -> XdsChannelBuilder {
        let bootstrap = Bootstrap::from_json(&self.plane.bootstrap_json()).unwrap();
        XdsChannel::builder(TARGET).bootstrap(bootstrap).client_pool(ClientPool::new())
    }

    /// A channel with all metrics and all optional labels.
    pub(crate) fn metered(&self) -> (Meters, XdsChannel) {
        let (meters, channel) = self.metered_with(|builder| builder);
        (meters, channel.build().unwrap())
    }

    /// As [`Self::metered`], with further options.
    pub(crate) fn metered_with(
        &self,
        options: impl FnOnce(XdsChannelBuilder) -> XdsChannelBuilder,
    ) -> (Meters, XdsChannelBuilder) {
        let meters = Meters::new();
        let otel = OpenTelemetry::builder().meter_provider(&meters.provider).enable_metrics(all_metrics());
        let otel = otel.optional_labels(optional_labels()).build().unwrap();
        (meters, options(self.builder().recorder(otel)))
    }

    /// Retries RPCs to the cluster once after UNAVAILABLE, at once.
    pub(crate) fn retry(&self) {
        let interval = Some(duration(Duration::from_millis(1)));
        let policy = RetryPolicy {
            retry_on: "unavailable".into(),
            retry_back_off: Some(RetryBackOff { base_interval: interval, max_interval: interval }),
            ..Default::default()
        };
        let mut route = route("cluster");
        if let Some(Action::Route(action)) = &mut route.action {
            action.retry_policy = Some(policy);
        }
        self.plane.set(route_config("route", [virtual_host(["*"], [route])]));
    }
}

/// A provider of meters whose metrics are read here.
pub(crate) struct Meters {
    pub(crate) provider: SdkMeterProvider,
    exporter: InMemoryMetricExporter,
}

impl Meters {
    pub(crate) fn new() -> Self {
        let exporter = InMemoryMetricExporter::default();
        // The tests collect.
        let reader =
            PeriodicReader::builder(exporter.clone()).with_interval(Duration::from_secs(3600)).build();
        Self { provider: SdkMeterProvider::builder().with_reader(reader).build(), exporter }
    }

    /// Collects all metrics.
    pub(crate) async fn collect(&self) -> Exported {
        let (provider, exporter) = (self.provider.clone(), self.exporter.clone());
        // It waits for the thread of the reader.
        let collected = tokio::task::spawn_blocking(move || {
            exporter.reset();
            provider.force_flush().unwrap();
            Exported::new(&exporter.get_finished_metrics().unwrap())
        });
        collected.await.unwrap()
    }

    /// Collects until the metrics pass.
    pub(crate) async fn wait(&self, what: &str, passes: impl Fn(&Exported) -> bool) -> Exported {
        let mut last = None;
        let reached = tokio::time::timeout(PATIENCE, async {
            loop {
                let exported = self.collect().await;
                if passes(&exported) {
                    return exported;
                }
                last = Some(exported);
            }
        });
        let reached = reached.await;
        reached.unwrap_or_else(|_| panic!("the metrics never had {what}: {last:?}"))
    }
}

/// A provider of tracers whose spans are read here.
pub(crate) struct Tracers {
    pub(crate) provider: SdkTracerProvider,
    exporter: InMemorySpanExporter,
}

impl Tracers {
    pub(crate) fn new() -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        Self { provider, exporter }
    }

    /// The spans as soon as there are this many that have ended, in the order of their ends.
    pub(crate) async fn spans(&self, count: usize) -> Vec<SpanData> {
        let reached = async {
            loop {
                let spans = self.exporter.get_finished_spans().unwrap();
                if spans.len() >= count {
                    return spans;
                }
                tokio::task::yield_now().await;
            }
        };
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        reached.unwrap_or_else(|_| panic!("not {count}: {:#?}", self.exporter.get_finished_spans()))
    }
}

/// The names of all metrics.
pub(crate) fn all_metrics() -> impl Iterator<Item = &'static str> {
    instruments::ALL.iter().map(|instrument| instrument.name)
}

/// The keys of all optional labels.
pub(crate) fn optional_labels() -> BTreeSet<&'static str> {
    let labels = instruments::ALL.iter().flat_map(|instrument| instrument.optional_labels);
    labels.map(|label| label.key()).collect()
}

/// One RPC; the name of the backend that answered.
pub(crate) async fn ask(channel: &XdsChannel) -> Result<String, tonic::Status> {
    let mut request = Request::new(EchoRequest::new("hello"));
    request.set_timeout(PATIENCE);
    Ok(EchoClient::new(channel.clone()).unary(request).await?.into_inner().backend)
}
