//! The verification of servers (gRFC A29, A87, A101).
//!
//! The chain is verified with webpki, and then the names: by the SAN matchers of a cluster, the server name that was sent, or
//! the host name of the server.

use std::fmt::Write;
use std::sync::Arc;

use proxyless_xds::resource::{StringMatchKind, StringMatcher, UpstreamTls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, SignatureScheme};

use crate::certificate::{Certificate, cut};
use crate::san::{any_dns_matches, any_matches};
use crate::settings::TlsSettings;
use crate::trust::Trust;
use crate::verification::{Check, VerificationError};

/// The maximum number of certificates in a server's chain.
const MAX_CERTIFICATES: usize = 16;
/// The maximum size of a server's chain in bytes.
const MAX_CHAIN_BYTES: usize = 64 << 10;
/// The maximum number of SAN matchers in an error.
const SHOWN_MATCHERS: usize = 10;

/// Verifies the servers of one [`TlsSettings`].
#[derive(Debug)]
pub(crate) struct Verifier {
    pub(crate) trust: Arc<Trust>,
    pub(crate) settings: TlsSettings,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), VerificationError> {
        let bare = |check, why| VerificationError { check, why, wanted: None, presented: None };
        let bytes = intermediates.iter().fold(leaf.len(), |sum, one| sum.saturating_add(one.len()));
        if intermediates.len() >= MAX_CERTIFICATES || bytes > MAX_CHAIN_BYTES {
            let count = intermediates.len() + 1;
            let why = format!(
                "{count} certificates of {bytes} bytes; the limits are {MAX_CERTIFICATES} and {MAX_CHAIN_BYTES}"
            );
            return Err(bare(Check::Size, why));
        }
        let certificate =
            Certificate::parse(leaf).map_err(|why| bare(Check::Encoding, format!("it {why}")))?;
        let failed = |check, why, wanted| VerificationError {
            check,
            why,
            wanted,
            presented: Some(Box::new(certificate.clone())),
        };
        let parsed = ParsedCertificate::try_from(leaf)
            .map_err(|error| failed(Check::Encoding, reason(&error), None))?;
        let wanted = || Some(self.trust.to_string());
        // A87-06: the roots depend on the trust domain.
        let roots = self.trust.roots_for(&certificate, now);
        let roots = roots.map_err(|why| failed(Check::TrustDomain, why, wanted()))?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, now, self.algorithms.all)
            .map_err(|error| failed(Check::Chain, reason(&error), wanted()))?;
        match &self.settings {
            TlsSettings::Server(_) => verify_server_name(&parsed, server_name).map_err(|_| {
                let wanted = server_name.to_str().into_owned();
                failed(Check::Name, "none is that of the server".to_owned(), Some(wanted))
            }),
            TlsSettings::Upstream(tls) => verify_names(tls, &certificate, server_name)
                .map_err(|wanted| failed(Check::Name, "none matches".to_owned(), Some(wanted))),
        }
    }
}

/// A29-17, A29-18, A87-07: one of the SAN matchers, if there are any. A101-05, A101-06: the server name instead, if asked
/// for and one was sent. An error is the expectation.
fn verify_names(tls: &UpstreamTls, peer: &Certificate, server_name: &ServerName<'_>) -> Result<(), String> {
    let names = &peer.subject_alt_names;
    match server_name {
        ServerName::DnsName(sni) if tls.auto_sni_san_validation => match any_dns_matches(sni.as_ref(), names)
        {
            true => Ok(()),
            false => Err(format!("the DNS name {:?}, which was sent as server name", sni.as_ref())),
        },
        _ if tls.match_subject_alt_names.is_empty() => Ok(()),
        _ if any_matches(&tls.match_subject_alt_names, names) => Ok(()),
        _ => Err(describe(&tls.match_subject_alt_names)),
    }
}

/// The matchers in one line, of bounded length.
fn describe(matchers: &[StringMatcher]) -> String {
    let mut text = String::from("one of [");
    for (i, matcher) in matchers.iter().take(SHOWN_MATCHERS).enumerate() {
        let kind = match matcher.kind {
            StringMatchKind::Exact(_) => "exact",
            StringMatchKind::Prefix(_) => "prefix",
            StringMatchKind::Suffix(_) => "suffix",
            StringMatchKind::Contains(_) => "contains",
            StringMatchKind::Regex(_) => "regex",
        };
        let separator = if i == 0 { "" } else { ", " };
        let ignore_case = if matcher.ignore_case { " (any case)" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{kind} {:?}{ignore_case}", cut(matcher.kind.text()));
    }
    if let more @ 1.. = matchers.len().saturating_sub(SHOWN_MATCHERS) {
        let _ = write!(text, " and {more} more");
    }
    text.push(']');
    text
}

/// The reason of an error of webpki.
fn reason(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(error) = error else { return error.to_string() };
    match error {
        CertificateError::UnknownIssuer => "no trusted root certificate has issued it".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "a certificate of the chain has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "a certificate of the chain is not valid yet".to_owned()
        }
        CertificateError::BadEncoding => "a certificate of the chain is malformed".to_owned(),
        CertificateError::BadSignature => {
            "a signature of the chain is not that of the authority it names".to_owned()
        }
        other => other.to_string(),
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.verify(end_entity, intermediates, server_name, now) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(error) => Err(CertificateError::Other(OtherError(Arc::new(error))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
