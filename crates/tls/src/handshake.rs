//! One handshake: its result and its errors.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{CertificateError, ClientConfig, HandshakeKind, InvalidMessage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificate::Certificate;
use crate::file::FileError;
use crate::identity::Identity;
use crate::settings::TlsSettings;
use crate::verification::VerificationError;

/// A secured connection.
pub struct Secured<IO> {
    /// The connection.
    pub stream: TlsStream<IO>,
    /// The properties of the connection, for views.
    pub info: TlsInfo,
}

/// The properties of a secured connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsInfo {
    /// The version of the protocol: `TLSv1_3`.
    pub version: String,
    /// The cipher suite: `TLS13_AES_256_GCM_SHA384`.
    pub cipher_suite: String,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The server's certificate.
    pub server_certificate: Option<Certificate>,
    /// The same in DER.
    pub server_certificate_der: Option<CertificateDer<'static>>,
    /// The client's own certificate, if it has one: servers see it if they ask for it.
    pub client_certificate: Option<Certificate>,
    /// The same in DER.
    pub client_certificate_der: Option<CertificateDer<'static>>,
}

/// Shows the properties only.
impl<IO> fmt::Debug for Secured<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured").field("info", &self.info).finish_non_exhaustive()
    }
}

/// A failed handshake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// A certificate file has never been good.
    #[error("certificate file {0}")]
    File(Arc<FileError>),
    /// The certificate provider instance does not exist.
    #[error("there is no certificate provider instance {0:?} in the bootstrap")]
    NoInstance(String),
    /// The certificate provider instance has no roots.
    #[error(
        "the certificate provider instance {0:?} has no root certificates: ca_certificate_file is not set"
    )]
    NoRoots(String),
    /// The certificate provider instance has no identity.
    #[error("the certificate provider instance {0:?} has no certificate: certificate_file is not set")]
    NoIdentity(String),
    /// The system's roots cannot be used.
    #[error("{0}")]
    System(String),
    /// The server name cannot be sent.
    #[error("{0:?} is not a valid server name: {1}")]
    ServerName(String, InvalidDnsNameError),
    /// The settings require a server name, and there is none.
    #[error("the host name of the server is not known, so that its certificate cannot be verified")]
    NoServerName,
    /// The server's certificate is not accepted.
    #[error("TLS handshake: {0}")]
    Verification(Arc<VerificationError>),
    /// The server does not speak TLS.
    #[error("TLS handshake: the server's answer is not TLS")]
    NotTls,
    /// The server does not speak HTTP/2.
    #[error("TLS handshake: the server has not agreed on HTTP/2 (ALPN h2)")]
    NoHttp2,
    /// TLS failed otherwise: an alert of the server, for example.
    #[error("TLS handshake: {0}")]
    Tls(Box<rustls::Error>),
    /// The connection broke.
    #[error("TLS handshake: {0}")]
    Io(io::Error),
}

/// The name that the server is verified with. Addresses are never sent, so one stands for the absence of a name.
pub(crate) fn server_name(
    settings: &TlsSettings,
    name: Option<&str>,
    peer: Option<IpAddr>,
) -> Result<ServerName<'static>, HandshakeError> {
    match (name, settings) {
        (Some(name), _) => ServerName::try_from(name.to_owned())
            .map_err(|error| HandshakeError::ServerName(name.to_owned(), error)),
        (None, TlsSettings::Server(_)) => Err(HandshakeError::NoServerName),
        (None, TlsSettings::Upstream(_)) => {
            Ok(ServerName::IpAddress(peer.unwrap_or(Ipv4Addr::UNSPECIFIED.into()).into()))
        }
    }
}

pub(crate) async fn run<IO>(
    io: IO,
    config: Arc<ClientConfig>,
    identity: Option<&Identity>,
    server_name: ServerName<'static>,
) -> Result<Secured<IO>, HandshakeError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let stream = TlsConnector::from(config).connect(server_name, io).await.map_err(classify)?;
    let connection = stream.get_ref().1;
    if connection.alpn_protocol() != Some(b"h2") {
        return Err(HandshakeError::NoHttp2);
    }
    let version = connection.protocol_version().and_then(|version| version.as_str());
    let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
    let certificate = connection.peer_certificates().and_then(|chain| chain.first());
    let info = TlsInfo {
        version: version.unwrap_or("unknown").to_owned(),
        cipher_suite: suite.unwrap_or("unknown").to_owned(),
        resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        server_certificate: certificate.and_then(|der| Certificate::parse(der).ok()),
        server_certificate_der: certificate.map(|der| der.clone().into_owned()),
        client_certificate: identity.map(|identity| identity.certificate().clone()),
        client_certificate_der: identity.and_then(|identity| identity.key().cert.first().cloned()),
    };
    Ok(Secured { stream, info })
}

fn classify(error: io::Error) -> HandshakeError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        None => HandshakeError::Io(error),
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) => {
            match other.0.downcast_ref::<VerificationError>() {
                Some(failed) => HandshakeError::Verification(Arc::new(failed.clone())),
                None => HandshakeError::Tls(Box::new(rustls::Error::General(other.to_string()))),
            }
        }
        Some(rustls::Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        )) => HandshakeError::NotTls,
        // A server without HTTP/2 says so, if it knows ALPN.
        Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)) => {
            HandshakeError::NoHttp2
        }
        Some(other) => HandshakeError::Tls(Box::new(other.clone())),
    }
}
