//! Byte streams through an HTTP CONNECT proxy (gRFC A86).
//!
//! In: the connector that dials the proxy, and the proxy's address. Out: a [`Connector`] whose byte streams lead to the
//! server itself. Nothing that the proxy sends is kept beyond the limit of its response's header.

pub(crate) mod response;
mod rewind;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::response::{Head, MAX_HEAD};
use self::rewind::Rewind;
use crate::Address;
use crate::connect::{ConnectError, Stage};
use crate::connector::{BoxedIo, Connecting, Connector};

/// Opens byte streams through a proxy: another connector dials the proxy, which connects to the requested address. It is
/// made for one attempt.
pub struct Tunnel {
    inner: Arc<dyn Connector>,
    proxy: SocketAddr,
    progress: Mutex<Progress>,
}

/// The progress of an attempt.
#[derive(Clone, Copy)]
enum Progress {
    /// Connecting to the proxy.
    Dialing,
    /// Waiting for the response to CONNECT.
    Asking,
    /// The byte stream leads to the server.
    Open,
}

impl Tunnel {
    /// Tunnels through this proxy, which `inner` dials.
    #[must_use]
    pub fn new(inner: Arc<dyn Connector>, proxy: SocketAddr) -> Self {
        Self { inner, proxy, progress: Mutex::new(Progress::Dialing) }
    }

    /// The reason of a failed attempt, with the proxy and without the address of the server.
    #[must_use]
    pub fn reason(&self, error: &ConnectError) -> String {
        let proxy = self.proxy;
        // The value is consistent even if a holder panicked.
        let progress = *self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        match (progress, error) {
            (Progress::Dialing, ConnectError::Timeout { stage: Stage::Connect, after, .. }) => {
                format!("no connection to the proxy {proxy} within {after:?}")
            }
            (
                Progress::Asking,
                ConnectError::Timeout { stage: Stage::Connect, address: Address::Tcp(server), after },
            ) => format!("the proxy {proxy} did not answer CONNECT {server} within {after:?}"),
            (Progress::Dialing, _) => format!("connecting to the proxy {proxy}: {}", error.reason()),
            // The error names the proxy.
            (Progress::Asking, _) => error.reason(),
            (Progress::Open, _) => format!("through the proxy {proxy}: {}", error.reason()),
        }
    }

    fn advance(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// Asks the proxy to connect to `server`, and waits for its response.
    async fn open(&self, mut io: BoxedIo, server: SocketAddr) -> Result<BoxedIo, String> {
        // A86-14: the argument is the IP address and port of the endpoint.
        let request = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
        let broken = |error: io::Error| format!("failed before its response to CONNECT {server}: {error}");
        io.write_all(request.as_bytes()).await.map_err(broken)?;
        io.flush().await.map_err(broken)?;
        let (head, received) = read_head(&mut io, server, broken).await?;
        // RFC 9110, section 9.3.6: any 2xx response opens the tunnel.
        if !(200..300).contains(&head.status) {
            let reason = if head.reason.is_empty() { String::new() } else { format!(" {}", head.reason) };
            return Err(format!("refused CONNECT {server}: {}{reason}", head.status));
        }
        Ok(if received.is_empty() { io } else { BoxedIo::new(Rewind::new(received, io)) })
    }
}

/// The head of the response, and the bytes of the tunnel that were received with it.
async fn read_head(
    io: &mut BoxedIo,
    server: SocketAddr,
    broken: impl Fn(io::Error) -> String,
) -> Result<(Head, Bytes), String> {
    let mut received = BytesMut::with_capacity(1024);
    loop {
        let before = received.len();
        let room = u64::try_from(MAX_HEAD.saturating_sub(before)).unwrap_or(0);
        if (&mut *io).take(room).read_buf(&mut received).await.map_err(&broken)? == 0 {
            return Err(format!("closed the connection before its response to CONNECT {server}"));
        }
        // A head ends with a line, so that single bytes need not be parsed again and again.
        let ends = received.len() >= MAX_HEAD || received.iter().skip(before).any(|byte| *byte == b'\n');
        let head = if ends { Head::read(&received) } else { Head::check(&received).map(|()| None) };
        match head.map_err(|why| format!("sent an invalid response to CONNECT {server}: {why}"))? {
            Some(head) => {
                let rest = received.split_off(head.length.min(received.len()));
                return Ok((head, rest.freeze()));
            }
            None => received.reserve(1024),
        }
    }
}

impl Connector for Tunnel {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            let Address::Tcp(server) = *address else {
                return Err(io::Error::other(format!("{address} cannot be reached through a proxy")));
            };
            self.advance(Progress::Dialing);
            let io = self.inner.connect(&Address::Tcp(self.proxy)).await?;
            self.advance(Progress::Asking);
            let opened = self.open(io, server).await;
            let io = opened.map_err(|why| io::Error::other(format!("the proxy {} {why}", self.proxy)))?;
            self.advance(Progress::Open);
            Ok(io)
        })
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}
