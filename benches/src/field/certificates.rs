//! The certificates of the measures over TLS.

use std::path::PathBuf;

use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
use serde_json::{Value, json};

use super::scene::LOOPBACK;
use crate::service::BoxError;

/// The certificate provider instance of [`Certificates::providers`].
pub(super) const INSTANCE: &str = "certs";

/// A certificate authority and the identity of the backends, in files; removed when dropped.
pub(crate) struct Certificates {
    folder: CertificateFolder,
}

impl Certificates {
    pub(crate) fn issue() -> Result<Self, BoxError> {
        let (authority, folder) = (Authority::new("contest"), CertificateFolder::new()?);
        folder.write_ca(&[&authority])?;
        // Contestants without xDS compare the address that they connect to.
        folder.write_identity(&authority.issue(Leaf::new("backend").ip(LOOPBACK)))?;
        Ok(Self { folder })
    }

    /// The file with the root.
    pub(super) fn ca_file(&self) -> PathBuf {
        self.folder.ca_file()
    }

    /// The arguments of backends with this identity.
    pub(super) fn backend_arguments(&self) -> [PathBuf; 4] {
        [
            "--certificate".into(),
            self.folder.certificate_file(),
            "--key".into(),
            self.folder.private_key_file(),
        ]
    }

    /// The `certificate_providers` of a bootstrap, with the root as [`INSTANCE`].
    pub(super) fn providers(&self) -> Value {
        // Longer than a run: the files never change.
        let config = json!({ "ca_certificate_file": self.ca_file(), "refresh_interval": "3600s" });
        json!({ INSTANCE: { "plugin_name": "file_watcher", "config": config } })
    }
}
