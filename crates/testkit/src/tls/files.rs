//! Certificate files in a temporary folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Authority, Issued};

/// A temporary folder with certificate files, removed when dropped. Each file is replaced in one step, as every tool that
/// rotates certificates should do it.
#[derive(Debug)]
pub struct CertificateFolder {
    folder: TempDir,
}

impl CertificateFolder {
    /// An empty folder.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created.
    pub fn new() -> io::Result<Self> {
        Ok(Self { folder: TempDir::new()? })
    }

    /// The path of `ca_certificate_file`.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// The path of `certificate_file`.
    #[must_use]
    pub fn certificate_file(&self) -> PathBuf {
        self.path("certificate.pem")
    }

    /// The path of `private_key_file`.
    #[must_use]
    pub fn private_key_file(&self) -> PathBuf {
        self.path("private_key.pem")
    }

    /// The path of `spiffe_trust_bundle_map_file`.
    #[must_use]
    pub fn bundle_map_file(&self) -> PathBuf {
        self.path("bundles.json")
    }

    /// The path of another file in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The files that exist, as `config` of the certificate provider plugin `file_watcher`. They are read again every second.
    #[must_use]
    pub fn config_json(&self) -> Value {
        let mut config = json!({ "refresh_interval": "1s" });
        for (field, path) in [
            ("ca_certificate_file", self.ca_file()),
            ("certificate_file", self.certificate_file()),
            ("private_key_file", self.private_key_file()),
            ("spiffe_trust_bundle_map_file", self.bundle_map_file()),
        ] {
            if path.exists() {
                config[field] = json!(path);
            }
        }
        config
    }

    /// The same for the `tls` credentials of a management server, which have no trust bundles.
    pub(crate) fn creds_json(&self) -> Value {
        let mut config = self.config_json();
        if let Some(fields) = config.as_object_mut() {
            fields.remove("spiffe_trust_bundle_map_file");
        }
        config
    }

    /// Writes the roots.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write_ca(&self, authorities: &[&Authority]) -> io::Result<()> {
        let pem: String = authorities.iter().map(|authority| authority.pem()).collect();
        self.write(&self.ca_file(), &pem)
    }

    /// Writes a certificate chain and its key, the key first.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn write_identity(&self, identity: &Issued) -> io::Result<()> {
        self.write(&self.private_key_file(), &identity.key_pem())?;
        self.write(&self.certificate_file(), &identity.chain_pem())
    }

    /// Writes a SPIFFE trust bundle map: trust domains and their roots.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write_bundle_map(&self, domains: &[(&str, &Authority)]) -> io::Result<()> {
        let bundle = |authority: &Authority| json!({"spiffe_sequence": 1, "keys": [authority.jwk()]});
        let domains: serde_json::Map<_, _> =
            domains.iter().map(|(name, authority)| ((*name).to_owned(), bundle(authority))).collect();
        self.write(&self.bundle_map_file(), &json!({"trust_domains": domains}).to_string())
    }

    /// Replaces a file of the folder in one step.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, path: &Path, content: &str) -> io::Result<()> {
        let beside = path.with_extension("new");
        fs::write(&beside, content)?;
        fs::rename(&beside, path)
    }
}
