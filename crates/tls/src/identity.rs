//! The client's own certificate and key.

use std::fmt;
use std::sync::Arc;

use proxyless_xds::bootstrap::IdentityFiles;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;

use crate::certificate::Certificate;
use crate::file::FileError;

/// A certificate chain and the private key that belongs to it.
pub struct Identity {
    key: Arc<CertifiedKey>,
    certificate: Certificate,
}

impl Identity {
    /// The client's certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    pub(crate) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// A29-37: takes the content of both files. The certificate must be valid now, and the key must belong to it.
    pub(crate) fn from_pem(
        files: &IdentityFiles,
        chain: &[u8],
        key: &[u8],
        crypto: &CryptoProvider,
        now: UnixTime,
    ) -> Result<Self, FileError> {
        let chain_error = |why: String| FileError::new(&files.certificate_file, why);
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| chain_error(format!("is not valid PEM: {error}")))?;
        let leaf = chain.first().ok_or_else(|| chain_error("has no certificate in PEM".to_owned()))?;
        let certificate =
            Certificate::parse(leaf).map_err(|why| chain_error(format!("the certificate {why}")))?;
        certificate.validity.check(now).map_err(|why| chain_error(format!("the certificate {why}")))?;

        let key_error = |why: String| FileError::new(&files.private_key_file, why);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => {
                key_error("has no private key in PEM (PKCS #1, PKCS #8 or SEC1, not encrypted)".to_owned())
            }
            error => key_error(format!("is not valid PEM: {error}")),
        })?;
        let key = CertifiedKey::from_der(chain, key, crypto).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let certificate_file = files.certificate_file.display();
                key_error(format!("is not the key of the certificate in {certificate_file}"))
            }
            error => key_error(format!("has a private key that cannot be used: {error}")),
        })?;
        Ok(Self { key: Arc::new(key), certificate })
    }
}

/// Shows the certificate only.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}
