//! Gauges: values that recorders read when they export (gRFC A78).

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use common::*;
use proxyless::telemetry::instruments::{XDS_CONNECTED, XDS_RESOURCES};
use proxyless::telemetry::{GaugeSource, Instrument, Label, LabelValue, Recorder as _};
use proxyless_otel::OpenTelemetry;

/// An xDS client for this target.
struct Client {
    target: &'static str,
    connected: f64,
    resources: f64,
    reads: AtomicUsize,
}

impl GaugeSource for Client {
    fn read(&self, observe: &mut dyn FnMut(&'static Instrument, &[LabelValue], f64)) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let target = (Label::Target, self.target.into());
        let server = (Label::XdsServer, "127.0.0.1:1".into());
        observe(&XDS_CONNECTED, &[target.clone(), server], self.connected);
        let of = |state: &str| {
            [
                target.clone(),
                (Label::XdsAuthority, "#old".into()),
                (Label::XdsCacheState, state.into()),
                (Label::XdsResourceType, "envoy.config.listener.v3.Listener".into()),
            ]
        };
        observe(&XDS_RESOURCES, &of("acked"), self.resources);
        observe(&XDS_RESOURCES, &of("requested"), 1.0);
    }
}

fn client(target: &'static str, connected: f64, resources: f64) -> Arc<Client> {
    Arc::new(Client { target, connected, resources, reads: AtomicUsize::new(0) })
}

fn weak(client: &Arc<Client>) -> Weak<dyn GaugeSource> {
    let weak: Weak<Client> = Arc::downgrade(client);
    weak
}

const CONNECTED: &str = "grpc.xds_client.connected";
const RESOURCES: &str = "grpc.xds_client.resources";
const ACKED: (&str, &str) = ("grpc.xds.cache_state", "acked");

#[tokio::test]
async fn a78_gauges_are_read_once_for_each_collection_and_end_with_their_source() -> TestResult {
    let meters = Meters::new();
    let otel = OpenTelemetry::builder().meter_provider(&meters.provider);
    let otel = otel.enable_metrics([CONNECTED, RESOURCES]).build()?;
    assert!(meters.collect().await.names().is_empty());
    let (a, b) = (client("xds:///a", 1.0, 2.0), client("xds:///b", 0.0, 3.0));
    // The same facts from another source.
    let again = client("xds:///a", 1.0, 2.0);
    [&a, &b, &again].iter().for_each(|client| otel.observe(weak(client)));
    for collection in 1..=3 {
        let exported = meters.collect().await;
        assert_eq!(exported.names(), [CONNECTED, RESOURCES]);
        assert_eq!(exported.family(CONNECTED).shape, Shape::Gauge);
        assert_eq!(exported.family(RESOURCES).unit, "{resource}");
        assert_eq!(exported.sum(CONNECTED, &[("grpc.target", "xds:///a")]), 1.0);
        assert_eq!(exported.sum(CONNECTED, &[("grpc.target", "xds:///b")]), 0.0);
        assert_eq!(exported.family(CONNECTED).points.len(), 2);
        assert_eq!(exported.sum(RESOURCES, &[("grpc.target", "xds:///a"), ACKED]), 2.0);
        assert_eq!(exported.family(RESOURCES).points.len(), 4);
        assert_eq!(a.reads.load(Ordering::Relaxed), collection);
    }
    drop((a, again));
    assert_eq!(meters.collect().await.family(CONNECTED).points.len(), 1);
    drop(b);
    assert!(meters.collect().await.names().is_empty());
    Ok(())
}

#[tokio::test]
async fn a79_gauges_that_are_not_enabled_are_not_exported() -> TestResult {
    let meters = Meters::new();
    let otel =
        OpenTelemetry::builder().meter_provider(&meters.provider).enable_metrics([RESOURCES]).build()?;
    let source = client("xds:///a", 1.0, 2.0);
    otel.observe(weak(&source));
    for _ in 0..2 {
        assert_eq!(meters.collect().await.names(), [RESOURCES]);
    }
    drop(otel);
    assert!(meters.collect().await.names().is_empty(), "the gauges end with the plugin");
    Ok(())
}

#[tokio::test]
async fn targets_that_are_recorded_as_other_share_their_gauges() -> TestResult {
    let meters = Meters::new();
    let otel =
        OpenTelemetry::builder().meter_provider(&meters.provider).enable_metrics([CONNECTED, RESOURCES]);
    let otel = otel.target_filter(|_| false).build()?;
    let sources = [client("xds:///a", 1.0, 2.0), client("xds:///b", 0.0, 3.0), client("xds:///b", 0.0, 3.0)];
    sources.iter().for_each(|client| otel.observe(weak(client)));
    let exported = meters.collect().await;
    let other = ("grpc.target", "other");
    assert_eq!(exported.sum(RESOURCES, &[other, ACKED]), 5.0, "all resources");
    assert_eq!(exported.sum(CONNECTED, &[other]), 0.0, "not all are connected");
    assert_eq!(exported.family(CONNECTED).points.len(), 1);
    Ok(())
}
