//! The limit: hyper connections in round robin.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::uri::Scheme;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tonic::body::Body;
use tower_service::Service;

use crate::service::BoxError;

/// Connections that are never lost and have no stream limit: a channel without any of its duties.
#[derive(Clone)]
pub(crate) struct BareHyper {
    connections: Arc<[Connection]>,
    turn: Arc<AtomicUsize>,
}

#[derive(Clone)]
struct Connection {
    authority: http::uri::Authority,
    sender: SendRequest<Body>,
}

impl BareHyper {
    pub(crate) async fn connect(addresses: &[String]) -> Result<Self, BoxError> {
        let mut connections = Vec::new();
        for address in addresses {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let io = TokioIo::new(stream);
            let (sender, connection) =
                hyper::client::conn::http2::Builder::new(TokioExecutor::new()).handshake(io).await?;
            tokio::spawn(connection);
            connections.push(Connection { authority: address.parse()?, sender });
        }
        Ok(Self { connections: connections.into(), turn: Arc::default() })
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
        uri.scheme = Some(Scheme::HTTP);
        uri.authority = Some(authority.clone());
        *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
        Box::pin(sender.clone().send_request(request))
    }
}
