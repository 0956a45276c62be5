//! `proxyless serve`: a control plane from files.

mod banner;
mod feed;

use std::error::Error;
use std::io::{self, IsTerminal as _, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use proxyless_control_plane::check::{Severity, check, instances_of};
use proxyless_control_plane::{Changes, Files, Fingerprint, Mesh, Messages, Plane, Serving, TlsFiles};
use proxyless_xds::Gates;
use proxyless_xds::resource::DecodeContext;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use crate::output::{Printed, note};
use crate::status::table::Style;
use crate::text::safe;
use feed::{Feed, Look};

/// The maximum number of findings of the check that are printed.
const MAX_ADVICE: usize = 10;

pub(crate) const EXAMPLES: &str = "\
Examples:
  proxyless serve mesh.yaml                      serve a file at 127.0.0.1:18000
  proxyless serve meshes/ extra.json             several files, and all files of a folder
  proxyless serve --watch-clients mesh.yaml      with a live list of the connected clients
  proxyless serve --tls-cert server.pem --tls-key server.key --client-ca ca.pem mesh.yaml

A mesh file for xds:///greeter:
  services:
    greeter: [127.0.0.1:50051, 127.0.0.1:50052]

docs/serve.md has every field.";

#[derive(Clone, Debug, Args)]
pub(crate) struct ServeFlags {
    /// Mesh files, or folders with .yaml, .yml and .json files
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// The address to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:18000")]
    listen: SocketAddr,
    /// The certificate chain of the server as PEM, for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Require client certificates of these roots (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Show a live list of the connected clients, their versions and NACKs
    #[arg(long)]
    watch_clients: bool,
    /// The interval of load reports in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    load_interval: u64,
    /// Print each load report
    #[arg(long)]
    loads: bool,
}

pub(crate) async fn run(flags: ServeFlags) -> Result<ExitCode, Box<dyn Error>> {
    let messages = Messages::new()?;
    let files = Files::new(flags.paths.clone());
    let seen = files.fingerprint();
    let mesh = match read(&files, &messages) {
        Ok(mesh) => mesh,
        Err(problems) => {
            problems.iter().for_each(|problem| note(&format!("{}\n", safe(problem))));
            return Err(format!("nothing to serve: {}", count(problems.len(), "error")).into());
        }
    };
    let plane = Plane::new(Duration::from_secs(1), Duration::from_secs(flags.load_interval));
    plane.apply(mesh.resources.iter().map(|one| &one.resource));
    let tls = tls(&flags);
    let tls_paths: Vec<PathBuf> = tls.iter().flat_map(TlsFiles::paths).cloned().collect();
    let tls_files = Files::new(tls_paths);
    let tls_changes = changes(tls_files.clone(), tls_files.fingerprint());
    let serving = Serving::start(plane.clone(), flags.listen, tls)
        .await
        .map_err(|error| format!("cannot serve at {}: {error}", flags.listen))?;
    let terminal = stdout().is_terminal();
    let style =
        if terminal && std::env::var_os("NO_COLOR").is_none() { Style::Colours } else { Style::Plain };
    let mut banner = banner::text(&flags, serving.address(), &mesh, style);
    for line in advice(&mesh, &messages) {
        banner += &format!("  {}\n", safe(&line));
    }
    let (list, loads) = (flags.watch_clients, flags.loads);
    let feed = Feed::new(Look { banner, style, list, loads, in_place: list && terminal });
    let mesh_changes = changes(files.clone(), seen);
    Server { files, messages, plane, serving, feed }.run(mesh_changes, tls_changes).await
}

/// A message after each change of the files. A task of its own looks at them: events of clients do not interrupt it.
fn changes(files: Files, mut seen: Fingerprint) -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            seen = files.changed(&seen).await;
            if sender.send(()).await.is_err() {
                return;
            }
        }
    });
    receiver
}

struct Server {
    files: Files,
    messages: Messages,
    plane: Plane,
    serving: Serving,
    feed: Feed,
}

impl Server {
    /// Serves until interrupted.
    async fn run(
        mut self,
        mut mesh_changes: mpsc::Receiver<()>,
        mut tls_changes: mpsc::Receiver<()>,
    ) -> Result<ExitCode, Box<dyn Error>> {
        let mut events = self.plane.events();
        let mut printed = self.feed.start(&self.plane)?;
        loop {
            if printed == Printed::NobodyReads {
                // A control plane goes on: only its output is not wanted.
                self.feed.mute();
            }
            printed = tokio::select! {
                _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
                Some(()) = mesh_changes.recv() => self.reload()?,
                Some(()) = tls_changes.recv() => {
                    self.feed.certificates(self.serving.reload_tls(), &self.plane)?
                }
                event = events.recv() => match event {
                    Ok(event) => self.feed.event(&event, &self.plane)?,
                    Err(RecvError::Lagged(missed)) => self.feed.missed(missed, &self.plane)?,
                    // The plane outlives this loop.
                    Err(RecvError::Closed) => return Ok(ExitCode::FAILURE),
                }
            };
        }
    }

    fn reload(&mut self) -> io::Result<Printed> {
        match read(&self.files, &self.messages) {
            Ok(mesh) => {
                let changes = self.plane.apply(mesh.resources.iter().map(|one| &one.resource));
                self.feed.reloaded(&changes, &advice(&mesh, &self.messages), &self.plane)
            }
            Err(problems) => self.feed.broken(&problems, &self.plane),
        }
    }
}

/// The mesh, or all problems with their places.
fn read(files: &Files, messages: &Messages) -> Result<Mesh, Vec<String>> {
    let sources = files.read().map_err(|error| vec![error])?;
    let mesh = Mesh::read(&sources, messages);
    mesh.map_err(|error| error.0.iter().map(ToString::to_string).collect())
}

/// What a gRPC client would reject or not find. The resources are served all the same: Envoy may accept them.
fn advice(mesh: &Mesh, messages: &Messages) -> Vec<String> {
    let items = mesh.items();
    let gates = Gates::from_variables(|name| (!name.contains("BACKWARD_COMPAT")).then(|| "true".to_owned()));
    let certificate_providers = Some(Arc::new(instances_of(&items)));
    let cx = DecodeContext { gates, certificate_providers, ..Default::default() };
    let report = check(&items, &cx, messages);
    let mut lines = Vec::new();
    for subject in &report.subjects {
        for finding in &subject.findings {
            let verb = if finding.severity == Severity::Error { "gRPC clients reject" } else { "warning:" };
            let place = finding.location.as_ref().map(|location| format!("{location}: ")).unwrap_or_default();
            let path = if finding.path.is_empty() { String::new() } else { format!("{}: ", finding.path) };
            let (kind, name) = (&subject.kind, &subject.name);
            lines.push(format!("{place}{verb} {kind} {name}: {path}{}", finding.message));
        }
    }
    if lines.len() > MAX_ADVICE {
        let more = lines.len() - MAX_ADVICE;
        lines.truncate(MAX_ADVICE);
        lines.push(format!("and {more} more: see proxyless check"));
    }
    lines
}

fn tls(flags: &ServeFlags) -> Option<TlsFiles> {
    let (certificate, key) = (flags.tls_cert.clone()?, flags.tls_key.clone()?);
    Some(TlsFiles { certificate, key, client_ca: flags.client_ca.clone() })
}

/// `1 error`, `2 errors`.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The changes by type: `Cluster version 2: +added ~changed -removed`.
fn describe(changes: &Changes) -> Vec<String> {
    let line = |one: &proxyless_control_plane::TypeChanges| {
        let kind = proxyless_control_plane::short_type(&one.type_url);
        let added = one.added.iter().map(|name| format!(" +{name}"));
        let changed = one.changed.iter().map(|name| format!(" ~{name}"));
        let removed = one.removed.iter().map(|name| format!(" -{name}"));
        let names: Vec<String> = added.chain(changed).chain(removed).collect();
        const SHOWN: usize = 12;
        let rest = match names.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names: String = names.into_iter().take(SHOWN).collect();
        format!("{kind} version {}:{names}{rest}", one.version)
    };
    changes.0.iter().map(line).collect()
}
