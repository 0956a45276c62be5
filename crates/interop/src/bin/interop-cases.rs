//! gRPC's standard interop cases through an xDS channel; see `--help`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use proxyless::{Fallback, XdsChannel, XdsCredentials};
use proxyless_interop::cases::CASES;

/// A case that takes longer has failed.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Runs gRPC's standard interop cases against the servers of a target, and prints a line for each.
#[derive(Debug, Parser)]
struct Flags {
    /// The target, such as xds:///name. The bootstrap comes from GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG.
    #[arg(long)]
    server: String,
    /// The cases to run, with commas between; all by default.
    #[arg(long, value_delimiter = ',')]
    test_case: Vec<String>,
    /// Cases that the servers are known not to support, with commas between.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,
    /// Whether the channel has xDS credentials, with plaintext as the fallback, or is plaintext.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set)]
    secure_mode: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let flags = Flags::parse();
    let unknown: Vec<_> =
        flags.test_case.iter().chain(&flags.skip).filter(|name| !known(name)).cloned().collect();
    if !unknown.is_empty() {
        let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        eprintln!("interop-cases: unknown cases: {}; there are: {}", unknown.join(", "), names.join(", "));
        return ExitCode::from(2);
    }
    let channel = match XdsChannel::builder(&flags.server).credentials(credentials(&flags)).build() {
        Ok(channel) => channel,
        Err(error) => {
            eprintln!("interop-cases: {error}");
            return ExitCode::from(2);
        }
    };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for case in CASES.iter().filter(|case| flags.test_case.is_empty() || named(&flags.test_case, case.name)) {
        if named(&flags.skip, case.name) {
            println!("SKIPPED {}", case.name);
            skipped += 1;
            continue;
        }
        match tokio::time::timeout(TIME_LIMIT, case.run(&channel)).await {
            Ok(Ok(())) => {
                println!("PASSED {}", case.name);
                passed += 1;
            }
            Ok(Err(failure)) => {
                println!("FAILED {}: {failure}", case.name);
                failed += 1;
            }
            Err(_) => {
                println!("FAILED {}: not over after {TIME_LIMIT:?}", case.name);
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn known(name: &str) -> bool {
    CASES.iter().any(|case| case.name == name)
}

fn named(names: &[String], name: &str) -> bool {
    names.iter().any(|one| one == name)
}

fn credentials(flags: &Flags) -> XdsCredentials {
    if flags.secure_mode { XdsCredentials::Xds(Fallback::Plaintext) } else { XdsCredentials::Plaintext }
}
