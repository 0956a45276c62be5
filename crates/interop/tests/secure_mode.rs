//! `--secure_mode`: the server as a program, with clients that have a certificate and clients that do not.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use proxyless::{Bootstrap, ClientPool, XdsChannel};
use proxyless_interop::proto::load_balancer_stats_service_client::LoadBalancerStatsServiceClient;
use proxyless_interop::proto::test_service_client::TestServiceClient;
use proxyless_interop::proto::{Empty, LoadBalancerStatsRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
use proxyless_testkit::{ControlPlane, dead_address};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

type TestResult = Result<(), Box<dyn std::error::Error>>;

const ID: &str = "spiffe://mesh.example/server";

/// A child process that does not outlive its test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a port of another process listens.
async fn wait_until_listening(port: u16) -> TestResult {
    let connected = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    Ok(tokio::time::timeout(Duration::from_secs(10), connected).await?)
}

fn channel(
    plane: &ControlPlane,
    folder: &CertificateFolder,
) -> Result<XdsChannel, Box<dyn std::error::Error>> {
    let bootstrap = Bootstrap::from_json(&plane.bootstrap_json_with("certs", folder))?;
    let builder = XdsChannel::builder("xds:///service").bootstrap(bootstrap).client_pool(ClientPool::new());
    Ok(builder.build()?)
}

#[tokio::test]
async fn the_test_service_has_mtls_and_the_maintenance_port_is_plaintext() -> TestResult {
    let ca = Authority::new("ca");
    let (server_files, client_files) = (CertificateFolder::new()?, CertificateFolder::new()?);
    server_files.write_ca(&[&ca])?;
    server_files.write_identity(&ca.issue(Leaf::new("server").uri(ID)))?;
    client_files.write_ca(&[&ca])?;
    client_files.write_identity(&ca.issue(Leaf::new("client")))?;

    let ports = [dead_address()?, dead_address()?, dead_address()?];
    let [port, maintenance, stats] = ports.each_ref().map(|port| port.address().port());
    let plane = ControlPlane::start().await?;
    plane.set_all([
        listener("service", "route").into(),
        simple_route_config("route", "cluster").into(),
        eds_cluster("cluster").tls(upstream_tls("certs").identity("certs").server_name(ID)).into(),
        priorities("cluster", [[ports[0].address()]]).into(),
    ]);
    let mut server = Command::new(env!("CARGO_BIN_EXE_xds-interop-server"));
    server
        .env_remove("GRPC_XDS_BOOTSTRAP")
        .env("GRPC_XDS_BOOTSTRAP_CONFIG", plane.bootstrap_json_with("server-certs", &server_files))
        .args(["--secure_mode=true", "--address_type=IPV4", "--hostname=secured"])
        .arg(format!("--port={port}"))
        .arg(format!("--maintenance_port={maintenance}"));
    let _server = Program(server.spawn()?);
    wait_until_listening(maintenance).await?;

    let plain = Endpoint::from_shared(format!("http://127.0.0.1:{maintenance}"))?.connect_lazy();
    let check = HealthCheckRequest { service: "grpc.testing.TestService".into() };
    assert_eq!(HealthClient::new(plain).check(check).await?.into_inner().status, 1);
    let plain = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?.connect_lazy();
    TestServiceClient::new(plain).empty_call(Empty {}).await.unwrap_err();

    // The client program in secure mode.
    let mut client = Command::new(env!("CARGO_BIN_EXE_xds-interop-client"));
    client
        .env_remove("GRPC_XDS_BOOTSTRAP")
        .env("GRPC_XDS_BOOTSTRAP_CONFIG", plane.bootstrap_json_with("certs", &client_files))
        .stdout(Stdio::null())
        .args(["--server=xds:///service", "--qps=100", "--secure_mode=true"])
        .arg(format!("--stats_port={stats}"));
    let _client = Program(client.spawn()?);
    wait_until_listening(stats).await?;
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{stats}"))?;
    let mut reader = LoadBalancerStatsServiceClient::new(endpoint.connect_lazy());
    let request = LoadBalancerStatsRequest { num_rpcs: 50, timeout_sec: 10, ..Default::default() };
    let counted = reader.get_client_stats(request).await?.into_inner();
    assert_eq!(counted.rpcs_by_peer.get("secured"), Some(&50), "{counted:?}");

    // A client of another authority is refused.
    let other = CertificateFolder::new()?;
    other.write_ca(&[&ca])?;
    other.write_identity(&Authority::new("other").issue(Leaf::new("client")))?;
    TestServiceClient::new(channel(&plane, &client_files)?).empty_call(Empty {}).await?;
    let status = TestServiceClient::new(channel(&plane, &other)?).empty_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    Ok(())
}

#[test]
fn a_server_without_certificates_ends_with_the_reason() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_xds-interop-server"));
    server.env_remove("GRPC_XDS_BOOTSTRAP").env_remove("GRPC_XDS_BOOTSTRAP_CONFIG");
    server.args(["--secure_mode=true", "--port=1", "--maintenance_port=2"]);
    let Output { status, stderr, .. } = server.output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{message}");
    assert!(
        message.starts_with("xds-interop-server: ") && message.contains("GRPC_XDS_BOOTSTRAP"),
        "{message}"
    );
}
