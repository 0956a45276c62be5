//! TLS to backends and to the control plane, over sockets (gRFC A29, A65).

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::TransportSocket;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as wire;
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message as _, Name as _};
use proxyless::bootstrap::{CertificateFiles, ChannelCreds, IdentityFiles, RootsFile, ServerFeatures};
use proxyless::{Bootstrap, ClientPool, Fallback, XdsChannel, XdsCredentials};
use proxyless_testkit::resources::*;
use proxyless_testkit::tls::{Authority, CertificateFolder, Issued, Leaf};
use proxyless_testkit::{Backend, ControlPlane};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tonic::Code;

const SPIFFE_ID: &str = "spiffe://mesh.example/ns/prod/sa/api";

/// An address that ends TLS in front of `to`. Clients need a certificate of `clients`, if that is given.
async fn tls_front(to: SocketAddr, identity: &Issued, clients: Option<&Authority>) -> SocketAddr {
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&crypto));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from(authority.der().to_vec())).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
    };
    let chain = identity.chain_der().iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key_der().to_vec()));
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut near = acceptor.accept(stream).await?;
                let mut far = TcpStream::connect(to).await?;
                copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    address
}

/// A cluster with TLS: the roots and the identity are those of the instance `certs`, and the server must have this name.
fn tls_cluster(san: Option<&str>) -> Cluster {
    let instance =
        wire::CertificateProviderPluginInstance { instance_name: "certs".into(), ..Default::default() };
    let matcher = |name: &str| StringMatcher {
        match_pattern: Some(MatchPattern::Exact(name.into())),
        ..Default::default()
    };
    #[allow(deprecated, reason = "the field that gRFC A29 names")]
    let validation = wire::CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance.clone()),
        match_subject_alt_names: san.map(matcher).into_iter().collect(),
        ..Default::default()
    };
    let common = wire::CommonTlsContext {
        tls_certificate_provider_instance: Some(instance),
        validation_context_type: Some(wire::common_tls_context::ValidationContextType::ValidationContext(
            validation,
        )),
        ..Default::default()
    };
    let tls = wire::UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
    let any = Any { type_url: wire::UpstreamTlsContext::type_url(), value: tls.encode_to_vec() };
    let socket = TransportSocket { name: "tls".into(), config_type: Some(ConfigType::TypedConfig(any)) };
    Cluster { transport_socket: Some(socket), ..eds_cluster("cluster") }
}

/// An authority, and a folder with it as root and a certificate for the client.
fn certificates() -> (Authority, CertificateFolder) {
    let (ca, folder) = (Authority::new("test CA"), CertificateFolder::new().unwrap());
    folder.write_ca(&[&ca]).unwrap();
    folder.write_identity(&ca.issue(Leaf::new("client"))).unwrap();
    (ca, folder)
}

fn files(folder: &CertificateFolder) -> CertificateFiles {
    CertificateFiles {
        identity: Some(IdentityFiles {
            certificate_file: folder.certificate_file(),
            private_key_file: folder.private_key_file(),
        }),
        roots: Some(RootsFile::CaCertificates(folder.ca_file())),
        refresh_interval: Duration::from_secs(1),
    }
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
async fn a29_an_rpc_over_mtls_and_changed_settings_lose_none() -> TestResult {
    let (ca, folder) = certificates();
    let backend = Backend::start("a").await?;
    let front = tls_front(backend.address(), &ca.issue(Leaf::new("a").uri(SPIFFE_ID)), Some(&ca)).await;
    let plane = mesh_of(&[front]).await;
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
async fn a29_a_wrong_name_is_refused_with_what_was_presented_and_wanted() -> TestResult {
    let (ca, folder) = certificates();
    let backend = Backend::start("a").await?;
    let other = "spiffe://mesh.example/ns/prod/sa/other";
    let front = tls_front(backend.address(), &ca.issue(Leaf::new("a").uri(other)), None).await;
    let plane = mesh_of(&[front]).await;
    plane.set(tls_cluster(Some(SPIFFE_ID)));
    let channel = tls_channel(&plane, &folder, XdsCredentials::default());
    let status = ask(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    for part in ["its names", "wanted", SPIFFE_ID, "presented", other] {
        assert!(status.message().contains(part), "{part}: {status}");
    }
    Ok(())
}

#[tokio::test]
async fn a29_tls_settings_never_lead_to_plaintext_unless_the_credentials_are_plaintext() -> TestResult {
    let (_, folder) = certificates();
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.set(tls_cluster(None));
    let status = ask(&tls_channel(&plane, &folder, XdsCredentials::default())).await.unwrap_err();
    assert!(status.message().contains("TLS handshake"), "{status}");
    assert_eq!(ask(&tls_channel(&plane, &folder, XdsCredentials::Plaintext)).await?, "a");
    Ok(())
}

#[tokio::test]
async fn a29_the_fallback_is_for_clusters_without_settings() -> TestResult {
    let (ca, folder) = certificates();
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let none = tls_channel(&plane, &folder, XdsCredentials::Xds(Fallback::None));
    let status = ask(&none).await.unwrap_err();
    assert!(status.message().contains("have no fallback"), "{status}");
    // The name of the target is the one that the server must have.
    let identity = ca.issue(Leaf::new("a").dns("greeter.example"));
    plane.set(priorities("cluster", [[tls_front(backend.address(), &identity, Some(&ca)).await]]));
    let fallback = XdsCredentials::Xds(Fallback::Tls(files(&folder)));
    assert_eq!(ask(&tls_channel(&plane, &folder, fallback)).await?, "a");
    Ok(())
}

#[tokio::test]
async fn a65_the_control_plane_is_reached_over_mtls() -> TestResult {
    let (ca, folder) = certificates();
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let identity = ca.issue(Leaf::new("control plane").ip([127, 0, 0, 1]));
    let front = tls_front(plane.address(), &identity, Some(&ca)).await;
    let creds = ChannelCreds::Tls(files(&folder));
    let bootstrap = Bootstrap::builder()
        .server_with_creds(front.to_string(), creds, vec![], ServerFeatures::default())
        .build()?;
    let channel = XdsChannel::builder(&format!("xds:///{SERVICE}"))
        .bootstrap(bootstrap)
        .client_pool(ClientPool::new())
        .build()?;
    assert_eq!(ask(&channel).await?, "a");
    Ok(())
}
