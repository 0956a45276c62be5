//! TLS of the server: certificate files in, secured connections out. Connections use the files as they were read last.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The maximum duration of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// The pause after a failure to accept, which usually is a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// The certificate files of the server, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, leaf first.
    pub certificate: PathBuf,
    /// The private key of the leaf.
    pub key: PathBuf,
    /// The roots of the certificates that clients must present, if they must.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// The paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca)
    }

    /// Reads the files. An error names the file.
    fn read(&self) -> Result<ServerConfig, String> {
        let crypto = CryptoProvider::get_default().cloned();
        let crypto = crypto.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&crypto))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| problem(path, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto);
                builder.with_client_cert_verifier(verifier.build().map_err(|error| problem(path, error))?)
            }
        };
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&content(&self.key)?)
            .map_err(|_| problem(&self.key, "there is no private key in PEM in it"))?;
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => problem(
                &self.key,
                format_args!("the key does not belong to the certificate in {}", self.certificate.display()),
            ),
            error => format!("{} and {}: {error}", self.certificate.display(), self.key.display()),
        })?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let content = content(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let all = all.map_err(|error| problem(path, error))?;
    if all.is_empty() { Err(problem(path, "there is no certificate in PEM in it")) } else { Ok(all) }
}

fn content(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| problem(path, error))
}

fn problem(path: &Path, why: impl fmt::Display) -> String {
    format!("{}: {why}", path.display())
}

/// The files, and the TLS settings of their last good content.
pub(super) struct Secured {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

/// Shows no key.
impl fmt::Debug for Secured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Secured {
    pub(super) fn new(files: TlsFiles) -> Result<Self, String> {
        let config = RwLock::new(Arc::new(files.read()?));
        Ok(Self { files, config })
    }

    /// Reads the files again. With an error, the previous content stays in use.
    pub(super) fn reload(&self) -> Result<(), String> {
        let config = Arc::new(self.files.read()?);
        // The lock is held for an assignment only.
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Accepts connections until the receiver is gone. Handshakes run beside each other: a slow one delays no other.
    pub(super) async fn accept(
        self: Arc<Self>,
        listener: TcpListener,
        connections: mpsc::Sender<io::Result<TlsStream<TcpStream>>>,
    ) {
        let mut handshakes = JoinSet::new();
        while !connections.is_closed() {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (secured, connections) = (Arc::clone(&self), connections.clone());
            handshakes.spawn(async move {
                match secured.handshake(stream).await {
                    // Without a receiver the server has ended.
                    Ok(stream) => drop(connections.send(Ok(stream)).await),
                    Err(error) => tracing::info!(%error, "TLS handshake failed"),
                }
            });
            while handshakes.try_join_next().is_some() {}
        }
    }

    async fn handshake(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        // A socket that refuses is about to end anyway.
        let _ = stream.set_nodelay(true);
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await?
    }
}
