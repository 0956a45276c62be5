//! The client as a program, against a control plane and backends of the testkit.

use std::process::{Child, Command, Output, Stdio};

use proxyless_interop::proto::load_balancer_stats_service_client::LoadBalancerStatsServiceClient;
use proxyless_interop::proto::{LoadBalancerStatsRequest, LoadBalancerStatsResponse};
use proxyless_interop::server::{Identity, test_routes};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane, dead_address};
use tonic::Status;
use tonic::transport::Endpoint;

/// A child process that does not outlive its test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(bootstrap: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xds-interop-client"));
    command.env_remove("GRPC_XDS_BOOTSTRAP").env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap);
    command.stdout(Stdio::null());
    command
}

async fn backend(name: &str) -> Backend {
    let identity = Identity { server_id: name.into(), hostname: name.into() };
    Backend::serve(name, test_routes(identity)).await.unwrap()
}

#[tokio::test]
async fn rpcs_of_the_program_reach_all_backends() {
    let (a, b) = (backend("a").await, backend("b").await);
    let control_plane = ControlPlane::start().await.unwrap();
    control_plane.set_all([
        listener("service", "route").into(),
        simple_route_config("route", "cluster").into(),
        eds_cluster("cluster").into(),
        assignment("cluster", [locality("zone", [&a, &b])]).into(),
    ]);
    let port = dead_address().unwrap();
    let mut command = client(&control_plane.bootstrap_json());
    command.args(["--server=xds:///service", "--qps", "100", "--num_channels=2"]);
    let _program = Program(command.arg(format!("--stats_port={}", port.address().port())).spawn().unwrap());
    a.wait_count(1).await.unwrap();
    b.wait_count(1).await.unwrap();

    let stats = next_rpcs(port.address().port(), 50).await.unwrap();
    let peers: std::collections::BTreeSet<&str> = stats.rpcs_by_peer.keys().map(String::as_str).collect();
    assert_eq!((peers, stats.num_failures), (["a", "b"].into(), 0));
}

async fn next_rpcs(port: u16, count: i32) -> Result<LoadBalancerStatsResponse, Status> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    let mut client = LoadBalancerStatsServiceClient::new(endpoint.connect_lazy());
    let request = LoadBalancerStatsRequest { num_rpcs: count, timeout_sec: 10, ..Default::default() };
    client.get_client_stats(request).await.map(tonic::Response::into_inner)
}

fn ended(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_broken_bootstrap_ends_the_program_with_the_reason() {
    let (code, message) = ended(client("{ nonsense").arg("--server=xds:///service"));
    assert_eq!(code, Some(1));
    assert!(message.starts_with("xds-interop-client: ") && message.len() > 30, "{message}");
}

#[test]
fn an_unknown_flag_ends_the_program_with_its_name() {
    let (code, message) = ended(client("{}").args(["--server=xds:///service", "--speed=9"]));
    assert_eq!(code, Some(2));
    assert!(message.contains("--speed"), "{message}");
}
