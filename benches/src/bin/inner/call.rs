//! RPCs through the whole client: tonic's code, an `XdsChannel`, h2, tokio and the loopback interface.
//!
//! The client has one thread for its calls and connections. The control plane and the backend are in another process
//! (`inner serve`), which callgrind does not follow, so only the client is counted: with the kernel's work left out, and
//! with the thread of the xDS client, which is idle meanwhile.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use proxyless::{Bootstrap, WaitForReady, XdsChannel, XdsChannelBuilder};
use proxyless_admin::MetricStore;
use proxyless_otel::OpenTelemetry;
use proxyless_testkit::ControlPlane;
use proxyless_testkit::resources::{assignment, eds_cluster, listener, locality, simple_route_config};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::answer;
use crate::discard::Discard;
use crate::service::{BenchClient, BoxError, Payload};

const SERVICE: &str = "bench";
const LENGTH: usize = 32;

/// What records the RPCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Not,
    /// With every metric and label, for `/metrics`.
    ByStore,
    /// By the OpenTelemetry SDK.
    ByOtel,
}

/// One unary RPC per run, after one that connects.
pub(crate) fn unary(recorded: Recorded) -> Result<Box<dyn FnMut()>, BoxError> {
    let Client { runtime, mut client, server } = Client::start(recorded)?;
    Ok(Box::new(move || {
        // Kept as long as the client.
        let _ = &server;
        done(runtime.block_on(client.unary(Payload::of_length(LENGTH))));
    }))
}

/// One message and its response on an open stream per run.
pub(crate) fn message() -> Result<Box<dyn FnMut()>, BoxError> {
    let Client { runtime, mut client, server } = Client::start(Recorded::Not)?;
    let (requests, receiver) = mpsc::channel(1);
    let mut answers = runtime.block_on(async {
        requests.send(Payload::of_length(LENGTH)).await?;
        let mut answers = client.stream(ReceiverStream::new(receiver)).await?.into_inner();
        answers.message().await?;
        Ok::<Streaming<Payload>, BoxError>(answers)
    })?;
    Ok(Box::new(move || {
        let _ = &server;
        done(runtime.block_on(async {
            requests.send(Payload::of_length(LENGTH)).await?;
            answers.message().await?.ok_or("the stream ended")?;
            Ok::<(), BoxError>(())
        }));
    }))
}

impl Recorded {
    fn by(self, channel: XdsChannelBuilder) -> Result<XdsChannelBuilder, BoxError> {
        Ok(match self {
            Self::Not => channel,
            Self::ByStore => channel.recorder(MetricStore::new()),
            Self::ByOtel => {
                // Collected once a minute, as by default.
                let reader = PeriodicReader::builder(Discard).build();
                let provider = SdkMeterProvider::builder().with_reader(reader).build();
                channel.recorder(OpenTelemetry::builder().meter_provider(&provider).build()?)
            }
        })
    }
}

/// A run that failed is not a count.
fn done<T, E: std::fmt::Display>(result: Result<T, E>) {
    if let Err(error) = result {
        eprintln!("an RPC failed: {error}");
        std::process::exit(1);
    }
}

struct Client {
    runtime: Runtime,
    client: BenchClient<XdsChannel>,
    server: Server,
}

impl Client {
    /// Connects, with an RPC.
    fn start(recorded: Recorded) -> Result<Self, BoxError> {
        let (server, bootstrap) = Server::start()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async {
            let channel = XdsChannel::builder(&format!("xds:///{SERVICE}"));
            let channel = recorded.by(channel.bootstrap(Bootstrap::from_json(&bootstrap)?))?.build()?;
            let mut client = BenchClient::new(channel);
            let mut request = tonic::Request::new(Payload::of_length(LENGTH));
            request.extensions_mut().insert(WaitForReady);
            client.unary(request).await?;
            Ok::<_, BoxError>(client)
        })?;
        Ok(Self { runtime, client, server })
    }
}

/// The process of the servers; killed when dropped.
struct Server(Child);

impl Server {
    /// Also returns the bootstrap.
    fn start() -> Result<(Self, String), BoxError> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take();
        let server = Self(child);
        let mut bootstrap = String::new();
        BufReader::new(out.ok_or("no standard output")?).read_line(&mut bootstrap)?;
        Ok((server, bootstrap))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `inner serve`: the servers, until standard input ends.
pub(crate) fn serve() -> Result<(), BoxError> {
    Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let control_plane = control_plane(listener.local_addr()?).await?;
        tokio::spawn(backend(listener));
        // On one line.
        let bootstrap: serde_json::Value = serde_json::from_str(&control_plane.bootstrap_json())?;
        writeln!(std::io::stdout(), "{bootstrap}")?;
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
        Ok(())
    })
}

async fn control_plane(backend: SocketAddr) -> Result<ControlPlane, BoxError> {
    let control_plane = ControlPlane::start().await?;
    control_plane.set_all([
        listener(SERVICE, SERVICE).into(),
        simple_route_config(SERVICE, SERVICE).into(),
        eds_cluster(SERVICE).into(),
        assignment(SERVICE, [locality("here", [backend])]).into(),
    ]);
    Ok(control_plane)
}

async fn backend(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let service = service_fn(|request| answer::answer(request, "backend"));
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
    }
}
