//! The contestants, and how each is started.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::Child;

use super::process::{Process, settle};
use super::scene::SERVICE;
use super::{Scene, Tools};
use crate::clock;
use crate::service::BoxError;

/// A contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub(crate) enum Contestant {
    BareHyper,
    TonicChannel,
    BalanceList,
    Proxyless,
    TonicXds,
    GrpcGo,
    /// gRPC's C++ core, in the Python package grpcio.
    CCore,
    /// A tonic Channel to an Envoy on the same machine.
    Envoy,
    /// h2load of nghttp2: a C client without gRPC and xDS, which is not started as the others are.
    H2load,
    /// proxyless with the recorder of `/metrics`.
    WithMetrics,
    /// proxyless with OpenTelemetry's metrics.
    WithOtel,
    /// proxyless with OpenTelemetry's traces, every call sampled.
    WithTraces,
}

impl Contestant {
    pub(crate) const ALL: [Self; 12] = [
        Self::BareHyper,
        Self::TonicChannel,
        Self::BalanceList,
        Self::Proxyless,
        Self::TonicXds,
        Self::GrpcGo,
        Self::CCore,
        Self::Envoy,
        Self::H2load,
        Self::WithMetrics,
        Self::WithOtel,
        Self::WithTraces,
    ];

    /// The contestants that make calls and streams: all but h2load and the variants with telemetry.
    pub(crate) const CALLERS: &[Self] = Self::ALL.split_at(8).0;

    /// proxyless without and with telemetry.
    pub(crate) const TELEMETRY: [Self; 4] =
        [Self::Proxyless, Self::WithMetrics, Self::WithOtel, Self::WithTraces];

    /// The contestants that speak xDS.
    pub(crate) const XDS: [Self; 4] = [Self::Proxyless, Self::TonicXds, Self::GrpcGo, Self::CCore];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BareHyper => "bare hyper",
            Self::TonicChannel => "tonic Channel",
            Self::BalanceList => "tonic balance_list",
            Self::Proxyless => "proxyless",
            Self::TonicXds => "tonic-xds",
            Self::GrpcGo => "grpc-go",
            Self::CCore => "C-core",
            Self::Envoy => "Envoy sidecar",
            Self::H2load => "h2load",
            Self::WithMetrics => "with /metrics",
            Self::WithOtel => "with OpenTelemetry metrics",
            Self::WithTraces => "with OpenTelemetry traces",
        }
    }

    /// The contestants with one of these prefixes; all if there are none.
    pub(crate) fn by_names(names: &[String]) -> Result<Vec<Self>, String> {
        let fits = |contestant: &Self, name: &String| contestant.name().starts_with(name.as_str());
        if let Some(name) = names.iter().find(|name| !Self::ALL.iter().any(|who| fits(who, name))) {
            let all = Self::ALL.map(Self::name).join(", ");
            return Err(format!("no contestant's name begins with {name:?}; there are: {all}"));
        }
        let chosen = |who: &Self| names.is_empty() || names.iter().any(|name| fits(who, name));
        Ok(Self::ALL.into_iter().filter(chosen).collect())
    }

    /// Starts it with this scene. It does nothing yet.
    pub(crate) async fn start(self, tools: &Tools, scene: &Scene) -> Result<Running, BoxError> {
        self.start_with(tools, scene, &[]).await
    }

    /// Starts it with further arguments.
    pub(crate) async fn start_with(
        self,
        tools: &Tools,
        scene: &Scene,
        arguments: &[&str],
    ) -> Result<Running, BoxError> {
        let addresses: Vec<String> = scene.addresses.iter().map(ToString::to_string).collect();
        let addresses = addresses.join(",");
        let xds = format!("xds:///{SERVICE}");
        let mut sidecar = None;
        let (mut command, target) = match self {
            Self::BareHyper => (tools.program("bare-hyper"), addresses),
            Self::TonicChannel => (tools.program("tonic-channel"), addresses),
            Self::BalanceList => (tools.program("balance-list"), addresses),
            Self::Proxyless => (tools.program("proxyless"), xds),
            Self::WithMetrics => (tools.program("with-metrics"), xds),
            Self::WithOtel => (tools.program("with-otel"), xds),
            Self::WithTraces => (tools.program("with-traces"), xds),
            Self::TonicXds => (tools.program("tonic-xds"), xds),
            Self::GrpcGo => (tools.grpc_go()?, xds),
            Self::CCore => (tools.c_core()?, xds),
            Self::H2load => return Err("h2load takes no commands".into()),
            Self::Envoy => {
                let started = Sidecar::start(tools, scene).await?;
                let target = started.address.to_string();
                sidecar = Some(started);
                (tools.program("tonic-channel"), target)
            }
        };
        command.args(["--target", &target]).args(arguments);
        // The others find the roots in the bootstrap.
        let without_xds = matches!(self, Self::BareHyper | Self::TonicChannel | Self::BalanceList);
        if let Some(certificates) = scene.certificates.as_ref().filter(|_| without_xds) {
            command.arg("--ca-file").arg(certificates.ca_file());
        }
        command.env("GRPC_XDS_BOOTSTRAP_CONFIG", self.bootstrap(scene)?);
        let started_ns = clock::monotonic_ns();
        let process = Process::start(command)?;
        let pids = [process.pid()].into_iter().chain(sidecar.as_ref().and_then(|sidecar| sidecar.child.id()));
        Ok(Running { pids: pids.collect(), process, started_ns, sidecar })
    }
}

impl Contestant {
    fn bootstrap(self, scene: &Scene) -> Result<String, BoxError> {
        let mut bootstrap = scene.control_plane.bootstrap_json();
        if let Some(certificates) = &scene.certificates {
            let mut json: Value = serde_json::from_str(&bootstrap)?;
            json["certificate_providers"] = certificates.providers();
            bootstrap = json.to_string();
        }
        let server = scene.control_plane.address();
        Ok(match self {
            // It takes an address without a scheme for one that needs TLS.
            Self::TonicXds => bootstrap.replace(&server.to_string(), &format!("http://{server}")),
            _ => bootstrap,
        })
    }
}

impl From<Contestant> for &'static str {
    fn from(contestant: Contestant) -> Self {
        contestant.name()
    }
}

impl TryFrom<String> for Contestant {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|contestant| contestant.name() == name);
        found.ok_or_else(|| format!("there is no contestant {name:?}"))
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A running contestant.
pub(crate) struct Running {
    process: Process,
    /// The program, and its sidecar if it has one.
    pub(crate) pids: Vec<u32>,
    pub(crate) started_ns: u64,
    sidecar: Option<Sidecar>,
}

impl Running {
    /// Sends a command and returns the response; an error if the response is one.
    pub(crate) async fn ask(&mut self, command: Value) -> Result<Value, BoxError> {
        let answer = self.process.ask(&command.to_string()).await?;
        match answer.get("error") {
            Some(error) => Err(error.to_string().into()),
            None => Ok(answer),
        }
    }

    /// Waits until the program accepts commands: its runtime and libraries are loaded.
    pub(crate) async fn hello(&mut self) -> Result<(), BoxError> {
        self.process.ask(r#"{"cmd":"hello"}"#).await.map(drop)
    }

    /// Waits for the first RPC to succeed.
    pub(crate) async fn first(&mut self) -> Result<(), BoxError> {
        self.ask(json!({ "cmd": "first", "timeout_s": 60 })).await.map(drop)
    }

    /// The CPU seconds that it has used.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.pids.iter().map(|pid| clock::cpu_seconds(*pid)).sum()
    }

    /// The memory that it uses, in bytes.
    pub(crate) fn memory(&self) -> Result<f64, BoxError> {
        self.pids.iter().map(|pid| super::process::memory(*pid)).sum()
    }

    /// Waits until it is idle.
    pub(crate) async fn settle(&self) {
        settle(&self.pids).await;
    }

    /// Ends it, and waits until all of its processes are gone.
    pub(crate) async fn end(self) {
        self.process.end().await;
        if let Some(mut sidecar) = self.sidecar {
            let _ = sidecar.child.kill().await;
        }
    }
}

/// An Envoy; killed when dropped.
struct Sidecar {
    child: Child,
    address: SocketAddr,
    config: PathBuf,
}

impl Sidecar {
    async fn start(tools: &Tools, scene: &Scene) -> Result<Self, BoxError> {
        let (mut command, template) = tools.envoy()?;
        // A port that is free now; Envoy cannot report the port it got.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let config = template
            .replace("{{LISTEN_PORT}}", &port.to_string())
            .replace("{{ADS_PORT}}", &scene.control_plane.address().port().to_string());
        let path = tools.folder().join(format!("envoy-{port}.yaml"));
        std::fs::write(&path, config)?;
        let child = command.arg("-c").arg(&path).kill_on_drop(true).spawn()?;
        let sidecar = Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)), config: path };
        for _ in 0..500 {
            if TcpStream::connect(sidecar.address).await.is_ok() {
                return Ok(sidecar);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("Envoy does not listen after 10 s".into())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.config);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contestants_are_named_by_the_beginnings_of_their_names() {
        let named =
            |names: &[&str]| Contestant::by_names(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(named(&[]).unwrap(), Contestant::ALL);
        assert_eq!(named(&["bare", "C-"]).unwrap(), [Contestant::BareHyper, Contestant::CCore]);
        assert!(named(&["bare", "nobody"]).unwrap_err().contains("\"nobody\""));
    }
}
