//! The command line of proxyless.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod demo;
mod status;
mod text;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// gRPC's xDS client for Rust: channels that find their service through a control plane, with no sidecar.
#[derive(Debug, Parser)]
#[command(name = "proxyless", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch a channel move RPCs from cluster to cluster and back
    ///
    /// Starts a control plane and backends inside this process, sends RPCs through an xDS channel, and plays a
    /// scenario: by default the leaves of an aggregate cluster die one after the other, come back, and are reordered.
    /// Nothing outside of this machine is used. The exit code is 0 if RPCs always moved as expected.
    Demo(demo::DemoFlags),
    /// Look into a running client through its admin port
    ///
    /// Shows every xDS resource with its status, age, version and error; with --tree the routes, policies and endpoints
    /// of every channel; with --resource the content of one resource. Works with any gRPC client that has CSDS; trees
    /// require proxyless.
    Status(status::StatusFlags),
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let done = match Cli::parse().command {
        Command::Demo(flags) => demo::run(flags).await,
        Command::Status(flags) => status::run(flags).await,
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("proxyless: {}", text::safe(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}
