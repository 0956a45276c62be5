//! A contestant as a program: the Rust stacks behind the contract of `benches/peers/README.md`.
//!
//! Input: one command per line on standard input. Output: one response per line on standard output.

mod calls;
mod discard;
mod flood;
mod latency;
mod load;
mod streams;
mod telemetry;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use crate::service::{BenchClient, BoxError, Channel, Payload};
use crate::stacks::{self, Stack};
use flood::Direction;
use load::Load;

/// The arguments of the program.
#[derive(Args, Debug)]
pub(crate) struct ProgramArgs {
    /// The stack to use.
    #[arg(long)]
    stack: Stack,
    /// `xds:///name`, or comma-separated addresses.
    #[arg(long)]
    target: String,
    /// The keepalive interval and timeout in milliseconds, where the stack supports it.
    #[arg(long)]
    keepalive_ms: Option<u64>,
    /// Connects over TLS, with the roots of this PEM file; for stacks without xDS.
    #[arg(long)]
    ca_file: Option<PathBuf>,
}

/// A line of standard input.
#[derive(Debug, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
enum Command {
    First { timeout_s: f64 },
    Calls { concurrency: usize, seconds: f64, payload: usize },
    Stream { concurrency: usize, seconds: f64, payload: usize },
    Flood { direction: Direction, concurrency: usize, seconds: f64, payload: usize, messages: Option<u64> },
    Load { concurrency: usize, timeout_ms: u64 },
    Mark,
    Stop,
    Channels { count: usize },
}

/// Runs until standard input ends.
pub(crate) async fn run(args: ProgramArgs) -> Result<(), BoxError> {
    let addresses: Vec<String> = args.target.split(',').map(str::to_owned).collect();
    let ca = args.ca_file.as_deref();
    match args.stack {
        Stack::BareHyper => serve(async || stacks::BareHyper::connect(&addresses, ca).await).await,
        Stack::TonicChannel => serve(async || stacks::single(&addresses, ca)).await,
        Stack::BalanceList => serve(async || stacks::balanced(&addresses, ca)).await,
        Stack::TonicXds => tonic_xds(&args.target).await,
        Stack::Proxyless | Stack::WithMetrics | Stack::WithOtel | Stack::WithTraces => {
            serve(async || proxyless_channel(&args)).await
        }
    }
}

fn proxyless_channel(args: &ProgramArgs) -> Result<proxyless::XdsChannel, BoxError> {
    let mut builder = proxyless::XdsChannel::builder(&args.target);
    if let Some(keepalive) = args.keepalive_ms.map(std::time::Duration::from_millis) {
        builder = builder.keepalive_interval(keepalive).keepalive_timeout(keepalive);
    }
    Ok(telemetry::add(args.stack, builder)?.build()?)
}

#[cfg(feature = "tonic-xds")]
async fn tonic_xds(target: &str) -> Result<(), BoxError> {
    use tonic_xds::{XdsChannelBuilder, XdsChannelConfig, XdsUri};
    let channel = || -> Result<_, BoxError> {
        let config = XdsChannelConfig::new(XdsUri::parse(target)?).with_bootstrap_from_env()?;
        Ok(XdsChannelBuilder::new(config).build_grpc_channel()?)
    };
    serve(async || channel()).await
}

#[cfg(not(feature = "tonic-xds"))]
async fn tonic_xds(_: &str) -> Result<(), BoxError> {
    Err("built without the feature tonic-xds".into())
}

/// Executes commands. Channels are created by the first command that needs one.
async fn serve<T, E>(connect: impl AsyncFn() -> Result<T, E>) -> Result<(), BoxError>
where
    T: Channel,
    E: Into<BoxError>,
{
    let mut lines = BufReader::new(stdin()).lines();
    let mut client: Option<BenchClient<T>> = None;
    let mut others = Vec::new();
    let mut load: Option<Load> = None;
    while let Some(line) = lines.next_line().await? {
        let command: Command = match serde_json::from_str(&line) {
            Ok(command) => command,
            Err(error) => {
                answer(&json!({ "error": format!("unknown command {line}: {error}") }))?;
                continue;
            }
        };
        let client = match &client {
            Some(client) => client.clone(),
            None => client.insert(BenchClient::new(connect().await.map_err(Into::into)?)).clone(),
        };
        let result = match command {
            Command::First { timeout_s } => first(client, timeout_s).await,
            Command::Calls { concurrency, seconds, payload } => {
                calls::run(client, concurrency, seconds, payload).await
            }
            Command::Stream { concurrency, seconds, payload } => {
                streams::run(client, concurrency, seconds, payload).await
            }
            Command::Flood { direction, concurrency, seconds, payload, messages } => {
                flood::run(client, direction, concurrency, seconds, payload, messages).await
            }
            Command::Load { concurrency, timeout_ms } => {
                load = Some(Load::start(&client, concurrency, timeout_ms));
                json!({ "ok": true })
            }
            Command::Mark => load.as_ref().map_or_else(no_load, Load::mark),
            Command::Stop => match load.take() {
                Some(load) => load.stop().await,
                None => no_load(),
            },
            Command::Channels { count } => {
                for _ in 0..count {
                    let other = BenchClient::new(connect().await.map_err(Into::into)?);
                    first(other.clone(), 30.0).await;
                    others.push(other);
                }
                json!({ "ok": true })
            }
        };
        answer(&result)?;
    }
    Ok(())
}

/// One RPC that waits for the channel.
async fn first<T: Channel>(mut client: BenchClient<T>, timeout_s: f64) -> Value {
    let limit = std::time::Duration::from_secs_f64(timeout_s);
    let mut last = String::from("no answer");
    let attempts = async {
        loop {
            let mut request = tonic::Request::new(Payload::of_length(32));
            request.extensions_mut().insert(proxyless::WaitForReady);
            match client.unary(request).await {
                Ok(_) => return,
                // Stacks without wait-for-ready retry at once, which is the best that they can do.
                Err(status) => last = status.to_string(),
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    match tokio::time::timeout(limit, attempts).await {
        Ok(()) => json!({ "ok": true }),
        Err(_) => json!({ "ok": false, "error": format!("no RPC succeeded in time: {last}") }),
    }
}

fn no_load() -> Value {
    json!({ "error": "no load is running" })
}

fn answer(value: &Value) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}
