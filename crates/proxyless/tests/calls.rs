//! RPCs over real sockets: unary, streaming, deadlines, wait-for-ready, layers.

mod common;

use std::time::Duration;

use common::*;
use proxyless::{ChannelState, PeerAddress, WaitForReady, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, EDS, LDS, RDS};
use tokio_stream::StreamExt;
use tonic::{Code, Request};

#[tokio::test]
async fn a27_91_unary_calls_take_turns_over_the_endpoints() -> TestResult {
    let (a, b, c) = (Backend::start("a").await?, Backend::start("b").await?, Backend::start("c").await?);
    let plane = mesh(&[&a, &b, &c]).await;
    let channel = channel(&plane);
    until_only(&channel, &["a", "b", "c"]).await;
    let answers = spread(&channel, 30).await;
    assert!(answers.values().all(|&count| count == 10), "{answers:?}");
    Ok(())
}

#[tokio::test]
async fn streaming_calls_work_both_ways() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let mut client = EchoClient::new(channel(&plane));

    let request = EchoRequest { message: "again".into(), repeat: 5 };
    let answers: Vec<_> = client.repeat(request).await?.into_inner().collect::<Result<_, _>>().await?;
    assert_eq!(answers.len(), 5);

    // Each request follows the response to the one before: both directions are active at once.
    let (sender, requests) = tokio::sync::mpsc::channel(1);
    sender.send(EchoRequest::new("0")).await?;
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut answers = client.chat(requests).await?.into_inner();
    for i in 0..20 {
        assert_eq!(answers.message().await?.ok_or("the stream ended")?.message, i.to_string());
        sender.send(EchoRequest::new((i + 1).to_string())).await?;
    }
    drop(sender);
    assert_eq!(answers.message().await?.ok_or("the stream ended")?.message, "20");
    assert!(answers.message().await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a27_35_nothing_is_asked_before_the_first_call() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    assert_eq!(channel.state(), ChannelState::Idle);
    assert_eq!((plane.connections(), plane.streams_opened()), (0, 0));
    channel.ready_within(PATIENCE).await?;
    assert_eq!(channel.state(), ChannelState::Ready);
    assert_eq!(ask(&channel).await?, "a");
    Ok(())
}

#[tokio::test]
async fn a27_02_a27_36_types_are_asked_for_step_by_step_by_name() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    for (kind, name) in [(LDS, SERVICE), (RDS, "route"), (CDS, "cluster"), (EDS, "cluster")] {
        plane.wait_subscriptions(kind, &[name]).await?;
    }
    let order: Vec<_> = plane
        .requests()
        .iter()
        .filter(|request| request.nonce().is_empty())
        .map(|r| r.type_url().to_owned())
        .collect();
    assert_eq!(order, [LDS, RDS, CDS, EDS]);
    assert_eq!(plane.streams_opened(), 1);
    Ok(())
}

#[tokio::test]
async fn a27_62_the_target_is_the_authority_and_the_user_agent_is_ours() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    ask(&channel(&plane)).await?;
    let call = backend.calls().pop().ok_or("no call")?;
    assert_eq!(call.authority(), Some(SERVICE));
    let agent = call.header("user-agent").unwrap_or_default();
    assert!(agent.starts_with("grpc-rust-proxyless/"), "{agent}");
    Ok(())
}

#[tokio::test]
async fn a27_62_a_name_that_is_not_an_authority_is_sent_as_localhost_unless_the_caller_sets_one() -> TestResult
{
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.set(listener("svc/one", "route"));
    let channel = XdsChannel::builder("xds:///svc/one")
        .bootstrap(bootstrap(&plane))
        .client_pool(proxyless::ClientPool::new())
        .build()?;
    ask(&channel).await?;
    assert_eq!(backend.calls().pop().ok_or("no call")?.authority(), Some("localhost"));
    let mut request = http::Request::new(tonic::body::Body::empty());
    *request.uri_mut() = "http://one.svc/proxyless.testkit.Echo/Unary".parse()?;
    tower::ServiceExt::oneshot(channel, request).await?;
    assert_eq!(backend.calls().pop().ok_or("no call")?.authority(), Some("one.svc"));
    Ok(())
}

#[tokio::test]
async fn responses_carry_the_address_of_their_backend() -> TestResult {
    use tower::ServiceExt;
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a, &b]).await;
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;
    let mut client = EchoClient::new(channel.clone());
    for _ in 0..4 {
        let response = client.unary(EchoRequest::new("hello")).await?;
        let peer = response.extensions().get::<PeerAddress>().ok_or("no address")?.address();
        let backend = if response.get_ref().backend == "a" { &a } else { &b };
        assert_eq!(peer, backend.address());
    }
    // Errors sent by the server, and errors made by the channel for a lost connection.
    a.fail_with(Code::NotFound);
    b.fail_with(Code::NotFound);
    let peer_of_failure = async || -> Result<std::net::SocketAddr, Box<dyn std::error::Error>> {
        let mut request = http::Request::new(tonic::body::Body::empty());
        *request.uri_mut() = "/proxyless.testkit.Echo/Unary".parse()?;
        let response = channel.clone().oneshot(request).await?;
        Ok(response.extensions().get::<PeerAddress>().ok_or("no address")?.address())
    };
    assert!([a.address(), b.address()].contains(&peer_of_failure().await?));
    a.hang();
    b.hang();
    let mut failing = std::pin::pin!(peer_of_failure());
    tokio::select! {
        ended = &mut failing => panic!("{ended:?}"),
        waited = async { while a.in_flight() + b.in_flight() == 0 { tokio::task::yield_now().await; } } => waited,
    }
    let serving = if a.in_flight() == 1 { &a } else { &b };
    serving.kill().await;
    assert_eq!(failing.await?, serving.address());
    Ok(())
}

#[tokio::test]
async fn a_deadline_covers_waiting_headers_and_body() -> TestResult {
    // Waiting: the control plane never responds.
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.withhold(LDS);
    let waiting = ask_within(&channel(&plane), Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(waiting.code(), Code::DeadlineExceeded, "{waiting:?}");
    let server = format!("management server {}", plane.address());
    for part in ["Listener", SERVICE, "waiting for", &server, "node"] {
        assert!(waiting.message().contains(part), "{part} is not in {:?}", waiting.message());
    }

    // Headers: the backend hangs.
    plane.release(LDS);
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    backend.hang();
    let hanging = ask_within(&channel, Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(hanging.code(), Code::DeadlineExceeded, "{hanging:?}");
    let at = format!("waiting for the response from {} (cluster cluster)", backend.address());
    assert!(hanging.message().contains(&at), "{hanging:?}");
    assert!(!hanging.message().contains(&plane.address().to_string()), "{hanging:?}");
    backend.resume();

    // Body: an open stream without further messages.
    let (sender, requests) = tokio::sync::mpsc::channel(1);
    sender.send(EchoRequest::new("0")).await?;
    let mut request = Request::new(tokio_stream::wrappers::ReceiverStream::new(requests));
    request.set_timeout(Duration::from_millis(300));
    let mut answers = EchoClient::new(channel).chat(request).await?.into_inner();
    assert!(answers.message().await?.is_some());
    let quiet = answers.message().await.unwrap_err();
    assert_eq!(quiet.code(), Code::DeadlineExceeded, "{quiet:?}");
    assert!(quiet.message().starts_with(&format!("{} (cluster cluster): ", backend.address())), "{quiet:?}");
    Ok(())
}

#[tokio::test]
async fn a_deadline_while_connecting_names_the_addresses_and_the_last_error() -> TestResult {
    // A listener that never accepts: the TCP connection succeeds, and SETTINGS never arrive.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let plane = mesh_of(&[silent.local_addr()?]).await;
    let channel_to_silent = channel(&plane);
    let part = format!("is CONNECTING, connecting to {}", silent.local_addr()?);
    let named = async {
        // The first ones may wait for the configuration.
        while !ask_within(&channel_to_silent, Duration::from_millis(100))
            .await
            .is_err_and(|late| late.message().contains(&part))
        {}
    };
    tokio::time::timeout(Duration::from_secs(15), named).await?;

    // The error that fails fast without WaitForReady is the last error with it.
    let dead = proxyless_testkit::dead_address()?;
    plane.set(priorities("cluster", [[&dead]]));
    let channel = channel(&plane);
    until_failure(&channel, "refused").await;
    let mut request = Request::new(EchoRequest::new("patient"));
    request.extensions_mut().insert(WaitForReady);
    request.set_timeout(Duration::from_millis(200));
    let late = EchoClient::new(channel).unary(request).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late:?}");
    let (_, error) = late.message().split_once("; last error: ").ok_or(late.to_string())?;
    assert!(error.contains(&dead.address().to_string()) && error.contains("refused"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_deadline_while_connecting_does_not_name_an_error_of_the_past() -> TestResult {
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let plane = mesh_of(&[silent.local_addr()?]).await;
    plane.remove(LDS, SERVICE);
    let channel = builder(&plane).resource_timeout(Duration::from_millis(50)).build()?;
    let mut request = Request::new(EchoRequest::new("patient"));
    request.extensions_mut().insert(WaitForReady);
    request.set_timeout(Duration::from_secs(2));
    let mut client = EchoClient::new(channel.clone());
    let waiting = tokio::spawn(async move { client.unary(request).await });
    until_failure(&channel, "does not exist").await;
    plane.set(listener(SERVICE, "route"));
    let late = waiting.await?.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late:?}");
    assert!(late.message().contains("waiting for a connection"), "{late:?}");
    assert!(!late.message().contains(&format!("Listener {SERVICE}")), "{late:?}");
    Ok(())
}

#[tokio::test]
async fn a_deadline_ends_a_stream_whose_reader_never_waits() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    // More than the buffers hold: the stream cannot be complete.
    let mut request = Request::new(EchoRequest { message: "x".repeat(100_000), repeat: 1000 });
    let timeout = Duration::from_millis(300);
    request.set_timeout(timeout);
    let mut answers = EchoClient::new(channel(&plane)).repeat(request).await?.into_inner();
    // Not before the deadline of the call, which has started.
    let late = tokio::time::Instant::now() + timeout;
    assert!(answers.message().await?.is_some());
    tokio::time::sleep_until(late).await;
    let late = answers.message().await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late:?}");
    Ok(())
}

#[tokio::test]
async fn an_error_of_the_callers_own_body_is_the_status_of_the_call() -> TestResult {
    use http_body_util::StreamBody;
    use tower::ServiceExt;
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let frames = [Err::<http_body::Frame<bytes::Bytes>, _>(tonic::Status::out_of_range("message too long"))];
    let body = tonic::body::Body::new(StreamBody::new(tokio_stream::iter(frames)));
    let mut request = http::Request::new(body);
    *request.uri_mut() = "/proxyless.testkit.Echo/Unary".parse()?;
    let response = tokio::time::timeout(PATIENCE, channel(&plane).oneshot(request)).await??;
    let status = tonic::Status::from_header_map(response.headers()).ok_or("no status")?;
    assert_eq!((status.code(), status.message()), (Code::OutOfRange, "message too long"));
    Ok(())
}

#[tokio::test]
async fn fail_fast_fails_and_wait_for_ready_waits() -> TestResult {
    let backend = Backend::start("a").await?;
    let dead = proxyless_testkit::dead_address()?;
    let plane = mesh(&[]).await;
    plane.set(priorities("cluster", [[&dead]]));
    let channel = channel(&plane);

    let failed = ask(&channel).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    assert_eq!(failed.message().matches(&dead.address().to_string()).count(), 1, "{failed:?}");
    assert!(failed.message().contains("refused"), "{failed:?}");

    let mut request = Request::new(EchoRequest::new("patient"));
    request.extensions_mut().insert(WaitForReady);
    let mut client = EchoClient::new(channel.clone());
    let waiting = tokio::spawn(async move { client.unary(request).await });
    plane.set(priorities("cluster", [[&backend]]));
    let answer = tokio::time::timeout(PATIENCE, waiting).await???;
    assert_eq!(answer.into_inner().backend, "a");
    Ok(())
}

#[tokio::test]
async fn the_channel_works_under_tower_layers() -> TestResult {
    use tower::ServiceBuilder;
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let tagged = |mut request: http::Request<tonic::body::Body>| {
        request.headers_mut().insert("x-layer", http::HeaderValue::from_static("seen"));
        request
    };
    let service = ServiceBuilder::new().map_request(tagged).service(channel(&plane));
    EchoClient::new(service).unary(EchoRequest::new("hello")).await?;
    assert_eq!(backend.calls().pop().ok_or("no call")?.header("x-layer"), Some("seen"));
    Ok(())
}

#[tokio::test]
async fn a_status_of_the_server_comes_through_as_it_is() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    backend.fail_with(Code::NotFound);
    // A54 restricts the statuses of the control plane, not those of servers.
    assert_eq!(ask(&channel).await.unwrap_err().code(), Code::NotFound);
    backend.succeed();
    assert_eq!(ask(&channel).await?, "a");
    Ok(())
}
