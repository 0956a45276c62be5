//! The choice of the cryptography. Alone in its process, which it changes.

use proxyless_tls::crypto_provider;

#[test]
#[cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]
fn the_provider_of_the_application_wins_over_that_of_the_feature() {
    let ours = crypto_provider().unwrap();
    // Nothing is installed behind the application's back.
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    (*ours).clone().install_default().unwrap();
    let installed = rustls::crypto::CryptoProvider::get_default().unwrap();
    assert!(!std::sync::Arc::ptr_eq(&ours, installed));
    assert!(std::sync::Arc::ptr_eq(&crypto_provider().unwrap(), installed));
}

#[test]
#[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
fn without_any_provider_there_is_an_error() {
    let error = crypto_provider().unwrap_err().to_string();
    assert!(error.contains("tls-ring or tls-aws-lc"), "{error}");
}
