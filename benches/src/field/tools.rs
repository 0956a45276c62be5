//! Builds the programs of the contestants. Those that cannot be built are reported as missing, with the reason.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::Contestant;
use crate::service::BoxError;

/// The programs of the contestants.
pub(crate) struct Tools {
    exe: PathBuf,
    folder: PathBuf,
    grpc_go: Result<PathBuf, String>,
    c_core: Result<PathBuf, String>,
    envoy: Result<PathBuf, String>,
    h2load: Result<(), String>,
    peers: PathBuf,
}

impl Tools {
    /// Builds the programs of these contestants, each in a separate folder below the one of this program.
    pub(crate) async fn build(wanted: &[Contestant]) -> Result<Self, BoxError> {
        let exe = std::env::current_exe()?;
        let folder = exe.parent().ok_or("this program has no parent folder")?.join("bench-peers");
        std::fs::create_dir_all(&folder)?;
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let unwanted = || Err("not requested".to_owned());
        let wants = |contestant| wanted.contains(&contestant);
        let grpc_go = if wants(Contestant::GrpcGo) { go_program(&peers, &folder).await } else { unwanted() };
        let c_core = if wants(Contestant::CCore) {
            python_packages(&peers.join("grpcio"), &folder.join("grpcio")).await
        } else {
            unwanted()
        };
        let envoy = if wants(Contestant::Envoy) {
            let packages = python_packages(&peers.join("envoy"), &folder.join("envoy")).await;
            packages.map(|python| python.with_file_name("envoy"))
        } else {
            unwanted()
        };
        let h2load = if wants(Contestant::H2load) { h2load().await } else { Err("not requested".to_owned()) };
        Ok(Self { exe, folder, grpc_go, c_core, envoy, h2load, peers })
    }

    /// The reason why a contestant cannot take part.
    pub(crate) fn missing(&self, contestant: Contestant) -> Option<&str> {
        let tool = match contestant {
            Contestant::H2load => return self.h2load.as_ref().err().map(String::as_str),
            Contestant::GrpcGo => &self.grpc_go,
            Contestant::CCore => &self.c_core,
            Contestant::Envoy => &self.envoy,
            Contestant::TonicXds if !cfg!(feature = "tonic-xds") => {
                return Some("built without the feature tonic-xds");
            }
            _ => return None,
        };
        tool.as_ref().err().map(String::as_str)
    }

    /// The folder for files of contestants.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// This program as the program of a Rust stack.
    pub(super) fn program(&self, stack: &str) -> Command {
        let mut command = Command::new(&self.exe);
        command.args(["program", "--stack", stack]);
        command
    }

    pub(super) fn grpc_go(&self) -> Result<Command, BoxError> {
        Ok(Command::new(self.grpc_go.as_ref().map_err(Clone::clone)?))
    }

    pub(super) fn c_core(&self) -> Result<Command, BoxError> {
        let mut command = Command::new(self.c_core.as_ref().map_err(Clone::clone)?);
        command.arg(self.peers.join("grpcio/client.py"));
        Ok(command)
    }

    /// The command that starts Envoy, and the template of its configuration.
    pub(super) fn envoy(&self) -> Result<(Command, String), BoxError> {
        let mut command = Command::new(self.envoy.as_ref().map_err(Clone::clone)?);
        command.args(["--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok((command, std::fs::read_to_string(self.peers.join("envoy/bootstrap.yaml.template"))?))
    }

    /// The binary `inner` beside this one.
    pub(crate) async fn inner(&self) -> Result<PathBuf, BoxError> {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--release", "-p", env!("CARGO_PKG_NAME"), "--bin", "inner"]);
        // The same features as this binary, to avoid building everything twice.
        if cfg!(feature = "tonic-xds") {
            build.args(["--features", "tonic-xds"]);
        }
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        run(build, "cargo build --bin inner").await?;
        Ok(self.exe.with_file_name("inner"))
    }
}

/// h2load is not built: it is in nghttp2-client of Debian.
async fn h2load() -> Result<(), String> {
    let mut command = Command::new("h2load");
    command.arg("--version");
    run(command, "h2load (Debian: nghttp2-client)").await
}

async fn go_program(peers: &Path, folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join("grpc-go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(peers.join("grpc-go"));
    run(build, "go build").await?;
    Ok(program)
}

/// A Python interpreter with the packages of the folder's `requirements.txt`.
async fn python_packages(source: &Path, folder: &Path) -> Result<PathBuf, String> {
    let python = folder.join("bin/python");
    if !python.exists() {
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(folder);
        run(make, "python3 -m venv").await?;
    }
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    install.arg(source.join("requirements.txt"));
    run(install, "pip install").await?;
    Ok(python)
}

async fn run(mut command: Command, what: &str) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().await.map_err(|error| format!("{what}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{what}: {}", said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("failed")))
}
