//! A certificate authority.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

/// A root, or an intermediate below another authority. Clones are the same authority.
#[derive(Clone)]
pub struct Authority {
    inner: Arc<Inner>,
}

struct Inner {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
    /// The certificates that a peer needs to get from here to the root, this one first; empty for a root.
    intermediates: Vec<Vec<u8>>,
}

impl Authority {
    /// A new root with this common name.
    ///
    /// # Panics
    ///
    /// If the name is not valid in a certificate, as everything in this module.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let key = key();
        let params = authority_params(name);
        let certificate = params.self_signed(&key).expect("a valid name");
        let der = certificate.der().to_vec();
        Self { inner: Arc::new(Inner { issuer: Issuer::new(params, key), der, intermediates: Vec::new() }) }
    }

    /// An authority whose certificate is issued by this one.
    #[must_use]
    pub fn intermediate(&self, name: &str) -> Self {
        let key = key();
        let params = authority_params(name);
        let certificate = params.signed_by(&key, &self.inner.issuer).expect("a valid name");
        let der = certificate.der().to_vec();
        let intermediates = [vec![der.clone()], self.inner.intermediates.clone()].concat();
        Self { inner: Arc::new(Inner { issuer: Issuer::new(params, key), der, intermediates }) }
    }

    /// Issues a certificate with a key of its own.
    #[must_use]
    pub fn issue(&self, leaf: Leaf) -> Issued {
        let key = key();
        let certificate = leaf.params().signed_by(&key, &self.inner.issuer).expect("valid names");
        let mut chain = vec![certificate.der().to_vec()];
        if leaf.whole_chain {
            chain.extend(self.inner.intermediates.iter().cloned());
        }
        Issued { chain, key: key.serialize_der() }
    }

    /// The certificate as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.inner.der)
    }

    /// The certificate as DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.inner.der
    }

    /// The certificate as a key of a SPIFFE trust bundle.
    #[must_use]
    pub fn jwk(&self) -> Value {
        json!({"kty": "EC", "use": "x509-svid", "x5c": [STANDARD.encode(&self.inner.der)]})
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// The content of a certificate that an [`Authority`] issues: for servers and clients, valid from yesterday until
/// tomorrow, without alternative names unless they are added.
#[derive(Clone, Debug)]
#[must_use]
pub struct Leaf {
    name: String,
    sans: Vec<SanType>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
    whole_chain: bool,
}

impl Leaf {
    /// A certificate with this common name.
    pub fn new(name: &str) -> Self {
        let now = OffsetDateTime::now_utc();
        Self {
            name: name.to_owned(),
            sans: Vec::new(),
            not_before: now - Duration::days(1),
            not_after: now + Duration::days(1),
            whole_chain: true,
        }
    }

    /// Adds a DNS name.
    pub fn dns(self, name: &str) -> Self {
        self.san(SanType::DnsName(ia5(name)))
    }

    /// Adds a URI, such as a SPIFFE id.
    pub fn uri(self, uri: &str) -> Self {
        self.san(SanType::URI(ia5(uri)))
    }

    /// Adds an IP address.
    pub fn ip(self, ip: impl Into<IpAddr>) -> Self {
        self.san(SanType::IpAddress(ip.into()))
    }

    /// Adds an e-mail address.
    pub fn email(self, email: &str) -> Self {
        self.san(SanType::Rfc822Name(ia5(email)))
    }

    /// Sets the validity, in seconds from now.
    pub fn valid(mut self, from: i64, until: i64) -> Self {
        let now = OffsetDateTime::now_utc();
        self.not_before = now + Duration::seconds(from);
        self.not_after = now + Duration::seconds(until);
        self
    }

    /// Leaves the certificates of intermediate authorities out of the chain.
    pub fn without_intermediates(mut self) -> Self {
        self.whole_chain = false;
        self
    }

    fn san(mut self, san: SanType) -> Self {
        self.sans.push(san);
        self
    }

    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&self.name);
        params.subject_alt_names = self.sans.clone();
        params.not_before = self.not_before;
        params.not_after = self.not_after;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params
    }
}

/// A certificate chain and its private key.
#[derive(Clone)]
pub struct Issued {
    chain: Vec<Vec<u8>>,
    key: Vec<u8>,
}

impl Issued {
    /// The chain as PEM, leaf first.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        self.chain.iter().map(|der| pem("CERTIFICATE", der)).collect()
    }

    /// The private key as PEM (PKCS #8).
    #[must_use]
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key)
    }

    /// The chain as DER, leaf first.
    #[must_use]
    pub fn chain_der(&self) -> &[Vec<u8>] {
        &self.chain
    }

    /// The private key as DER (PKCS #8).
    #[must_use]
    pub fn key_der(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = OffsetDateTime::now_utc() - Duration::days(2);
    params.not_after = OffsetDateTime::now_utc() + Duration::days(30);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the system's randomness works")
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn ia5(text: &str) -> Ia5String {
    Ia5String::try_from(text).expect("names in certificates are ASCII")
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        out.extend(line.iter().map(|&byte| char::from(byte)));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}
