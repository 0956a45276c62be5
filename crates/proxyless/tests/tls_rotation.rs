//! Certificates and TLS settings that change under load, over sockets: no RPC fails (gRFC A29).

mod common;
mod secure;

use common::*;
use proxyless::XdsChannel;
use proxyless_testkit::resources::eds_cluster;
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
use proxyless_testkit::{Backend, ControlPlane};
use secure::*;
use tonic::Status;

/// Meshes side by side. Files are read once a second at most, so that each has few rotations.
const MESHES: usize = 10;
/// In each mesh the roots, the client's certificate and the server's certificate rotate this often.
const ROTATIONS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a29_37_certificates_and_roots_rotate_a_hundred_times_and_no_rpc_fails() -> TestResult {
    let mut meshes = tokio::task::JoinSet::new();
    for _ in 0..MESHES {
        meshes.spawn(async { Rotating::start().await?.run().await });
    }
    let (mut calls, mut failures) = (0, Vec::new());
    while let Some(mesh) = meshes.join_next().await {
        let (succeeded, failed) = mesh??;
        assert!(succeeded >= ROTATIONS, "there was load");
        calls += succeeded;
        failures.extend(failed);
    }
    assert!(failures.is_empty(), "{} of {calls}: {:?}", failures.len(), failures.first());
    Ok(())
}

/// A mesh whose certificates rotate.
struct Rotating {
    plane: ControlPlane,
    _backend: Backend,
    front: Front,
    folder: CertificateFolder,
    channel: XdsChannel,
    /// The authority of each rotation, and of the one before the first.
    authorities: Vec<Authority>,
    settings: usize,
}

impl Rotating {
    async fn start() -> std::io::Result<Self> {
        let authorities: Vec<_> =
            (0..ROTATIONS + 2).map(|number| Authority::new(&format!("CA {number}"))).collect();
        let folder = CertificateFolder::new()?;
        folder.write_ca(&[&authorities[0]])?;
        folder.write_identity(&authorities[0].issue(Leaf::new("client")))?;
        let backend = Backend::start("a").await?;
        let config = server(&backend_identity(&authorities[0]), &[&authorities[0]]);
        let front = Front::start(backend.address(), config).await?;
        let plane = mesh_of(&[front.address()]).await;
        plane.set(tls_cluster("cluster", "certs", vec![exact(SPIFFE_ID)]));
        let channel = tls_channel(&plane, files(&folder));
        Ok(Self { plane, _backend: backend, front, folder, channel, authorities, settings: 0 })
    }

    /// The successful and failed RPCs.
    async fn run(mut self) -> std::io::Result<(usize, Vec<Status>)> {
        let load = Load::start(&self.channel, 2);
        self.front.until("the first connection", |seen| seen.tls > 0).await;
        for number in 0..ROTATIONS {
            self.rotate(number).await?;
        }
        let result = load.stop().await;
        assert_eq!(self.front.seen().failed, [""; 0], "every handshake succeeded");
        // The old connections are closed.
        self.front.until("one open connection", |seen| seen.open == 1).await;
        Ok(result)
    }

    /// From one authority to the next, in the order that a live mesh has to keep: trust first, then identities.
    async fn rotate(&mut self, number: usize) -> std::io::Result<()> {
        let (old, new) = (self.authorities[number].clone(), self.authorities[number + 1].clone());
        self.front.rotate(server(&backend_identity(&old), &[&old, &new]));
        self.folder.write_ca(&[&old, &new])?;
        // The client's certificate tells that the roots, which were written before it, are in use too.
        let client = new.issue(Leaf::new("client"));
        self.folder.write_identity(&client)?;
        let presented =
            async { while self.connect_again().await.client.as_ref() != client.chain_der().first() {} };
        tokio::time::timeout(PATIENCE, presented).await?;
        self.front.rotate(server(&backend_identity(&new), &[&new]));
        self.connect_again().await;
        Ok(())
    }

    /// Changes the cluster's settings, and waits for the connection that has the new ones and for an RPC.
    async fn connect_again(&mut self) -> Seen {
        let before = self.front.seen().tls;
        self.settings += 1;
        let names = vec![exact(SPIFFE_ID), exact(&format!("settings {}", self.settings))];
        self.plane.set(tls_cluster("cluster", "certs", names));
        let seen = self.front.until("a connection", |seen| seen.tls > before).await;
        ask(&self.channel).await.expect("an RPC succeeds");
        seen
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a29_09_tls_is_turned_on_and_off_quickly_and_no_rpc_fails() -> TestResult {
    let (ca, folder) = certificates()?;
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let mut fronts = Vec::new();
    for backend in [&a, &b] {
        fronts.push(Front::start(backend.address(), server(&backend_identity(&ca), &[&ca])).await?);
    }
    let plane = mesh_of(&[fronts[0].address(), fronts[1].address()]).await;
    let channel = tls_channel(&plane, files(&folder));
    let load = Load::start(&channel, 4);
    for round in 0..50 {
        let before = fronts[0].seen().tls;
        let names = vec![exact(SPIFFE_ID), exact(&format!("settings {round}"))];
        plane.set(tls_cluster("cluster", "certs", names));
        // Most changes overtake the connections of the one before; some wait for them.
        if round % 5 == 0 {
            fronts[0].until("a TLS connection", |seen| seen.tls > before).await;
        }
        plane.set(eds_cluster("cluster"));
        if round % 5 == 0 {
            until_only(&channel, &["a", "b"]).await;
        }
    }
    plane.set(tls_cluster("cluster", "certs", vec![exact(SPIFFE_ID)]));
    until_only(&channel, &["a", "b"]).await;
    let (calls, failures) = load.stop().await;
    assert!(failures.is_empty(), "{} of {calls}: {:?}", failures.len(), failures.first());
    for front in fronts {
        // The last settings are in use. The connections of all others close when they have lingered.
        let seen = front.until("TLS only", |seen| seen.open == 1 && seen.open_plaintext == 0).await;
        assert!(seen.tls >= 5 && seen.plaintext >= 1, "{seen:?}");
    }
    Ok(())
}
