//! No secret is in the `Debug` output of anything.

mod common;

use std::sync::Arc;

use common::{client, connect, mtls_files, server, upstream};
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
use proxyless_tls::TlsSettings;

#[tokio::test]
async fn debug_output_has_no_keys() {
    let ca = Authority::new("ca");
    let folder = CertificateFolder::new().unwrap();
    let me = ca.issue(Leaf::new("me"));
    folder.write_ca(&[&ca]).unwrap();
    folder.write_identity(&me).unwrap();
    let client = client(&[("certs", mtls_files(&folder))]);
    let settings = upstream(|tls| tls.identity = Some("certs".into()));
    let server = Arc::new(server(&ca.issue(Leaf::new("backend"))));
    let (near, _far) = connect(&client, &settings, None, &server).await;
    let watcher = client.instance("certs").unwrap();
    let identity = watcher.identity().await.unwrap();
    let trust = watcher.trust().await.unwrap();
    let server_settings = TlsSettings::Server(mtls_files(&folder));
    let output = format!(
        "{client:?} {client:#?} {settings:?} {server_settings:?} {near:?} {watcher:?} {identity:?} {trust:?}"
    );
    // The key's number is at the end of the first line and the beginning of the second.
    let pem = me.key_pem();
    let secrets = pem.lines().filter(|line| !line.starts_with('-'));
    for secret in secrets {
        assert!(!output.contains(secret), "{output}");
    }
    // Bytes as numbers.
    let bytes: Vec<String> = me.key_der()[30..46].iter().map(ToString::to_string).collect();
    assert!(!output.replace([' ', '\n'], "").contains(&bytes.join(",")), "{output}");
    assert!(output.contains("CN=me"), "{output}");
}
