//! The certificates of a demo with mTLS: those of the client, in files that it reads again and again, and those of every
//! backend.

use std::net::SocketAddr;
use std::{fmt, io};

use proxyless_testkit::tls::{Authority, CertificateFolder, Issued, Leaf, ServerTls};
use proxyless_testkit::{Backend, ControlPlane};

/// The certificate provider instance that the bootstrap and clusters name.
pub(super) const INSTANCE: &str = "mesh";

const CLIENT_ID: &str = "spiffe://demo.example/client";
const FOREIGN_ID: &str = "spiffe://demo.example/another-service";

pub(super) struct Certificates {
    authority: Authority,
    /// The SPIFFE id that backends should have.
    server_id: &'static str,
    folder: CertificateFolder,
    /// The client's current certificate.
    client: Issued,
}

/// The identity that a backend presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presented {
    Own,
    /// Issued by the same authority, but for another service.
    Foreign,
}

impl Certificates {
    pub(super) fn new(server_id: &'static str) -> io::Result<Self> {
        let authority = Authority::new("demo CA");
        let folder = CertificateFolder::new()?;
        folder.write_ca(&[&authority])?;
        let client = authority.issue(Leaf::new("demo client").uri(CLIENT_ID));
        folder.write_identity(&client)?;
        Ok(Self { authority, server_id, folder, client })
    }

    /// TLS of a backend, which requires a certificate of clients.
    pub(super) fn backend_tls(&self) -> ServerTls {
        ServerTls::new(&self.issue(Presented::Own)).require_clients_of(&[&self.authority])
    }

    /// TLS of the control plane, for its address.
    pub(super) fn control_plane_tls(&self, address: SocketAddr) -> ServerTls {
        let leaf = Leaf::new("demo control plane").ip(address.ip());
        ServerTls::new(&self.authority.issue(leaf)).require_clients_of(&[&self.authority])
    }

    pub(super) fn bootstrap_json(&self, control_plane: &ControlPlane) -> String {
        control_plane.bootstrap_json_with(INSTANCE, &self.folder)
    }

    /// A new certificate for a backend.
    pub(super) fn issue(&self, presented: Presented) -> Issued {
        let id = match presented {
            Presented::Own => self.server_id,
            Presented::Foreign => FOREIGN_ID,
        };
        self.authority.issue(Leaf::new("demo backend").uri(id))
    }

    /// Gives the client a new certificate, which it reads within a second.
    pub(super) fn rotate_client(&mut self) -> io::Result<()> {
        self.client = self.authority.issue(Leaf::new("demo client, rotated").uri(CLIENT_ID));
        self.folder.write_identity(&self.client)
    }

    /// Whether the last RPC that the backend received came with the client's current certificate.
    pub(super) fn are_current_at(&self, backend: &Backend) -> bool {
        let calls = backend.calls();
        let last = calls.last().and_then(|call| call.client_certificate());
        last.is_some() && last == self.client.chain_der().first().map(Vec::as_slice)
    }
}

/// The handshakes of all backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Handshakes {
    pub(super) connections: usize,
    /// Those of `connections` that were refused.
    pub(super) refused: usize,
    /// Backends whose last RPC came with an old certificate of the client, although they were to get RPCs.
    pub(super) outdated: Vec<String>,
}

impl Handshakes {
    pub(super) fn problems(&self) -> Vec<String> {
        let outdated = |name| format!("TLS: {name} was never reached with the client's last certificate");
        self.outdated.iter().map(outdated).collect()
    }
}

impl fmt::Display for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, refused, .. } = self;
        write!(f, "{connections} connections to backends, {refused} of them refused in the handshake")
    }
}
