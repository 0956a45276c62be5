//! The HTTP/2 server of the control plane and the backends: a loopback port that can be closed and reopened, and made
//! to drain its connections.

#[cfg(feature = "tls")]
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tonic::body::Body;

use crate::observed::Observed;
#[cfg(feature = "tls")]
use crate::tls::ServerTls;

/// Handles the requests of a [`Server`].
pub(crate) trait Handler: Clone + Send + Sync + 'static {
    fn handle(&self, peer: Peer, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;
}

/// The client's end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The client's certificate in DER, if TLS has verified one.
    pub(crate) certificate: Option<Arc<[u8]>>,
}

/// A loopback port that is reserved while this value exists. Connections are refused unless something listens.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    // Bound, but not listening: the kernel does not assign the port to another socket, and we may listen on it.
    _reservation: TcpSocket,
}

impl Port {
    pub(crate) fn reserve() -> io::Result<Self> {
        Self::reserve_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Beside another reservation, as long as nothing listens.
    pub(crate) fn reserve_at(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self { address: socket.local_addr()?, _reservation: socket })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(self.address)?;
        socket.listen(1024)
    }
}

/// The number of connections, and how they end.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    pub(crate) open: usize,
    /// The number accepted so far.
    pub(crate) accepted: usize,
    goaways: u64,
    max_age: Option<Duration>,
    /// TLS of new connections.
    #[cfg(feature = "tls")]
    tls: Option<ServerTls>,
    /// The latest failed handshakes, oldest first.
    #[cfg(feature = "tls")]
    pub(crate) handshake_errors: VecDeque<String>,
}

#[cfg(feature = "tls")]
impl Connections {
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }
}

/// The maximum number of handshake errors that are kept.
#[cfg(feature = "tls")]
const MAX_HANDSHAKE_ERRORS: usize = 100;

#[derive(Debug)]
pub(crate) struct Server<H> {
    port: Port,
    handler: H,
    connections: Arc<Observed<Connections>>,
    running: Mutex<Option<Running>>,
}

impl<H: Handler> Server<H> {
    pub(crate) fn start(handler: H, port: Port) -> io::Result<Self> {
        let server = Self {
            port,
            handler,
            connections: Arc::new(Observed::new(Connections::default())),
            running: Mutex::new(None),
        };
        server.restart()?;
        Ok(server)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub(crate) fn connections(&self) -> &Observed<Connections> {
        &self.connections
    }

    /// Listens on the same port again, if stopped.
    pub(crate) fn restart(&self) -> io::Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            let listener = self.port.listen()?;
            let tasks = Tasks::default();
            tasks.spawn(accept(listener, self.handler.clone(), self.connections.clone(), tasks.clone()));
            *running = Some(Running { _cancel: tasks.token.clone().drop_guard(), tasks });
        }
        Ok(())
    }

    /// Closes the port and resets every connection; returns when that is complete.
    pub(crate) async fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            running.tasks.token.cancel();
            running.tasks.tracker.close();
            running.tasks.tracker.wait().await;
        }
    }

    /// Sends a GOAWAY on every connection; each one closes when its RPCs have ended.
    pub(crate) fn goaway(&self) {
        self.connections.update(|c| c.goaways += 1);
    }

    /// Secures new connections.
    #[cfg(feature = "tls")]
    pub(crate) fn use_tls(&self, tls: &ServerTls) {
        self.connections.update(|c| c.tls = Some(tls.clone()));
    }

    /// Sends a GOAWAY on connections that reach this age.
    pub(crate) fn max_age(&self, age: Option<Duration>) {
        self.connections.update(|c| c.max_age = age);
    }
}

/// The tasks between a start and a stop. Dropping it cancels them.
#[derive(Debug)]
struct Running {
    tasks: Tasks,
    _cancel: DropGuard,
}

#[derive(Clone, Debug, Default)]
struct Tasks {
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    fn spawn<F>(&self, future: F)
    where
        F: Future + Send + 'static,
    {
        let token = self.token.clone();
        self.tracker.spawn(async move {
            token.run_until_cancelled_owned(future).await;
        });
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        self.spawn(future);
    }
}

async fn accept<H: Handler>(
    listener: TcpListener,
    handler: H,
    connections: Arc<Observed<Connections>>,
    tasks: Tasks,
) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Otherwise small answers wait for the client's delayed ACK; a socket that refuses is about to end
                // anyway.
                let _ = stream.set_nodelay(true);
                let io = Io { stream, killed: tasks.token.clone() };
                let open = Open::new(connections.clone());
                tasks.spawn(secure(io, peer, handler.clone(), open, tasks.clone()));
            }
            // Running out of descriptors is the usual cause: later connections may succeed.
            Err(error) => {
                tracing::debug!(%error, "accept failed");
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Serves a connection, with TLS if the server has it.
async fn secure<H: Handler>(io: Io, address: SocketAddr, handler: H, open: Open, tasks: Tasks) {
    #[cfg(feature = "tls")]
    if let Some(tls) = open.connections.read(|c| c.tls.clone()) {
        match tls.accept(io).await {
            Ok((io, certificate)) => {
                serve(io, Peer { address, certificate }, handler, open, tasks).await;
            }
            Err(error) => open.handshake_failed(&error),
        }
        return;
    }
    serve(io, Peer { address, certificate: None }, handler, open, tasks).await;
}

async fn serve<H: Handler>(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    peer: Peer,
    handler: H,
    open: Open,
    tasks: Tasks,
) {
    let opened = Instant::now();
    let address = peer.address;
    let service = service_fn(move |request| {
        let (handler, peer) = (handler.clone(), peer.clone());
        async move { Ok::<_, Infallible>(handler.handle(peer, request).await) }
    });
    let connection =
        http2::Builder::new(tasks).timer(TokioTimer::new()).serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let mut draining = false;
    loop {
        let age = open.connections.read(|c| c.max_age);
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(peer = %address, %error, "connection ended");
                }
                return;
            }
            () = open.goaway_or_age_change(age), if !draining => {}
            () = at(age.map(|age| opened + age)), if !draining => {
                connection.as_mut().graceful_shutdown();
                draining = true;
            }
        }
        if !draining && open.goaway_requested() {
            connection.as_mut().graceful_shutdown();
            draining = true;
        }
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Counts a connection as open until it is dropped.
struct Open {
    connections: Arc<Observed<Connections>>,
    /// The GOAWAYs requested before this connection was accepted, which do not apply to it.
    goaways_before: u64,
}

impl Open {
    fn new(connections: Arc<Observed<Connections>>) -> Self {
        let goaways_before = connections.update(|c| {
            c.open += 1;
            c.accepted += 1;
            c.goaways
        });
        Self { connections, goaways_before }
    }

    #[cfg(feature = "tls")]
    fn handshake_failed(&self, error: &io::Error) {
        tracing::debug!(%error, "TLS handshake failed");
        self.connections.update(|c| {
            if c.handshake_errors.len() == MAX_HANDSHAKE_ERRORS {
                c.handshake_errors.pop_front();
            }
            c.handshake_errors.push_back(error.to_string());
        });
    }

    fn goaway_requested(&self) -> bool {
        self.connections.read(|c| c.goaways != self.goaways_before)
    }

    async fn goaway_or_age_change(&self, age: Option<Duration>) {
        self.connections.until(|c| c.goaways != self.goaways_before || c.max_age != age).await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.update(|c| c.open -= 1);
    }
}

/// A connection that is reset, not closed gracefully, when its server is stopped.
struct Io {
    stream: TcpStream,
    killed: CancellationToken,
}

impl Drop for Io {
    fn drop(&mut self) {
        if self.killed.is_cancelled() {
            // Without it the peer sees a graceful end instead; nothing else can go wrong here.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
