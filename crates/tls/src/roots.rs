//! Root certificates.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};

use crate::certificate::{Certificate, Validity};

/// Root certificates. Those that are not valid at the time of a handshake do not count in it.
pub struct Roots {
    all: Arc<RootCertStore>,
    anchors: Vec<(TrustAnchor<'static>, Validity)>,
}

impl Roots {
    /// Parses certificates in PEM, of which there must be one.
    ///
    /// # Errors
    ///
    /// Says what is malformed.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let certificates = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("is not valid PEM: {error}"))?;
        if certificates.is_empty() {
            return Err("has no certificates in PEM".to_owned());
        }
        Self::from_certificates(certificates)
    }

    /// Takes these certificates, all of which must be valid as roots.
    pub(crate) fn from_certificates(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let mut roots = Self::empty();
        for (i, certificate) in certificates.into_iter().enumerate() {
            roots.add(certificate).map_err(|why| format!("certificate {} {why}", i + 1))?;
        }
        Ok(roots)
    }

    /// Takes those of these certificates that can be used as roots.
    pub(crate) fn from_usable(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut roots = Self::empty();
        for certificate in certificates {
            if let Err(why) = roots.add(certificate) {
                tracing::debug!("a root certificate of the system {why}");
            }
        }
        roots
    }

    /// The number of certificates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.anchors.len()
    }

    /// Whether there are no certificates.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }

    /// Whether any certificate is valid at this time.
    pub(crate) fn any_valid(&self, now: UnixTime) -> bool {
        self.anchors.iter().any(|(_, validity)| validity.contains(now))
    }

    /// The certificates that are valid at this time.
    pub(crate) fn valid(&self, now: UnixTime) -> Arc<RootCertStore> {
        if self.anchors.iter().all(|(_, validity)| validity.contains(now)) {
            return Arc::clone(&self.all);
        }
        let valid = self.anchors.iter().filter(|(_, validity)| validity.contains(now));
        Arc::new(RootCertStore { roots: valid.map(|(anchor, _)| anchor.clone()).collect() })
    }

    fn empty() -> Self {
        Self { all: Arc::new(RootCertStore::empty()), anchors: Vec::new() }
    }

    fn add(&mut self, der: CertificateDer<'static>) -> Result<(), String> {
        let validity = Certificate::parse(&der)?.validity;
        let store = Arc::make_mut(&mut self.all);
        store.add(der).map_err(|error| format!("cannot be a root: {error}"))?;
        let anchor = store.roots.last().cloned();
        self.anchors.extend(anchor.map(|anchor| (anchor, validity)));
        Ok(())
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roots").field("certificates", &self.anchors.len()).finish()
    }
}
