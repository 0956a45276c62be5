//! `/metrics`: gRPC's standard metrics of a mesh that fails, retries and reconnects, as Prometheus reads them.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::*;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::route::v3::RetryPolicy;
use envoy_types::pb::envoy::config::route::v3::retry_policy::RetryBackOff;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use http_body_util::BodyExt as _;
use proxyless::XdsChannel;
use proxyless_admin::{Admin, AdminServer, MetricStore};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS};
use tonic::Code;
use tower::{Service as _, ServiceExt as _};

/// A mesh, and a channel whose metrics are served.
struct Metered {
    rig: Rig,
    channel: XdsChannel,
    admin: AdminServer,
}

impl Metered {
    async fn start() -> Self {
        let rig = Rig::start().await;
        let store = MetricStore::new();
        let channel = rig.builder(&format!("xds:///{SERVICE}")).recorder(store.clone()).build().unwrap();
        let admin = Admin::default().client_pool(rig.pool.clone()).metrics(store).serve(0).await.unwrap();
        Self { rig, channel, admin }
    }

    async fn get(&self, path: &str) -> String {
        let uri = format!("http://{}{path}", self.admin.address());
        let mut channel = tonic::transport::Endpoint::from_shared(uri.clone()).unwrap().connect_lazy();
        let request = http::Request::get(uri).body(tonic::body::Body::empty()).unwrap();
        let response = channel.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(content_type.starts_with("application/openmetrics-text"), "{content_type}");
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    /// The value of each sample of a metric, by its labels.
    async fn samples(&self, name: &str) -> BTreeMap<String, f64> {
        let text = self.get("/metrics").await;
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        let sample = |line: &str| {
            let (labels, value) = line.rsplit_once("} ").unwrap();
            (labels.to_owned(), value.parse().unwrap())
        };
        lines.map(sample).collect()
    }

    /// The sum over the samples whose labels contain all of these.
    async fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let samples = self.samples(name).await;
        let has = |(of, _): &(&String, &f64)| labels.iter().all(|label| of.contains(label));
        samples.iter().filter(has).map(|(_, value)| value).sum()
    }

    /// Waits until a sum has this value.
    async fn wait(&self, name: &str, labels: &[&str], value: f64) {
        let reached = async {
            while self.sum(name, labels).await != value {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            panic!("{name} {labels:?} is not {value}:\n{}", self.get("/metrics").await);
        }
    }
}

const METHOD: &str = r#"grpc_method="proxyless.testkit.Echo/Unary""#;
const TARGET: &str = r#"grpc_target="xds:///greeter.example:50051""#;
const CLUSTER: &str = r#"grpc_lb_backend_service="cluster""#;

#[tokio::test]
async fn a66_a89_calls_and_attempts_have_method_target_status_and_cluster() -> TestResult {
    let mesh = Metered::start().await;
    for _ in 0..3 {
        ask(&mesh.channel).await?;
    }
    mesh.rig.backend.fail_with(Code::NotFound);
    assert_eq!(ask(&mesh.channel).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(mesh.sum("grpc_client_attempt_started_total", &[METHOD, TARGET]).await, 4.0);
    for (status, calls) in [(r#"grpc_status="OK""#, 3.0), (r#"grpc_status="NOT_FOUND""#, 1.0)] {
        let count = async |name: &str, place: &str| mesh.sum(name, &[METHOD, TARGET, status, place]).await;
        assert_eq!(count("grpc_client_call_duration_seconds_count", "").await, calls);
        assert_eq!(count("grpc_client_attempt_duration_seconds_count", CLUSTER).await, calls);
        let size = "grpc_client_attempt_sent_total_compressed_message_size_bytes";
        assert_eq!(count(&format!("{size}_count"), CLUSTER).await, calls);
        // EchoRequest { message: "hello" }: a tag, a length and five bytes.
        assert_eq!(count(&format!("{size}_sum"), CLUSTER).await, 7.0 * calls);
    }
    let received = "grpc_client_attempt_rcvd_total_compressed_message_size_bytes_sum";
    assert!(mesh.sum(received, &[r#"grpc_status="OK""#]).await > 0.0);
    assert_eq!(mesh.sum(received, &[r#"grpc_status="NOT_FOUND""#]).await, 0.0);
    let seconds = mesh.sum("grpc_client_call_duration_seconds_sum", &[METHOD]).await;
    assert!(seconds > 0.0 && seconds < PATIENCE.as_secs_f64(), "{seconds}");
    assert!(mesh.samples("grpc_client_call_retries_count").await.is_empty(), "A96: 0 is not recorded");
    Ok(())
}

#[tokio::test]
async fn a66_a_cancelled_call_is_recorded() -> TestResult {
    let mesh = Metered::start().await;
    let mut request = tonic::Request::new(EchoRequest::new("hello"));
    request.extensions_mut().insert(proxyless::WaitForReady);
    mesh.rig.backend.kill().await;
    let channel = mesh.channel.clone();
    let call = tokio::spawn(async move { EchoClient::new(channel).unary(request).await.map(drop) });
    mesh.wait("grpc_client_attempt_started_total", &[METHOD], 1.0).await;
    call.abort();
    let cancelled = [METHOD, r#"grpc_status="CANCELLED""#];
    mesh.wait("grpc_client_call_duration_seconds_count", &cancelled, 1.0).await;
    mesh.wait("grpc_client_attempt_duration_seconds_count", &cancelled, 1.0).await;
    Ok(())
}

#[tokio::test]
async fn a94_connections_are_counted_with_the_reason_of_their_end() -> TestResult {
    let mesh = Metered::start().await;
    ask(&mesh.channel).await?;
    let place = [TARGET, CLUSTER];
    assert_eq!(mesh.sum("grpc_subchannel_connection_attempts_succeeded_total", &place).await, 1.0);
    let open = [TARGET, CLUSTER, r#"grpc_security_level="none""#];
    assert_eq!(mesh.sum("grpc_subchannel_open_connections", &open).await, 1.0);
    mesh.rig.backend.goaway();
    let reason = |reason: &str| format!(r#"grpc_disconnect_error="{reason}""#);
    let disconnections = "grpc_subchannel_disconnections_total";
    mesh.wait(disconnections, &[TARGET, CLUSTER, &reason("GOAWAY NO_ERROR")], 1.0).await;
    ask(&mesh.channel).await?;
    mesh.wait("grpc_subchannel_open_connections", &open, 1.0).await;
    mesh.rig.backend.kill().await;
    mesh.wait("grpc_subchannel_open_connections", &open, 0.0).await;
    mesh.wait(disconnections, &place, 2.0).await;
    // A78's names of the same facts.
    assert_eq!(mesh.sum("grpc_lb_pick_first_disconnections_total", &[TARGET]).await, 2.0);
    assert_eq!(mesh.sum("grpc_lb_pick_first_connection_attempts_succeeded_total", &[TARGET]).await, 2.0);
    assert_eq!(ask(&mesh.channel).await.unwrap_err().code(), Code::Unavailable);
    let failed = mesh.sum("grpc_subchannel_connection_attempts_failed_total", &place).await;
    assert!(failed >= 1.0, "{failed}");
    assert!(mesh.sum("grpc_lb_pick_first_connection_attempts_failed_total", &[TARGET]).await >= failed);
    Ok(())
}

#[tokio::test]
async fn a89_an_attempt_without_a_connection_has_its_cluster() -> TestResult {
    let mesh = Metered::start().await;
    mesh.rig.backend.kill().await;
    assert_eq!(ask(&mesh.channel).await.unwrap_err().code(), Code::Unavailable);
    let failed = [METHOD, r#"grpc_status="UNAVAILABLE""#, CLUSTER];
    assert_eq!(mesh.sum("grpc_client_attempt_duration_seconds_count", &failed).await, 1.0);
    Ok(())
}

#[tokio::test]
async fn a96_retries_are_recorded_with_their_delay() -> TestResult {
    let mesh = Metered::start().await;
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
    mesh.rig.plane.set(route_config("route", [virtual_host(["*"], [route])]));
    mesh.rig.backend.fail_with(Code::Unavailable);
    assert_eq!(ask(&mesh.channel).await.unwrap_err().code(), Code::Unavailable);
    // One retry, unless the policy says otherwise.
    assert_eq!(mesh.sum("grpc_client_attempt_started_total", &[METHOD]).await, 2.0);
    let unavailable = [METHOD, r#"grpc_status="UNAVAILABLE""#];
    assert_eq!(mesh.sum("grpc_client_attempt_duration_seconds_count", &unavailable).await, 2.0);
    assert_eq!(mesh.sum("grpc_client_call_duration_seconds_count", &unavailable).await, 1.0);
    assert_eq!(mesh.sum("grpc_client_call_retries_sum", &[METHOD, TARGET]).await, 1.0);
    assert_eq!(mesh.sum("grpc_client_call_retry_delay_seconds_count", &[METHOD, TARGET]).await, 1.0);
    assert!(mesh.samples("grpc_client_call_transparent_retries_count").await.is_empty());
    Ok(())
}

#[tokio::test]
async fn a91_ejections_are_counted_by_method_and_cluster() -> TestResult {
    let mesh = Metered::start().await;
    let (b, c) = (Backend::start("b").await?, Backend::start("c").await?);
    let detection = outlier_detection(Duration::from_millis(500), Duration::from_secs(300));
    let detection = detection.failure_percentage(50, 2, 3).max_ejection_percent(30);
    mesh.rig.plane.set_all([
        eds_cluster("cluster").outlier_detection(detection).into(),
        priorities("cluster", [[&mesh.rig.backend, &b, &c]]).into(),
    ]);
    b.fail_with(Code::Internal);
    c.fail_with(Code::Internal);
    let method = r#"detection_method="failure_percentage""#;
    let enforced = "grpc_lb_outlier_detection_ejections_enforced_total";
    let found = async {
        while mesh.sum(enforced, &[method, CLUSTER, TARGET]).await < 1.0
            || mesh
                .sum(
                    "grpc_lb_outlier_detection_ejections_unenforced_total",
                    &[r#"reason="max_ejection_overflow""#],
                )
                .await
                < 1.0
        {
            // Enough for each endpoint within an interval.
            for _ in 0..30 {
                let _ = ask(&mesh.channel).await;
            }
        }
    };
    if tokio::time::timeout(PATIENCE, found).await.is_err() {
        panic!("no ejection:\n{}", mesh.get("/metrics").await);
    }
    assert_eq!(mesh.sum(enforced, &[method]).await, 1.0, "a third of three endpoints");
    Ok(())
}

#[tokio::test]
async fn a78_a89_scheduler_updates_are_counted_by_cluster_and_locality() -> TestResult {
    let mesh = Metered::start().await;
    let policy = weighted_round_robin(Duration::from_millis(100));
    mesh.rig.plane.set(eds_cluster("cluster").lb_policy(wrr_locality(extension("wrr", &policy))));
    ask(&mesh.channel).await?;
    let place = [TARGET, CLUSTER, r#"grpc_lb_locality="{region="#];
    // The backend reports no load.
    let recorded = async {
        while mesh.sum("grpc_lb_wrr_rr_fallback_total", &place).await < 2.0 {
            ask(&mesh.channel).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, recorded).await?;
    assert!(mesh.sum("grpc_lb_wrr_endpoint_weight_not_yet_usable_total", &place).await >= 2.0);
    assert!(mesh.sum("grpc_lb_wrr_endpoint_weights_count", &place).await >= 2.0);
    assert_eq!(mesh.sum("grpc_lb_wrr_endpoint_weights_sum", &place).await, 0.0);
    assert!(
        mesh.samples("grpc_lb_wrr_endpoint_weight_stale_total").await.values().all(|&count| count == 0.0)
    );
    Ok(())
}

#[tokio::test]
async fn a78_the_xds_client_counts_resources_by_server_type_and_state() -> TestResult {
    let mesh = Metered::start().await;
    ask(&mesh.channel).await?;
    let server = format!(r#"grpc_xds_server="{}""#, mesh.rig.plane.address());
    let cluster = r#"grpc_xds_resource_type="envoy.config.cluster.v3.Cluster""#;
    mesh.wait("grpc_xds_client_connected", &[TARGET, &server], 1.0).await;
    mesh.wait("grpc_xds_client_resource_updates_valid_total", &[TARGET, &server, cluster], 1.0).await;
    let state = |state: &str| format!(r#"grpc_xds_cache_state="{state}""#);
    let old = r##"grpc_xds_authority="#old""##;
    mesh.wait("grpc_xds_client_resources", &[TARGET, old, &state("acked")], 4.0).await;
    // A NACK.
    mesh.rig.plane.set(Cluster { eds_cluster_config: None, ..eds_cluster("cluster") });
    mesh.rig.plane.wait_nack(CDS).await?;
    mesh.wait("grpc_xds_client_resource_updates_invalid_total", &[TARGET, &server, cluster], 1.0).await;
    mesh.wait("grpc_xds_client_resources", &[cluster, old, &state("nacked_but_cached")], 1.0).await;
    // The control plane is gone.
    mesh.rig.plane.stop().await;
    mesh.wait("grpc_xds_client_connected", &[TARGET, &server], 0.0).await;
    mesh.wait("grpc_xds_client_server_failure_total", &[TARGET, &server], 1.0).await;
    // With the channel its gauges go, and its counters stay.
    let Metered { rig, channel, admin } = mesh;
    drop(channel);
    let mesh = Metered { channel: rig.channel(), rig, admin };
    mesh.wait("grpc_xds_client_resources", &[TARGET], 0.0).await;
    assert_eq!(mesh.sum("grpc_xds_client_server_failure_total", &[TARGET]).await, 1.0);
    Ok(())
}

#[tokio::test]
async fn a66_generic_methods_are_other() -> TestResult {
    let mesh = Metered::start().await;
    let request = http::Request::post("/some.Service/Anything").header("content-type", "application/grpc");
    let request = request.body(tonic::body::Body::empty())?;
    let response = mesh.channel.clone().call(request).await?;
    drop(response.into_body().collect().await);
    assert_eq!(mesh.sum("grpc_client_attempt_started_total", &[r#"grpc_method="other""#]).await, 1.0);
    Ok(())
}

#[tokio::test]
async fn a66_the_target_is_the_canonical_one() -> TestResult {
    let mesh = Metered::start().await;
    let store = MetricStore::new();
    let channel = mesh.rig.builder(&format!("xds:{SERVICE}")).recorder(store.clone()).build()?;
    ask(&channel).await?;
    let text = tokio::task::spawn_blocking(move || store.to_text()).await?;
    assert!(text.contains(TARGET) && !text.contains(r#"grpc_target="xds:greeter"#), "{text}");
    Ok(())
}

#[tokio::test]
async fn metrics_of_another_server_are_below_our_own_path() -> TestResult {
    let mesh = Metered::start().await;
    ask(&mesh.channel).await?;
    assert_eq!(mesh.get("/proxyless/metrics").await, mesh.get("/metrics").await);
    Ok(())
}
