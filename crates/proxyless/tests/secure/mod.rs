//! A mesh with TLS for tests: servers that end TLS in front of backends, clusters with TLS settings, channels with
//! certificate files.
#![allow(dead_code)] // each test binary uses a part

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::TransportSocket;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as wire;
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message as _, Name as _};
use proxyless::bootstrap::{BootstrapBuilder, CertificateFiles, IdentityFiles, RootsFile};
use proxyless::{Bootstrap, ClientPool, XdsChannel, XdsCredentials};
use proxyless_testkit::ControlPlane;
use proxyless_testkit::resources::eds_cluster;
use proxyless_testkit::tls::{Authority, CertificateFolder, Issued, Leaf};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::common::{PATIENCE, SERVICE};

/// The identity of the backends of these tests.
pub(crate) const SPIFFE_ID: &str = "spiffe://mesh.example/ns/prod/sa/api";
/// The first byte of a TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 22;

/// A port in front of a backend that serves TLS and plaintext: the first byte of a connection decides.
pub(crate) struct Front {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    to: SocketAddr,
    acceptor: Mutex<TlsAcceptor>,
    seen: watch::Sender<Seen>,
}

/// What a [`Front`] has seen.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    /// The connections whose handshake succeeded.
    pub(crate) tls: usize,
    /// The connections without TLS.
    pub(crate) plaintext: usize,
    /// The connections that are open, those in a handshake included.
    pub(crate) open: usize,
    /// The open connections without TLS.
    pub(crate) open_plaintext: usize,
    /// The reasons of failed handshakes.
    pub(crate) failed: Vec<String>,
    /// The client certificate of the latest handshake.
    pub(crate) client: Option<Vec<u8>>,
    /// The server name of the latest handshake.
    pub(crate) server_name: Option<String>,
}

impl Front {
    /// Ends TLS in front of `to`.
    pub(crate) async fn start(to: SocketAddr, config: ServerConfig) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let acceptor = Mutex::new(TlsAcceptor::from(Arc::new(config)));
        let shared = Arc::new(Shared { to, acceptor, seen: watch::Sender::default() });
        let server = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&server);
                connections.spawn(async move { shared.serve(stream).await });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, shared, task })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Uses another configuration for new connections.
    pub(crate) fn rotate(&self, config: ServerConfig) {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        *self.shared.acceptor.lock().unwrap_or_else(PoisonError::into_inner) = acceptor;
    }

    pub(crate) fn seen(&self) -> Seen {
        self.shared.seen.borrow().clone()
    }

    /// Waits until this is seen.
    pub(crate) async fn until(&self, what: &str, check: impl FnMut(&Seen) -> bool) -> Seen {
        let mut seen = self.shared.seen.subscribe();
        match timeout(PATIENCE, seen.wait_for(check)).await {
            Ok(found) => found.expect("the sender is in `self`").clone(),
            Err(_) => panic!("waited {PATIENCE:?} for {what}; seen: {:?}", self.seen()),
        }
    }
}

/// Leaves the certificate out.
impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tls, plaintext, open, open_plaintext, failed, client: _, server_name: _ } = self;
        write!(
            f,
            "{tls} TLS, {plaintext} plaintext, {open} open ({open_plaintext} plaintext), failed: {failed:?}"
        )
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    async fn serve(&self, stream: TcpStream) {
        self.seen.send_modify(|seen| seen.open += 1);
        let result = self.forward(stream).await;
        self.seen.send_modify(|seen| {
            seen.open -= 1;
            if let Err(error) = result {
                seen.failed.push(error.to_string());
            }
        });
    }

    /// Fails if the handshake does.
    async fn forward(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Ok(());
        }
        // How a connection ends is the business of its two ends.
        if first != [TLS_HANDSHAKE] {
            self.seen.send_modify(|seen| {
                seen.plaintext += 1;
                seen.open_plaintext += 1;
            });
            if let Ok(mut far) = TcpStream::connect(self.to).await {
                let _ = copy_bidirectional(&mut stream, &mut far).await;
            }
            self.seen.send_modify(|seen| seen.open_plaintext -= 1);
            return Ok(());
        }
        let acceptor = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut near = acceptor.accept(stream).await?;
        self.seen.send_modify(|seen| {
            let chain = near.get_ref().1.peer_certificates();
            seen.client = chain.and_then(|chain| chain.first()).map(|der| der.to_vec());
            seen.server_name = near.get_ref().1.server_name().map(str::to_owned);
            seen.tls += 1;
        });
        if let Ok(mut far) = TcpStream::connect(self.to).await {
            let _ = copy_bidirectional(&mut near, &mut far).await;
        }
        Ok(())
    }
}

/// The configuration of a server with this identity. Clients need a certificate of one of `clients`, if there are any.
pub(crate) fn server(identity: &Issued, clients: &[&Authority]) -> ServerConfig {
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&crypto));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = if clients.is_empty() {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for authority in clients {
            roots.add(CertificateDer::from(authority.der().to_vec())).unwrap();
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto).build();
        builder.with_client_cert_verifier(verifier.unwrap())
    };
    let chain = identity.chain_der().iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key_der().to_vec()));
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// A certificate with [`SPIFFE_ID`].
pub(crate) fn backend_identity(ca: &Authority) -> Issued {
    ca.issue(Leaf::new("backend").uri(SPIFFE_ID))
}

pub(crate) fn exact(name: &str) -> StringMatcher {
    StringMatcher { match_pattern: Some(MatchPattern::Exact(name.into())), ..Default::default() }
}

/// A cluster with TLS: the roots and the identity are those of this instance, and the server must have one of these names.
pub(crate) fn tls_cluster(name: &str, instance: &str, names: Vec<StringMatcher>) -> Cluster {
    let instance =
        wire::CertificateProviderPluginInstance { instance_name: instance.into(), ..Default::default() };
    #[allow(deprecated, reason = "the field that gRFC A29 names")]
    let validation = wire::CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance.clone()),
        match_subject_alt_names: names,
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
    Cluster { transport_socket: Some(socket), ..eds_cluster(name) }
}

/// Changes the TLS settings of a cluster that has some.
pub(crate) fn with_tls(mut cluster: Cluster, change: impl FnOnce(&mut wire::UpstreamTlsContext)) -> Cluster {
    let Some(ConfigType::TypedConfig(any)) =
        cluster.transport_socket.as_mut().and_then(|socket| socket.config_type.as_mut())
    else {
        panic!("{} has no TLS settings", cluster.name);
    };
    let mut tls = wire::UpstreamTlsContext::decode(&*any.value).unwrap();
    change(&mut tls);
    any.value = tls.encode_to_vec();
    cluster
}

/// An authority, and a folder with it as root and a certificate for the client.
pub(crate) fn certificates() -> io::Result<(Authority, CertificateFolder)> {
    let (ca, folder) = (Authority::new("test CA"), CertificateFolder::new()?);
    folder.write_ca(&[&ca])?;
    folder.write_identity(&ca.issue(Leaf::new("client")))?;
    Ok((ca, folder))
}

/// The files of a folder, read once a second.
pub(crate) fn files(folder: &CertificateFolder) -> CertificateFiles {
    files_at(&folder.ca_file(), &folder.certificate_file(), &folder.private_key_file())
}

pub(crate) fn files_at(ca: &Path, certificate: &Path, key: &Path) -> CertificateFiles {
    CertificateFiles {
        identity: Some(IdentityFiles { certificate_file: certificate.into(), private_key_file: key.into() }),
        roots: Some(RootsFile::CaCertificates(ca.into())),
        refresh_interval: Duration::from_secs(1),
    }
}

/// A bootstrap whose instance `certs` has these files.
pub(crate) fn bootstrap_with(plane: &ControlPlane, certs: CertificateFiles) -> BootstrapBuilder {
    Bootstrap::builder().server(plane.address().to_string()).certificate_provider("certs", certs)
}

/// A channel with its own xDS client and xDS credentials.
pub(crate) fn tls_channel(plane: &ControlPlane, certs: CertificateFiles) -> XdsChannel {
    XdsChannel::builder(&format!("xds:///{SERVICE}"))
        .bootstrap(bootstrap_with(plane, certs).build().unwrap())
        .client_pool(ClientPool::new())
        .credentials(XdsCredentials::default())
        .build()
        .unwrap()
}
