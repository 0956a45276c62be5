//! Accepts TLS connections: a listener and certificates in, a stream of secured connections out.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::security::ServerCertificates;

/// The pause after a failure to accept, which usually is a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// Accepts connections, until the receiver is gone. Handshakes run beside each other, so that a slow one delays no other.
pub(super) async fn accept(
    listener: TcpListener,
    certificates: Arc<ServerCertificates>,
    connections: mpsc::Sender<io::Result<SecuredStream>>,
) {
    let mut handshakes = JoinSet::new();
    while !connections.is_closed() {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Only small answers are slower without it.
        let _ = stream.set_nodelay(true);
        let (certificates, connections) = (Arc::clone(&certificates), connections.clone());
        handshakes.spawn(async move {
            match certificates.accept(stream).await {
                // Without a receiver the server has ended.
                Ok(stream) => drop(connections.send(Ok(SecuredStream(stream))).await),
                Err(error) => tracing::info!(%error, "TLS handshake failed"),
            }
        });
        while handshakes.try_join_next().is_some() {}
    }
}

/// A TLS connection in the form that tonic serves.
pub(super) struct SecuredStream(TlsStream<TcpStream>);

impl Connected for SecuredStream {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for SecuredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for SecuredStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
