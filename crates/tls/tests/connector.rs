//! HTTP/2 connections over TLS, on loopback sockets.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{client_of, server, upstream, with_sans};
use http_body_util::Empty;
use proxyless_testkit::tls::{Authority, Leaf};
use proxyless_tls::{ClientTls, SecureConnector, TlsSettings};
use proxyless_transport::{Address, ConnectError, ConnectOptions, Connection, TcpConnector};
use proxyless_xds::resource::StringMatchKind;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Accepts one connection, and answers the preface of HTTP/2 with SETTINGS.
async fn serve(config: ServerConfig) -> Address {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        // A client that does not accept the certificate hangs up.
        let Ok(mut tls) = TlsAcceptor::from(Arc::new(config)).accept(tcp).await else { return };
        let mut preface = [0; 24];
        tls.read_exact(&mut preface).await.unwrap();
        assert!(preface.starts_with(b"PRI * HTTP/2.0"));
        tls.write_all(&SETTINGS).await.unwrap();
        tls.flush().await.unwrap();
        let _ = tls.read_to_end(&mut Vec::new()).await;
    });
    address
}

async fn connect(
    connector: &SecureConnector,
    address: &Address,
    limit: Duration,
) -> Result<Connection<Empty<Bytes>>, ConnectError> {
    let options = ConnectOptions { connect_timeout: limit, ..ConnectOptions::default() };
    proxyless_transport::connect(connector, address, &options).await
}

fn secure(client: ClientTls, settings: TlsSettings) -> SecureConnector {
    SecureConnector::new(Arc::new(TcpConnector::default()), Arc::new(client), settings, None)
}

#[tokio::test]
async fn http2_runs_over_tls() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let address = serve(server(&ca.issue(Leaf::new("backend")))).await;
    let connector = secure(client, upstream(|_| {}));
    assert_eq!(connector.info(), None);
    connect(&connector, &address, Duration::from_secs(20)).await.unwrap();
    let info = connector.info().unwrap();
    assert_eq!(info.server_certificate.unwrap().subject, "CN=backend");
}

#[tokio::test]
async fn the_error_of_an_attempt_says_which_check_failed() {
    let ca = Authority::new("ca");
    let (client, _folder) = client_of(&[&ca]);
    let address = serve(server(&ca.issue(Leaf::new("backend").dns("a.example")))).await;
    let settings = with_sans(vec![StringMatchKind::Exact("b.example".into())]);
    let error = connect(&secure(client, settings), &address, Duration::from_secs(20)).await.err().unwrap();
    let error = error.to_string();
    let expected = "TLS handshake: the server's certificate is not accepted for its names: none matches; wanted: one \
                    of [exact \"b.example\"]; presented: subject \"CN=backend\", names [DNS \"a.example\"], valid";
    assert!(error.starts_with(&format!("{address}: {expected}")), "{error}");
}

#[tokio::test]
async fn a_server_that_stalls_in_the_handshake_meets_the_connect_timeout() {
    let (client, _folder) = client_of(&[&Authority::new("ca")]);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let error = connect(&secure(client, upstream(|_| {})), &address, Duration::from_millis(200)).await;
    assert!(matches!(error.err(), Some(ConnectError::Timeout { .. })));
}
