//! Policies that use the load of backends, over real sockets: weighted_round_robin (A58, A51) and least_request (A48).

mod common;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use common::*;
use envoy_types::pb::google::protobuf::BoolValue;
use http::{HeaderValue, Request, Response};
use http_body::Frame;
use prost::Message as _;
use proxyless::XdsChannel;
use proxyless_testkit::echo::EchoServer;
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use proxyless_xds::orca::OrcaLoadReport;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::Service;

fn report(utilization: f64) -> Vec<u8> {
    let report = OrcaLoadReport { rps_fractional: 100.0, cpu_utilization: utilization, ..Default::default() };
    report.encode_to_vec()
}

fn add_report(backend: &Backend, utilization: f64) {
    let value = base64::engine::general_purpose::STANDARD_NO_PAD.encode(report(utilization));
    backend.add_trailer("endpoint-load-metrics-bin", &value);
}

#[derive(Clone, Copy, PartialEq)]
enum Reports {
    PerCall,
    OutOfBand,
}

/// A mesh with these backends and weighted_round_robin.
async fn weighted_mesh(backends: &[&Backend], reports: Reports) -> ControlPlane {
    let plane = mesh(backends).await;
    let mut policy = weighted_round_robin(Duration::from_millis(100));
    policy.enable_oob_load_report = Some(BoolValue { value: reports == Reports::OutOfBand });
    plane.set(eds_cluster("cluster").lb_policy(wrr_locality(extension("wrr", &policy))));
    plane
}

/// The number of a hundred RPCs that this backend answers.
async fn share(channel: &XdsChannel, name: &str) -> usize {
    let mut count = 0;
    for _ in 0..100 {
        count += usize::from(ask(channel).await.expect("an answer") == name);
    }
    count
}

async fn wait_for_share(channel: &XdsChannel, name: &str, expected: std::ops::RangeInclusive<usize>) {
    let reached = async {
        while !expected.contains(&share(channel, name).await) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("the expected share");
}

#[tokio::test]
async fn a58_22_weights_come_from_the_trailers_of_calls() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = weighted_mesh(&[&a, &b], Reports::PerCall).await;
    let channel = channel(&plane);
    wait_for_share(&channel, "b", 45..=55).await;
    add_report(&a, 0.8);
    add_report(&b, 0.2);
    wait_for_share(&channel, "b", 77..=83).await;
    add_report(&a, 0.2);
    add_report(&b, 0.8);
    wait_for_share(&channel, "b", 17..=23).await;
    Ok(())
}

/// OpenRcaService: one report per stream, which stays open.
#[derive(Clone)]
struct Orca {
    report: Bytes,
    streams: Arc<AtomicUsize>,
}

impl NamedService for Orca {
    const NAME: &'static str = "xds.service.orca.v3.OpenRcaService";
}

impl Service<Request<Body>> for Orca {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.streams.fetch_add(1, Ordering::Relaxed);
        let body = OneMessage(Some(proxyless_transport::grpc::frame(&self.report)));
        let mut response = Response::new(Body::new(body));
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        ready(Ok(response))
    }
}

struct OneMessage(Option<Bytes>);

impl http_body::Body for OneMessage {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Poll::Pending,
        }
    }
}

async fn orca_backend(name: &str, utilization: f64) -> std::io::Result<(Backend, Arc<AtomicUsize>)> {
    let orca = Orca { report: report(utilization).into(), streams: Arc::default() };
    let streams = Arc::clone(&orca.streams);
    let routes = Routes::new(EchoServer::new(name)).add_service(orca);
    Ok((Backend::serve(name, routes).await?, streams))
}

#[tokio::test]
async fn a51_10_a58_24_weights_come_from_one_stream_per_connection() -> TestResult {
    let (a, a_streams) = orca_backend("a", 0.8).await?;
    let (b, b_streams) = orca_backend("b", 0.2).await?;
    // The opposite, which nobody reads.
    add_report(&a, 0.1);
    add_report(&b, 0.9);
    let plane = weighted_mesh(&[&a, &b], Reports::OutOfBand).await;
    let channel = channel(&plane);
    wait_for_share(&channel, "b", 77..=83).await;
    let opened = || [&a_streams, &b_streams].map(|streams| streams.load(Ordering::Relaxed));
    assert_eq!(opened(), [1, 1]);
    // A51-15: a new connection gets a new stream.
    a.goaway();
    let again = async {
        while opened() != [2, 1] {
            ask(&channel).await.expect("an answer");
        }
    };
    tokio::time::timeout(PATIENCE, again).await?;
    wait_for_share(&channel, "b", 77..=83).await;
    Ok(())
}

#[tokio::test]
async fn a51_13_backends_without_the_service_are_used_in_turn() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = weighted_mesh(&[&a, &b], Reports::OutOfBand).await;
    let channel = channel(&plane);
    wait_for_share(&channel, "b", 45..=55).await;
    Ok(())
}

#[tokio::test]
async fn a48_13_a_slow_backend_gets_fewer_calls() -> TestResult {
    let (slow, quick) = (Backend::start("slow").await?, Backend::start("quick").await?);
    let plane = mesh(&[&slow, &quick]).await;
    plane.set(eds_cluster("cluster").lb_policy(wrr_locality(least_request(10))));
    let channel = channel(&plane);
    wait_for_share(&channel, "slow", 20..=80).await;
    slow.hang();
    // Each call goes to the one with fewer calls in flight, so that some soon hang.
    let mut calls = Vec::new();
    while slow.in_flight() < 3 {
        let channel = channel.clone();
        calls.push(tokio::spawn(async move { ask(&channel).await }));
        tokio::task::yield_now().await;
    }
    quick.wait_in_flight(0).await?;
    // With ten samples of two endpoints, one of a thousand calls does not see the quick one.
    let mut answered = 0;
    for _ in 0..50 {
        let answer = ask_within(&channel, Duration::from_millis(500)).await;
        answered += usize::from(answer.is_ok_and(|backend| backend == "quick"));
    }
    assert!(answered >= 47, "{answered} of 50");
    slow.resume();
    for call in calls {
        call.await??;
    }
    Ok(())
}
