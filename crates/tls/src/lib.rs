//! TLS of a gRPC xDS client, on rustls.
//!
//! Inputs: the certificate files of a bootstrap (gRFC A29, A65, A87) and the TLS settings of clusters. Outputs: verified
//! connections with ALPN `h2`, and bearer tokens for management servers (gRFC A97).
//!
//! [`TlsSettings`] says how a connection is secured; it has no key material, so it can be part of a key.
//! [`ClientTls::handshake`] secures a connection with the material that the settings refer to, in its latest version.
//! [`SecureConnector`] does so for the connections of `proxyless-transport`. [`FileWatcher`] reads that material again and
//! again.
//!
//! Cryptography is that of the process's installed [`CryptoProvider`](rustls::crypto::CryptoProvider), otherwise that
//! of the feature `tls-ring` or `tls-aws-lc`.
#![forbid(unsafe_code)]
#![allow(
    clippy::mutable_key_type,
    reason = "the regexes in settings are hashed and compared by their pattern"
)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod certificate;
mod client_tls;
mod connector;
mod crypto;
mod file;
mod file_watcher;
mod handshake;
mod identity;
mod jwt;
mod roots;
mod san;
mod settings;
mod spiffe;
mod system;
mod trust;
mod verification;
mod verifier;

pub use certificate::{Certificate, SubjectAltName, Validity};
pub use client_tls::ClientTls;
pub use connector::SecureConnector;
pub use crypto::{NoCryptoProvider, crypto_provider, install_crypto_provider};
pub use file::FileError;
pub use file_watcher::FileWatcher;
pub use handshake::{HandshakeError, Secured, TlsInfo};
pub use identity::Identity;
pub use jwt::{JwtTokenFile, Token, TokenError};
pub use roots::Roots;
pub use settings::TlsSettings;
pub use spiffe::TrustBundleMap;
pub use trust::Trust;
pub use verification::{Check, VerificationError};
