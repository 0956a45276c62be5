//! The limit: hyper connections in round robin.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::uri::Scheme;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tower_service::Service;

use crate::service::BoxError;
use crate::tls;

/// Connections that are never lost and have no stream limit: a channel without any of its duties.
#[derive(Clone)]
pub(crate) struct BareHyper {
    connections: Arc<[Connection]>,
    turn: Arc<AtomicUsize>,
    scheme: Scheme,
}

#[derive(Clone)]
struct Connection {
    authority: http::uri::Authority,
    sender: SendRequest<Body>,
}

impl BareHyper {
    /// Connects to all addresses; over TLS if there is a file with roots.
    pub(crate) async fn connect(addresses: &[String], ca: Option<&Path>) -> Result<Self, BoxError> {
        let tls = ca.map(tls::client_config).transpose()?.map(|config| TlsConnector::from(Arc::new(config)));
        let mut connections = Vec::new();
        for address in addresses {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let sender = match &tls {
                None => start(stream).await?,
                Some(tls) => {
                    let ip = address.parse::<SocketAddr>()?.ip();
                    start(tls.connect(ip.into(), stream).await?).await?
                }
            };
            connections.push(Connection { authority: address.parse()?, sender });
        }
        let scheme = if ca.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        Ok(Self { connections: connections.into(), turn: Arc::default(), scheme })
    }
}

impl Service<Request<Body>> for BareHyper {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let at = turn % self.connections.len();
        // In bounds by the remainder.
        let Connection { authority, sender } = &self.connections[at];
        let mut uri = std::mem::take(request.uri_mut()).into_parts();
        uri.scheme = Some(self.scheme.clone());
        uri.authority = Some(authority.clone());
        *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
        Box::pin(sender.clone().send_request(request))
    }
}

/// Starts HTTP/2 on a byte stream.
async fn start<I>(stream: I) -> Result<SendRequest<Body>, hyper::Error>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
