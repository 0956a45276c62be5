//! TLS to backends and to the control plane, over sockets (gRFC A29, A65).

mod common;
mod secure;

use common::*;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use proxyless::bootstrap::{ChannelCreds, ServerFeatures};
use proxyless::{Bootstrap, ClientPool, Fallback, XdsChannel, XdsCredentials};
use proxyless_testkit::resources::*;
use proxyless_testkit::tls::{Authority, CertificateFolder, Issued, Leaf, ServerTls};
use proxyless_testkit::{Backend, ControlPlane};
use secure::{SPIFFE_ID, certificates, files};
use tonic::Code;

/// A backend with this certificate. Clients need a certificate of `clients`, if that is given.
async fn tls_backend(identity: &Issued, clients: Option<&Authority>) -> Backend {
    let tls = ServerTls::new(identity);
    tls.set_client_authorities(&Vec::from_iter(clients));
    Backend::start("a").await.unwrap().with_tls(&tls)
}

/// A cluster with TLS: the roots and the identity are those of the instance `certs`, and the server must have this name.
fn tls_cluster(san: Option<&str>) -> Cluster {
    let tls = upstream_tls("certs").identity("certs");
    eds_cluster("cluster").tls(san.into_iter().fold(tls, |tls, name| tls.server_name(name)))
}

fn tls_channel(plane: &ControlPlane, folder: &CertificateFolder, credentials: XdsCredentials) -> XdsChannel {
    let bootstrap = Bootstrap::builder()
        .server(plane.address().to_string())
        .certificate_provider("certs", files(folder))
        .build()
        .unwrap();
    XdsChannel::builder(&format!("xds:///{SERVICE}"))
        .bootstrap(bootstrap)
        .client_pool(ClientPool::new())
        .credentials(credentials)
        .build()
        .unwrap()
}

#[tokio::test]
async fn a29_09_a29_12_an_rpc_over_mtls_and_changed_settings_lose_none() -> TestResult {
    let (ca, folder) = certificates()?;
    let backend = tls_backend(&ca.issue(Leaf::new("a").uri(SPIFFE_ID)), Some(&ca)).await;
    let plane = mesh(&[&backend]).await;
    plane.set(tls_cluster(Some(SPIFFE_ID)));
    let channel = tls_channel(&plane, &folder, XdsCredentials::default());
    assert_eq!(ask(&channel).await?, "a");
    // New settings mean new connections. The files change at the same time, but are read once a second only: how many of
    // the certificates are used is not checked.
    let traffic = Load::start(&channel, 2);
    for round in 0..6 {
        folder.write_identity(&ca.issue(Leaf::new(&format!("client {round}"))))?;
        plane.set(tls_cluster((round % 2 == 1).then_some(SPIFFE_ID)));
        for _ in 0..20 {
            assert_eq!(ask(&channel).await?, "a");
        }
    }
    let (calls, failures) = traffic.stop().await;
    assert!(calls > 0 && failures.is_empty(), "{calls}: {failures:?}");
    let shown = format!("{:?} {:?}", channel.describe().await, channel);
    assert!(!shown.contains("PRIVATE KEY"));
    Ok(())
}

#[tokio::test]
async fn a29_24_a_wrong_name_is_refused_with_what_was_presented_and_wanted() -> TestResult {
    let (ca, folder) = certificates()?;
    let other = "spiffe://mesh.example/ns/prod/sa/other";
    let backend = tls_backend(&ca.issue(Leaf::new("a").uri(other)), None).await;
    let plane = mesh(&[&backend]).await;
    plane.set(tls_cluster(Some(SPIFFE_ID)));
    let channel = tls_channel(&plane, &folder, XdsCredentials::default());
    let status = ask(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    for part in ["its names", "wanted", SPIFFE_ID, "presented", other] {
        assert!(status.message().contains(part), "{part}: {status}");
    }
    let view = channel.describe().await.unwrap();
    let tree = view.tree.to_string();
    let shown = format!("{:?}", view.subchannels);
    for part in ["its names", "wanted", SPIFFE_ID, "presented", other] {
        assert!(tree.contains(part), "{part}: {tree}");
        assert!(shown.contains(part), "{part}: {shown}");
    }
    Ok(())
}

#[tokio::test]
async fn a29_03_a29_04_tls_settings_lead_to_plaintext_with_plaintext_credentials_only() -> TestResult {
    let (_, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.set(tls_cluster(None));
    let status = ask(&tls_channel(&plane, &folder, XdsCredentials::default())).await.unwrap_err();
    assert!(status.message().contains("TLS handshake"), "{status}");
    assert_eq!(ask(&tls_channel(&plane, &folder, XdsCredentials::Plaintext)).await?, "a");
    Ok(())
}

#[tokio::test]
async fn a29_01_a29_02_the_fallback_is_for_clusters_without_settings() -> TestResult {
    let (ca, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let none = tls_channel(&plane, &folder, XdsCredentials::Xds(Fallback::None));
    let status = ask(&none).await.unwrap_err();
    assert!(status.message().contains("have no fallback"), "{status}");
    // The name of the target is the one that the server must have.
    let identity = ca.issue(Leaf::new("a").dns("greeter.example"));
    let secured = tls_backend(&identity, Some(&ca)).await;
    plane.set(priorities("cluster", [[&secured]]));
    let fallback = XdsCredentials::Xds(Fallback::Tls(files(&folder)));
    assert_eq!(ask(&tls_channel(&plane, &folder, fallback)).await?, "a");
    Ok(())
}

#[tokio::test]
async fn a65_01_a65_03_the_control_plane_is_reached_over_mtls() -> TestResult {
    let (ca, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let identity = ca.issue(Leaf::new("control plane").ip([127, 0, 0, 1]));
    let plane = mesh(&[&backend]).await.with_tls(&ServerTls::new(&identity).require_clients_of(&[&ca]));
    let creds = ChannelCreds::Tls(files(&folder));
    let bootstrap = Bootstrap::builder()
        .server_with_creds(plane.address().to_string(), creds, vec![], ServerFeatures::default())
        .build()?;
    let channel = XdsChannel::builder(&format!("xds:///{SERVICE}"))
        .bootstrap(bootstrap)
        .client_pool(ClientPool::new())
        .build()?;
    assert_eq!(ask(&channel).await?, "a");
    Ok(())
}
