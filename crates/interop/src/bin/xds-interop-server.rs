//! The interop server; see `--help`.
#![allow(clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use proxyless_interop::server::{self, ServerFlags};

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let flags = ServerFlags::parse();
    let served = match server::start(&flags).await {
        Ok(serving) => serving.await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xds-interop-server: {error}");
            ExitCode::FAILURE
        }
    }
}
