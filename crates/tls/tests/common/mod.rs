//! A client, servers with certificates, and handshakes between them in memory.
#![allow(dead_code)] // each test file uses a part

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use proxyless_testkit::tls::{Authority, CertificateFolder, Issued, ServerTls};
use proxyless_tls::{Check, ClientTls, HandshakeError, Secured, TlsSettings, VerificationError};
use proxyless_xds::bootstrap::{Bootstrap, CertificateFiles, IdentityFiles, RootsFile};
use proxyless_xds::resource::{RootCertificates, StringMatchKind, StringMatcher, UpstreamTls};
use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) const DAY: i64 = 24 * 3600;

/// Files with this interval are read again every second.
pub(crate) fn files(folder: &CertificateFolder) -> CertificateFiles {
    CertificateFiles {
        identity: None,
        roots: Some(RootsFile::CaCertificates(folder.ca_file())),
        refresh_interval: Duration::from_secs(1),
    }
}

pub(crate) fn identity_files(folder: &CertificateFolder) -> IdentityFiles {
    IdentityFiles { certificate_file: folder.certificate_file(), private_key_file: folder.private_key_file() }
}

pub(crate) fn mtls_files(folder: &CertificateFolder) -> CertificateFiles {
    CertificateFiles { identity: Some(identity_files(folder)), ..files(folder) }
}

/// A client with these certificate providers.
pub(crate) fn client(providers: &[(&str, CertificateFiles)]) -> ClientTls {
    let builder = Bootstrap::builder().server("localhost:1");
    let builder = providers
        .iter()
        .fold(builder, |builder, (name, files)| builder.certificate_provider(*name, files.clone()));
    ClientTls::new(&builder.build().unwrap()).unwrap()
}

/// A client with one provider, `certs`, that has these roots. The folder must live as long as the client.
pub(crate) fn client_of(roots: &[&Authority]) -> (ClientTls, CertificateFolder) {
    let folder = CertificateFolder::new().unwrap();
    folder.write_ca(roots).unwrap();
    (client(&[("certs", files(&folder))]), folder)
}

pub(crate) fn upstream(change: impl FnOnce(&mut UpstreamTls)) -> TlsSettings {
    let mut tls = UpstreamTls {
        roots: RootCertificates::Instance("certs".into()),
        identity: None,
        match_subject_alt_names: vec![],
        sni: None,
        auto_host_sni: false,
        auto_sni_san_validation: false,
    };
    change(&mut tls);
    TlsSettings::Upstream(Arc::new(tls))
}

pub(crate) fn with_sans(kinds: Vec<StringMatchKind>) -> TlsSettings {
    let matcher = |kind| StringMatcher { kind, ignore_case: false };
    upstream(|tls| tls.match_subject_alt_names = kinds.into_iter().map(matcher).collect())
}

pub(crate) fn server(identity: &Issued) -> ServerConfig {
    (*ServerTls::new(identity).config()).clone()
}

/// A server that wants a client certificate of this authority.
pub(crate) fn mtls_server(identity: &Issued, clients: &Authority) -> ServerConfig {
    (*ServerTls::new(identity).require_clients_of(&[clients]).config()).clone()
}

pub(crate) type ClientEnd = Result<Secured<DuplexStream>, HandshakeError>;
pub(crate) type ServerEnd = io::Result<TlsStream<DuplexStream>>;

/// A handshake; the client's end is dropped if it fails, so that the server's ends too.
pub(crate) async fn shake(
    client: &ClientTls,
    settings: &TlsSettings,
    server_name: Option<&str>,
    server: &Arc<ServerConfig>,
) -> (ClientEnd, ServerEnd) {
    let (near, far) = duplex(1 << 20);
    let accepted = tokio::spawn(TlsAcceptor::from(Arc::clone(server)).accept(far));
    let secured = client.handshake(near, settings, server_name, None).await;
    (secured, accepted.await.unwrap())
}

/// A handshake that succeeds, and a byte in each direction.
pub(crate) async fn connect(
    client: &ClientTls,
    settings: &TlsSettings,
    server_name: Option<&str>,
    server: &Arc<ServerConfig>,
) -> (Secured<DuplexStream>, TlsStream<DuplexStream>) {
    let (near, far) = shake(client, settings, server_name, server).await;
    let mut near = near.unwrap();
    let mut far = far.unwrap();
    far.write_all(b"x").await.unwrap();
    far.flush().await.unwrap();
    assert_eq!(near.stream.read_u8().await.unwrap(), b'x');
    near.stream.write_all(b"y").await.unwrap();
    near.stream.flush().await.unwrap();
    assert_eq!(far.read_u8().await.unwrap(), b'y');
    (near, far)
}

/// A handshake that fails because of the server's certificate.
pub(crate) async fn refuse(
    client: &ClientTls,
    settings: &TlsSettings,
    server_name: Option<&str>,
    server: &Arc<ServerConfig>,
) -> VerificationError {
    match shake(client, settings, server_name, server).await.0 {
        Err(HandshakeError::Verification(error)) => (*error).clone(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_failed(error: &VerificationError, check: Check, texts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.check, check, "{text}");
    for part in texts {
        assert!(text.contains(part), "{text:?} should contain {part:?}");
    }
}

/// A clock that tests set.
#[derive(Debug)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    /// A clock that shows the real time, until it is moved.
    pub(crate) fn start() -> Arc<Self> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Arc::new(Self(AtomicU64::new(now.as_secs())))
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn forward(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.now())))
    }
}
