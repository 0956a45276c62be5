//! mTLS with servers of other gRPC implementations. `.ci/tls-peers` builds them and runs these tests.

mod common;
mod secure;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use common::*;
use proxyless_testkit::tls::{CertificateFolder, Leaf};
use secure::*;
use tonic::Code;

const CLIENT_ID: &str = "spiffe://mesh.example/ns/prod/sa/client";

/// A server that ends when this is dropped.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server that `TLS_PEER` names, with the identity and the roots of this folder.
fn peer(folder: &CertificateFolder) -> Result<(SocketAddr, Peer), Box<dyn std::error::Error>> {
    let program = std::env::var("TLS_PEER").map_err(|_| "TLS_PEER is not set: .ci/tls-peers sets it")?;
    let mut command = Command::new(program);
    command.args([folder.certificate_file(), folder.private_key_file(), folder.ca_file()]);
    let mut peer = Peer(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let stdout = peer.0.stdout.take().ok_or("no standard output")?;
    let line = BufReader::new(stdout).lines().next().ok_or("the server ended")??;
    Ok((line.parse()?, peer))
}

#[tokio::test]
#[ignore = ".ci/tls-peers runs it"]
async fn a29_12_mtls_with_a_server_of_another_implementation() -> TestResult {
    let (ca, client) = certificates()?;
    client.write_identity(&ca.issue(Leaf::new("client").uri(CLIENT_ID)))?;
    let of_server = CertificateFolder::new()?;
    of_server.write_ca(&[&ca])?;
    of_server.write_identity(&backend_identity(&ca))?;
    let (address, _server) = peer(&of_server)?;
    let plane = mesh_of(&[address]).await;
    plane.set(tls_cluster("cluster", "certs", vec![exact(SPIFFE_ID)]));
    // Both sides have verified the other: the server answers with the name in the client's certificate.
    assert_eq!(ask(&tls_channel(&plane, files(&client))).await?, CLIENT_ID);

    // The server refuses a client of another authority.
    let (other, stranger) = certificates()?;
    stranger.write_ca(&[&ca])?;
    stranger.write_identity(&other.issue(Leaf::new("stranger").uri(CLIENT_ID)))?;
    let status = ask(&tls_channel(&plane, files(&stranger))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");

    // The client refuses a server with another name.
    plane.set(tls_cluster("cluster", "certs", vec![exact("spiffe://mesh.example/ns/prod/sa/other")]));
    let status = ask(&tls_channel(&plane, files(&client))).await.unwrap_err();
    assert!(status.message().contains(SPIFFE_ID), "{status}");
    Ok(())
}
