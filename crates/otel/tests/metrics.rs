//! gRPC's standard metrics of a mesh that fails, retries and reconnects, as OpenTelemetry's SDK exports them.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use common::*;
use http_body_util::BodyExt as _;
use proxyless::XdsChannel;
use proxyless::telemetry::{Default as On, Instrument, Kind, Recorder as _, instruments};
use proxyless_admin::MetricStore;
use proxyless_otel::{OpenTelemetry, OpenTelemetryBuilder};
use proxyless_testkit::envoy_types::pb::envoy::config::cluster::v3::Cluster;
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS};
use tonic::Code;
use tonic::body::Body;
use tower_service::Service as _;

const METHOD: (&str, &str) = ("grpc.method", "proxyless.testkit.Echo/Unary");
const CLUSTER: (&str, &str) = ("grpc.lb.backend_service", "cluster");
const OK: (&str, &str) = ("grpc.status", "OK");
const UNAVAILABLE: (&str, &str) = ("grpc.status", "UNAVAILABLE");

/// Sends RPCs until the result of one passes.
async fn until(channel: &XdsChannel, passes: impl Fn(&Result<String, tonic::Status>) -> bool) {
    let reached = async { while !passes(&ask(channel).await) {} };
    tokio::time::timeout(PATIENCE, reached).await.expect("the expected result of an RPC");
}

/// Reports a load with each response, from which weighted_round_robin makes a weight.
fn add_report(backend: &Backend) {
    // xds.data.orca.v3.OrcaLoadReport: cpu_utilization = 0.5, rps_fractional = 100.
    let report = [&[0x09][..], &0.5f64.to_le_bytes(), &[0x31], &100f64.to_le_bytes()].concat();
    let report = base64::engine::general_purpose::STANDARD_NO_PAD.encode(report);
    backend.add_trailer("endpoint-load-metrics-bin", &report);
}

#[tokio::test]
async fn a66_a79_without_configuration_only_the_stable_metrics_are_recorded() -> TestResult {
    let (mesh, meters) = (Mesh::start().await, Meters::new());
    let otel = OpenTelemetry::builder().meter_provider(&meters.provider).build()?;
    let channel = mesh.builder().recorder(otel).build()?;
    for _ in 0..3 {
        ask(&channel).await?;
    }
    mesh.backend.fail_with(Code::NotFound);
    assert_eq!(ask(&channel).await.unwrap_err().code(), Code::NotFound);
    let exported = meters.collect().await;
    let mut on: Vec<_> =
        instruments::ALL.iter().filter(|it| it.default == On::On).map(|it| it.name).collect();
    on.sort_unstable();
    assert_eq!(exported.names(), on);
    for name in on {
        exported.family(name).check(Instrument::by_name(name).unwrap(), &BTreeSet::new());
    }
    let target = ("grpc.target", TARGET);
    assert_eq!(exported.sum("grpc.client.attempt.started", &[METHOD, target]), 4.0);
    for (status, calls) in [(OK, 3), (("grpc.status", "NOT_FOUND"), 1)] {
        let labels = [METHOD, target, status];
        assert_eq!(exported.count("grpc.client.call.duration", &labels), calls);
        assert_eq!(exported.count("grpc.client.attempt.duration", &labels), calls);
        let size = "grpc.client.attempt.sent_total_compressed_message_size";
        assert_eq!(exported.count(size, &labels), calls);
        // EchoRequest { message: "hello" }: a tag, a length and five bytes.
        assert_eq!(exported.sum(size, &labels), 7.0 * calls as f64);
        let seconds = exported.sum("grpc.client.call.duration", &labels);
        assert!(seconds > 0.0 && seconds < PATIENCE.as_secs_f64(), "{seconds}");
    }
    let received = "grpc.client.attempt.rcvd_total_compressed_message_size";
    // EchoResponse { message: "hello", backend: "a" }.
    assert_eq!(exported.sum(received, &[OK]), 3.0 * 10.0);
    Ok(())
}

/// One mesh with everything: retries, failover, ejections, weights, a NACK and the loss of the control plane. Every metric
/// is checked twice: as the SDK exports it, and at `/metrics`.
#[tokio::test]
async fn a79_every_metric_has_its_name_unit_labels_and_values() -> TestResult {
    let (mesh, store) = (Mesh::start().await, MetricStore::new());
    let (meters, channel) = mesh.metered_with(|builder| builder.recorder(store.clone()));
    let channel = channel.build()?;
    let prometheus = Prometheus::serve(&store).await;
    let (b, c) = (Backend::start("b").await?, Backend::start("c").await?);
    ask(&channel).await?;

    // Retries (A96).
    mesh.retry();
    mesh.backend.fail_with(Code::Unavailable);
    let retried = async {
        while meters.collect().await.count("grpc.client.call.retry_delay", &[]) == 0 {
            assert_eq!(ask(&channel).await.unwrap_err().code(), Code::Unavailable);
        }
    };
    tokio::time::timeout(PATIENCE, retried).await?;
    mesh.backend.succeed();

    // A transparent retry (A96).
    let refusing = RefusingServer::start().await?;
    mesh.plane.set(priorities("cluster", [[refusing.address()]]));
    until(&channel, |result| result.as_ref().is_err_and(|status| status.code() == Code::NotFound)).await;

    // Failover between priorities, and the end of a connection (A94).
    mesh.plane.set(priorities("cluster", [[&mesh.backend], [&b]]));
    until(&channel, |result| result.as_ref().is_ok_and(|name| name == "a")).await;
    mesh.backend.kill().await;
    until(&channel, |result| result.as_ref().is_ok_and(|name| name == "b")).await;
    let failed = |exported: &Exported| exported.sum("grpc.subchannel.connection_attempts_failed", &[]) > 0.0;
    meters.wait("a failed connection attempt", failed).await;
    mesh.backend.restart().await?;

    // Outliers (A91), of which one may be ejected.
    let detection = outlier_detection(Duration::from_millis(500), Duration::from_secs(300));
    let detection = detection.failure_percentage(50, 2, 3).max_ejection_percent(30);
    mesh.plane.set_all([
        eds_cluster("cluster").outlier_detection(detection).into(),
        priorities("cluster", [[&mesh.backend, &b, &c]]).into(),
    ]);
    b.fail_with(Code::Internal);
    c.fail_with(Code::Internal);
    let ejected = async {
        loop {
            let exported = meters.collect().await;
            let sum = |kind: &str| exported.sum(&format!("grpc.lb.outlier_detection.ejections_{kind}"), &[]);
            if sum("enforced") > 0.0 && sum("unenforced") > 0.0 {
                return;
            }
            // Enough for each endpoint within an interval.
            for _ in 0..30 {
                let _ = ask(&channel).await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ejected).await?;

    // Weights (A78): none at first, then those of reports, which expire.
    let mut policy = weighted_round_robin(Duration::from_millis(100));
    policy.weight_expiration_period = Some(duration(Duration::from_millis(300)));
    mesh.plane.set_all([
        eds_cluster("cluster").lb_policy(wrr_locality(extension("wrr", &policy))).into(),
        priorities("cluster", [[&mesh.backend, &b, &c]]).into(),
    ]);
    [&b, &c].iter().for_each(|backend| backend.succeed());
    let unweighted = async {
        while meters.collect().await.sum("grpc.lb.wrr.rr_fallback", &[]) < 2.0 {
            let _ = ask(&channel).await;
        }
    };
    tokio::time::timeout(PATIENCE, unweighted).await?;
    [&mesh.backend, &b, &c].iter().for_each(|backend| add_report(backend));
    let weighted = async {
        while meters.collect().await.sum("grpc.lb.wrr.endpoint_weights", &[]) < 400.0 {
            ask(&channel).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, weighted).await?;
    let stale = |exported: &Exported| exported.sum("grpc.lb.wrr.endpoint_weight_stale", &[]) >= 3.0;
    meters.wait("stale weights", stale).await;

    let open = [("grpc.security_level", "none"), CLUSTER];
    let open = |exported: &Exported| exported.sum("grpc.subchannel.open_connections", &open) == 3.0;
    meters.wait("a connection to each endpoint", open).await;

    // A NACK (A78), and the loss of the control plane.
    mesh.plane.set(Cluster { eds_cluster_config: None, ..eds_cluster("cluster") });
    mesh.plane.wait_nack(CDS).await?;
    mesh.plane.stop().await;
    // A collection is not one moment: the gauges may be older than the counters.
    let lost = |exported: &Exported| {
        exported.sum("grpc.xds_client.server_failure", &[]) == 1.0
            && exported.sum("grpc.xds_client.connected", &[]) == 0.0
    };
    let exported = meters.wait("a lost control plane", lost).await;
    let nacked = ("grpc.xds.cache_state", "nacked_but_cached");
    assert_eq!(exported.sum("grpc.xds_client.resources", &[nacked]), 1.0);

    let scraped = prometheus.scrape().await;
    for instrument in instruments::ALL {
        let name = instrument.name;
        exported.family(name).check(instrument, &optional_labels());
        assert!(!exported.family(name).points.is_empty(), "{name} has values");
        if instrument == &&instruments::ENDPOINT_DURATION {
            assert_eq!(scraped.value(instrument), None, "not at /metrics");
            continue;
        }
        let value = match instrument.kind {
            Kind::Histogram(_) => exported.count(name, &[]) as f64,
            _ => exported.sum(name, &[]),
        };
        let at_metrics = scraped.value(instrument).unwrap_or_else(|| panic!("{name} is not at /metrics"));
        // The weights are recorded again while the metrics are read.
        if name.starts_with("grpc.lb.wrr.") {
            assert!(at_metrics >= value, "{name}: {at_metrics} and {value}");
        } else {
            assert_eq!(at_metrics, value, "{name}");
        }
    }
    let enforced = "grpc.lb.outlier_detection.ejections_enforced";
    let method = ("grpc.lb.outlier_detection.detection_method", "failure_percentage");
    assert_eq!(exported.sum(enforced, &[method, CLUSTER]), 1.0, "a third of three endpoints");
    let reason = ("grpc.lb.outlier_detection.unenforced_reason", "max_ejection_overflow");
    assert!(
        exported.sum("grpc.lb.outlier_detection.ejections_unenforced", &[method, reason, CLUSTER]) >= 1.0
    );
    let near = ("grpc.lb.locality", r#"{region="region", zone="priority-0", sub_zone=""}"#);
    let far = ("grpc.lb.locality", r#"{region="region", zone="priority-1", sub_zone=""}"#);
    assert!(exported.sum("grpc.subchannel.disconnections", &[near, CLUSTER]) >= 1.0);
    assert!(exported.count("grpc.client.attempt.duration", &[METHOD, OK, far, CLUSTER]) >= 1);
    assert!(exported.sum("grpc.lb.wrr.endpoint_weight_not_yet_usable", &[near, CLUSTER]) >= 2.0);
    let backend = mesh.backend.address().to_string();
    assert!(exported.count("proxyless.endpoint.duration", &[("proxyless.endpoint", &backend)]) >= 1);
    Ok(())
}

#[tokio::test]
async fn a96_retries_and_transparent_retries_are_counted_apart() -> TestResult {
    let mesh = Mesh::start().await;
    mesh.retry();
    mesh.backend.fail_with(Code::Unavailable);
    let (meters, channel) = mesh.metered();
    assert_eq!(ask(&channel).await.unwrap_err().code(), Code::Unavailable);
    let exported = meters.collect().await;
    assert_eq!(exported.sum("grpc.client.attempt.started", &[METHOD]), 2.0);
    assert_eq!(exported.count("grpc.client.attempt.duration", &[METHOD, UNAVAILABLE]), 2);
    assert_eq!(exported.count("grpc.client.call.duration", &[METHOD, UNAVAILABLE]), 1);
    assert_eq!(exported.sum("grpc.client.call.retries", &[METHOD]), 1.0);
    assert_eq!(exported.count("grpc.client.call.transparent_retries", &[]), 0, "0 is not recorded");

    let server = RefusingServer::start().await?;
    mesh.plane.set(priorities("cluster", [[server.address()]]));
    let (meters, channel) = mesh.metered();
    assert_eq!(ask(&channel).await.unwrap_err().code(), Code::NotFound);
    let exported = meters.collect().await;
    assert_eq!(exported.sum("grpc.client.call.transparent_retries", &[METHOD]), 1.0);
    assert_eq!(exported.count("grpc.client.call.retries", &[]), 0);
    assert_eq!(exported.sum("grpc.client.attempt.started", &[METHOD]), 2.0);
    Ok(())
}

#[tokio::test]
async fn a89_failover_between_clusters_shows_in_the_backend_service() -> TestResult {
    let mesh = Mesh::start().await;
    let b = Backend::start("b").await?;
    mesh.plane.set_all([
        aggregate_cluster("both", ["cluster", "spare"]).into(),
        eds_cluster("spare").into(),
        priorities("spare", [[&b]]).into(),
        simple_route_config("route", "both").into(),
    ]);
    let (meters, channel) = mesh.metered();
    assert_eq!(ask(&channel).await?, "a");
    mesh.backend.kill().await;
    until(&channel, |result| result.as_ref().is_ok_and(|name| name == "b")).await;
    let exported = meters.collect().await;
    for cluster in [CLUSTER, ("grpc.lb.backend_service", "spare")] {
        assert_eq!(exported.count("grpc.client.attempt.duration", &[METHOD, OK, cluster]), 1, "{cluster:?}");
        assert_eq!(exported.sum("grpc.subchannel.connection_attempts_succeeded", &[cluster]), 1.0);
    }
    Ok(())
}

#[tokio::test]
async fn a66_a79_the_user_chooses_methods_targets_and_channels() -> TestResult {
    let (mesh, meters) = (Mesh::start().await, Meters::new());
    let chosen = |build: fn(OpenTelemetryBuilder) -> OpenTelemetryBuilder| {
        let otel = build(OpenTelemetry::builder().meter_provider(&meters.provider)).build().unwrap();
        mesh.builder().recorder(otel).build().unwrap()
    };
    ask(&chosen(|builder| builder.channel_scope(|target| target != TARGET))).await?;
    assert!(meters.collect().await.names().is_empty(), "the channel is not in scope");
    ask(&chosen(|builder| builder.target_filter(|target| target != TARGET))).await?;
    let started = "grpc.client.attempt.started";
    assert_eq!(meters.collect().await.sum(started, &[("grpc.target", "other")]), 1.0);
    generic(&chosen(|builder| builder)).await?;
    generic(&chosen(|builder| builder.generic_method_filter(|method| method == "some.Service/Anything")))
        .await?;
    let exported = meters.collect().await;
    assert_eq!(exported.sum(started, &[("grpc.method", "other")]), 1.0);
    assert_eq!(exported.sum(started, &[("grpc.method", "some.Service/Anything")]), 1.0);
    ask(&chosen(|builder| builder.disable_metrics(["grpc.client.attempt.started"]))).await?;
    assert_eq!(meters.collect().await.sum(started, &[]), 3.0);
    let durations = meters.collect().await.count("grpc.client.call.duration", &[]);
    ask(&chosen(|builder| builder.disable_all_metrics().enable_metrics(["grpc.client.attempt.started"])))
        .await?;
    assert_eq!(meters.collect().await.sum(started, &[]), 4.0);
    assert_eq!(meters.collect().await.count("grpc.client.call.duration", &[]), durations);
    Ok(())
}

/// One RPC without a generated client.
async fn generic(channel: &XdsChannel) -> TestResult {
    let request = http::Request::post("/some.Service/Anything").header("content-type", "application/grpc");
    let response = channel.clone().call(request.body(Body::empty())?).await?;
    drop(response.into_body().collect().await);
    Ok(())
}

#[test]
fn a79_unknown_names_are_errors_that_list_all_of_them() {
    let error = OpenTelemetry::builder()
        .enable_metrics(["grpc.client.attempt.started", "grpc.a"])
        .disable_metrics(["grpc.b"])
        .optional_labels(["grpc.lb.locality", "grpc.target"])
        .build()
        .unwrap_err();
    assert_eq!(error.unknown_metrics, ["grpc.a", "grpc.b"]);
    assert_eq!(error.to_string(), "unknown metrics: grpc.a, grpc.b; unknown optional labels: grpc.target");
}

#[test]
fn a66_without_a_meter_provider_nothing_is_recorded() {
    let otel = OpenTelemetry::builder().enable_metrics(all_metrics()).build().unwrap();
    assert!(!instruments::ALL.iter().any(|instrument| otel.is_enabled(instrument)));
    assert!(!otel.records_channel(TARGET));
    otel.series(&instruments::ATTEMPT_STARTED, &[]).record(1.0);
}
