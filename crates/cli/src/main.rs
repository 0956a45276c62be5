//! The command line of proxyless.
#![forbid(unsafe_code)]

mod call;
mod check;
mod demo;
mod output;
mod serve;
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
    /// Call a method through the full client, and say why it went where it did
    ///
    /// The types of messages come from server reflection, a descriptor set or .proto files. Responses are printed as
    /// JSON on standard output, the status and the backend on standard error. The exit code is 0 for status OK, 2 for
    /// any other status, and 1 if the RPC could not be sent.
    Call(call::CallFlags),
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
    /// Serve a mesh from files, as a control plane for development, tests and small installations
    ///
    /// Reads services, clusters and raw xDS resources from YAML or JSON, serves them by ADS, and reads the files again when
    /// they change. A file with an error changes nothing: the errors are printed with line and column, and the state
    /// before stays. Also serves LRS (load reports) and CSDS (`proxyless status ADDR` shows the connected clients).
    #[command(after_help = serve::EXAMPLES)]
    Serve(serve::ServeFlags),
    /// Say what a gRPC client would do with a bootstrap or with resources
    ///
    /// Reads mesh files, raw xDS resources, bootstraps and CSDS dumps, or asks a running control plane (ADS) or the admin
    /// port of a client (CSDS). Prints ACK or NACK with every violation and its field path, and warns of what gRPC
    /// ignores and of references that lead nowhere. Exit code: 0 if everything is accepted, 1 if not, 2 for wrong usage.
    #[command(after_help = check::EXAMPLES)]
    Check(check::CheckFlags),
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        // They would be printed on the standard error that cannot be written.
        .log_internal_errors(false)
        .init();
    let done = match Cli::parse().command {
        Command::Call(flags) => call::run(flags).await,
        Command::Demo(flags) => demo::run(flags).await,
        Command::Status(flags) => status::run(flags).await,
        Command::Serve(flags) => serve::run(flags).await,
        Command::Check(flags) => check::run(flags).await,
    };
    match done {
        Ok(code) => code,
        Err(error) if error.is::<output::Closed>() => ExitCode::from(output::CLOSED),
        Err(error) => {
            output::note(&format!("proxyless: {}\n", text::safe(&error.to_string())));
            ExitCode::FAILURE
        }
    }
}
