//! The byte stream below HTTP/2, and how it is opened.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::Address;

/// Opens byte streams. Bring your own to add TLS, a proxy or a test network.
pub trait Connector: Send + Sync + 'static {
    /// Opens a stream to `address`, ready for the HTTP/2 preface. Dropping the future gives up.
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a>;
}

/// What [`Connector::connect`] returns.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<BoxedIo>> + Send + 'a>>;

/// A byte stream that HTTP/2 can run on.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Any byte stream.
pub struct BoxedIo(Box<dyn Io>);

impl BoxedIo {
    /// Wraps a byte stream.
    pub fn new(io: impl Io) -> Self {
        Self(Box::new(io))
    }
}

/// Plain TCP with `TCP_NODELAY`, and Unix domain sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConnector;

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            match address {
                Address::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Ok(BoxedIo::new(stream))
                }
                #[cfg(unix)]
                Address::Unix(path) => Ok(BoxedIo::new(tokio::net::UnixStream::connect(path).await?)),
                #[cfg(not(unix))]
                Address::Unix(_) => Err(io::Error::from(io::ErrorKind::Unsupported)),
            }
        })
    }
}

impl AsyncRead for BoxedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for BoxedIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

impl fmt::Debug for BoxedIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxedIo")
    }
}
