//! `--secure_mode`: flags and a bootstrap in, TLS connections out.
//!
//! xDS for servers is not supported, so no Listener resource names a certificate provider instance: the instance is
//! that of `--certificate_provider`, or the only one of the bootstrap with a certificate. The certificates of clients are
//! required if the instance, or the flags, have a CA.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use proxyless::bootstrap::{
    Bootstrap, BootstrapError, CertificateFiles, CertificateProvider, IdentityFiles, RootsFile,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::flags::ServerFlags;

/// The maximum duration of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// The security of the test service.
#[derive(Debug)]
pub(super) enum Security {
    Plaintext,
    Tls(Arc<ServerCertificates>),
}

/// All reasons for which the flags, the bootstrap or the certificates are not usable.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct SecurityError(Vec<String>);

impl Security {
    /// Reads the bootstrap only if it is needed.
    pub(super) fn from_flags(
        flags: &ServerFlags,
        bootstrap: impl FnOnce() -> Result<Bootstrap, BootstrapError>,
    ) -> Result<Self, SecurityError> {
        let problems = problems(flags);
        if !problems.is_empty() {
            return Err(SecurityError(problems));
        }
        if !flags.secure_mode {
            return Ok(Self::Plaintext);
        }
        let certificates = match (&flags.certificate_file, &flags.private_key_file) {
            (Some(certificate_file), Some(private_key_file)) => ServerCertificates::new(
                IdentityFiles {
                    certificate_file: certificate_file.clone(),
                    private_key_file: private_key_file.clone(),
                },
                flags.ca_certificate_file.clone(),
                CertificateFiles::default().refresh_interval,
            ),
            _ => {
                let bootstrap = bootstrap().map_err(|error| SecurityError(vec![error.to_string()]))?;
                provided(&bootstrap, flags.certificate_provider.as_deref())
            }
        };
        let certificates = certificates.map_err(|why| SecurityError(vec![why]))?;
        Ok(Self::Tls(Arc::new(certificates)))
    }
}

/// The problems of the flags by themselves.
fn problems(flags: &ServerFlags) -> Vec<String> {
    let files = [
        ("--certificate_file", flags.certificate_file.is_some()),
        ("--private_key_file", flags.private_key_file.is_some()),
        ("--ca_certificate_file", flags.ca_certificate_file.is_some()),
    ];
    let provider = ("--certificate_provider", flags.certificate_provider.is_some());
    let mut problems = Vec::new();
    if !flags.secure_mode {
        let given = files.iter().chain([&provider]).filter(|(_, is_set)| *is_set);
        problems.extend(given.map(|(name, _)| format!("{name} requires --secure_mode=true")));
        return problems;
    }
    // The maintenance port is plaintext, so that it cannot be the same.
    if flags.maintenance_port.is_none_or(|port| port == flags.port) {
        problems.push("--secure_mode=true requires a --maintenance_port other than --port".to_owned());
    }
    if provider.1 {
        let given = files.iter().filter(|(_, is_set)| *is_set);
        problems.extend(given.map(|(name, _)| format!("{name} and {} exclude each other", provider.0)));
    } else if files.iter().any(|(_, is_set)| *is_set) {
        let missing = files.iter().take(2).filter(|(_, is_set)| !is_set);
        problems.extend(missing.map(|(name, _)| {
            format!("{name} is missing: --certificate_file and --private_key_file belong together")
        }));
    }
    problems
}

/// The certificates of a bootstrap's provider instance.
fn provided(bootstrap: &Bootstrap, wanted: Option<&str>) -> Result<ServerCertificates, String> {
    let all = bootstrap.certificate_providers();
    let files = match wanted {
        Some(name) => match all.get(name) {
            Some(CertificateProvider::FileWatcher(files)) => files,
            Some(_) => {
                return Err(format!("certificate_providers[{name:?}]: only file_watcher is supported"));
            }
            None => {
                return Err(format!(
                    "certificate_providers has no instance {name:?}, which --certificate_provider names"
                ));
            }
        },
        None => {
            let usable: Vec<_> = all
                .iter()
                .filter_map(|(name, provider)| match provider {
                    CertificateProvider::FileWatcher(files) if files.identity.is_some() => {
                        Some((name, files))
                    }
                    _ => None,
                })
                .collect();
            match usable[..] {
                [(_, files)] => files,
                [] => {
                    return Err("--secure_mode=true requires a file_watcher with certificate_file in \
                                certificate_providers of the bootstrap, or --certificate_file and \
                                --private_key_file"
                        .to_owned());
                }
                _ => {
                    let names: Vec<_> = usable.iter().map(|(name, _)| name.as_str()).collect();
                    let names = names.join(", ");
                    return Err(format!(
                        "certificate_providers has several instances with a certificate ({names}): \
                                        --certificate_provider must name one"
                    ));
                }
            }
        }
    };
    let identity = files.identity.clone();
    let identity =
        identity.ok_or("the certificate provider instance has no certificate_file, which a server needs")?;
    let ca = match &files.roots {
        None => None,
        Some(RootsFile::CaCertificates(path)) => Some(path.clone()),
        Some(RootsFile::SpiffeBundleMap(path)) => {
            return Err(format!(
                "spiffe_trust_bundle_map_file {} is not supported by servers",
                path.display()
            ));
        }
    };
    ServerCertificates::new(identity, ca, files.refresh_interval)
}

/// The certificate files of a server, and the TLS configuration of their last good content.
pub(super) struct ServerCertificates {
    identity: IdentityFiles,
    /// Clients need a certificate of these authorities, if there are any.
    ca: Option<PathBuf>,
    refresh_interval: Duration,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    read_at: Instant,
}

impl ServerCertificates {
    /// Reads the files for the first time.
    pub(super) fn new(
        identity: IdentityFiles,
        ca: Option<PathBuf>,
        refresh_interval: Duration,
    ) -> Result<Self, String> {
        let config = configure(&identity, ca.as_deref())?;
        let current = Mutex::new(Current { config: Arc::new(config), read_at: Instant::now() });
        Ok(Self { identity, ca, refresh_interval, current })
    }

    /// Secures a connection, which must have HTTP/2 by ALPN.
    pub(super) async fn accept(self: Arc<Self>, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = async {
            let this = Arc::clone(&self);
            let config = tokio::task::spawn_blocking(move || this.latest()).await?;
            TlsAcceptor::from(config).accept(stream).await
        };
        let stream = tokio::time::timeout(HANDSHAKE, handshake).await??;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(io::Error::other("the client has not offered h2 by ALPN"));
        }
        Ok(stream)
    }

    /// The configuration for a new connection. Blocks if the files are to be read again.
    pub(super) fn latest(&self) -> Arc<ServerConfig> {
        // Only complete values are stored, even if a holder panicked.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.read_at.elapsed() >= self.refresh_interval {
            current.read_at = Instant::now();
            match configure(&self.identity, self.ca.as_deref()) {
                Ok(config) => current.config = Arc::new(config),
                Err(why) => tracing::warn!("{why}; the previous certificates stay in use"),
            }
        }
        Arc::clone(&current.config)
    }
}

/// Shows no key.
impl fmt::Debug for ServerCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("ServerCertificates");
        f.field("identity", &self.identity).field("ca", &self.ca).finish_non_exhaustive()
    }
}

/// Reads the files. An error names the file.
fn configure(identity: &IdentityFiles, ca: Option<&Path>) -> Result<ServerConfig, String> {
    let crypto = CryptoProvider::get_default().cloned();
    let crypto = crypto.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&crypto))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match ca {
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
    let chain = certificates(&identity.certificate_file)?;
    let path = &identity.private_key_file;
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| problem(path, error))?;
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        format!("{} and {}: {error}", identity.certificate_file.display(), path.display())
    })?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| problem(path, error))?;
    if all.is_empty() { Err(problem(path, "has no certificates in PEM")) } else { Ok(all) }
}

fn problem(path: &Path, why: impl fmt::Display) -> String {
    format!("{}: {why}", path.display())
}
