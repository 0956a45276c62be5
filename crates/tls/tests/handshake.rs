//! Client certificates, resumption, rotation, and servers that do not play by the rules.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{
    assert_failed, client, client_of, connect, mtls_files, mtls_server, refuse, server, shake, upstream,
    with_sans,
};
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
use proxyless_tls::{Certificate, Check, HandshakeError, TlsSettings};
use proxyless_xds::resource::{RootCertificates, StringMatchKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

fn presented(far: &tokio_rustls::server::TlsStream<tokio::io::DuplexStream>) -> String {
    let chain = far.get_ref().1.peer_certificates().expect("a client certificate");
    Certificate::parse(&chain[0]).unwrap().subject
}

#[tokio::test]
async fn a29_12_the_client_certificate_is_presented() {
    let (ca, clients) = (Authority::new("ca"), Authority::new("clients").intermediate("lower"));
    let (roots, me) = (CertificateFolder::new().unwrap(), CertificateFolder::new().unwrap());
    roots.write_ca(&[&ca]).unwrap();
    me.write_ca(&[&Authority::new("other")]).unwrap();
    me.write_identity(&clients.issue(Leaf::new("me"))).unwrap();
    let client = client(&[("roots", common::files(&roots)), ("me", mtls_files(&me))]);
    let settings = upstream(|tls| {
        tls.roots = RootCertificates::Instance("roots".into());
        tls.identity = Some("me".into());
    });
    let server = Arc::new(mtls_server(&ca.issue(Leaf::new("backend")), &clients));
    let (_near, far) = connect(&client, &settings, None, &server).await;
    assert_eq!(presented(&far), "CN=me");
}

#[tokio::test]
async fn a29_13_a_server_that_wants_a_certificate_refuses_clients_without() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let server = Arc::new(mtls_server(&ca.issue(Leaf::new("backend")), &ca));
    let (near, far) = shake(&client, &upstream(|_| {}), None, &server).await;
    far.unwrap_err();
    // With TLS 1.3 the server decides when the client is done already: the alert is in the first read.
    let error = near.unwrap().stream.read_u8().await.unwrap_err();
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
}

#[tokio::test]
async fn sessions_are_resumed_with_the_same_settings_only() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let server = Arc::new(server(&ca.issue(Leaf::new("backend").dns("a.example"))));
    let any = upstream(|_| {});
    assert!(!connect(&client, &any, Some("a.example"), &server).await.0.info.resumed);
    let (near, _far) = connect(&client, &any, Some("a.example"), &server).await;
    assert!(near.info.resumed);
    assert_eq!(near.info.server_certificate.unwrap().subject, "CN=backend");
    // Stricter settings are not satisfied by a session of laxer ones.
    let strict = with_sans(vec![StringMatchKind::Exact("b.example".into())]);
    let error = refuse(&client, &strict, Some("a.example"), &server).await;
    assert_failed(&error, Check::Name, &[]);
    // Nor is another server name.
    let checked = upstream(|tls| tls.auto_sni_san_validation = true);
    assert!(!connect(&client, &checked, Some("a.example"), &server).await.0.info.resumed);
    refuse(&client, &checked, Some("b.example"), &server).await;
}

#[tokio::test(start_paused = true)]
async fn a29_37_new_roots_count_for_new_connections() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (client, folder) = client_of(&[&old]);
    let settings = upstream(|_| {});
    let server_of = |ca: &Authority| Arc::new(server(&ca.issue(Leaf::new("backend"))));
    let (old_server, new_server) = (server_of(&old), server_of(&new));
    let (mut near, mut far) = connect(&client, &settings, None, &old_server).await;
    refuse(&client, &settings, None, &new_server).await;
    folder.write_ca(&[&new]).unwrap();
    let watcher = client.instance("certs").unwrap();
    watcher.wait_for_reads(watcher.reads() + 2).await;
    connect(&client, &settings, None, &new_server).await;
    // The session of the old roots is not resumed.
    refuse(&client, &settings, None, &old_server).await;
    // The connection that stands is kept.
    far.write_all(b"z").await.unwrap();
    far.flush().await.unwrap();
    assert_eq!(near.stream.read_u8().await.unwrap(), b'z');
}

#[tokio::test(start_paused = true)]
async fn a29_37_a_new_identity_is_presented_on_new_connections() {
    let ca = Authority::new("ca");
    let folder = CertificateFolder::new().unwrap();
    folder.write_ca(&[&ca]).unwrap();
    folder.write_identity(&ca.issue(Leaf::new("first"))).unwrap();
    let client = client(&[("certs", mtls_files(&folder))]);
    let settings = upstream(|tls| tls.identity = Some("certs".into()));
    let server = Arc::new(mtls_server(&ca.issue(Leaf::new("backend")), &ca));
    assert_eq!(presented(&connect(&client, &settings, None, &server).await.1), "CN=first");
    for i in 0..100 {
        folder.write_identity(&ca.issue(Leaf::new(&format!("identity {i}")))).unwrap();
        let watcher = client.instance("certs").unwrap();
        watcher.wait_for_reads(watcher.reads() + 2).await;
        let (near, far) = connect(&client, &settings, None, &server).await;
        assert_eq!(presented(&far), format!("CN=identity {i}"));
        assert!(!near.info.resumed);
    }
}

#[tokio::test(start_paused = true)]
async fn a65_06_new_files_count_for_new_connections_to_a_management_server() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let folder = CertificateFolder::new().unwrap();
    folder.write_ca(&[&old]).unwrap();
    let settings = TlsSettings::Server(common::files(&folder));
    // The instance has the same files, so that its watcher is that of the settings.
    let client = client(&[("certs", common::files(&folder))]);
    let server_of = |ca: &Authority| Arc::new(server(&ca.issue(Leaf::new("xds").dns("xds.example"))));
    connect(&client, &settings, Some("xds.example"), &server_of(&old)).await;
    refuse(&client, &settings, Some("xds.example"), &server_of(&new)).await;
    folder.write_ca(&[&new]).unwrap();
    let watcher = client.instance("certs").unwrap();
    watcher.wait_for_reads(watcher.reads() + 2).await;
    connect(&client, &settings, Some("xds.example"), &server_of(&new)).await;
}

#[tokio::test]
async fn a_server_without_tls_is_named_as_such() {
    let (client, _folder) = client_of(&[&Authority::new("ca")]);
    let (near, mut far) = duplex(1 << 16);
    // The beginning of an HTTP/2 connection: a SETTINGS frame.
    far.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let error = client.handshake(near, &upstream(|_| {}), None, None).await.unwrap_err();
    assert!(matches!(error, HandshakeError::NotTls), "{error}");
}

#[tokio::test]
async fn a_server_that_hangs_up_is_an_error() {
    let (client, _folder) = client_of(&[&Authority::new("ca")]);
    let (near, far) = duplex(1 << 16);
    drop(far);
    let error = client.handshake(near, &upstream(|_| {}), None, None).await.unwrap_err();
    assert!(matches!(error, HandshakeError::Io(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stalls_is_left_to_the_time_limit_of_the_caller() {
    let (client, _folder) = client_of(&[&Authority::new("ca")]);
    let (near, _far) = duplex(1 << 16);
    let settings = upstream(|_| {});
    let handshake = client.handshake(near, &settings, None, None);
    tokio::time::timeout(Duration::from_secs(20), handshake).await.unwrap_err();
}

#[tokio::test]
async fn http2_is_required() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    for protocols in [vec![], vec![b"http/1.1".to_vec()]] {
        let mut server = server(&ca.issue(Leaf::new("backend")));
        server.alpn_protocols = protocols;
        let (near, _far) = shake(&client, &upstream(|_| {}), None, &Arc::new(server)).await;
        let error = near.unwrap_err();
        assert!(matches!(error, HandshakeError::NoHttp2), "{error}");
    }
}

#[tokio::test]
async fn many_handshakes_run_at_a_time() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let (client, server) = (Arc::new(client), Arc::new(server(&ca.issue(Leaf::new("backend")))));
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (client, server) = (Arc::clone(&client), Arc::clone(&server));
            tokio::spawn(
                async move { connect(&client, &upstream(|_| {}), None, &server).await.0.info.version },
            )
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), "TLSv1_3");
    }
}
