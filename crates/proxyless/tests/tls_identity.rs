//! Identities, names and settings of TLS connections to backends, over sockets (gRFC A29, A101).

mod common;
mod secure;

use std::io;
use std::net::SocketAddr;
use std::sync::LazyLock;

use common::*;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use proxyless::{ClientPool, Gates, XdsChannel, XdsCredentials};
use proxyless_testkit::resources::*;
use proxyless_testkit::tls::{Authority, Leaf};
use proxyless_testkit::{Backend, CDS, ControlPlane, LogText};
use secure::*;
use tracing_subscriber::filter::LevelFilter;

const DAY: i64 = 24 * 3600;

/// The warnings of this process: they tell when a file was read.
static LOG: LazyLock<LogText> = LazyLock::new(|| {
    let log = LogText::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .init();
    log
});

#[tokio::test]
async fn a29_37_bad_identities_leave_the_old_one_in_use_over_sockets() -> TestResult {
    let log = &*LOG;
    let (ca, folder) = certificates()?;
    let first = ca.issue(Leaf::new("first"));
    folder.write_identity(&first)?;
    let backend = Backend::start("a").await?;
    let front = Front::start(backend.address(), server(&backend_identity(&ca), &[&ca])).await?;
    let plane = mesh_of(&[front.address()]).await;
    plane.set(tls_cluster("cluster", "certs", vec![exact(SPIFFE_ID)]));
    let channel = tls_channel(&plane, files(&folder));
    assert_eq!(ask(&channel).await?, "a");

    let expired = ca.issue(Leaf::new("expired").valid(-2 * DAY, -DAY));
    let future = ca.issue(Leaf::new("future").valid(DAY, 2 * DAY));
    let (good, other) = (ca.issue(Leaf::new("good")), ca.issue(Leaf::new("other")));
    let huge = "x".repeat((4 << 20) + 1);
    let (chain_file, key_file) = (folder.certificate_file(), folder.private_key_file());
    for (chain, key, file, why) in [
        (expired.chain_pem(), expired.key_pem(), &chain_file, "the certificate has expired at"),
        (future.chain_pem(), future.key_pem(), &chain_file, "the certificate is not valid before"),
        (good.chain_pem(), other.key_pem(), &key_file, "is not the key of the certificate"),
        (String::new(), good.key_pem(), &chain_file, "is empty"),
        (good.chain_pem(), String::new(), &key_file, "is empty"),
        (huge.clone(), good.key_pem(), &chain_file, "has more than 4194304 bytes"),
        (good.chain_pem(), huge, &key_file, "has more than 4194304 bytes"),
    ] {
        folder.write(&chain_file, &chain)?;
        folder.write(&key_file, &key)?;
        log.wait_for(&format!("{}: {why}", file.display())).await?;
        // New settings mean a new connection.
        let before = front.seen().tls;
        plane.set(tls_cluster(
            "cluster",
            "certs",
            vec![exact(SPIFFE_ID), exact(&format!("{why} {chain:.9}"))],
        ));
        let seen = front.until("a connection", |seen| seen.tls > before).await;
        assert_eq!(seen.client.as_ref(), first.chain_der().first(), "{why}");
        assert_eq!(ask(&channel).await?, "a", "{why}");
    }
    assert_eq!(front.seen().failed, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_chain_of_a_thousand_certificates_is_refused_and_another_priority_serves() -> TestResult {
    let (ca, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let lowest = (0..1000).fold(ca.clone(), |ca, i| ca.intermediate(&format!("CA {i}")));
    let endless = Front::start(backend.address(), server(&backend_identity(&lowest), &[])).await?;
    let long = (0..20).fold(ca.clone(), |ca, i| ca.intermediate(&format!("CA {i}")));
    let long = Front::start(backend.address(), server(&backend_identity(&long), &[])).await?;
    let good = Front::start(backend.address(), server(&backend_identity(&ca), &[])).await?;
    let plane = mesh_of(&[endless.address()]).await;
    plane.set(tls_cluster("cluster", "certs", vec![exact(SPIFFE_ID)]));
    let channel = tls_channel(&plane, files(&folder));
    let status = ask(&channel).await.unwrap_err();
    assert!(status.message().contains("TLS handshake"), "{status}");
    plane.set(priorities("cluster", [[long.address()]]));
    let status = until_failure(&channel, &long.address().to_string()).await;
    assert!(status.message().contains("21 certificates"), "{status}");
    plane.set(priorities("cluster", [[endless.address()], [long.address()], [good.address()]]));
    until_only(&channel, &["a"]).await;
    assert!(good.seen().tls > 0);
    Ok(())
}

#[tokio::test]
async fn a29_13_a_missing_client_certificate_is_named_in_the_status() -> TestResult {
    let (ca, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let front = Front::start(backend.address(), server(&backend_identity(&ca), &[&ca])).await?;
    let plane = mesh_of(&[front.address()]).await;
    let cluster = tls_cluster("cluster", "certs", vec![exact(SPIFFE_ID)]);
    plane.set(with_tls(cluster, |tls| {
        tls.common_tls_context.get_or_insert_default().tls_certificate_provider_instance = None;
    }));
    let status = ask(&tls_channel(&plane, files(&folder))).await.unwrap_err();
    let hint = "the server may require a certificate of the client, but the TLS settings have none";
    assert!(status.message().contains(hint), "{status}");
    Ok(())
}

#[tokio::test]
async fn a29_05_invalid_settings_are_rejected_whatever_the_credentials() -> TestResult {
    let (_, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = XdsChannel::builder(&format!("xds:///{SERVICE}"))
        .bootstrap(bootstrap_with(&plane, files(&folder)).build()?)
        .client_pool(ClientPool::new())
        .credentials(XdsCredentials::Plaintext)
        .build()?;
    assert_eq!(ask(&channel).await?, "a");
    plane.set(tls_cluster("cluster", "unknown", vec![]));
    let nack = plane.wait_nack(CDS).await?;
    let error = nack.error().ok_or("no error")?;
    assert!(error.message.contains("\"unknown\" is not a certificate provider"), "{}", error.message);
    assert_eq!(ask(&channel).await?, "a");
    Ok(())
}

#[tokio::test]
async fn a29_09_each_leaf_of_an_aggregate_has_its_own_settings() -> TestResult {
    let (ca, folder) = certificates()?;
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let mut fronts = Vec::new();
    for backend in [&a, &b] {
        fronts.push(Front::start(backend.address(), server(&backend_identity(&ca), &[&ca])).await?);
    }
    let plane = mesh(&[]).await;
    plane.set_all([
        // The settings of the aggregate itself do not count.
        aggregate_cluster("cluster", ["secure", "plain"]).into(),
        tls_cluster("secure", "certs", vec![exact(SPIFFE_ID)]).into(),
        priorities("secure", [[fronts[0].address()]]).into(),
        eds_cluster("plain").into(),
        priorities("plain", [[fronts[1].address()]]).into(),
    ]);
    let channel = tls_channel(&plane, files(&folder));
    assert_eq!(ask(&channel).await?, "a");
    plane.set(priorities("secure", [[] as [SocketAddr; 0]]));
    until_only(&channel, &["b"]).await;
    let (secure, plain) = (fronts[0].seen(), fronts[1].seen());
    assert!(secure.tls > 0 && secure.plaintext == 0, "{secure:?}");
    assert!(plain.tls == 0 && plain.plaintext > 0, "{plain:?}");
    Ok(())
}

/// A channel that sends server names (gRFC A101).
fn channel_with_sni(plane: &ControlPlane, ca: &Authority) -> Result<(XdsChannel, impl Sized), io::Error> {
    let (_, folder) = certificates()?;
    folder.write_ca(&[ca])?;
    let mut gates = Gates::default();
    gates.sni = true;
    let channel = XdsChannel::builder(&format!("xds:///{SERVICE}"))
        .bootstrap(bootstrap_with(plane, files(&folder)).build().unwrap())
        .client_pool(ClientPool::new())
        .gates(gates)
        .build()
        .unwrap();
    Ok((channel, folder))
}

/// Asks for the hostname as server name, and for a certificate that has it.
fn auto_sni(tls: &mut UpstreamTlsContext) {
    tls.sni = "fixed.example".into();
    tls.auto_host_sni = true;
    tls.auto_sni_san_validation = true;
}

#[tokio::test]
async fn a101_01_a101_05_the_hostname_of_an_endpoint_is_sent_and_checked() -> TestResult {
    let ca = Authority::new("test CA");
    let backend = Backend::start("a").await?;
    let identity = ca.issue(Leaf::new("backend").dns("one.example").dns("localhost"));
    let front = Front::start(backend.address(), server(&identity, &[])).await?;
    let plane = mesh(&[]).await;
    let with_hostname = |hostname: &str| {
        let mut endpoint = endpoint(front.address());
        if let Some(HostIdentifier::Endpoint(endpoint)) = &mut endpoint.host_identifier {
            endpoint.hostname = hostname.into();
        }
        assignment("cluster", [locality("zone", [endpoint])])
    };
    // The matchers do not count beside a server name.
    let cluster = with_tls(tls_cluster("cluster", "certs", vec![exact("nobody")]), auto_sni);
    plane.set(cluster.clone());
    // A101-02: the port is not sent.
    plane.set(with_hostname("one.example:8443"));
    let (channel, _folder) = channel_with_sni(&plane, &ca)?;
    assert_eq!(ask(&channel).await?, "a");
    assert_eq!(front.seen().server_name.as_deref(), Some("one.example"));
    plane.set(with_hostname("two.example"));
    let status = until_failure(&channel, "\"two.example\", which was sent as server name").await;
    assert!(status.message().contains("DNS \"one.example\""), "{status}");
    // A101-03: without a hostname the fixed name is sent, and A101-08: checked all the same.
    plane.set(with_hostname(""));
    until_failure(&channel, "\"fixed.example\", which was sent as server name").await;
    // The DNS name of a LOGICAL_DNS cluster.
    let dns = logical_dns_cluster("cluster", "localhost", front.address().port());
    plane.set(envoy_types::pb::envoy::config::cluster::v3::Cluster {
        transport_socket: cluster.transport_socket,
        ..dns
    });
    until_only(&channel, &["a"]).await;
    assert_eq!(front.seen().server_name.as_deref(), Some("localhost"));
    Ok(())
}
