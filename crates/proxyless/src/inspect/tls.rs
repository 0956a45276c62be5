//! How a connection is secured.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use proxyless_tls::{Certificate, TlsInfo};
use serde::{Deserialize, Serialize};

use super::since_1970;

/// The maximum number of alternative names in a view.
const MAX_NAMES: usize = 20;
/// A certificate that is valid for longer than this does not expire soon.
const SOON: Duration = Duration::from_secs(24 * 60 * 60);

/// TLS of a connection. It has no key material.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TlsView {
    /// The version of the protocol, such as `TLSv1.3`.
    pub version: String,
    /// The cipher suite by its standard name, such as `TLS_AES_256_GCM_SHA384`.
    pub cipher_suite: String,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The server's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<CertificateView>,
    /// The client's own certificate, if it has one: servers see it if they ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<CertificateView>,
}

/// A certificate of a connection, as it was when the connection was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CertificateView {
    /// The distinguished name of the subject.
    pub subject: String,
    /// The kinds and values of its subject alternative names; the first ones if there are very many.
    pub names: Vec<String>,
    /// The beginning of its validity.
    #[serde(with = "since_1970")]
    pub not_before: SystemTime,
    /// The end of its validity.
    #[serde(with = "since_1970")]
    pub not_after: SystemTime,
    /// Whether the end is near.
    pub expiry: Expiry,
    /// The certificate in DER; not in JSON.
    #[serde(skip)]
    pub der: Bytes,
}

/// Whether the validity of a certificate ends soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Expiry {
    /// It does not.
    Later,
    /// Within 24 hours, and less than a quarter of the whole validity is left: certificates of a mesh often live for a day
    /// or less, and should have been replaced by then.
    Soon,
    /// It has ended. The connection stays; new ones would be refused.
    Expired,
}

impl TlsView {
    pub(crate) fn new(info: &TlsInfo, now: SystemTime) -> Self {
        let der = |der: Option<&[u8]>| der.map(Bytes::copy_from_slice).unwrap_or_default();
        let remote_der = der(info.server_certificate_der.as_deref());
        let local_der = der(info.client_certificate_der.as_deref());
        let view = |certificate: &Certificate, der| CertificateView::new(certificate, der, now);
        Self {
            version: info.version.replace('_', "."),
            // rustls has its own names for the cipher suites of TLS 1.3.
            cipher_suite: info.cipher_suite.replacen("TLS13_", "TLS_", 1),
            resumed: info.resumed,
            remote: info.server_certificate.as_ref().map(|certificate| view(certificate, remote_der)),
            local: info.client_certificate.as_ref().map(|certificate| view(certificate, local_der)),
        }
    }

    /// The protocol, the server, and certificates that expire, in a few words.
    pub(crate) fn summary(&self, now: SystemTime) -> String {
        let mut text = self.version.clone();
        if let Some(remote) = &self.remote {
            let name = remote.names.first().cloned().unwrap_or_else(|| format!("{:?}", remote.subject));
            // Writing to a string does not fail.
            let _ = write!(text, " {name}");
        }
        for (of, certificate) in [("server's", &self.remote), ("client's", &self.local)] {
            let Some(CertificateView { expiry, not_after, .. }) = certificate else { continue };
            let left = not_after.duration_since(now).unwrap_or_else(|past| past.duration());
            let minutes = left.as_secs() / 60;
            let _ = match expiry {
                Expiry::Later => Ok(()),
                Expiry::Soon => write!(text, " EXPIRING the {of} certificate in {minutes} min"),
                Expiry::Expired => write!(text, " EXPIRED the {of} certificate {minutes} min ago"),
            };
        }
        text
    }
}

impl CertificateView {
    fn new(certificate: &Certificate, der: Bytes, now: SystemTime) -> Self {
        let (not_before, not_after) =
            (time(certificate.validity.not_before), time(certificate.validity.not_after));
        Self {
            subject: certificate.subject.clone(),
            names: certificate.subject_alt_names.iter().take(MAX_NAMES).map(ToString::to_string).collect(),
            not_before,
            not_after,
            expiry: Expiry::of(not_before, not_after, now),
            der,
        }
    }
}

impl Expiry {
    fn of(not_before: SystemTime, not_after: SystemTime, now: SystemTime) -> Self {
        let Ok(left) = not_after.duration_since(now) else { return Self::Expired };
        let whole = not_after.duration_since(not_before).unwrap_or_default();
        if left < SOON && left < whole / 4 { Self::Soon } else { Self::Later }
    }
}

/// Times before 1970 are shown as 1970.
fn time(seconds: i64) -> SystemTime {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn view(lives: i64, left: i64) -> TlsView {
        let now = 1_000_000 * HOUR;
        let certificate = |subject: &str, names: &[&str], left: i64| CertificateView {
            subject: subject.into(),
            names: names.iter().map(ToString::to_string).collect(),
            not_before: time(now + left - lives),
            not_after: time(now + left),
            expiry: Expiry::of(time(now + left - lives), time(now + left), time(now)),
            der: Bytes::from_static(b"der"),
        };
        TlsView {
            version: "TLSv1.3".into(),
            cipher_suite: "TLS_AES_256_GCM_SHA384".into(),
            resumed: false,
            remote: Some(certificate("CN=a", &["URI \"spiffe://a\""], left)),
            local: Some(certificate("CN=b", &[], 30 * 24 * HOUR)),
        }
    }

    #[test]
    fn a_certificate_expires_soon_within_a_day_and_a_quarter_of_its_life() {
        for (lives, left, expected) in [
            (365 * 24 * HOUR, 25 * HOUR, Expiry::Later),
            (365 * 24 * HOUR, 23 * HOUR, Expiry::Soon),
            (24 * HOUR, 12 * HOUR, Expiry::Later),
            (24 * HOUR, 5 * HOUR, Expiry::Soon),
            (HOUR, HOUR / 2, Expiry::Later),
            (HOUR, 60, Expiry::Soon),
            (HOUR, 0, Expiry::Soon),
            (HOUR, -1, Expiry::Expired),
        ] {
            assert_eq!(view(lives, left).remote.unwrap().expiry, expected, "{lives} {left}");
        }
    }

    #[test]
    fn a_summary_names_the_server_and_warns() {
        let now = time(1_000_000 * HOUR);
        assert_eq!(view(24 * HOUR, 12 * HOUR).summary(now), "TLSv1.3 URI \"spiffe://a\"");
        let soon = view(24 * HOUR, HOUR).summary(now);
        assert_eq!(soon, "TLSv1.3 URI \"spiffe://a\" EXPIRING the server's certificate in 60 min");
        let expired = TlsView { local: None, ..view(24 * HOUR, -2 * HOUR) }.summary(now);
        assert!(expired.ends_with("EXPIRED the server's certificate 120 min ago"), "{expired}");
    }

    #[test]
    fn json_goes_there_and_back_without_der() {
        let json = serde_json::to_string(&view(24 * HOUR, HOUR)).unwrap();
        assert!(json.contains(r#""expiry":"soon""#) && !json.contains("der"), "{json}");
        let mut expected = view(24 * HOUR, HOUR);
        expected.remote.as_mut().unwrap().der = Bytes::new();
        expected.local.as_mut().unwrap().der = Bytes::new();
        assert_eq!(serde_json::from_str::<TlsView>(&json).unwrap(), expected);
    }
}
