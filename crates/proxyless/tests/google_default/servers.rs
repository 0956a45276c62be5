//! A server of access tokens, and TLS in front of the control plane.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use proxyless_testkit::tls::Issued;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A metadata server or token endpoint: answers every HTTP request with a token, after some with 404.
pub(crate) struct TokenServer {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl TokenServer {
    pub(crate) async fn start(token: &str, failures: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let body = format!(r#"{{"access_token": "{token}", "token_type": "Bearer", "expires_in": 3600}}"#);
        let log = Arc::clone(&server.requests);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let request = read_request(&mut stream).await;
                let count = {
                    let mut log = log.lock().unwrap();
                    log.push(request);
                    log.len()
                };
                let (status, body) = if count <= failures {
                    ("404 Not Found", "none here")
                } else {
                    ("200 OK", body.as_str())
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
                     connection: close\r\n\r\n{body}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        server
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A request with its body.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(count) if count > 0 => text.push_str(&String::from_utf8_lossy(&buffer[..count])),
            _ => return text,
        }
    }
}

/// An address that ends TLS in front of `to`.
pub(crate) async fn tls_front(to: SocketAddr, identity: &Issued) -> SocketAddr {
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(crypto).with_safe_default_protocol_versions().unwrap();
    let chain = identity.chain_der().iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key_der().to_vec()));
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut near = acceptor.accept(stream).await?;
                let mut far = TcpStream::connect(to).await?;
                copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    address
}
