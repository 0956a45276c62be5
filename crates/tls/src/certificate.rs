//! The parts of an X.509 certificate that checks and views need.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustls::pki_types::UnixTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// The maximum number of alternative names in a text.
const SHOWN_NAMES: usize = 10;
/// The maximum length of a name in a text.
const SHOWN_CHARS: usize = 200;
/// The tag of a URI among general names.
const URI_TAG: u32 = 6;

/// The subject, names and validity of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The distinguished name of the subject.
    pub subject: String,
    /// The subject alternative names of the kinds that gRPC looks at.
    pub subject_alt_names: Vec<SubjectAltName>,
    /// The time in which the certificate is valid.
    pub validity: Validity,
}

/// A subject alternative name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectAltName {
    /// A DNS name, possibly with a wildcard.
    Dns(String),
    /// A URI.
    Uri(String),
    /// An IP address.
    Ip(IpAddr),
    /// An e-mail address.
    Email(String),
}

/// The time in which a certificate is valid, both ends included, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

impl Certificate {
    /// Parses a certificate in DER.
    ///
    /// # Errors
    ///
    /// Says what is malformed.
    pub fn parse(der: &[u8]) -> Result<Self, String> {
        let (rest, parsed) = X509Certificate::from_der(der)
            .map_err(|error| format!("is not an X.509 certificate: {error}"))?;
        if !rest.is_empty() {
            return Err("has bytes after the certificate".to_owned());
        }
        let names = parsed
            .subject_alternative_name()
            .map_err(|error| format!("has invalid subject alternative names: {error}"))?;
        let names = names.map(|extension| extension.value.general_names.iter()).into_iter().flatten();
        Ok(Self {
            subject: cut(&parsed.subject().to_string()),
            subject_alt_names: names.filter_map(subject_alt_name).collect(),
            validity: Validity {
                not_before: parsed.validity().not_before.timestamp(),
                not_after: parsed.validity().not_after.timestamp(),
            },
        })
    }
}

fn subject_alt_name(name: &GeneralName<'_>) -> Option<SubjectAltName> {
    match name {
        GeneralName::DNSName(name) => Some(SubjectAltName::Dns((*name).to_owned())),
        GeneralName::URI(uri) => Some(SubjectAltName::Uri((*uri).to_owned())),
        GeneralName::RFC822Name(email) => Some(SubjectAltName::Email((*email).to_owned())),
        GeneralName::IPAddress(bytes) => {
            let ip = <[u8; 4]>::try_from(*bytes).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
            let ip = ip.or_else(|_| <[u8; 16]>::try_from(*bytes).map(|bytes| Ipv6Addr::from(bytes).into()));
            ip.ok().map(SubjectAltName::Ip)
        }
        // A87-04 counts URIs, malformed ones too.
        GeneralName::Invalid(tag, bytes) if tag.0 == URI_TAG => {
            Some(SubjectAltName::Uri(String::from_utf8_lossy(bytes).into_owned()))
        }
        _ => None,
    }
}

impl SubjectAltName {
    /// The name as matchers see it. A29-20: addresses are in their canonical form.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Dns(text) | Self::Uri(text) | Self::Email(text) => Cow::Borrowed(text),
            Self::Ip(ip) => Cow::Owned(ip.to_string()),
        }
    }
}

impl Validity {
    /// Whether the time is within the validity.
    #[must_use]
    pub fn contains(&self, time: UnixTime) -> bool {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        (self.not_before..=self.not_after).contains(&seconds)
    }

    /// An error if the time is not within the validity.
    pub(crate) fn check(&self, time: UnixTime) -> Result<(), String> {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        if seconds < self.not_before {
            return Err(format!("is not valid before {}", date(self.not_before)));
        }
        if seconds > self.not_after {
            return Err(format!("has expired at {}", date(self.not_after)));
        }
        Ok(())
    }
}

/// One line, of bounded length.
impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subject {:?}, names [", self.subject)?;
        for (i, name) in self.subject_alt_names.iter().take(SHOWN_NAMES).enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        if let more @ 1.. = self.subject_alt_names.len().saturating_sub(SHOWN_NAMES) {
            write!(f, " and {more} more")?;
        }
        write!(f, "], {}", self.validity)
    }
}

impl fmt::Display for SubjectAltName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Dns(_) => "DNS",
            Self::Uri(_) => "URI",
            Self::Ip(_) => "IP",
            Self::Email(_) => "email",
        };
        write!(f, "{kind} {:?}", cut(&self.text()))
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "valid from {} to {}", date(self.not_before), date(self.not_after))
    }
}

/// The time in UTC.
fn date(seconds: i64) -> String {
    let Ok(time) = ASN1Time::from_timestamp(seconds) else { return format!("second {seconds}") };
    let time = time.to_datetime();
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time.hour(), time.minute(), time.second())
}

/// Bounds a text that a peer has chosen.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}
