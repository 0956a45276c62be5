//! Events that must not disturb RPCs: restarts of the control plane, repeated updates, graceful closes by backends.

mod common;

use std::time::Duration;

use common::*;
use envoy_types::pb::google::protobuf::Any;
use proxyless::Limits;
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane, EDS, LDS};

/// Connections that the backends have accepted so far.
fn accepted(backends: &[&Backend]) -> usize {
    backends.iter().map(|backend| backend.connections_accepted()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_restart_is_not_noticed() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a, &b]).await;
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;
    let before = accepted(&[&a, &b]);

    let load = Load::start(&channel, 4);
    for round in 1..=3 {
        plane.stop().await;
        plane.restart().await?;
        plane.wait_streams_opened(1 + round).await?;
        plane.wait_ack(EDS).await?;
    }
    let (succeeded, failed) = load.stop().await;
    assert!(failed.is_empty() && succeeded > 0, "{succeeded} succeeded, failed: {failed:?}");
    assert_eq!(accepted(&[&a, &b]), before, "a backend was connected to again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_cut_again_and_again_are_not_noticed() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a, &b]).await;
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;
    let before = accepted(&[&a, &b]);

    let load = Load::start(&channel, 4);
    for _ in 0..8 {
        let opened = plane.streams_opened();
        plane.close_streams();
        plane.wait_streams_opened(opened + 1).await?;
        plane.wait_for_request_after(plane.requests().len(), |request| request.type_url() == EDS).await.ok();
    }
    let (succeeded, failed) = load.stop().await;
    assert!(failed.is_empty() && succeeded > 0, "{succeeded} succeeded, failed: {failed:?}");
    assert_eq!(accepted(&[&a, &b]), before, "a backend was connected to again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_identical_updates_touches_nothing() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a, &b]).await;
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;
    let before = accepted(&[&a, &b]);

    let load = Load::start(&channel, 2);
    for _ in 0..500 {
        plane.set_all([
            listener(SERVICE, "route").into(),
            simple_route_config("route", "cluster").into(),
            eds_cluster("cluster").into(),
            priorities("cluster", [[&a, &b]]).into(),
        ]);
    }
    plane.wait_ack(LDS).await?;
    plane.wait_ack(EDS).await?;
    let (succeeded, failed) = load.stop().await;
    assert!(failed.is_empty() && succeeded > 0, "{succeeded} succeeded, failed: {failed:?}");
    assert_eq!(accepted(&[&a, &b]), before, "a backend was connected to again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_that_end_connections_by_goaway_fail_no_call() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a, &b]).await;
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;

    let load = Load::start(&channel, 8);
    for round in 0..30 {
        let backend = if round % 2 == 0 { &a } else { &b };
        let connected = backend.connections_accepted();
        backend.goaway();
        // The next GOAWAY waits until the client has reconnected.
        backend.wait_connections_accepted(connected + 1).await?;
    }
    let (succeeded, failed) = load.stop().await;
    assert!(failed.is_empty() && succeeded > 100, "{succeeded} succeeded, failed: {failed:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a27_52_a_lost_region_is_left_and_returned_to() -> TestResult {
    let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
    let plane = mesh(&[]).await;
    plane.set(priorities("cluster", [[&near], [&far]]));
    let channel = channel(&plane);
    until_only(&channel, &["near"]).await;
    near.kill().await;
    until_only(&channel, &["far"]).await;
    near.restart().await?;
    // By itself: RPCs go elsewhere meanwhile, and the backoff is not reset.
    until_only(&channel, &["near"]).await;
    Ok(())
}

#[tokio::test]
async fn unreachable_control_plane_is_named_in_the_error() -> TestResult {
    let plane = mesh(&[]).await;
    plane.stop().await;
    let channel = channel(&plane);
    let status = ask_within(&channel, Duration::from_secs(10)).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    for part in [SERVICE, &plane.address().to_string(), "refused", "node"] {
        assert!(status.message().contains(part), "{part} is not in {:?}", status.message());
    }
    Ok(())
}

#[tokio::test]
async fn x_12_status_codes_of_the_control_plane_do_not_reach_rpcs() -> TestResult {
    use tonic::Code;
    for code in [Code::NotFound, Code::PermissionDenied, Code::InvalidArgument, Code::Unimplemented] {
        let plane = mesh(&[]).await;
        plane.refuse_streams(tonic::Status::new(code, "go away"));
        let status = ask_within(&channel(&plane), Duration::from_secs(10)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert!(status.message().contains("go away"), "{status:?}");
        // A server that answers is not unreachable: it has no such service.
        let no_service = status.message().contains("has no ADS service");
        assert_eq!(no_service, code == Code::Unimplemented, "{status:?}");
        assert_eq!(status.message().contains("unreachable"), !no_service, "{status:?}");
    }
    Ok(())
}

/// A response with one resource that is not a protobuf.
fn unreadable(type_url: &str) -> Any {
    Any { type_url: type_url.into(), value: b"\xff\xff\xff".to_vec() }
}

#[tokio::test]
async fn a_resource_that_could_not_be_read_is_not_called_missing_only() -> TestResult {
    let plane = ControlPlane::start().await?;
    let channel = builder(&plane).resource_timeout(Duration::from_millis(500)).build()?;
    let call = hold(&channel, 1);
    plane.wait_for_request(|request| request.type_url() == LDS).await?;
    plane.send(LDS, &[unreadable(LDS)]);
    plane.wait_for_request(|request| request.is_nack()).await?;
    drop(call);
    let status = ask_within(&channel, Duration::from_secs(10)).await.unwrap_err();
    for part in ["Listener", "the last Listener response", "was rejected", "does not decode"] {
        assert!(status.message().contains(part), "{part} is not in {:?}", status.message());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_a_channel_bound_messages_and_resources() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let mut limits = Limits::default();
    limits.message_bytes = 20;
    let refused = builder(&plane).limits(limits).build()?;
    until_failure(&refused, "is longer than the limit of 20 bytes").await;
    let mut limits = Limits::default();
    limits.endpoints_per_assignment = 1;
    let refused = builder(&plane).limits(limits).build()?;
    until_failure(&refused, "more than 1 endpoints, the limit").await;
    // Other resources are not affected.
    assert_eq!(ask(&channel(&plane)).await?, "a");
    Ok(())
}
