//! The interop client; see `--help`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use proxyless::XdsChannel;
use proxyless_interop::client::{Client, ClientFlags, Observer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match run(ClientFlags::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xds-interop-client: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: ClientFlags) -> Result<(), Box<dyn Error>> {
    let mut channels = Vec::new();
    for _ in 0..flags.num_channels {
        channels.push(XdsChannel::builder(&flags.server).credentials(flags.credentials()).build()?);
    }
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, flags.stats_port))
        .await
        .map_err(|error| format!("cannot listen on port {}: {error}", flags.stats_port))?;
    let observer = observer(&flags);
    let client = Client::new(flags)?;
    let routes = proxyless_admin::add_to(client.routes());
    let services = Server::builder().add_routes(routes).serve_with_incoming(TcpListenerStream::new(listener));
    tokio::select! {
        served = services => Ok(served?),
        failed = client.drive(channels, observer) => Err(failed.into()),
    }
}

fn observer(flags: &ClientFlags) -> Observer {
    let print = flags.print_response;
    Arc::new(move |number, method, outcome| {
        let (method, code) = (method.name(), outcome.status.code());
        if outcome.is_failure() {
            tracing::info!(number, method, ?code, message = outcome.status.message(), "RPC failed");
        }
        if print {
            println!("RPC {number} {method}: {code:?} from {:?}", outcome.peer);
        }
    })
}
