//! What is tried again over real sockets: attempts that failed (gRFC A44), and connections whose connector panicked.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use envoy_types::pb::envoy::config::route::v3::retry_policy::RetryBackOff;
use envoy_types::pb::envoy::config::route::v3::{RetryPolicy, Route, route::Action};
use envoy_types::pb::google::protobuf::{self, UInt32Value};
use proxyless::{Address, Connecting, ConnectivityState, Connector, TcpConnector};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tonic::{Code, Request};

/// A mesh whose one route retries UNAVAILABLE up to four times, `interval` apart.
async fn retrying_mesh(backend: &Backend, interval: Duration) -> ControlPlane {
    let plane = mesh(&[backend]).await;
    let interval = Some(protobuf::Duration {
        seconds: interval.as_secs() as i64,
        nanos: interval.subsec_nanos() as i32,
    });
    let policy = RetryPolicy {
        retry_on: "unavailable".into(),
        num_retries: Some(UInt32Value { value: 4 }),
        retry_back_off: Some(RetryBackOff { base_interval: interval, max_interval: interval }),
        ..Default::default()
    };
    let mut route: Route = route("cluster");
    if let Some(Action::Route(action)) = &mut route.action {
        action.retry_policy = Some(policy);
    }
    plane.set(route_config("route", [virtual_host(["*"], [route])]));
    plane
}

#[tokio::test]
async fn a44_attempts_that_the_server_fails_are_followed_by_others() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = retrying_mesh(&backend, Duration::from_millis(1)).await;
    let channel = channel(&plane);
    backend.fail_with(Code::Unavailable);
    assert_eq!(ask(&channel).await.unwrap_err().code(), Code::Unavailable);
    let attempts: Vec<_> = backend
        .calls()
        .iter()
        .map(|call| call.header("grpc-previous-rpc-attempts").map(str::to_owned))
        .collect();
    assert_eq!(attempts, [None, Some("1".into()), Some("2".into()), Some("3".into()), Some("4".into())]);

    backend.fail_with(Code::Internal);
    assert_eq!(ask(&channel).await.unwrap_err().code(), Code::Internal);
    assert_eq!(backend.count(), 6, "a code that the policy does not name was retried");
    Ok(())
}

#[tokio::test]
async fn a44_an_attempt_that_finds_no_connection_is_followed_by_others() -> TestResult {
    let backend = Backend::start("a").await?;
    backend.kill().await;
    let plane = retrying_mesh(&backend, Duration::from_secs(1)).await;
    let channel = channel(&plane);
    let asking = tokio::spawn({
        let channel = channel.clone();
        async move { ask(&channel).await }
    });
    let mut states = channel.watch_state();
    tokio::time::timeout(PATIENCE, states.wait_for(|state| *state == ConnectivityState::TransientFailure))
        .await??;
    backend.restart().await?;
    channel.reset_connect_backoff();
    assert_eq!(asking.await??, "a");
    Ok(())
}

/// Panics once, then connects.
#[derive(Default)]
struct Clumsy(AtomicUsize);

impl Connector for Clumsy {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) > 0, "clumsy on purpose");
        TcpConnector.connect(address)
    }
}

#[tokio::test]
async fn a_connector_that_panics_is_a_failed_connection() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = builder(&plane).connector(Clumsy::default()).build()?;
    // Without a deadline: it must not wait for ever.
    let mut client = EchoClient::new(channel.clone());
    let call = client.unary(EchoRequest::new("hello"));
    let failed = tokio::time::timeout(PATIENCE, call).await?.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable, "{failed:?}");
    assert!(failed.message().contains(&backend.address().to_string()), "{failed:?}");
    channel.reset_connect_backoff();
    let mut request = Request::new(EchoRequest::new("hello"));
    request.extensions_mut().insert(proxyless::WaitForReady);
    let answer = tokio::time::timeout(PATIENCE, client.unary(request)).await??;
    assert_eq!(answer.into_inner().backend, "a");
    Ok(())
}
