//! TLS of a server: the certificate that it presents, and the certificates that it wants of clients.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS12;
use rustls::{ALL_VERSIONS, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Authority, Issued};

/// TLS of a [`Backend`](crate::Backend) or a [`ControlPlane`](crate::ControlPlane), with ALPN `h2`. Clones are the same:
/// several servers may share one, and what is changed counts for the next connection of each.
///
/// ```
/// use proxyless::{Bootstrap, XdsChannel};
/// use proxyless_testkit::echo::{EchoClient, EchoRequest};
/// use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf, ServerTls};
/// use proxyless_testkit::{Backend, ControlPlane, resources::*};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// const SERVER_ID: &str = "spiffe://mesh.example/ns/prod/sa/greeter";
/// let ca = Authority::new("mesh CA");
///
/// // A backend that wants certificates of its clients, and a control plane with TLS.
/// let tls = ServerTls::new(&ca.issue(Leaf::new("greeter").uri(SERVER_ID))).require_clients_of(&[&ca]);
/// let backend = Backend::start("greeter").await?.with_tls(&tls);
/// let plane_tls = ServerTls::new(&ca.issue(Leaf::new("control plane").ip([127, 0, 0, 1])));
/// let control_plane = ControlPlane::start().await?.with_tls(&plane_tls);
/// control_plane.set_all([
///     listener("greeter", "greeter-route").into(),
///     simple_route_config("greeter-route", "greeter-cluster").into(),
///     eds_cluster("greeter-cluster").tls(upstream_tls("certs").identity("certs").server_name(SERVER_ID)).into(),
///     priorities("greeter-cluster", [[&backend]]).into(),
/// ]);
///
/// // The client's files; `certs` is the certificate provider instance of the bootstrap.
/// let folder = CertificateFolder::new()?;
/// folder.write_ca(&[&ca])?;
/// folder.write_identity(&ca.issue(Leaf::new("client")))?;
/// let bootstrap = control_plane.bootstrap_json_with("certs", &folder);
/// let channel = XdsChannel::builder("xds:///greeter").bootstrap(Bootstrap::from_json(&bootstrap)?).build()?;
/// let mut client = EchoClient::new(channel);
/// client.unary(EchoRequest::new("hello")).await?;
/// assert!(backend.calls()[0].client_certificate().is_some());
///
/// // New connections get the next certificate.
/// tls.set_identity(&ca.issue(Leaf::new("greeter, rotated").uri(SERVER_ID)));
/// backend.goaway();
/// client.unary(EchoRequest::new("hello again")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ServerTls {
    state: Arc<Mutex<State>>,
}

/// The protocol versions of [`ServerTls::only_tls12`].
static ONLY_TLS12: &[&SupportedProtocolVersion] = &[&TLS12];

struct State {
    identity: Issued,
    /// Empty: clients need no certificate.
    clients: Vec<Authority>,
    versions: &'static [&'static SupportedProtocolVersion],
    config: Arc<ServerConfig>,
}

impl ServerTls {
    /// Presents this certificate; clients need none.
    ///
    /// # Panics
    /// If the certificate chain cannot be used by a server, as everything here that takes certificates.
    #[must_use]
    pub fn new(identity: &Issued) -> Self {
        let config = Arc::new(configure(identity, &[], ALL_VERSIONS));
        let state = State { identity: identity.clone(), clients: Vec::new(), versions: ALL_VERSIONS, config };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Requires certificates of these authorities from clients.
    #[must_use]
    pub fn require_clients_of(self, authorities: &[&Authority]) -> Self {
        self.set_client_authorities(authorities);
        self
    }

    /// Speaks TLS 1.2, and no later version.
    #[must_use]
    pub fn only_tls12(self) -> Self {
        self.change(|state| state.versions = ONLY_TLS12);
        self
    }

    /// Presents this certificate on new connections.
    pub fn set_identity(&self, identity: &Issued) {
        self.change(|state| state.identity = identity.clone());
    }

    /// Requires certificates of these authorities on new connections; if there are none, clients need no certificate.
    pub fn set_client_authorities(&self, authorities: &[&Authority]) {
        self.change(|state| state.clients = authorities.iter().map(|one| (*one).clone()).collect());
    }

    /// The current configuration, for servers that are not of this crate.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.state().config)
    }

    /// Secures a connection. Returns the client's certificate with it, if there is one.
    pub(crate) async fn accept<IO>(&self, io: IO) -> io::Result<(TlsStream<IO>, Option<Arc<[u8]>>)>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsAcceptor::from(self.config()).accept(io).await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.map(|der| Arc::from(der.as_ref()));
        Ok((stream, certificate))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.config = Arc::new(configure(&state.identity, &state.clients, state.versions));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Only complete values are stored, even if a holder panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows no key.
impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let mut f = f.debug_struct("ServerTls");
        f.field("identity", &state.identity).field("client_authorities", &state.clients.len());
        f.finish_non_exhaustive()
    }
}

fn configure(
    identity: &Issued,
    clients: &[Authority],
    versions: &'static [&'static SupportedProtocolVersion],
) -> ServerConfig {
    let crypto = CryptoProvider::get_default().cloned();
    let crypto = crypto.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&crypto))
        .with_protocol_versions(versions)
        .expect("the cryptography has cipher suites for these versions");
    let builder = match clients {
        [] => builder.with_no_client_auth(),
        clients => {
            let mut roots = RootCertStore::empty();
            for authority in clients {
                roots.add(CertificateDer::from(authority.der().to_vec())).expect("a root certificate");
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto).build();
            builder.with_client_cert_verifier(verifier.expect("there are roots"))
        }
    };
    let chain = identity.chain_der().iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key_der().to_vec()));
    let mut config = builder.with_single_cert(chain, key).expect("a certificate and its key");
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}
