//! Certificates, which servers send, and trust bundle maps, which are files.

use proxyless_tls::{Certificate, TrustBundleMap};

/// The certificate of a server, in DER.
///
/// Properties: no panic; the same bytes give the same outcome; the text of a certificate and of an error is short, whatever
/// the server has put into it.
pub fn certificate(data: &[u8]) {
    let parsed = Certificate::parse(data);
    assert_eq!(parsed, Certificate::parse(data), "the second time");
    let text = match parsed {
        Ok(certificate) => certificate.to_string(),
        Err(why) => why,
    };
    assert!(!text.is_empty() && text.len() < 1 << 14, "{} bytes", text.len());
}

/// A SPIFFE trust bundle map (gRFC A87).
///
/// Properties: no panic; the same text gives the same outcome; an error is short.
pub fn trust_bundle_map(data: &[u8]) {
    let outcome = |data| TrustBundleMap::from_json(data).map(|map| format!("{map:?}"));
    let parsed = outcome(data);
    assert_eq!(parsed, outcome(data), "the second time");
    if let Err(why) = parsed {
        assert!(!why.is_empty() && why.len() < 1 << 12, "{} bytes", why.len());
    }
}
