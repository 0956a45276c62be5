//! Fault injection over real sockets (gRFC A33).

mod common;

use std::time::Duration;

use common::*;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::HttpFault;
use envoy_types::pb::google::protobuf::UInt32Value;
use proxyless::XdsChannel;
use proxyless::inspect::FaultsView;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tonic::{Code, Request};

const ALL: u32 = 1_000_000;
const HOUR: Duration = Duration::from_secs(3600);

/// A mesh with one backend, whose listener has this fault filter.
async fn faulty_mesh(backend: &Backend, fault: &HttpFault) -> ControlPlane {
    let plane = mesh(&[backend]).await;
    inject(&plane, fault);
    plane
}

fn inject(plane: &ControlPlane, fault: &HttpFault) {
    plane.set(listener_with(SERVICE, &connection_manager("route").filter(http_filter("fault", fault))));
}

async fn faults(channel: &XdsChannel) -> FaultsView {
    channel.describe().await.expect("its view").faults
}

/// Waits until this number of RPCs of the channel is delayed.
async fn until_active(channel: &XdsChannel, count: u64) {
    let wait = async {
        while faults(channel).await.active != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("delayed RPCs");
}

#[tokio::test]
async fn a33_2_an_abort_ends_rpcs_before_anything_is_sent() {
    let backend = Backend::start("a").await.unwrap();
    let plane = faulty_mesh(&backend, &fault_abort(8, ALL)).await;
    let channel = channel(&plane);
    let status = ask(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "aborted by the fault filter \"fault\"");
    let messages = tokio_stream::iter([EchoRequest::new("hello")]);
    let status = EchoClient::new(channel.clone()).chat(messages).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(backend.count(), 0);
    assert_eq!(faults(&channel).await.aborted, 2);
    // The update of the filter applies to later RPCs.
    inject(&plane, &HttpFault::default());
    until_only(&channel, &["a"]).await;
}

/// A retry policy repeats attempts, and a fault is not one.
#[tokio::test]
async fn a33_2_an_abort_is_not_retried() {
    let backend = Backend::start("a").await.unwrap();
    let plane = faulty_mesh(&backend, &fault_abort(14, ALL)).await;
    retry(&plane, "unavailable", Duration::from_millis(1));
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(faults(&channel).await.aborted, 1);
}

#[tokio::test]
async fn a33_12_an_abort_with_ok_is_a_response_without_a_message() {
    let backend = Backend::start("a").await.unwrap();
    let plane = faulty_mesh(&backend, &fault_abort(0, ALL)).await;
    let channel = channel(&plane);
    // A stream may end without a message, a unary response may not.
    let messages = tokio_stream::iter([EchoRequest::new("hello")]);
    let mut stream = EchoClient::new(channel.clone()).chat(messages).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_none());
    assert!(ask(&channel).await.is_err());
    assert_eq!(backend.count(), 0);
}

#[tokio::test]
async fn a33_1_a_delay_counts_into_the_deadline() {
    let backend = Backend::start("a").await.unwrap();
    let plane = faulty_mesh(&backend, &fault_delay(HOUR, ALL)).await;
    let channel = channel(&plane);
    let status = ask_within(&channel, Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let reason = "waiting for the end of the delay of the fault filter \"fault\"";
    assert!(status.message().contains(reason), "{status}");
    assert_eq!(backend.count(), 0);
    let after = faults(&channel).await;
    assert_eq!((after.active, after.delayed), (0, 1));
}

#[tokio::test]
async fn a33_1_a_delayed_rpc_is_sent_after_the_delay() {
    let backend = Backend::start("a").await.unwrap();
    let plane = faulty_mesh(&backend, &fault_delay(Duration::from_millis(20), ALL)).await;
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await.unwrap(), "a");
    assert_eq!(faults(&channel).await.delayed, 1);
}

#[tokio::test]
async fn a33_a_cancelled_rpc_ends_its_fault() {
    let backend = Backend::start("a").await.unwrap();
    let plane = faulty_mesh(&backend, &fault_delay(HOUR, ALL)).await;
    let channel = channel(&plane);
    let delayed = tokio::spawn({
        let channel = channel.clone();
        async move { EchoClient::new(channel).unary(Request::new(EchoRequest::new("hello"))).await }
    });
    until_active(&channel, 1).await;
    delayed.abort();
    until_active(&channel, 0).await;
    assert_eq!(backend.count(), 0);
}

/// The limit is one of the process, in which other tests run: zero is the only limit that they do not disturb.
#[tokio::test]
async fn a33_3_beyond_the_limit_rpcs_pass_without_a_fault() {
    let backend = Backend::start("a").await.unwrap();
    let none = HttpFault { max_active_faults: Some(UInt32Value { value: 0 }), ..fault_delay(HOUR, ALL) };
    let plane = faulty_mesh(&backend, &none).await;
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await.unwrap(), "a");
    assert_eq!(faults(&channel).await, FaultsView::default());
}

#[tokio::test]
async fn a33_headers_of_the_rpc_control_the_fault() {
    use envoy_types::pb::envoy::extensions::filters::http::fault::v3::fault_abort::{ErrorType, HeaderAbort};
    let backend = Backend::start("a").await.unwrap();
    let mut fault = fault_abort(0, ALL);
    if let Some(abort) = &mut fault.abort {
        abort.error_type = Some(ErrorType::HeaderAbort(HeaderAbort {}));
    }
    let plane = faulty_mesh(&backend, &fault).await;
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await.unwrap(), "a");
    let mut request = Request::new(EchoRequest::new("hello"));
    request.metadata_mut().insert("x-envoy-fault-abort-grpc-request", "10".parse().unwrap());
    let status = EchoClient::new(channel.clone()).unary(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
}
