//! The backends of the benchmarks, in a separate process: as lean as hyper allows, with several ways to fail.
//!
//! Output: first `{"addresses":[...]}`, then one line `{"connections":n}` for each line of standard input (`open`,
//! `close`, `reset`, `goaway`, `connections`).

mod answer;

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use socket2::SockRef;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, stdin};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::service::BoxError;
use crate::tls;

/// The arguments of the process.
#[derive(Args, Debug)]
pub(crate) struct BackendArgs {
    /// The name of the backends; each gets a number after it if there are several.
    #[arg(long)]
    name: String,
    /// The number of backends.
    #[arg(long, default_value_t = 1)]
    count: usize,
    /// The PEM file with the certificate chain of backends that speak TLS.
    #[arg(long, requires = "key")]
    certificate: Option<PathBuf>,
    /// The PEM file with the private key of the certificate.
    #[arg(long, requires = "certificate")]
    key: Option<PathBuf>,
    #[command(flatten)]
    windows: Windows,
}

/// Flow-control windows in bytes; hyper's defaults if there are none.
#[derive(Args, Clone, Copy, Debug)]
struct Windows {
    /// The flow-control window of a connection.
    #[arg(long)]
    connection_window: Option<u32>,
    /// The flow-control window of a stream.
    #[arg(long)]
    stream_window: Option<u32>,
}

/// The state of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Open,
    /// Connections are closed, and the port refuses.
    Closed,
    /// Connections, old and new, are reset.
    Reset,
    /// Connections get a GOAWAY and may finish; the port refuses.
    GoneAway,
}

/// Runs until standard input ends.
pub(crate) async fn run(args: BackendArgs) -> Result<(), BoxError> {
    let (mode, modes) = watch::channel(Mode::Open);
    let connections = Arc::<AtomicUsize>::default();
    let tls = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => {
            Some(TlsAcceptor::from(Arc::new(tls::server_config(certificate, key)?)))
        }
        _ => None,
    };
    let mut addresses = Vec::new();
    for number in 0..args.count {
        let name = if args.count == 1 { args.name.clone() } else { format!("{}-{number}", args.name) };
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        addresses.push(listener.local_addr()?);
        let backend = Backend {
            name: name.into(),
            address: listener.local_addr()?,
            modes: modes.clone(),
            connections: Arc::clone(&connections),
            tls: tls.clone(),
            windows: args.windows,
        };
        tokio::spawn(backend.run(listener));
    }
    answer(&json!({ "addresses": addresses }))?;
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.as_str() {
            "open" => mode.send_replace(Mode::Open),
            "close" => mode.send_replace(Mode::Closed),
            "reset" => mode.send_replace(Mode::Reset),
            "goaway" => mode.send_replace(Mode::GoneAway),
            _ => Mode::Open,
        };
        answer(&json!({ "connections": connections.load(Ordering::Relaxed) }))?;
    }
    Ok(())
}

fn answer(value: &serde_json::Value) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

struct Backend {
    name: Arc<str>,
    address: SocketAddr,
    modes: watch::Receiver<Mode>,
    connections: Arc<AtomicUsize>,
    tls: Option<TlsAcceptor>,
    windows: Windows,
}

impl Backend {
    async fn run(mut self, listener: TcpListener) {
        let mut listener = Some(listener);
        loop {
            let mode = *self.modes.borrow_and_update();
            match mode {
                Mode::Closed | Mode::GoneAway => listener = None,
                Mode::Open | Mode::Reset if listener.is_none() => {
                    listener = listen(self.address).ok();
                    if listener.is_none() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        continue;
                    }
                }
                Mode::Open | Mode::Reset => {}
            }
            tokio::select! {
                changed = self.modes.changed() => if changed.is_err() { return },
                Ok((stream, _)) = accept(listener.as_ref()) => {
                    if mode == Mode::Reset {
                        let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                    } else {
                        tokio::spawn(self.connection(stream));
                    }
                }
            }
        }
    }

    fn connection(&self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        let (name, modes, count) =
            (Arc::clone(&self.name), self.modes.clone(), Arc::clone(&self.connections));
        let (tls, windows) = (self.tls.clone(), self.windows);
        async move {
            count.fetch_add(1, Ordering::Relaxed);
            let _ = secure_and_serve(stream, tls, windows, name, modes).await;
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn secure_and_serve(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    windows: Windows,
    name: Arc<str>,
    modes: watch::Receiver<Mode>,
) -> Result<(), std::io::Error> {
    stream.set_nodelay(true)?;
    // A second handle, to set how the socket closes while hyper owns the first.
    let handle = stream.as_fd().try_clone_to_owned()?;
    match tls {
        None => serve(stream, handle, windows, name, modes).await,
        Some(tls) => serve(tls.accept(stream).await?, handle, windows, name, modes).await,
    }
}

async fn serve<I>(
    stream: I,
    handle: OwnedFd,
    windows: Windows,
    name: Arc<str>,
    mut modes: watch::Receiver<Mode>,
) -> Result<(), std::io::Error>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| {
        let name = Arc::clone(&name);
        async move { answer::answer(request, &name).await }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .max_concurrent_streams(None)
        .initial_connection_window_size(windows.connection_window)
        .initial_stream_window_size(windows.stream_window);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = Box::pin(connection);
    let ended = tokio::select! {
        result = &mut connection => return result.map_err(std::io::Error::other),
        // The sender lives as long as the process.
        Ok(ended) = modes.wait_for(|mode| *mode != Mode::Open) => *ended,
    };
    match ended {
        Mode::GoneAway => {
            connection.as_mut().graceful_shutdown();
            connection.await.map_err(std::io::Error::other)?;
        }
        Mode::Reset => SockRef::from(&handle).set_linger(Some(Duration::ZERO))?,
        Mode::Closed | Mode::Open => {}
    }
    Ok(())
}
