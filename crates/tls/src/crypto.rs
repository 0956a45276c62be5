//! The choice of the cryptography.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Neither has the application installed a crypto provider, nor is there a feature for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no cryptography for TLS: enable the feature tls-ring or tls-aws-lc, or install a rustls CryptoProvider as the \
     process's default"
)]
pub struct NoCryptoProvider;

/// The crypto provider that the process has installed, otherwise that of the enabled feature.
///
/// # Errors
///
/// If there is neither.
pub fn crypto_provider() -> Result<Arc<CryptoProvider>, NoCryptoProvider> {
    CryptoProvider::get_default().cloned().or_else(built_in).ok_or(NoCryptoProvider)
}

/// Installs [`crypto_provider`] as the process's default if there is none, for libraries that use only that.
///
/// # Errors
///
/// If no crypto provider is compiled in or installed.
pub fn install_crypto_provider() -> Result<(), NoCryptoProvider> {
    let provider = crypto_provider()?;
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread has installed one meanwhile.
        let _ = CryptoProvider::clone(&provider).install_default();
    }
    Ok(())
}

#[cfg(feature = "tls-ring")]
fn built_in() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(rustls::crypto::ring::default_provider()))
}

#[cfg(all(feature = "tls-aws-lc", not(feature = "tls-ring")))]
fn built_in() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

#[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
fn built_in() -> Option<Arc<CryptoProvider>> {
    None
}
