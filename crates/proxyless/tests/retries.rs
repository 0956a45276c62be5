//! Retries over real sockets: failed attempts (gRFC A44), requests that no server processed (A6), and connections whose
//! connector panicked.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::raw::{RawServer, Reply};
use common::*;
use proxyless::connect::{Address, Connecting, Connector, TcpConnector};
use proxyless::{ChannelState, WaitForReady, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::{Backend, ControlPlane, RDS};
use tonic::{Code, Request};

/// A mesh whose only route retries UNAVAILABLE up to four times, with this interval.
async fn retrying_mesh(backend: &Backend, interval: Duration) -> ControlPlane {
    let plane = mesh(&[backend]).await;
    retry(&plane, "unavailable", interval);
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
    tokio::time::timeout(PATIENCE, states.wait_for(|state| *state == ChannelState::TransientFailure))
        .await??;
    backend.restart().await?;
    channel.reset_connect_backoff();
    assert_eq!(asking.await??, "a");
    Ok(())
}

#[tokio::test]
async fn a44_retries_that_are_disabled_are_not_made() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = retrying_mesh(&backend, Duration::from_millis(1)).await;
    let channel = builder(&plane).disable_retries().build()?;
    backend.fail_with(Code::Unavailable);
    assert_eq!(ask(&channel).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(backend.count(), 1);
    // A44: the policy is still validated.
    plane.wait_ack(RDS).await?;
    Ok(())
}

#[tokio::test]
async fn a6_throttled_retries_resume_with_successes() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = retrying_mesh(&backend, Duration::from_millis(1)).await;
    let channel = builder(&plane).retry_throttling(6, 1.0).build()?;
    backend.fail_with(Code::Unavailable);
    // Of six tokens, the third failure takes the one that leaves half of them; after the fourth there is no retry.
    for attempts in [3, 4, 5] {
        assert_eq!(ask(&channel).await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(backend.count(), attempts);
    }
    backend.succeed();
    for _ in 0..5 {
        ask(&channel).await?;
    }
    backend.fail_with(Code::Unavailable);
    ask(&channel).await.unwrap_err();
    assert_eq!(backend.count(), 5 + 5 + 3, "all tokens are back");
    Ok(())
}

/// A raw server that answers all but its first `failures` requests.
async fn failing_first(
    failures: usize,
    failure: impl Fn(u32) -> Reply + Send + Sync + 'static,
) -> std::io::Result<RawServer> {
    RawServer::start(move |request| {
        if request.number < failures { failure(request.stream) } else { raw::success(request.stream) }
    })
    .await
}

/// One RPC with a message of about this size, with its route's retry policy for this code.
async fn ask_with(server: &RawServer, retry_on: &str, size: usize) -> Result<(), tonic::Status> {
    let plane = mesh_of(&[server.address()]).await;
    retry(&plane, retry_on, Duration::from_millis(1));
    ask_sized(&channel(&plane), size).await
}

/// Waits for connections, however long the channel takes to make them.
async fn ask_sized(channel: &XdsChannel, size: usize) -> Result<(), tonic::Status> {
    let mut request = Request::new(EchoRequest::new("x".repeat(size)));
    request.extensions_mut().insert(WaitForReady);
    request.set_timeout(PATIENCE);
    EchoClient::new(channel.clone()).unary(request).await.map(drop)
}

#[tokio::test]
async fn a44_http_errors_without_a_grpc_status_are_retried_by_their_mapped_code() -> TestResult {
    for status in ["429", "502", "503", "504"] {
        for body in ["", "<html>no upstream</html>"] {
            let server = failing_first(2, move |stream| raw::http_error(stream, status, body)).await?;
            ask_with(&server, "unavailable", 10).await?;
            assert_eq!(server.received().len(), 3, "{status} {body}");
        }
    }
    for (status, code) in [("400", Code::Internal), ("404", Code::Unimplemented), ("500", Code::Unknown)] {
        let server = failing_first(1, move |stream| raw::http_error(stream, status, "")).await?;
        assert_eq!(ask_with(&server, "unavailable", 10).await.unwrap_err().code(), code);
    }
    Ok(())
}

#[tokio::test]
async fn a44_resets_and_lost_connections_are_retried_by_their_mapped_code() -> TestResult {
    let server = failing_first(2, |stream| Reply::Frames(raw::reset(stream, raw::INTERNAL_ERROR))).await?;
    ask_with(&server, "internal", 10).await?;
    assert_eq!(server.received().len(), 3);
    let server = failing_first(2, |_| Reply::Close(Vec::new())).await?;
    ask_with(&server, "unavailable", 10).await?;
    assert_eq!(server.received().len(), 3);
    Ok(())
}

#[tokio::test]
async fn a44_a_response_that_has_begun_is_not_retried() -> TestResult {
    let begun = |stream| [raw::grpc_headers(stream), raw::reset(stream, raw::INTERNAL_ERROR)].concat();
    let server = failing_first(1, move |stream| Reply::Frames(begun(stream))).await?;
    let failed = ask_with(&server, "internal", 10).await.unwrap_err();
    assert_eq!(failed.code(), Code::Internal);
    assert!(failed.message().contains(&server.address().to_string()), "{failed:?}");
    assert_eq!(server.received().len(), 1);
    Ok(())
}

#[tokio::test]
async fn a6_large_unary_requests_are_sent_again_unless_a_server_processed_them() -> TestResult {
    const LARGE: usize = 3 << 20;
    for refusal in [Refusal::GoAway, Refusal::Reset] {
        let server = failing_first(1, move |stream| refusal.reply(stream)).await?;
        ask_sized(&channel(&mesh_of(&[server.address()]).await), LARGE).await?;
        let sizes: Vec<_> = server.received().iter().map(|request| request.size).collect();
        assert!(sizes.len() == 2 && sizes[0] == sizes[1] && sizes[0] > LARGE, "{refusal:?} {sizes:?}");
    }
    let fails = |stream| raw::http_error(stream, "503", "");
    let server = failing_first(1, fails).await?;
    ask_with(&server, "unavailable", 100_000).await?;
    let server = failing_first(1, fails).await?;
    ask_with(&server, "unavailable", 300_000).await.expect_err("is larger than the retry buffer");
    let server = failing_first(1, fails).await?;
    let plane = mesh_of(&[server.address()]).await;
    retry(&plane, "unavailable", Duration::from_millis(1));
    ask_sized(&builder(&plane).retry_buffer(400_000).build()?, 300_000).await?;
    Ok(())
}

#[tokio::test]
async fn a6_streaming_requests_are_sent_again_up_to_the_buffer() -> TestResult {
    for (buffer, is_enough) in [(256 << 10, true), (100 << 10, false)] {
        let server = failing_first(1, |_| Reply::Close(raw::go_away(0))).await?;
        let plane = mesh_of(&[server.address()]).await;
        let channel = builder(&plane).retry_buffer(buffer).build()?;
        let messages = [(); 4].map(|()| EchoRequest::new("x".repeat(40_000)));
        let mut request = Request::new(tokio_stream::iter(messages));
        request.extensions_mut().insert(WaitForReady);
        request.set_timeout(PATIENCE);
        let outcome = EchoClient::new(channel).chat(request).await;
        assert_eq!(outcome.is_ok(), is_enough, "{outcome:?}");
        if let Err(failed) = outcome {
            assert!(failed.message().contains("retry buffer"), "{failed:?}");
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Refusal {
    GoAway,
    Reset,
}

impl Refusal {
    fn reply(self, stream: u32) -> Reply {
        match self {
            Self::GoAway => Reply::Close(raw::go_away(0)),
            Self::Reset => Reply::Frames(raw::reset(stream, raw::REFUSED_STREAM)),
        }
    }
}

#[tokio::test]
async fn a6_refusals_in_a_row_are_survived() -> TestResult {
    for refusal in [Refusal::GoAway, Refusal::Reset] {
        let server = failing_first(3, move |stream| refusal.reply(stream)).await?;
        let plane = mesh_of(&[server.address()]).await;
        ask_sized(&channel(&plane), 10).await?;
        assert_eq!(server.received().len(), 4, "{refusal:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a6_a_server_that_refuses_everything_gets_few_copies() -> TestResult {
    for refusal in [Refusal::GoAway, Refusal::Reset] {
        let server = failing_first(usize::MAX, move |stream| refusal.reply(stream)).await?;
        let plane = mesh_of(&[server.address()]).await;
        let mut request = Request::new(EchoRequest::new("hello"));
        request.extensions_mut().insert(WaitForReady);
        request.set_timeout(Duration::from_millis(900));
        let channel = channel(&plane);
        assert!(tokio::time::timeout(PATIENCE, channel.ready()).await.is_ok());
        EchoClient::new(channel).unary(request).await.unwrap_err();
        // Two at once, then after at least 40, 80, 160, 320 and 640 ms: the sixth pause is longer than the deadline.
        let copies = server.received().len();
        assert!((1..=6).contains(&copies), "{refusal:?}: {copies} copies");
    }
    Ok(())
}

/// Panics once, then connects.
#[derive(Default)]
struct Clumsy {
    calls: AtomicUsize,
    tcp: TcpConnector,
}

impl Connector for Clumsy {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        assert!(self.calls.fetch_add(1, Ordering::Relaxed) > 0, "clumsy on purpose");
        self.tcp.connect(address)
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
    request.extensions_mut().insert(WaitForReady);
    let answer = tokio::time::timeout(PATIENCE, client.unary(request)).await??;
    assert_eq!(answer.into_inner().backend, "a");
    Ok(())
}
