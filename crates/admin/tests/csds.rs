//! gRFC A40 as a client of the service sees it.

mod common;

use std::time::{Duration, SystemTime};

use common::*;
use envoy_types::pb::envoy::admin::v3::ClientResourceStatus as Status;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryResponse, ResourceError, ResourceName};
use envoy_types::pb::envoy::service::status::v3::{ClientConfig, ClientStatusRequest, ClientStatusResponse};
use envoy_types::pb::envoy::r#type::matcher::v3::NodeMatcher;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Any, Timestamp};
use envoy_types::pb::google::rpc;
use proxyless::{Bootstrap, ClientSharing, Gates, NackMode, XdsChannel};
use proxyless_testkit::resources::*;
use proxyless_testkit::{AGGREGATE, CDS, EDS, LDS, RDS};
use tonic::Code;

fn is_recent(time: Option<Timestamp>) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    time.is_some_and(|time| (now - 60..=now).contains(&time.seconds))
}

/// A Cluster of type EDS that does not say where its endpoints come from.
fn bad_cluster(name: &str) -> Cluster {
    Cluster { eds_cluster_config: None, ..eds_cluster(name) }
}

/// An assignment whose only priority is 3.
fn bad_assignment(rig: &Rig, name: &str) -> ClusterLoadAssignment {
    assignment(name, [locality("zone", [&rig.backend]).priority(3)])
}

#[tokio::test]
async fn a40_01_02_28_fetch_lists_every_resource() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    let response = rig.fetch().await;
    let listed = response.config.iter().flat_map(|config| &config.generic_xds_configs);
    let mut listed: Vec<_> = listed.map(|r| (r.type_url.as_str(), r.name.as_str())).collect();
    listed.sort_unstable();
    let mut expected = [(LDS, SERVICE), (RDS, "route"), (CDS, "cluster"), (EDS, "cluster")];
    expected.sort_unstable();
    assert_eq!(listed, expected);
    Ok(())
}

#[tokio::test]
async fn a99_25_the_list_of_an_aggregate_is_shown_under_its_own_type_and_name() -> TestResult {
    let rig = Rig::start().await;
    rig.plane.set_all([
        simple_route_config("route", "all").into(),
        aggregate_resource_cluster("all", "order").into(),
        aggregate_resource("order", ["cluster"]),
    ]);
    let mut gates = Gates::default();
    gates.aggregate_cluster_resource = true;
    let channel = rig.builder(&format!("xds:///{SERVICE}")).gates(gates).build()?;
    channel.ready_within(PATIENCE).await?;
    let shown = rig.wait_status(AGGREGATE, "order", Status::Acked).await;
    assert_eq!(shown.version_info, rig.plane.version(AGGREGATE));
    assert!(shown.xds_config.is_some());
    Ok(())
}

#[tokio::test]
async fn a40_26_27_34_40_43_acked_with_version_time_and_content() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    let sent = [
        (LDS, SERVICE, any(&listener(SERVICE, "route"))),
        (RDS, "route", any(&simple_route_config("route", "cluster"))),
        (CDS, "cluster", any(&eds_cluster("cluster"))),
        (EDS, "cluster", any(&priorities("cluster", [[&rig.backend]]))),
    ];
    for (type_url, name, sent) in sent {
        let shown = rig.wait_status(type_url, name, Status::Acked).await;
        assert_eq!(shown.version_info, rig.plane.version(type_url));
        assert!(is_recent(shown.last_updated), "{:?}", shown.last_updated);
        assert_eq!(shown.xds_config, Some(sent));
        assert_eq!(shown.error_state, None);
    }
    Ok(())
}

#[tokio::test]
#[allow(deprecated)] // that the field is deprecated is why it must be empty
async fn a40_38_39_the_list_is_flat_and_the_field_by_type_is_empty() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    let config = rig.fetch().await.config.remove(0);
    assert_eq!(config.generic_xds_configs.len(), 4);
    assert!(config.xds_config.is_empty());
    Ok(())
}

#[tokio::test]
async fn a40_03_04_05_stream_answers_each_request_and_pushes_nothing() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    let (requests, inbox) = tokio::sync::mpsc::channel(1);
    let inbox = tokio_stream::wrappers::ReceiverStream::new(inbox);
    requests.send(ClientStatusRequest::default()).await?;
    let mut answers = rig.csds().stream_client_status(inbox).await?.into_inner();
    let first = answers.message().await?.ok_or("no answer")?;
    assert_eq!(first, rig.fetch().await, "both methods say the same");

    rig.plane.set(eds_cluster("cluster").max_requests(7));
    let version = rig.plane.version(CDS);
    rig.wait_for(CDS, "cluster", "the new version", |r| r.version_info == version).await;
    requests.send(ClientStatusRequest::default()).await?;
    let second = answers.message().await?.ok_or("no answer")?;
    // Had the change been pushed, this would be the push, and one more message would follow.
    assert_eq!(second, rig.fetch().await);
    drop(requests);
    assert_eq!(answers.message().await?, None);
    Ok(())
}

#[tokio::test]
async fn a40_06_16_21_22_23_44_nacked_shows_the_accepted_content_and_the_error() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    let good = rig.plane.version(CDS);
    rig.plane.set(bad_cluster("cluster"));
    let shown = rig.wait_status(CDS, "cluster", Status::Nacked).await;
    assert_eq!(shown.version_info, good);
    assert_eq!(shown.xds_config, Some(any(&eds_cluster("cluster"))));
    let error = shown.error_state.ok_or("no error_state")?;
    assert_eq!(error.version_info, rig.plane.version(CDS));
    assert!(is_recent(error.last_update_attempt));
    let number = |time: Option<Timestamp>| time.map(|time| (time.seconds, time.nanos));
    assert!(number(error.last_update_attempt) > number(shown.last_updated), "the rejected one came later");
    assert!(error.details.contains("eds_cluster_config"), "{}", error.details);
    Ok(())
}

#[tokio::test]
async fn a40_07_08_10_12_one_resource_that_does_not_decode_hides_no_other() -> TestResult {
    let rig = Rig::start().await;
    rig.plane.set(simple_route_config("route", "cluster"));
    let routes = [weighted_route([("good", 1), ("bad", 1), ("worse", 1)])];
    rig.plane.set(route_config("route", [virtual_host(["*"], routes)]));
    rig.plane.withhold(CDS);
    let channel = rig.channel();
    start_rpc(&channel);
    rig.plane.wait_subscriptions(CDS, &["bad", "good", "worse"]).await?;
    let garbage = Any { type_url: CDS.into(), value: vec![0xff; 4] };
    let resources =
        vec![garbage, any(&bad_cluster("bad")), any(&bad_cluster("worse")), any(&eds_cluster("good"))];
    rig.plane.send_response(&response(CDS, "1", resources));
    let nack = rig.plane.wait_nack(CDS).await?;
    let text = &nack.error().ok_or("no NACK")?.message;
    for part in ["resource 0", "bad", "worse"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let good = rig.wait_status(CDS, "good", Status::Acked).await;
    // A46: the errors of others are not its own.
    assert_eq!(good.error_state, None);
    for name in ["bad", "worse"] {
        let shown = rig.wait_status(CDS, name, Status::Nacked).await;
        assert!(shown.error_state.is_some_and(|error| error.details.contains("eds_cluster_config")));
    }
    Ok(())
}

/// Plays the example of A40: endpoints a, b, c; then {a, bad b}; then {b, c}. Returns the dump after each step:
/// status, version, rejected version and reason.
async fn play_the_table(mode: NackMode) -> [[(Status, String, Option<(String, String)>); 3]; 3] {
    let rig = Rig::start().await;
    for name in ["a", "b", "c"] {
        rig.plane.set(eds_cluster(name));
    }
    let routes = [weighted_route([("a", 1), ("b", 1), ("c", 1)])];
    rig.plane.set(route_config("route", [virtual_host(["*"], routes)]));
    rig.plane.withhold(EDS);
    let channel = rig.builder(&format!("xds:///{SERVICE}")).nack_mode(mode).build().unwrap();
    start_rpc(&channel);
    rig.plane.wait_subscriptions(EDS, &["a", "b", "c"]).await.unwrap();
    let good = |name: &str| any(&priorities(name, [[&rig.backend]]));
    let answered = async |version: &str| {
        let nonce = format!("nonce-{version}");
        rig.plane
            .wait_for_request(|request| request.type_url() == EDS && request.nonce() == nonce)
            .await
            .unwrap()
    };
    let shown = async || {
        let mut shown = Vec::new();
        for name in ["a", "b", "c"] {
            let resource = rig.resource(EDS, name).await.unwrap();
            let error = resource.error_state.clone().map(|error| (error.version_info, error.details));
            shown.push((resource.client_status(), resource.version_info, error));
        }
        <[_; 3]>::try_from(shown).unwrap()
    };

    rig.plane.send_response(&response(EDS, "1", vec![good("a"), good("b"), good("c")]));
    assert!(!answered("1").await.is_nack());
    let first = shown().await;
    rig.plane.send_response(&response(EDS, "2", vec![good("a"), any(&bad_assignment(&rig, "b"))]));
    // A40-15: the reason goes to the control plane.
    let nack = answered("2").await;
    assert!(nack.error().unwrap().message.contains("(b)"), "{:?}", nack.error());
    assert_eq!(nack.version(), "1");
    let second = shown().await;
    rig.plane.send_response(&response(EDS, "3", vec![good("b"), good("c")]));
    assert!(!answered("3").await.is_nack());
    [first, second, shown().await]
}

#[tokio::test]
async fn a40_14_to_20_the_table_with_the_outcome_of_a46() {
    let [first, second, third] = play_the_table(NackMode::PerResource).await;
    let acked = |version: &str| (Status::Acked, version.to_owned(), None);
    assert_eq!(first, [acked("1"), acked("1"), acked("1")]);
    // A40-17 under A46: the good one is used, and has no error.
    assert_eq!((&second[0], &second[2]), (&acked("2"), &acked("1")));
    let (status, version, error) = &second[1];
    assert_eq!((*status, version.as_str()), (Status::Nacked, "1"));
    let (rejected, reason) = error.as_ref().unwrap();
    assert_eq!(rejected, "2");
    assert!(reason.contains("priorit"), "{reason}");
    assert_eq!(third, [acked("2"), acked("3"), acked("3")]);
}

#[tokio::test]
async fn a40_11_13_14_to_20_the_table_literally() {
    let [first, second, third] = play_the_table(NackMode::WholeResponse).await;
    let acked = |version: &str| (Status::Acked, version.to_owned(), None);
    assert_eq!(first, [acked("1"), acked("1"), acked("1")]);
    for (status, version, error) in &second[..2] {
        assert_eq!((*status, version.as_str()), (Status::Nacked, "1"));
        let (rejected, reason) = error.as_ref().unwrap();
        assert_eq!(rejected, "2");
        assert!(reason.contains("priorit"), "{reason}");
    }
    assert_eq!(second[2], acked("1"));
    assert_eq!(third, [second[0].clone(), acked("3"), acked("3")]);
}

#[tokio::test]
async fn a40_09_an_undecodable_response_changes_nothing() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    let before = rig.fetch().await;
    rig.plane.send_bytes(&b"\x0a\xff"[..]);
    // The stream continues, and later requests are answered.
    rig.plane.set(eds_cluster("cluster").max_requests(7));
    let version = rig.plane.version(CDS);
    rig.wait_for(CDS, "cluster", "the new version", |r| r.version_info == version).await;
    let without_cds = |response: ClientStatusResponse| {
        let all = response.config.into_iter().flat_map(|config| config.generic_xds_configs);
        all.filter(|resource| resource.type_url != CDS).collect::<Vec<_>>()
    };
    assert_eq!(without_cds(rig.fetch().await), without_cds(before));
    Ok(())
}

#[tokio::test]
async fn a40_24_25_each_client_has_a_config_and_its_scope() -> TestResult {
    let rig = Rig::start().await;
    rig.plane.set(listener("other.example", "route"));
    assert!(rig.fetch().await.config.is_empty(), "no client, no config");
    let _shared = rig.connected().await;
    let own = rig.builder("xds:///other.example").client_sharing(ClientSharing::PerTarget).build()?;
    ask(&own).await?;
    let scopes = async || {
        let config = rig.fetch().await.config;
        config.into_iter().map(|config| config.client_scope).collect::<Vec<_>>()
    };
    let first = format!("xds:///{SERVICE}");
    assert_eq!(scopes().await, [&*first, "xds:///other.example"]);
    // A client that is gone is not shown.
    drop(own);
    rig.plane.wait_open_streams(1).await?;
    assert_eq!(scopes().await, [first]);
    Ok(())
}

#[tokio::test]
async fn a71_04_shared_client_has_a_config_for_each_target() -> TestResult {
    let rig = Rig::start().await;
    rig.plane.set_all([
        listener("other.example", "other route").into(),
        simple_route_config("other route", "cluster").into(),
    ]);
    let _one = rig.connected().await;
    let two = rig.builder("xds:///other.example").build()?;
    ask(&two).await?;
    assert_eq!(rig.plane.streams_opened(), 1, "the client is shared");
    let names = |config: &ClientConfig| {
        let names = config.generic_xds_configs.iter().map(|resource| resource.name.clone());
        names.collect::<Vec<_>>()
    };
    let config = rig.fetch().await.config;
    let [first, second] = &config[..] else { panic!("{config:?}") };
    assert_eq!(
        (first.client_scope.clone(), names(first)),
        (format!("xds:///{SERVICE}"), [SERVICE, "route", "cluster", "cluster"].map(str::to_owned).to_vec(),)
    );
    assert_eq!(
        (second.client_scope.clone(), names(second)),
        (
            "xds:///other.example".to_owned(),
            ["other.example", "other route", "cluster", "cluster"].map(str::to_owned).to_vec(),
        )
    );
    assert_eq!(first.node, second.node);
    Ok(())
}

#[tokio::test]
async fn a40_29_30_31_node_is_the_one_that_the_control_plane_got() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    let node: Node = rig.fetch().await.config.remove(0).node.ok_or("no node")?;
    assert_eq!(Some(&node), rig.plane.requests()[0].message().node.as_ref());
    assert_eq!((node.id.as_str(), node.cluster.as_str()), ("testkit-node", "testkit"));
    assert_eq!(node.locality.map(|locality| locality.sub_zone), Some("sub-zone".to_owned()));
    assert!(!node.user_agent_name.is_empty());
    assert!(node.client_features.iter().any(|feature| feature.contains("overprovisioning")));
    Ok(())
}

#[tokio::test]
async fn a40_30_metadata_of_the_node_is_shown() -> TestResult {
    let rig = Rig::start().await;
    let mut bootstrap: serde_json::Value = serde_json::from_str(&rig.plane.bootstrap_json())?;
    bootstrap["node"]["metadata"] = serde_json::json!({"team": "mesh", "labels": [1, true, null]});
    let bootstrap = Bootstrap::from_json(&bootstrap.to_string())?;
    let channel = rig.builder(&format!("xds:///{SERVICE}")).bootstrap(bootstrap).build()?;
    ask(&channel).await?;
    let node: Node = rig.fetch().await.config.remove(0).node.ok_or("no node")?;
    assert_eq!(Some(&node), rig.plane.requests()[0].message().node.as_ref());
    let fields = node.metadata.ok_or("no metadata")?.fields;
    assert_eq!(fields["team"].kind, Some(Kind::StringValue("mesh".into())));
    let Some(Kind::ListValue(labels)) = &fields["labels"].kind else { panic!("{fields:?}") };
    assert_eq!(labels.values.len(), 3);
    Ok(())
}

#[tokio::test]
async fn a40_32_v2_is_unimplemented() -> TestResult {
    let rig = Rig::start().await;
    let mut grpc = tonic::client::Grpc::new(rig.admin_channel());
    grpc.ready().await?;
    let path = "/envoy.service.status.v2.ClientStatusDiscoveryService/FetchClientStatus".parse()?;
    let codec = tonic_prost::ProstCodec::<ClientStatusRequest, ClientStatusResponse>::default();
    let request = tonic::Request::new(ClientStatusRequest::default());
    let status = grpc.unary(request, path, codec).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    Ok(())
}

#[tokio::test]
async fn a40_33_34_bytes_and_type_url_are_those_received() -> TestResult {
    let rig = Rig::start().await;
    let mut sent = any(&eds_cluster("cluster"));
    // Field 1000, varint 1: nobody knows it.
    sent.value.extend([0xc0, 0x3e, 0x01]);
    rig.plane.set(proxyless_testkit::Resource::raw(CDS, "cluster", sent.clone()));
    let _channel = rig.connected().await;
    assert_eq!(rig.wait_status(CDS, "cluster", Status::Acked).await.xds_config, Some(sent));
    Ok(())
}

#[tokio::test]
async fn a40_35_a_resource_leaves_with_its_last_subscription() -> TestResult {
    let rig = Rig::start().await;
    let channel = rig.connected().await;
    rig.plane.set_all([
        eds_cluster("other").into(),
        priorities("other", [[&rig.backend]]).into(),
        simple_route_config("route", "other").into(),
    ]);
    rig.wait_status(EDS, "other", Status::Acked).await;
    rig.plane.wait_subscriptions(CDS, &["other"]).await?;
    rig.plane.wait_subscriptions(EDS, &["other"]).await?;
    for type_url in [CDS, EDS] {
        assert_eq!(rig.resource(type_url, "cluster").await, None);
    }
    drop(channel);
    rig.plane.wait_open_streams(0).await?;
    assert!(rig.fetch().await.config.is_empty());
    Ok(())
}

#[tokio::test]
async fn a40_36_a_node_matcher_is_refused() -> TestResult {
    let rig = Rig::start().await;
    let request =
        || ClientStatusRequest { node_matchers: vec![NodeMatcher::default()], ..Default::default() };
    let status = rig.csds().fetch_client_status(request()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let mut answers = rig.csds().stream_client_status(tokio_stream::once(request())).await?.into_inner();
    assert_eq!(answers.message().await.unwrap_err().code(), Code::InvalidArgument);
    Ok(())
}

#[tokio::test]
async fn a40_41_requested_has_no_content() -> TestResult {
    let rig = Rig::start().await;
    rig.plane.withhold(CDS);
    let channel = rig.channel();
    let rpc = start_rpc(&channel);
    let shown = rig.wait_status(CDS, "cluster", Status::Requested).await;
    assert_eq!((shown.xds_config, shown.version_info, shown.last_updated), (None, String::new(), None));
    assert_eq!(shown.error_state, None);
    rig.plane.release(CDS);
    rig.wait_status(CDS, "cluster", Status::Acked).await;
    assert_eq!(rpc.await??, "a");
    Ok(())
}

#[tokio::test]
async fn a40_42_deleted_or_late_is_does_not_exist() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    rig.plane.remove(CDS, "cluster");
    let shown = rig.wait_status(CDS, "cluster", Status::DoesNotExist).await;
    assert_eq!(shown.xds_config, None);

    let missing = rig.builder("xds:///missing").resource_timeout(Duration::from_millis(50)).build()?;
    start_rpc(&missing);
    let shown = rig.wait_status(LDS, "missing", Status::DoesNotExist).await;
    assert_eq!(shown.xds_config, None);
    Ok(())
}

#[tokio::test]
async fn a40_45_nacked_from_the_start_has_neither_version_nor_content() -> TestResult {
    let rig = Rig::start().await;
    rig.plane.set(bad_cluster("cluster"));
    let channel = rig.channel();
    start_rpc(&channel);
    let shown = rig.wait_status(CDS, "cluster", Status::Nacked).await;
    assert_eq!((shown.xds_config, shown.version_info, shown.last_updated), (None, String::new(), None));
    assert_eq!(shown.error_state.map(|error| error.version_info), Some(rig.plane.version(CDS)));
    Ok(())
}

fn data_error_gate() -> Gates {
    Gates::from_variables(|name| name.contains("DATA_ERROR_HANDLING").then(|| "true".to_owned()))
}

#[tokio::test]
async fn a40_46_error_reported_by_the_server() -> TestResult {
    let rig = Rig::start().await;
    let channel = rig.builder(&format!("xds:///{SERVICE}")).gates(data_error_gate()).build()?;
    ask(&channel).await?;
    let error = ResourceError {
        resource_name: Some(ResourceName { name: "cluster".into(), ..Default::default() }),
        error_detail: Some(rpc::Status { code: 7, message: "not for you".into(), details: Vec::new() }),
    };
    let response = response(CDS, "9", Vec::new());
    rig.plane.send_response(&DiscoveryResponse { resource_errors: vec![error], ..response });
    let shown = rig.wait_status(CDS, "cluster", Status::ReceivedError).await;
    assert!(shown.error_state.is_some_and(|error| error.details.contains("not for you")));
    Ok(())
}

#[tokio::test]
async fn a40_46_timer_of_a_slow_server_is_timeout() -> TestResult {
    let rig = Rig::start().await;
    let json =
        rig.plane.bootstrap_json().replace("\"xds_v3\"", "\"xds_v3\", \"resource_timer_is_transient_error\"");
    let channel = XdsChannel::builder("xds:///missing")
        .bootstrap(Bootstrap::from_json(&json)?)
        .client_pool(rig.pool.clone())
        .gates(data_error_gate())
        .resource_timeout(Duration::from_millis(50))
        .build()?;
    start_rpc(&channel);
    let shown = rig.wait_status(LDS, "missing", Status::Timeout).await;
    assert!(shown.error_state.is_some());
    Ok(())
}

#[tokio::test]
async fn contents_can_be_left_out() -> TestResult {
    let rig = Rig::start().await;
    let _channel = rig.connected().await;
    let request = ClientStatusRequest { exclude_resource_contents: true, ..Default::default() };
    let response = rig.csds().fetch_client_status(request).await?.into_inner();
    let resources = &response.config[0].generic_xds_configs;
    assert_eq!(resources.len(), 4);
    assert!(
        resources.iter().all(|resource| resource.xds_config.is_none() && !resource.version_info.is_empty())
    );
    Ok(())
}
