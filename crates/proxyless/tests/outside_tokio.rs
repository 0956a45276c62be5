//! RPCs that are polled outside of any tokio runtime: their timers run in the channel's runtime.

mod common;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use common::raw::{self, RawServer};
use common::*;
use envoy_types::pb::envoy::config::route::v3::Route;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::MaxStreamDuration;
use proxyless::{ClientPool, XdsChannel};
use proxyless_testkit::Backend;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use tokio_stream::StreamExt;
use tonic::{Code, Request};

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, with nothing of tokio around it.
fn block_on<F: Future>(future: F) -> F::Output {
    assert!(tokio::runtime::Handle::try_current().is_err(), "inside a runtime");
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park_timeout(PATIENCE),
        }
    }
}

/// Runs this on a separate thread, and waits for it.
async fn elsewhere<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || drop(done.send(run())));
    let result = result.await;
    thread.join().expect("the thread does not panic");
    result.expect("a result")
}

/// One RPC with a deadline, polled outside of tokio.
async fn ask_elsewhere(channel: &XdsChannel, timeout: Duration) -> Result<String, tonic::Status> {
    let channel = channel.clone();
    elsewhere(move || block_on(ask_within(&channel, timeout))).await
}

#[tokio::test]
async fn deadlines_work_outside_of_tokio() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    assert_eq!(ask_elsewhere(&channel, PATIENCE).await?, "a");
    backend.hang();
    let late = ask_elsewhere(&channel, Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late:?}");
    Ok(())
}

#[tokio::test]
async fn a31_limits_of_the_route_work_outside_of_tokio() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let mut route: Route = route("cluster");
    if let Some(Action::Route(action)) = &mut route.action {
        let limit = Some(duration(Duration::from_millis(200)));
        action.max_stream_duration =
            Some(MaxStreamDuration { max_stream_duration: limit, ..Default::default() });
    }
    plane.set(route_config("route", [virtual_host(["*"], [route])]));
    let channel = channel(&plane);
    assert!(tokio::time::timeout(PATIENCE, channel.ready()).await.is_ok());
    backend.hang();
    let mut client = EchoClient::new(channel);
    let late = elsewhere(move || block_on(client.unary(EchoRequest::new("hello")))).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late:?}");
    Ok(())
}

#[tokio::test]
async fn a44_retries_work_outside_of_tokio() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    retry(&plane, "unavailable", Duration::from_millis(5));
    let channel = channel(&plane);
    backend.fail_with(Code::Unavailable);
    let mut client = EchoClient::new(channel);
    let failed = elsewhere(move || block_on(client.unary(EchoRequest::new("hello")))).await.unwrap_err();
    assert_eq!((failed.code(), backend.count()), (Code::Unavailable, 5), "{failed:?}");
    Ok(())
}

#[tokio::test]
async fn a6_refusals_and_error_pages_are_waited_for_outside_of_tokio() -> TestResult {
    let server = RawServer::start(|request| match request.number {
        0..3 => raw::Reply::Frames(raw::reset(request.stream, raw::REFUSED_STREAM)),
        3 => raw::http_error(request.stream, "503", "<html>"),
        _ => raw::success(request.stream),
    })
    .await?;
    let plane = mesh_of(&[server.address()]).await;
    let channel = channel(&plane);
    let failed = ask_elsewhere(&channel, PATIENCE).await.unwrap_err();
    assert!(failed.message().contains("<html>"), "{failed:?}");
    ask_elsewhere(&channel, PATIENCE).await?;
    Ok(())
}

#[tokio::test]
async fn streams_work_outside_of_tokio() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let mut client = EchoClient::new(channel(&plane));
    let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
    let mut request = Request::new(tokio_stream::wrappers::UnboundedReceiverStream::new(requests));
    request.set_timeout(PATIENCE);
    elsewhere(move || {
        block_on(async move {
            sender.send(EchoRequest::new("0"))?;
            let mut answers = client.chat(request).await?.into_inner();
            assert_eq!(answers.next().await.ok_or("the stream ended")??.message, "0");
            // More than fits into one window: a task of the connection's runtime sends it.
            sender.send(EchoRequest::new("x".repeat(3 << 20)))?;
            assert_eq!(answers.next().await.ok_or("the stream ended")??.message.len(), 3 << 20);
            drop(sender);
            assert!(answers.next().await.is_none());
            TestResult::Ok(())
        })
        .map_err(|error| error.to_string())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn channels_are_reported_outside_of_tokio() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let pool = ClientPool::new();
    let channel = builder(&plane).client_pool(pool.clone()).build()?;
    ask(&channel).await?;
    let reports = elsewhere(move || block_on(pool.channels())).await;
    assert_eq!(reports.iter().map(|report| report.target.as_str()).collect::<Vec<_>>(), [channel.target()]);
    Ok(())
}

/// The channel's runtime ends while an RPC of a different thread waits for its deadline.
#[test]
fn a_runtime_that_ends_ends_rpcs_with_a_status() -> TestResult {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (backend, plane, channel) = runtime.block_on(async {
        let backend = Backend::start("a").await?;
        let plane = mesh(&[&backend]).await;
        let channel = channel(&plane);
        ask(&channel).await?;
        backend.hang();
        Result::<_, Box<dyn std::error::Error>>::Ok((backend, plane, channel))
    })?;
    let caller = std::thread::spawn(move || block_on(ask_within(&channel, Duration::from_secs(3600))));
    runtime.block_on(backend.wait_in_flight(1))?;
    drop((backend, plane));
    drop(runtime);
    let failed = caller.join().map_err(|_| "the caller panicked")?.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable, "{failed:?}");
    Ok(())
}
