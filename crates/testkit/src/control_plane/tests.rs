//! The control plane, as a minimal ADS client sees it.

use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::*;
use crate::resources::{aggregate_resource, assignment, eds_cluster, listener, simple_route_config};

/// One ADS stream, driven by hand.
struct AdsClient {
    requests: mpsc::UnboundedSender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
}

impl AdsClient {
    async fn try_connect(control_plane: &ControlPlane) -> Result<Self, Status> {
        let channel = Channel::from_shared(format!("http://{}", control_plane.address())).unwrap();
        let channel = channel.connect().await.map_err(|e| Status::unavailable(e.to_string()))?;
        let (requests, outgoing) = mpsc::unbounded_channel();
        let responses = AggregatedDiscoveryServiceClient::new(channel)
            .stream_aggregated_resources(UnboundedReceiverStream::new(outgoing))
            .await?
            .into_inner();
        Ok(Self { requests, responses })
    }

    async fn connect(control_plane: &ControlPlane) -> Self {
        Self::try_connect(control_plane).await.unwrap()
    }

    fn send(&self, type_url: &str, names: &[&str], version: &str, nonce: &str) {
        self.requests
            .send(DiscoveryRequest {
                type_url: type_url.into(),
                resource_names: names.iter().map(ToString::to_string).collect(),
                version_info: version.into(),
                response_nonce: nonce.into(),
                ..Default::default()
            })
            .unwrap();
    }

    fn subscribe(&self, type_url: &str, names: &[&str]) {
        self.send(type_url, names, "", "");
    }

    fn ack(&self, response: &DiscoveryResponse, names: &[&str]) {
        self.send(&response.type_url, names, &response.version_info, &response.nonce);
    }

    async fn receive(&mut self) -> Result<Option<DiscoveryResponse>, Status> {
        tokio::time::timeout(PATIENCE, self.responses.message()).await.expect("a response in time")
    }

    async fn response(&mut self) -> DiscoveryResponse {
        self.receive().await.unwrap().expect("not the end")
    }
}

/// The names of clusters or assignments in a response.
fn names(response: &DiscoveryResponse) -> Vec<String> {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
    let name = |any: &Any| match response.type_url.as_str() {
        CDS => Cluster::decode(&any.value[..]).unwrap().name,
        EDS => ClusterLoadAssignment::decode(&any.value[..]).unwrap().cluster_name,
        other => panic!("{other} is not expected"),
    };
    response.resources.iter().map(name).collect()
}

async fn with_clusters(clusters: &[&str]) -> ControlPlane {
    let control_plane = ControlPlane::start().await.unwrap();
    control_plane.set_all(clusters.iter().map(|name| eds_cluster(name).into()));
    control_plane
}

#[tokio::test]
async fn a_subscription_gets_what_it_names_and_an_ack_is_seen() {
    let control_plane = with_clusters(&["a", "b", "other"]).await;
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(CDS, &["a", "b", "unknown"]);
    let response = client.response().await;
    assert_eq!(names(&response), ["a", "b"]);
    assert_eq!(response.version_info, "1");
    assert_eq!(control_plane.subscriptions(CDS), ["a", "b", "unknown"].map(String::from).into());

    client.ack(&response, &["a", "b", "unknown"]);
    let ack = control_plane.wait_ack(CDS).await.unwrap();
    assert_eq!((ack.version(), ack.nonce()), ("1", response.nonce.as_str()));
    assert_eq!(control_plane.requests().len(), 2);
}

#[tokio::test]
async fn clusters_come_as_a_whole_list_and_removal_is_absence() {
    let control_plane = with_clusters(&["a", "b"]).await;
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(CDS, &["a", "b"]);
    client.response().await;

    control_plane.set(eds_cluster("b").clone());
    let update = client.response().await;
    assert_eq!((names(&update).join(" "), update.version_info.as_str()), ("a b".to_owned(), "2"));

    control_plane.remove(CDS, "a");
    let update = client.response().await;
    assert_eq!((names(&update).join(" "), update.version_info.as_str()), ("b".to_owned(), "3"));

    control_plane.remove(CDS, "b");
    assert!(names(&client.response().await).is_empty());
}

#[tokio::test]
async fn assignments_come_when_they_change_and_only_those() {
    let control_plane = ControlPlane::start().await.unwrap();
    control_plane.set_all([assignment("a", []).into(), assignment("b", []).into()]);
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(EDS, &["a"]);
    let first = client.response().await;
    assert_eq!(names(&first), ["a"]);
    client.ack(&first, &["a", "b"]);
    let second = client.response().await;
    assert_eq!(names(&second), ["b"]);
    assert_ne!(first.nonce, second.nonce);

    control_plane.remove(EDS, "b");
    control_plane.set(assignment("a", []));
    assert_eq!(names(&client.response().await), ["a"]);
}

#[tokio::test]
async fn a_batch_is_one_response() {
    let control_plane = with_clusters(&["a", "b"]).await;
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(CDS, &["a", "b", "c"]);
    client.response().await;
    control_plane.change(|batch| {
        batch.remove(CDS, "a");
        batch.set(eds_cluster("c"));
    });
    assert_eq!(names(&client.response().await), ["b", "c"]);
    assert_eq!(control_plane.version(CDS), "2");
}

#[tokio::test]
async fn a_name_that_was_dropped_is_sent_again_when_it_comes_back() {
    let control_plane = ControlPlane::start().await.unwrap();
    control_plane.set(assignment("a", []));
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(EDS, &["a"]);
    let response = client.response().await;
    client.ack(&response, &[]);
    client.ack(&response, &["a"]);
    assert_eq!(names(&client.response().await), ["a"]);
}

#[tokio::test]
async fn an_answer_to_an_older_response_changes_nothing() {
    let control_plane = with_clusters(&["a"]).await;
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(CDS, &["a"]);
    let old = client.response().await;
    control_plane.set(eds_cluster("a"));
    let new = client.response().await;
    client.ack(&old, &[]);
    client.ack(&new, &["a"]);
    assert_eq!(control_plane.wait_ack(CDS).await.unwrap().nonce(), new.nonce);
    assert_eq!(control_plane.subscriptions(CDS), ["a".to_owned()].into());
}

#[tokio::test]
async fn a_nack_is_seen_with_its_reason_and_not_answered() {
    let control_plane = with_clusters(&["a"]).await;
    control_plane.corrupt(CDS, "a");
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(CDS, &["a"]);
    let response = client.response().await;
    assert!(eds_cluster("").encode_to_vec() != response.resources[0].value);
    let nack = DiscoveryRequest {
        type_url: CDS.into(),
        resource_names: vec!["a".into()],
        response_nonce: response.nonce,
        error_detail: Some(envoy_types::pb::google::rpc::Status {
            code: Code::InvalidArgument as i32,
            message: "cannot decode".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    client.requests.send(nack).unwrap();
    let seen = control_plane.wait_nack(CDS).await.unwrap();
    assert!(seen.is_nack());
    assert_eq!(seen.error().unwrap().message, "cannot decode");

    control_plane.set(eds_cluster("a"));
    assert_eq!(client.response().await.version_info, "3", "the first response after the NACK is the repair");
}

#[tokio::test]
async fn a_withheld_type_is_silent_until_released() {
    let control_plane = with_clusters(&["a"]).await;
    control_plane.set(assignment("a", []));
    control_plane.withhold(CDS);
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(CDS, &["a"]);
    client.subscribe(EDS, &["a"]);
    assert_eq!(client.response().await.type_url, EDS);
    control_plane.release(CDS);
    assert_eq!(client.response().await.type_url, CDS);
}

#[tokio::test]
async fn a_withheld_resource_stays_as_it_was_until_released() {
    let control_plane = with_clusters(&["a", "b"]).await;
    control_plane.withhold((CDS, "a"));
    control_plane.withhold((CDS, "c"));
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(CDS, &["a", "b", "c"]);
    client.response().await;

    control_plane.remove(CDS, "a");
    control_plane.set_all([eds_cluster("b").into(), eds_cluster("c").into()]);
    assert_eq!(names(&client.response().await), ["a", "b"]);
    control_plane.release((CDS, "a"));
    assert_eq!(names(&client.response().await), ["b"]);
    control_plane.release((CDS, "c"));
    assert_eq!(names(&client.response().await), ["b", "c"]);
}

#[tokio::test]
async fn an_aggregate_resource_comes_inside_a_discovery_resource() {
    use envoy_types::pb::envoy::service::discovery::v3::Resource as Wrapper;
    let control_plane = ControlPlane::start().await.unwrap();
    control_plane.set(aggregate_resource("list", ["a", "b"]));
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(AGGREGATE, &["list"]);
    let response = client.response().await;
    let wrapper = Wrapper::decode(&response.resources[0].value[..]).unwrap();
    assert_eq!(wrapper.name, "list");
    assert_eq!(wrapper.resource.unwrap().type_url, AGGREGATE);
}

#[tokio::test]
async fn an_empty_first_request_is_a_wildcard_for_listeners_and_only_there() {
    let control_plane = with_clusters(&[]).await;
    control_plane.set(listener("a", "route"));
    control_plane.set(simple_route_config("route", "a"));
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(RDS, &[]);
    client.subscribe(LDS, &[]);
    let response = client.response().await;
    assert_eq!((response.type_url.as_str(), response.resources.len()), (LDS, 1));
}

#[tokio::test]
async fn responses_can_be_anything() {
    let control_plane = ControlPlane::start().await.unwrap();
    let mut client = AdsClient::connect(&control_plane).await;
    control_plane.wait_open_streams(1).await.unwrap();
    let nonces = control_plane.send(EDS, &[Any { type_url: "nonsense".into(), value: vec![1, 2] }]);
    let response = client.response().await;
    assert_eq!(nonces, std::slice::from_ref(&response.nonce));
    assert_eq!(response.resources[0].type_url, "nonsense");

    let message = DiscoveryResponse { nonce: "mine".into(), ..Default::default() };
    control_plane.send_response(&message);
    assert_eq!(client.response().await, message);

    control_plane.send_bytes(vec![0xff; 3]);
    assert_eq!(client.receive().await.unwrap_err().code(), Code::Internal, "prost cannot decode that");
}

#[tokio::test]
async fn streams_can_be_closed_failed_and_refused() {
    let control_plane = ControlPlane::start().await.unwrap();
    let mut first = AdsClient::connect(&control_plane).await;
    control_plane.wait_open_streams(1).await.unwrap();
    control_plane.close_streams();
    assert_eq!(first.receive().await.unwrap(), None);

    let mut second = AdsClient::connect(&control_plane).await;
    control_plane.fail_streams(Status::aborted("go"));
    assert_eq!(second.receive().await.unwrap_err().code(), Code::Aborted);
    control_plane.wait_open_streams(0).await.unwrap();

    control_plane.refuse_streams(Status::resource_exhausted("full"));
    let refused = AdsClient::try_connect(&control_plane).await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    control_plane.accept_streams();
    AdsClient::connect(&control_plane).await;
    control_plane.wait_streams_opened(4).await.unwrap();
}

#[tokio::test]
async fn it_stops_and_restarts_on_the_same_port_with_its_resources() {
    let control_plane = with_clusters(&["a"]).await;
    let address = control_plane.address();
    let mut client = AdsClient::connect(&control_plane).await;
    client.subscribe(CDS, &["a"]);
    client.response().await;
    control_plane.stop().await;
    assert!(client.receive().await.is_err(), "the connection is reset");
    assert_eq!((control_plane.open_streams(), control_plane.connections()), (0, 0));
    assert!(AdsClient::try_connect(&control_plane).await.is_err());

    control_plane.restart().await.unwrap();
    assert_eq!(control_plane.address(), address);
    let mut client = AdsClient::connect(&control_plane).await;
    client.send(CDS, &["a"], "1", "");
    assert_eq!(names(&client.response().await), ["a"]);
    assert_eq!(control_plane.requests().last().unwrap().stream(), 2);
}

#[tokio::test]
async fn requests_are_found_in_the_past_and_the_future_and_else_time_is_up() {
    let control_plane = with_clusters(&[]).await.with_patience(Duration::from_millis(50));
    let client = AdsClient::connect(&control_plane).await;
    client.subscribe(LDS, &["x"]);
    for _ in 0..2 {
        let found = control_plane.wait_for_request(|r| r.type_url() == LDS).await.unwrap();
        assert_eq!(found.names(), ["x"]);
    }
    let error = control_plane.wait_for_request_after(1, |_| true).await.unwrap_err().to_string();
    assert!(error.contains("50ms") && error.contains("Listener [\"x\"]"), "{error}");
    assert!(control_plane.wait_ack(LDS).await.is_err());
    assert!(control_plane.wait_subscriptions(LDS, &["x"]).await.is_ok());
}

#[tokio::test]
async fn a_dropped_control_plane_is_gone() {
    let control_plane = ControlPlane::start().await.unwrap();
    let address = control_plane.address();
    let mut client = AdsClient::connect(&control_plane).await;
    drop(control_plane);
    assert!(client.receive().await.is_err());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn the_bootstrap_names_the_server() {
    let control_plane = ControlPlane::start().await.unwrap();
    let text = control_plane.bootstrap_json();
    let bootstrap: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(bootstrap["xds_servers"][0]["server_uri"], control_plane.address().to_string());
}

#[tokio::test]
async fn load_reports_are_asked_for_added_up_and_cut() {
    use envoy_types::pb::envoy::config::endpoint::v3::{ClusterStats, UpstreamLocalityStats};
    use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
    use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;

    let control_plane = ControlPlane::start().await.unwrap();
    control_plane.set_load_interval(Duration::from_millis(2500));
    let channel = Channel::from_shared(format!("http://{}", control_plane.address())).unwrap();
    let mut client = LoadReportingServiceClient::new(channel.connect().await.unwrap());
    let (requests, outgoing) = mpsc::unbounded_channel();
    requests.send(LoadStatsRequest::default()).unwrap();
    let mut responses =
        client.stream_load_stats(UnboundedReceiverStream::new(outgoing)).await.unwrap().into_inner();
    let request = responses.message().await.unwrap().unwrap();
    assert!(request.send_all_clusters && request.clusters.is_empty());
    let interval = request.load_reporting_interval.unwrap();
    assert_eq!((interval.seconds, interval.nanos), (2, 500_000_000));
    // New requests reach open streams.
    control_plane.set_load_clusters(Some(&["c"]));
    let request = responses.message().await.unwrap().unwrap();
    assert!(!request.send_all_clusters);
    assert_eq!(request.clusters, ["c"]);
    for _ in 0..2 {
        let of_locality = UpstreamLocalityStats {
            total_issued_requests: 2,
            total_successful_requests: 1,
            total_requests_in_progress: 1,
            ..Default::default()
        };
        let stats = ClusterStats {
            cluster_name: "c".into(),
            upstream_locality_stats: vec![of_locality],
            total_dropped_requests: 3,
            ..Default::default()
        };
        requests.send(LoadStatsRequest { cluster_stats: vec![stats], ..Default::default() }).unwrap();
    }
    let load = control_plane.wait_load("c", |load| load.reports == 2).await.unwrap();
    assert_eq!((load.issued, load.succeeded, load.in_progress, load.dropped), (4, 2, 1, 6));
    let report = control_plane.wait_load_report(|report| report.cluster("c").is_some()).await.unwrap();
    assert_eq!((report.stream(), control_plane.load_reports().len()), (1, 3));
    assert_eq!(control_plane.load("other"), Load::default());
    control_plane.close_load_streams();
    assert!(responses.message().await.unwrap().is_none());
    control_plane.wait_open_load_streams(0).await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_read_is_heard_all_the_same() {
    // More than the windows of HTTP/2 let through, both ways.
    let names: Vec<String> = (0..400).map(|number| format!("cluster-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let control_plane = with_clusters(&names).await;
    let client = AdsClient::connect(&control_plane).await;
    for count in 1..=names.len() {
        client.subscribe(CDS, &names[..count]);
    }
    control_plane.wait_subscriptions(CDS, &names).await.unwrap();
}
