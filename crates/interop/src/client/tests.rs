//! The client over tonic's own channel, against backends of the testkit.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Pending, pending};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use clap::Parser;
use proxyless::{Fallback, XdsCredentials};
use proxyless_testkit::Backend;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel as TonicChannel, Endpoint};
use tonic::{Code, Status};

use super::plan::Plan;
use super::*;
use crate::proto::client_configure_request::{Metadata, RpcType};
use crate::proto::load_balancer_stats_response::MetadataType;
use crate::proto::load_balancer_stats_service_client::LoadBalancerStatsServiceClient;
use crate::proto::xds_update_client_configure_service_client::XdsUpdateClientConfigureServiceClient;
use crate::proto::{
    ClientConfigureRequest, LoadBalancerAccumulatedStatsRequest, LoadBalancerStatsRequest,
    LoadBalancerStatsResponse,
};
use crate::server::{Identity, test_routes};

fn flags(arguments: &[&str]) -> ClientFlags {
    let all = ["client", "--server=xds:///x"].iter().chain(arguments);
    ClientFlags::try_parse_from(all).unwrap()
}

fn refusal(arguments: &[&str]) -> String {
    let all = ["client", "--server=xds:///x"].iter().chain(arguments);
    ClientFlags::try_parse_from(all).unwrap_err().to_string()
}

/// A client that runs against one backend of the interop server.
struct Rig {
    backend: Backend,
    stats: LoadBalancerStatsServiceClient<TonicChannel>,
    configure: XdsUpdateClientConfigureServiceClient<TonicChannel>,
    _services: Backend,
    traffic: tokio::task::JoinHandle<FailedRpc>,
}

impl Rig {
    async fn start(arguments: &[&str]) -> Self {
        let identity = Identity { server_id: "id".into(), hostname: "one".into() };
        let backend = Backend::serve("one", test_routes(identity)).await.unwrap();
        let client = Client::new(flags(arguments)).unwrap();
        let services = Backend::serve("services", client.routes()).await.unwrap();
        let channel = channel(&services);
        let target = self::channel(&backend);
        let traffic = tokio::spawn(async move { client.drive(vec![target], Arc::new(|_, _, _| ())).await });
        Self {
            backend,
            stats: LoadBalancerStatsServiceClient::new(channel.clone()),
            configure: XdsUpdateClientConfigureServiceClient::new(channel),
            _services: services,
            traffic,
        }
    }

    async fn next(&mut self, count: i32, keys: &[&str]) -> LoadBalancerStatsResponse {
        let request = LoadBalancerStatsRequest {
            num_rpcs: count,
            timeout_sec: 10,
            metadata_keys: keys.iter().map(ToString::to_string).collect(),
        };
        self.stats.get_client_stats(request).await.unwrap().into_inner()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.traffic.abort();
    }
}

fn channel(backend: &Backend) -> TonicChannel {
    Endpoint::from_shared(format!("http://{}", backend.address())).unwrap().connect_lazy()
}

#[test]
fn flags_come_in_both_forms() {
    let parsed =
        flags(&["--qps", "2.5", "--num_channels=3", "--fail_on_failed_rpcs=true", "--print_response"]);
    assert_eq!((parsed.qps, parsed.num_channels), (2.5, 3));
    assert!(parsed.fail_on_failed_rpcs && parsed.print_response);
    let parsed = flags(&["--fail_on_failed_rpcs", "false", "--secure_mode=false"]);
    assert!(!parsed.fail_on_failed_rpcs);
    assert_eq!(parsed.credentials(), XdsCredentials::Plaintext);
    let secure = XdsCredentials::Xds(Fallback::Plaintext);
    assert_eq!(flags(&["--secure_mode=true"]).credentials(), secure);
    assert_eq!((parsed.rpc_timeout_sec, parsed.rpc.as_str()), (20.0, "UnaryCall"));
}

#[test]
fn bad_flags_are_named() {
    assert!(refusal(&["--nonsense=1"]).contains("--nonsense"));
    assert!(refusal(&["--enable-csm-observability=true"]).contains("not supported"));
    assert!(refusal(&["--qps=0"]).contains("positive"));
    assert!(refusal(&["--rpc_timeout_sec=soon"]).contains("--rpc_timeout_sec"));
    assert!(Client::new(flags(&["--rpc=BinaryCall"])).unwrap_err().to_string().contains("BinaryCall"));
    assert!(Client::new(flags(&["--metadata=EmptyCall:k"])).unwrap_err().to_string().contains("KEY"));
}

#[test]
fn a_plan_has_the_metadata_of_each_method() {
    let flags =
        flags(&["--rpc=EmptyCall,UnaryCall", "--metadata=EmptyCall:K:a:b,UnaryCall:k:1,UnaryCall:k:2"]);
    let plan = Plan::from_flags(&flags).unwrap();
    assert_eq!(plan.methods, [Method::Empty, Method::Unary]);
    assert_eq!(plan.metadata[&Method::Empty].get("k").unwrap(), "a:b");
    assert_eq!(plan.metadata[&Method::Unary].get_all("k").iter().count(), 2);
}

#[test]
fn a_request_to_configure_replaces_the_plan() {
    let default = Duration::from_secs(20);
    let nothing = Plan::from_request(&ClientConfigureRequest::default(), default).unwrap();
    assert_eq!((nothing.methods.len(), nothing.timeout), (0, default));
    let request = ClientConfigureRequest {
        types: vec![RpcType::EmptyCall.into()],
        metadata: vec![Metadata { r#type: RpcType::EmptyCall.into(), key: "k".into(), value: "v".into() }],
        timeout_sec: 3,
    };
    let plan = Plan::from_request(&request, default).unwrap();
    assert_eq!((plan.methods, plan.timeout), (vec![Method::Empty], Duration::from_secs(3)));
    assert_eq!(plan.metadata[&Method::Empty].get("k").unwrap(), "v");
    let bad = ClientConfigureRequest { types: vec![7], ..Default::default() };
    assert!(Plan::from_request(&bad, default).is_err());
    let bad = ClientConfigureRequest { timeout_sec: -1, ..Default::default() };
    assert!(Plan::from_request(&bad, default).is_err());
}

#[test]
fn binary_metadata_is_sent_as_it_is() {
    let metadata = |key: &str, value: &str| Metadata {
        r#type: RpcType::UnaryCall.into(),
        key: key.into(),
        value: value.into(),
    };
    let request = ClientConfigureRequest {
        types: vec![RpcType::UnaryCall.into()],
        metadata: vec![metadata("X-Test-Bin", "caf\u{e9}"), metadata("x-test-bin", "2")],
        timeout_sec: 0,
    };
    let plan = Plan::from_request(&request, Duration::from_secs(1)).unwrap();
    let values = plan.metadata[&Method::Unary].get_all_bin("x-test-bin");
    let values: Vec<_> = values.iter().map(|value| value.to_bytes().unwrap()).collect();
    assert_eq!(values, ["caf\u{e9}", "2"]);
    let bad = ClientConfigureRequest { metadata: vec![metadata(" -bin", "")], ..Default::default() };
    assert!(Plan::from_request(&bad, Duration::from_secs(1)).unwrap_err().to_string().contains("-bin"));
}

#[test]
fn codes_are_those_of_other_languages() {
    let second = Duration::from_secs(1);
    let code = |status: Status, waited| rpc::as_grpc_says(status, waited, second).code();
    assert_eq!(code(Status::cancelled("Timeout expired"), second), Code::DeadlineExceeded);
    assert_eq!(code(Status::cancelled("by the server"), second / 2), Code::Cancelled);
    assert_eq!(code(Status::unavailable(""), second), Code::Unavailable);
    assert_eq!(code(Status::out_of_range("the server's own"), second), Code::OutOfRange);
}

#[test]
fn a_watch_sees_the_rpcs_that_start_after_it_and_no_others() {
    let stats = Arc::new(Stats::default());
    let outcome = |code: Code, peer: &str| Outcome {
        status: Status::new(code, ""),
        peer: peer.into(),
        initial: MetadataMap::new(),
        trailing: MetadataMap::new(),
    };
    let early = stats.start(Method::Unary);
    let watch = stats.watch(3, Vec::new());
    let [first, second] = [(); 2].map(|()| stats.start(Method::Unary));
    assert!(stats.finish(early, Method::Unary, &outcome(Code::Ok, "early")));
    stats.finish(second, Method::Unary, &outcome(Code::Ok, "b"));
    stats.finish(first, Method::Unary, &outcome(Code::Internal, ""));
    let response = watch.response();
    assert_eq!(response.rpcs_by_peer, [("b".to_owned(), 1)].into());
    assert_eq!(response.num_failures, 2, "one failed, one has not even started");

    let totals = &stats.accumulated().stats_per_method["UNARY_CALL"];
    let results: BTreeMap<i32, i32> = totals.result.clone().into_iter().collect();
    assert_eq!((totals.rpcs_started, results), (3, [(0, 2), (13, 1)].into()));
}

#[tokio::test]
async fn rpcs_are_counted_by_peer_and_method() {
    let mut rig = Rig::start(&["--qps=500", "--rpc=UnaryCall,EmptyCall", "--response_payload_size=7"]).await;
    let response = rig.next(20, &[]).await;
    assert_eq!(response.rpcs_by_peer, [("one".to_owned(), 20)].into());
    assert_eq!(response.num_failures, 0);
    let by_method = |name: &str| response.rpcs_by_method[name].rpcs_by_peer["one"];
    assert_eq!((by_method("UnaryCall"), by_method("EmptyCall")), (10, 10));
}

#[tokio::test]
async fn metadata_is_reported_apart_from_trailers() {
    let mut rig = Rig::start(&["--qps=500"]).await;
    let response = rig.next(2, &["HOSTNAME"]).await;
    let rpcs = &response.metadatas_by_peer["one"].rpc_metadata;
    assert_eq!(rpcs.len(), 2);
    let entries: Vec<_> =
        rpcs[0].metadata.iter().map(|m| (m.key.as_str(), m.value.as_str(), m.r#type())).collect();
    assert_eq!(entries, [("hostname", "one", MetadataType::Initial)]);
    let all = rig.next(1, &["*"]).await;
    assert!(all.metadatas_by_peer["one"].rpc_metadata[0].metadata.len() > 1);
}

#[tokio::test]
async fn the_plan_can_change_while_rpcs_run() {
    let mut rig = Rig::start(&["--qps=500"]).await;
    rig.next(1, &[]).await;
    let request = ClientConfigureRequest {
        types: vec![RpcType::EmptyCall.into()],
        metadata: vec![Metadata { r#type: RpcType::EmptyCall.into(), key: "k".into(), value: "v".into() }],
        timeout_sec: 5,
    };
    rig.configure.configure(request).await.unwrap();
    rig.next(2, &[]).await;
    let last = rig.backend.calls().last().cloned().unwrap();
    assert_eq!(last.path(), "/grpc.testing.TestService/EmptyCall");
    assert_eq!((last.header("k"), last.header("grpc-timeout")), (Some("v"), Some("5000000u")));

    let bad = ClientConfigureRequest { types: vec![9], ..Default::default() };
    assert_eq!(rig.configure.configure(bad).await.unwrap_err().code(), Code::InvalidArgument);
}

/// A channel that never answers and counts what it is asked.
#[derive(Clone, Default)]
struct Silence(Arc<AtomicU64>);

impl tower_service::Service<http::Request<Body>> for Silence {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pending<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: http::Request<Body>) -> Self::Future {
        self.0.fetch_add(1, Ordering::Relaxed);
        pending()
    }
}

/// Lets this much virtual time pass, and whatever is due in it happen.
async fn pass(time: Duration) {
    let _ = tokio::time::timeout(time, pending::<()>()).await;
}

#[tokio::test(start_paused = true)]
async fn rpcs_start_on_time_even_if_none_ends_and_stop_when_no_type_is_asked_for() {
    let client = Arc::new(Client::new(flags(&["--qps=10", "--rpc=UnaryCall,EmptyCall"])).unwrap());
    let channel = Silence::default();
    let (driver, channels) = (client.clone(), vec![channel.clone(), channel.clone()]);
    let traffic = tokio::spawn(async move { driver.drive(channels, Arc::new(|_, _, _| ())).await });
    pass(Duration::from_millis(9950)).await;
    let sent = channel.0.load(Ordering::Relaxed);
    assert_eq!(sent, 400, "10 per second for 10 seconds, on two channels, of two methods");

    let nothing = Plan::from_request(&ClientConfigureRequest::default(), Duration::from_secs(1)).unwrap();
    client.plan.send_replace(nothing);
    pass(Duration::from_secs(10)).await;
    assert_eq!(channel.0.load(Ordering::Relaxed), sent);
    traffic.abort();
}

#[tokio::test]
async fn failures_are_counted_by_code() {
    let mut rig = Rig::start(&["--qps=500"]).await;
    rig.backend.fail_with(Code::ResourceExhausted);
    rig.next(5, &[]).await;
    let response = rig.next(5, &[]).await;
    assert_eq!((response.num_failures, response.rpcs_by_peer.len()), (5, 0));
    let request = LoadBalancerAccumulatedStatsRequest {};
    let totals = rig.stats.get_client_accumulated_stats(request).await.unwrap().into_inner();
    assert!(totals.stats_per_method["UNARY_CALL"].result[&(Code::ResourceExhausted as i32)] >= 5);
    assert!(!rig.traffic.is_finished(), "failures are borne");
}

#[tokio::test]
async fn responses_of_more_than_four_mebibytes_are_refused() {
    let mut rig = Rig::start(&["--qps=20", "--response_payload_size=4194304"]).await;
    assert_eq!(rig.next(1, &[]).await.num_failures, 1);
    let request = LoadBalancerAccumulatedStatsRequest {};
    let totals = rig.stats.get_client_accumulated_stats(request).await.unwrap().into_inner();
    assert!(totals.stats_per_method["UNARY_CALL"].result[&(Code::ResourceExhausted as i32)] >= 1);
}

#[tokio::test]
async fn custom_metadata_comes_back_and_is_reported() {
    let keys = ["x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"];
    let metadata = format!("--metadata=UnaryCall:{}:one,UnaryCall:{}:two", keys[0], keys[1]);
    let mut rig = Rig::start(&["--qps=500", &metadata]).await;
    let response = rig.next(1, &keys).await;
    let found = &response.metadatas_by_peer["one"].rpc_metadata[0].metadata;
    let found: Vec<_> = found.iter().map(|m| (m.key.as_str(), m.value.as_str(), m.r#type())).collect();
    assert_eq!(found, [(keys[0], "one", MetadataType::Initial), (keys[1], "two", MetadataType::Trailing)]);
}

#[tokio::test]
async fn a_failure_after_a_success_ends_the_run_with_fail_on_failed_rpcs() {
    let mut rig = Rig::start(&["--qps=500", "--fail_on_failed_rpcs=true"]).await;
    rig.next(1, &[]).await;
    rig.backend.fail_with(Code::Internal);
    let ended = tokio::time::timeout(Duration::from_secs(10), &mut rig.traffic).await;
    assert_eq!(ended.unwrap().unwrap(), FailedRpc);
}

#[test]
fn payloads_have_the_sizes_of_the_flags() {
    let payload = flags(&["--request_payload_size=3", "--response_payload_size=4"]).payload();
    assert_eq!((payload.request, payload.response), (3, 4));
    assert!(refusal(&["--response_payload_size=-1"]).contains("--response_payload_size"));
}
