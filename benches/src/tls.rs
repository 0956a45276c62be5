//! The TLS of backends and of contestants without certificate providers: rustls on ring, with HTTP/2.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::service::BoxError;

/// The ALPN protocol of HTTP/2.
const H2: &[u8] = b"h2";

/// A server that has one cipher suite, so that all contestants pay for the same one.
pub(crate) fn server_config(certificate: &Path, key: &Path) -> Result<ServerConfig, BoxError> {
    let suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
    let crypto = CryptoProvider { cipher_suites: suites, ..default_provider() };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.alpn_protocols = vec![H2.to_vec()];
    Ok(config)
}

/// A client that trusts the certificates of this file.
pub(crate) fn client_config(ca: &Path) -> Result<ClientConfig, BoxError> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(ca)? {
        roots.add(root?)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![H2.to_vec()];
    Ok(config)
}
