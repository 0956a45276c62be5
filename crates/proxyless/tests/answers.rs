//! Responses that gRPC servers do not send: error pages, missing trailers, headers beyond the limit.

mod common;

use std::future::{Future as _, pending, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use common::raw::{self, END_STREAM, RawServer, Received, Reply};
use common::*;
use proxyless::XdsChannel;
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tonic::{Code, Status};

/// A mesh that reports load, with one endpoint that answers like this.
async fn answering(
    reply: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
) -> std::io::Result<(RawServer, ControlPlane, XdsChannel)> {
    let server = RawServer::start(move |Received { stream, .. }| Reply::Frames(reply(stream))).await?;
    let plane = mesh_of(&[server.address()]).await;
    plane.set(eds_cluster("cluster").report_load());
    let channel = channel(&plane);
    Ok((server, plane, channel))
}

/// The error of an RPC with this response. The load report must count it as a failure, too.
async fn failure(
    reply: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
) -> Result<Status, Box<dyn std::error::Error>> {
    let (server, plane, channel) = answering(reply).await?;
    let failed = ask(&channel).await.unwrap_err();
    assert!(failed.message().contains(&server.address().to_string()), "{failed:?}");
    let load = plane.wait_load("cluster", |load| load.failed == 1).await?;
    assert_eq!((load.issued, load.succeeded), (1, 0));
    Ok(failed)
}

#[tokio::test]
async fn an_error_page_is_an_error_that_names_the_backend_and_shows_the_page() -> TestResult {
    let page = "<html><h1>nothing here</h1></html>";
    for (http, code) in [("200", Code::Unknown), ("503", Code::Unavailable), ("403", Code::PermissionDenied)]
    {
        let failed = failure(move |stream| {
            let fields = [(":status", http), ("content-type", "text/html")];
            [raw::headers(stream, 0, &fields), raw::data(stream, END_STREAM, page.as_bytes())].concat()
        })
        .await?;
        assert_eq!(failed.code(), code, "{failed:?}");
        for part in ["text/html", page, http] {
            assert!(failed.message().contains(part), "{failed:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_error_page_that_does_not_end_is_not_waited_for() -> TestResult {
    let failed = failure(|stream| {
        [raw::headers(stream, 0, &[(":status", "502")]), raw::data(stream, 0, b"bad gate")].concat()
    })
    .await?;
    assert_eq!(failed.code(), Code::Unavailable);
    assert!(failed.message().ends_with("without grpc-status, body begins with \"bad gate\""), "{failed:?}");
    Ok(())
}

#[tokio::test]
async fn a_missing_status_is_the_same_error_for_callers_and_load_reports() -> TestResult {
    let message = |stream| [raw::grpc_headers(stream), raw::data(stream, 0, &[0; 5])].concat();
    let no_trailers = move |stream| [message(stream), raw::data(stream, END_STREAM, b"")].concat();
    let failed = failure(no_trailers).await?;
    assert_eq!(failed.code(), Code::Internal, "{failed:?}");
    assert!(failed.message().ends_with("the stream ended without trailers"), "{failed:?}");

    let trailers = |stream| raw::headers(stream, END_STREAM, &[("x-other", "1")]);
    let failed = failure(move |stream| [message(stream), trailers(stream)].concat()).await?;
    assert_eq!(failed.code(), Code::Unknown, "{failed:?}");
    assert!(failed.message().ends_with("the trailers have no grpc-status"), "{failed:?}");

    let fields = [(":status", "200"), ("content-type", "application/grpc")];
    let failed = failure(move |stream| raw::headers(stream, END_STREAM, &fields)).await?;
    assert_eq!(failed.code(), Code::Unknown, "{failed:?}");
    Ok(())
}

/// A successful response with headers of a little more than 16 KiB.
fn large_headers(stream: u32) -> Vec<u8> {
    let names: Vec<_> = (100..230).map(|number| format!("x-{number}")).collect();
    let value = "v".repeat(100);
    let mut fields = vec![(":status", "200"), ("content-type", "application/grpc")];
    fields.extend(names.iter().map(|name| (name.as_str(), value.as_str())));
    let trailers = raw::headers(stream, END_STREAM, &[("grpc-status", "0")]);
    [raw::headers(stream, 0, &fields), raw::data(stream, 0, &[0; 5]), trailers].concat()
}

#[tokio::test]
async fn headers_beyond_the_limit_exhaust_a_resource() -> TestResult {
    let failed = failure(large_headers).await?;
    assert_eq!(failed.code(), Code::ResourceExhausted, "{failed:?}");
    assert!(failed.message().contains("larger than 16384 bytes"), "{failed:?}");
    let (_server, plane, _) = answering(large_headers).await?;
    ask(&builder(&plane).max_header_list_size(32 << 10).build()?).await?;
    Ok(())
}

#[tokio::test]
async fn a50_error_pages_count_for_outlier_detection() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let page = RawServer::start(|request| raw::http_error(request.stream, "503", "<html>")).await?;
    let plane = mesh(&[]).await;
    let detection = outlier_detection(Duration::from_millis(500), Duration::from_secs(300));
    let detection = detection.failure_percentage(50, 2, 3).max_ejection_percent(50);
    plane.set_all([
        eds_cluster("cluster").outlier_detection(detection).into(),
        priorities("cluster", [[a.address(), b.address(), page.address()]]).into(),
    ]);
    let channel = channel(&plane);
    until_failure(&channel, "HTTP status 503").await;
    until_only(&channel, &["a", "b"]).await;
    Ok(())
}

#[tokio::test]
async fn cancelled_after_the_deadline_is_deadline_exceeded() -> TestResult {
    const CANCEL: u32 = 8;
    let replies: [fn(u32) -> Vec<u8>; 4] = [
        |stream| {
            let fields = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "1")];
            raw::headers(stream, END_STREAM, &fields)
        },
        |stream| raw::reset(stream, CANCEL),
        |stream| {
            [raw::grpc_headers(stream), raw::headers(stream, END_STREAM, &[("grpc-status", "1")])].concat()
        },
        |stream| [raw::grpc_headers(stream), raw::reset(stream, CANCEL)].concat(),
    ];
    for (case, reply) in replies.into_iter().enumerate() {
        let (server, _plane, channel) = answering(reply).await?;
        channel.ready().await?;
        let timeout = Duration::from_millis(200);
        let well_past = tokio::time::Instant::now() + 2 * timeout;
        let mut call = pin!(ask_within(&channel, timeout));
        // The response arrives before the deadline, but is polled after it.
        while server.received().is_empty() {
            assert!(poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await.is_pending());
            tokio::task::yield_now().await;
        }
        let _ = tokio::time::timeout_at(well_past, pending::<()>()).await;
        let failed = call.await.unwrap_err();
        assert_eq!(failed.code(), Code::DeadlineExceeded, "case {case}: {failed:?}");
    }
    Ok(())
}
