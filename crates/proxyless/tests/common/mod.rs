//! A small mesh for tests: a control plane, backends, and a channel with its own xDS client.
#![allow(dead_code)] // each test binary uses a part

pub(crate) mod raw;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::config::route::v3::retry_policy::RetryBackOff;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::{RetryPolicy, Route};
use envoy_types::pb::google::protobuf::UInt32Value;
use proxyless::{Bootstrap, ClientPool, XdsChannel, XdsChannelBuilder};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tonic::{Request, Status};

pub(crate) const SERVICE: &str = "greeter.example:50051";
/// Far longer than a healthy test takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A control plane that serves one cluster, `cluster`, to [`SERVICE`].
pub(crate) async fn mesh(backends: &[&Backend]) -> ControlPlane {
    let plane = ControlPlane::start().await.unwrap();
    plane.set_all([
        listener(SERVICE, "route").into(),
        simple_route_config("route", "cluster").into(),
        eds_cluster("cluster").into(),
        priorities("cluster", [backends.to_vec()]).into(),
    ]);
    plane
}

/// A mesh like that of [`mesh`], with endpoints that are not [`Backend`]s.
pub(crate) async fn mesh_of(addresses: &[SocketAddr]) -> ControlPlane {
    let plane = mesh(&[]).await;
    plane.set(priorities("cluster", [addresses.to_vec()]));
    plane
}

/// Makes the only route retry these codes up to four times, with this interval.
pub(crate) fn retry(plane: &ControlPlane, retry_on: &str, interval: Duration) {
    let interval = Some(duration(interval));
    let policy = RetryPolicy {
        retry_on: retry_on.into(),
        num_retries: Some(UInt32Value { value: 4 }),
        retry_back_off: Some(RetryBackOff { base_interval: interval, max_interval: interval }),
        ..Default::default()
    };
    let mut route: Route = route("cluster");
    if let Some(Action::Route(action)) = &mut route.action {
        action.retry_policy = Some(policy);
    }
    plane.set(route_config("route", [virtual_host(["*"], [route])]));
}

pub(crate) fn bootstrap(plane: &ControlPlane) -> Bootstrap {
    Bootstrap::from_json(&plane.bootstrap_json()).unwrap()
}

/// A builder of a channel with its own xDS client.
pub(crate) fn builder(plane: &ControlPlane) -> XdsChannelBuilder {
    XdsChannel::builder(&format!("xds:///{SERVICE}"))
        .bootstrap(bootstrap(plane))
        .client_pool(ClientPool::new())
}

pub(crate) fn channel(plane: &ControlPlane) -> XdsChannel {
    builder(plane).build().unwrap()
}

/// Sends one RPC; returns the name of the backend that answered.
pub(crate) async fn ask(channel: &XdsChannel) -> Result<String, Status> {
    ask_within(channel, PATIENCE).await
}

pub(crate) async fn ask_within(channel: &XdsChannel, timeout: Duration) -> Result<String, Status> {
    let mut request = Request::new(EchoRequest::new("hello"));
    request.set_timeout(timeout);
    Ok(EchoClient::new(channel.clone()).unary(request).await?.into_inner().backend)
}

/// A route to this cluster, for the RPCs of [`ask_for`] with the same choice.
pub(crate) fn route_for(choice: &str, cluster: &str) -> Route {
    route(cluster).header(header("x-choice").exact(choice))
}

/// Sends one RPC whose header selects a route; returns the name of the backend that answered.
pub(crate) async fn ask_for(channel: &XdsChannel, choice: &'static str) -> Result<String, Status> {
    let mut request = Request::new(EchoRequest::new("hello"));
    request.set_timeout(PATIENCE);
    request.metadata_mut().insert("x-choice", choice.parse().expect("ASCII"));
    Ok(EchoClient::new(channel.clone()).unary(request).await?.into_inner().backend)
}

/// Starts this many RPCs at once; see [`Held`].
pub(crate) fn hold(channel: &XdsChannel, count: usize) -> Held {
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..count {
        let channel = channel.clone();
        calls.spawn(async move { ask(&channel).await });
    }
    Held(calls)
}

/// RPCs in flight, usually to backends that [hang](Backend::hang). They end when this is dropped.
pub(crate) struct Held(tokio::task::JoinSet<Result<String, Status>>);

impl Held {
    /// The result of the next RPC to end.
    pub(crate) async fn next(&mut self) -> Result<String, Status> {
        self.0.join_next().await.expect("an RPC").expect("no panic")
    }
}

/// Sends RPCs until one fails with a message that contains this.
pub(crate) async fn until_failure(channel: &XdsChannel, part: &str) -> Status {
    let mut last = None;
    let failed = async {
        loop {
            match ask(channel).await {
                Err(status) if status.message().contains(part) => return status,
                other => last = Some(other),
            }
            tokio::task::yield_now().await;
        }
    };
    match tokio::time::timeout(PATIENCE, failed).await {
        Ok(status) => status,
        Err(_) => panic!("no RPC failed with {part:?}; the last one: {last:?}"),
    }
}

/// The number of responses of each backend to `count` RPCs.
pub(crate) async fn spread(channel: &XdsChannel, count: usize) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    for _ in 0..count {
        *answers.entry(ask(channel).await.unwrap()).or_default() += 1;
    }
    answers
}

/// Sends RPCs until exactly these backends answer a series of them.
pub(crate) async fn until_only(channel: &XdsChannel, names: &[&str]) {
    let reached = async {
        let mut run: Vec<Option<String>> = Vec::new();
        loop {
            run.push(ask(channel).await.ok());
            let last = &run[run.len().saturating_sub(12)..];
            let only_these =
                last.iter().all(|name| name.as_deref().is_some_and(|name| names.contains(&name)));
            let all_of_them = names.iter().all(|name| last.iter().any(|seen| seen.as_deref() == Some(name)));
            if last.len() == 12 && only_these && all_of_them {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, reached)
        .await
        .unwrap_or_else(|_| panic!("RPCs never settled on {names:?}"));
}

/// A steady load in the background; [`Load::stop`] returns the results.
pub(crate) struct Load {
    stop: tokio_util::sync::CancellationToken,
    workers: Vec<tokio::task::JoinHandle<(usize, Vec<Status>)>>,
}

impl Load {
    pub(crate) fn start(channel: &XdsChannel, workers: usize) -> Self {
        let stop = tokio_util::sync::CancellationToken::new();
        let workers = (0..workers)
            .map(|_| {
                let (channel, stop) = (channel.clone(), stop.clone());
                tokio::spawn(async move {
                    let (mut succeeded, mut failed) = (0, Vec::new());
                    while !stop.is_cancelled() {
                        match ask(&channel).await {
                            Ok(_) => succeeded += 1,
                            Err(status) => failed.push(status),
                        }
                    }
                    (succeeded, failed)
                })
            })
            .collect();
        Self { stop, workers }
    }

    /// Successes and failures.
    pub(crate) async fn stop(self) -> (usize, Vec<Status>) {
        self.stop.cancel();
        let (mut succeeded, mut failed) = (0, Vec::new());
        for worker in self.workers {
            let (ok, errors) = worker.await.unwrap();
            succeeded += ok;
            failed.extend(errors);
        }
        (succeeded, failed)
    }
}
