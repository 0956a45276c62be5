//! `proxyless-chaos`: a mesh of real processes under random faults, with a verdict on every RPC.
//!
//! The process under test ([`client`]) runs many callers on several channels. Backends and a control plane
//! ([`servers`]) are separate processes, half of them behind a [`link`]. The parent ([`run`]) changes the configuration
//! ([`config`]), [injects](inject) [`faults`], and records both over time ([`world`], [`history`]). At the end,
//! [`judge`] explains every failure by a fault or reports it as a violation.

#![forbid(unsafe_code)]

mod child;
mod client;
mod clock;
mod config;
mod faults;
mod history;
mod inject;
mod judge;
mod link;
mod network;
mod report;
mod run;
mod servers;
mod topology;
mod wire;
mod world;

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Runs a mesh of real processes under random faults and checks every RPC.
///
/// The exit code is 1 if an RPC failed without a fault that explains it or went to a wrong backend, or if a resource
/// leaked.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Duration of the fault injection: 90s, 10m, 1h.
    #[arg(long = "for", value_parser = duration, default_value = "1m")]
    lasts: Duration,
    /// Seed of all random choices; timing still varies [default: random].
    #[arg(long)]
    seed: Option<u64>,
    /// Configuration changes per second.
    #[arg(long, default_value_t = 170)]
    updates: u32,
    /// Run in a separate network namespace, where the kernel drops and delays packets; needs unshare, ip and tc.
    #[arg(long)]
    netns: bool,
    /// Hide faults of this kind from the judge, which must then report their effects: a test of the judge.
    #[arg(long, hide = true)]
    blind: Option<String>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Also write every fault and every failed RPC to this file.
    #[arg(long)]
    log: Option<PathBuf>,
    /// The process that started this one; set internally.
    #[arg(long, hide = true)]
    parent: Option<u32>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The role of a child process.
#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    Backend { name: String, address: SocketAddr },
    #[command(hide = true)]
    ControlPlane { address: SocketAddr },
    #[command(hide = true)]
    Client { seed: u64, control_plane: SocketAddr, backends: Vec<SocketAddr> },
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(io::stderr)
        .init();
    if let Some(parent) = options.parent {
        child::end_with_parent(parent)?;
    }
    let Some(role) = options.role else { return chaos(&options) };
    let runtime = match role {
        Role::Client { .. } => {
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?
        }
        _ => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
    };
    match role {
        Role::Backend { name, address } => runtime.block_on(servers::backend(&name, address))?,
        Role::ControlPlane { address } => runtime.block_on(servers::control_plane(address))?,
        Role::Client { seed, control_plane, backends } => {
            runtime.block_on(client::client(control_plane, backends, seed))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The parent: runs once and prints the report and the verdict.
fn chaos(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let network = match (options.netns, options.parent) {
        (true, None) => {
            let code = network::run_inside()?.code().unwrap_or(1);
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
        (true, Some(_)) => Some(network::Network::set_up()?),
        (false, _) => None,
    };
    let seed = options.seed.unwrap_or_else(clock::now);
    let plan = run::Plan { lasts: options.lasts, seed, updates: options.updates };
    let on = network.as_ref().map_or("the loopback interface, through links", network::Network::describe);
    let _ = writeln!(io::stderr().lock(), "seed {seed}, on {on}");
    // One thread, which also starts the children: they end with the thread that started them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut notes = runtime.block_on(tokio::task::LocalSet::new().run_until(run::run(plan, network)))?;
    if let Some(blind) = &options.blind {
        notes.faults.retain(|fault| fault.kind.name() != blind);
    }
    let mut report = judge::judge(&notes, plan);
    report.network = on;
    if let Some(path) = &options.log {
        std::fs::write(path, report::log(&notes))?;
    }
    let text = if options.json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Parses a positive number with `s`, `m` or `h`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is not a duration such as 90s or 10m"))?;
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("{text:?} is not a duration such as 90s or 10m")),
    };
    match number.saturating_mul(seconds) {
        0 => Err("the duration must be at least one second".into()),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_are_positive() {
        let seconds = |text| duration(text).map(|span| span.as_secs());
        assert_eq!(
            [seconds("90"), seconds("90s"), seconds("10m"), seconds("1h")],
            [90, 90, 600, 3600].map(Ok)
        );
        for wrong in ["", "s", "x", "-1s", "1d", "0", "0m"] {
            assert!(seconds(wrong).is_err(), "{wrong:?}");
        }
    }
}
