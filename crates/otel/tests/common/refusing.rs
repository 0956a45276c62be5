//! A server that refuses its first streams, so that requests are sent again (gRFC A6: transparent retries).

use std::net::SocketAddr;

use h2::Reason;
use http::{HeaderMap, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Refuses the first stream of each connection, and answers others with NOT_FOUND. Dropping it stops it.
pub(crate) struct RefusingServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl RefusingServer {
    pub(crate) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        Ok(Self { address, accepting })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RefusingServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(stream: TcpStream) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    let mut streams = 0;
    while let Some(request) = connection.accept().await {
        let (_, mut respond) = request?;
        streams += 1;
        if streams == 1 {
            respond.send_reset(Reason::REFUSED_STREAM);
            continue;
        }
        let response = Response::builder().header("content-type", "application/grpc");
        let mut body = respond.send_response(response.body(()).expect("valid headers"), false)?;
        let trailers = [("grpc-status", "5"), ("grpc-message", "not here")];
        let trailers = trailers.map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        body.send_trailers(HeaderMap::from_iter(trailers))?;
    }
    Ok(())
}
