//! The byte stream below HTTP/2, and how it is opened.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::Address;
use crate::options::ConnectOptions;
use crate::panics::{Panicked, contain};
use crate::targets;

/// Opens byte streams. Implement it to add TLS, a proxy or a test network.
pub trait Connector: Send + Sync + 'static {
    /// Opens a stream to `address`, ready for the HTTP/2 preface. Dropping the future cancels the attempt.
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a>;
}

/// The future of [`Connector::connect`].
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<BoxedIo>> + Send + 'a>>;

/// A byte stream for HTTP/2.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Any byte stream. If it panics, that is an error of its connection: h2 polls it under a lock that all calls of the
/// connection need, so a panic must not pass through h2.
pub struct BoxedIo {
    io: Box<dyn Io>,
    /// The panic, which every later operation fails with.
    panicked: Option<Panicked>,
}

impl BoxedIo {
    /// Wraps a byte stream.
    pub fn new(io: impl Io) -> Self {
        Self { io: Box::new(io), panicked: None }
    }

    fn poll<T>(&mut self, poll: impl FnOnce(Pin<&mut dyn Io>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let panicked = match self.panicked.take() {
            Some(panicked) => panicked,
            None => match contain(|| poll(Pin::new(&mut *self.io))) {
                Ok(outcome) => return outcome,
                Err(panicked) => panicked,
            },
        };
        let error = io::Error::other(format!("the byte stream panicked: {panicked}"));
        self.panicked = Some(panicked);
        Poll::Ready(Err(error))
    }
}

/// Plain TCP with `TCP_NODELAY`, and Unix domain sockets.
#[derive(Clone, Copy, Debug)]
pub struct TcpConnector {
    #[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
    user_timeout: Option<Duration>,
}

impl Default for TcpConnector {
    fn default() -> Self {
        Self { user_timeout: Some(ConnectOptions::default().keepalive_timeout) }
    }
}

impl TcpConnector {
    /// The time for which sent data may stay unacknowledged, or the peer's window closed, before the connection counts
    /// as dead; 20 seconds by default. `None`: the system's default, which may be a quarter of an hour.
    ///
    /// This is `TCP_USER_TIMEOUT`, where the system supports it (Linux does). With keepalive it is the keepalive
    /// timeout (gRFC A18), unless a custom connector is used.
    #[must_use]
    pub fn user_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.user_timeout = timeout;
        self
    }

    /// A18: the keepalive timeout also applies to the kernel.
    #[doc(hidden)]
    #[must_use]
    pub fn for_options(options: &ConnectOptions) -> Self {
        match options.keepalive_interval {
            Some(_) => Self { user_timeout: Some(options.keepalive_timeout) },
            None => Self::default(),
        }
    }

    async fn open(self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(timeout) = self.user_timeout
            && let Err(error) = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(timeout))
        {
            // Sandboxes may lack it, and the connection works without it.
            tracing::debug!(target: targets::SUBCHANNEL, %address, %error, "TCP_USER_TIMEOUT cannot be set");
        }
        Ok(stream)
    }
}

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            match address {
                Address::Tcp(address) => Ok(BoxedIo::new(self.open(*address).await?)),
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
        self.poll(|io| io.poll_read(cx, buf))
    }
}

impl AsyncWrite for BoxedIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(|io| io.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|io| io.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|io| io.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(|io| io.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        contain(|| self.io.is_write_vectored()).unwrap_or(false)
    }
}

impl fmt::Debug for BoxedIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxedIo")
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a18_the_user_timeout_is_that_of_keepalive_or_twenty_seconds() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seconds = Duration::from_secs;
        let with = |interval| ConnectOptions {
            keepalive_interval: interval,
            keepalive_timeout: seconds(7),
            ..ConnectOptions::default()
        };
        for (connector, expected) in [
            (TcpConnector::default(), Some(seconds(20))),
            (TcpConnector::for_options(&with(Some(seconds(30)))), Some(seconds(7))),
            (TcpConnector::for_options(&with(None)), Some(seconds(20))),
            (TcpConnector::default().user_timeout(None), None),
        ] {
            let stream = connector.open(address).await.unwrap();
            assert_eq!(socket2::SockRef::from(&stream).tcp_user_timeout().unwrap(), expected);
        }
    }
}
