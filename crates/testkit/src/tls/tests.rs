use proxyless::{Bootstrap, ClientPool, XdsChannel};
use tonic::Code;

use super::{Authority, CertificateFolder, Leaf, ServerTls};
use crate::echo::{EchoClient, EchoRequest};
use crate::resources::*;
use crate::{Backend, ControlPlane};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const ID: &str = "spiffe://mesh.example/ns/prod/sa/greeter";

async fn plane(backend: &Backend) -> std::io::Result<ControlPlane> {
    let plane = ControlPlane::start().await?;
    plane.set_all([
        listener("greeter", "route").into(),
        simple_route_config("route", "cluster").into(),
        eds_cluster("cluster").tls(upstream_tls("certs").identity("certs").server_name(ID)).into(),
        priorities("cluster", [[backend]]).into(),
    ]);
    Ok(plane)
}

fn client(plane: &ControlPlane, folder: &CertificateFolder) -> EchoClient<XdsChannel> {
    let bootstrap = Bootstrap::from_json(&plane.bootstrap_json_with("certs", folder)).unwrap();
    let builder = XdsChannel::builder("xds:///greeter").bootstrap(bootstrap).client_pool(ClientPool::new());
    EchoClient::new(builder.build().unwrap())
}

#[tokio::test]
async fn a_certificate_and_the_authorities_of_clients_change_for_new_connections() -> TestResult {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let tls = ServerTls::new(&ca.issue(Leaf::new("first").uri(ID))).require_clients_of(&[&ca]);
    let backend = Backend::start("a").await?.with_tls(&tls);
    let plane = plane(&backend).await?;
    let folder = CertificateFolder::new()?;
    folder.write_ca(&[&ca])?;
    let me = ca.issue(Leaf::new("me"));
    folder.write_identity(&me)?;
    let mut client = client(&plane, &folder);
    client.unary(EchoRequest::new("hello")).await?;
    assert_eq!(backend.calls()[0].client_certificate(), Some(&me.chain_der()[0][..]));

    // The connection stays until the server ends it.
    tls.set_identity(&other.issue(Leaf::new("second").uri(ID)));
    client.unary(EchoRequest::new("hello")).await?;
    backend.kill().await;
    backend.restart().await?;
    let status = client.unary(EchoRequest::new("hello")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("no trusted root certificate has issued it"), "{status}");
    let error = backend.wait_handshake_error().await?;
    assert_eq!(backend.handshake_errors().last(), Some(&error));
    Ok(())
}

#[tokio::test]
async fn clients_without_a_certificate_that_is_wanted_are_refused() -> TestResult {
    let ca = Authority::new("ca");
    let tls =
        ServerTls::new(&ca.issue(Leaf::new("a").uri(ID))).require_clients_of(&[&Authority::new("other")]);
    let backend = Backend::start("a").await?.with_tls(&tls);
    let plane = plane(&backend).await?;
    let folder = CertificateFolder::new()?;
    folder.write_ca(&[&ca])?;
    folder.write_identity(&ca.issue(Leaf::new("me")))?;
    let status = client(&plane, &folder).unary(EchoRequest::new("hello")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(!backend.wait_handshake_error().await?.is_empty());
    assert_eq!(backend.count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_bootstrap_names_the_files_that_exist() -> TestResult {
    let ca = Authority::new("ca");
    let tls = ServerTls::new(&ca.issue(Leaf::new("plane").ip([127, 0, 0, 1])));
    let folder = CertificateFolder::new()?;
    folder.write_ca(&[&ca])?;
    folder.write_bundle_map(&[("mesh.example", &ca)])?;
    let plane = ControlPlane::start().await?.with_tls(&tls);
    let json: serde_json::Value = serde_json::from_str(&plane.bootstrap_json_with("x", &folder))?;
    let files = &json["certificate_providers"]["x"]["config"];
    assert_eq!(files.as_object().unwrap().len(), 3, "{files}");
    let creds = &json["xds_servers"][0]["channel_creds"][0];
    assert_eq!((creds["type"].as_str(), creds["config"].as_object().unwrap().len()), (Some("tls"), 2));
    Ok(())
}

#[test]
fn debug_output_has_no_key() {
    let identity = Authority::new("ca").issue(Leaf::new("a"));
    let shown = format!("{:?} {identity:?}", ServerTls::new(&identity));
    let bytes: Vec<String> = identity.key_der()[36..52].iter().map(ToString::to_string).collect();
    assert!(!shown.replace(' ', "").contains(&bytes.join(",")), "{shown}");
}
