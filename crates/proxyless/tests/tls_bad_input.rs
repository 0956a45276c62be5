//! Certificate files, settings and peers that are broken, over sockets: each has a clear error, and the last good
//! configuration keeps serving (gRFC A29).

mod common;
mod secure;

use common::*;
use proxyless_testkit::resources::priorities;
use proxyless_testkit::tls::{CertificateFolder, Leaf};
use proxyless_testkit::{Backend, CDS};
use secure::*;
use tokio::net::TcpListener;

#[tokio::test]
async fn missing_files_and_peers_without_http2_are_named_in_the_status() -> TestResult {
    let (ca, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let mut config = server(&backend_identity(&ca), &[]);
    config.alpn_protocols.clear();
    let front = Front::start(backend.address(), config).await?;
    let plane = mesh_of(&[front.address()]).await;
    plane.set(tls_cluster("cluster", "certs", vec![exact(SPIFFE_ID)]));
    let status = ask(&tls_channel(&plane, files(&folder))).await.unwrap_err();
    for part in ["ALPN h2", &front.address().to_string()] {
        assert!(status.message().contains(part), "{part}: {status}");
    }
    front.until("no open connection", |seen| seen.open == 0).await;

    let empty = CertificateFolder::new()?;
    let status = ask(&tls_channel(&plane, files(&empty))).await.unwrap_err();
    for part in [&empty.ca_file().display().to_string(), &front.address().to_string()] {
        assert!(status.message().contains(part), "{part}: {status}");
    }
    Ok(())
}

#[tokio::test]
async fn a29_05_a29_37_an_unknown_instance_and_broken_files_leave_the_last_good_in_use() -> TestResult {
    let (ca, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let front = Front::start(backend.address(), server(&backend_identity(&ca), &[&ca])).await?;
    let plane = mesh_of(&[front.address()]).await;
    plane.set(tls_cluster("cluster", "certs", vec![exact(SPIFFE_ID)]));
    let channel = tls_channel(&plane, files(&folder));
    assert_eq!(ask(&channel).await?, "a");
    plane.set(tls_cluster("cluster", "unknown", vec![]));
    let rejected = tokio::time::timeout(PATIENCE, async {
        loop {
            let requests = plane.requests();
            let errors = requests.iter().filter(|request| request.type_url() == CDS);
            if let Some(error) = errors.filter_map(|request| request.error()).next() {
                return error.message.clone();
            }
            assert_eq!(ask(&channel).await.unwrap(), "a");
        }
    });
    let rejected = rejected.await?;
    assert!(rejected.contains("\"unknown\""), "{rejected}");
    // Half a file: the old roots stay. The new identity, which was written later, tells when the files were read.
    std::fs::write(folder.ca_file(), "-----BEGIN CERTIFICATE-----\nMIIB")?;
    let client = ca.issue(Leaf::new("client, later"));
    folder.write_identity(&client)?;
    let presented = async {
        let mut number = 0;
        while front.seen().client.as_ref() != client.chain_der().first() {
            let before = front.seen().tls;
            number += 1;
            let names = vec![exact(SPIFFE_ID), exact(&format!("settings {number}"))];
            plane.set(tls_cluster("cluster", "certs", names));
            front.until("another connection", |seen| seen.tls > before).await;
            assert_eq!(ask(&channel).await.unwrap(), "a");
        }
    };
    tokio::time::timeout(PATIENCE, presented).await?;
    assert_eq!(ask(&channel).await?, "a");
    Ok(())
}

#[tokio::test]
async fn a_peer_that_stalls_in_the_handshake_does_not_stop_other_priorities() -> TestResult {
    let (ca, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let front = Front::start(backend.address(), server(&backend_identity(&ca), &[&ca])).await?;
    // The system accepts connections; nothing reads them.
    let stalled = TcpListener::bind("127.0.0.1:0").await?;
    let plane = mesh_of(&[]).await;
    plane.set(priorities("cluster", [[stalled.local_addr()?], [front.address()]]));
    plane.set(tls_cluster("cluster", "certs", vec![exact(SPIFFE_ID)]));
    assert_eq!(ask(&tls_channel(&plane, files(&folder))).await?, "a");
    Ok(())
}
