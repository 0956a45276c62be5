//! Outlier detection over real sockets (gRFC A50, A61, A75).

mod common;

use std::time::Duration;

use common::*;
use proxyless_testkit::Backend;
use proxyless_testkit::resources::*;
use tonic::Code;

/// A cluster that sweeps twice a second, and ejects endpoints that fail more than half of their RPCs for this long.
fn detecting(ejection: Duration) -> impl Into<proxyless_testkit::Resource> {
    let detection = outlier_detection(Duration::from_millis(500), ejection);
    let detection = detection.failure_percentage(50, 2, 3).max_ejection_percent(50);
    eds_cluster("cluster").outlier_detection(detection)
}

#[tokio::test]
async fn a50_an_endpoint_that_fails_is_ejected_and_keeps_its_connection() -> TestResult {
    let (a, b, c) = (Backend::start("a").await?, Backend::start("b").await?, Backend::start("c").await?);
    let plane = mesh(&[&a, &b, &c]).await;
    plane.set(detecting(Duration::from_secs(300)));
    let channel = channel(&plane);
    until_only(&channel, &["a", "b", "c"]).await;
    c.fail_with(Code::Internal);
    until_only(&channel, &["a", "b"]).await;
    assert_eq!(c.connections(), 1, "A61: only health changed");
    Ok(())
}

#[tokio::test]
async fn a50_an_ejected_endpoint_returns_after_its_time() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a, &b]).await;
    plane.set(detecting(Duration::from_millis(300)));
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;
    b.fail_with(Code::Unavailable);
    until_only(&channel, &["a"]).await;
    b.succeed();
    until_only(&channel, &["a", "b"]).await;
    assert_eq!(b.connections_accepted(), 1);
    Ok(())
}

#[tokio::test]
async fn a50_all_return_at_once_when_detection_is_turned_off() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a, &b]).await;
    plane.set(detecting(Duration::from_secs(300)));
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;
    b.fail_with(Code::Unavailable);
    until_only(&channel, &["a"]).await;
    b.succeed();
    plane.set(eds_cluster("cluster"));
    until_only(&channel, &["a", "b"]).await;
    Ok(())
}
