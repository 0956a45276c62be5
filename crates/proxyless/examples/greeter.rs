//! A complete client: `cargo run -p proxyless --example greeter`.
//!
//! With a target as its argument it calls the echo service of that name once; the control plane is that of
//! `GRPC_XDS_BOOTSTRAP` or `GRPC_XDS_BOOTSTRAP_CONFIG`. Without an argument it starts a control plane and two backends
//! inside the process, and kills the backend that answers, so that RPCs fail over to the other.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::time::Duration;

use proxyless::{Bootstrap, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::{eds_cluster, listener, priorities, simple_route_config};
use proxyless_testkit::{Backend, ControlPlane};
use tonic::Request;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        // All that an application needs.
        Some(target) => say(greet(&XdsChannel::new(&target)?).await?),
        None => failover().await?.into_iter().for_each(say),
    }
    Ok(())
}

/// One RPC, by a client like those that tonic generates. Returns the backend that answered.
async fn greet(channel: &XdsChannel) -> Result<String, tonic::Status> {
    // Clients are cheap, and so are clones of the channel: all of them share its connections.
    let mut client = EchoClient::new(channel.clone());
    let mut request = Request::new(EchoRequest::new("hello"));
    request.set_timeout(Duration::from_secs(5));
    Ok(client.unary(request).await?.into_inner().backend)
}

/// Starts a mesh inside this process, and returns the backends that answered before and after one was killed.
async fn failover() -> Result<[String; 2], Box<dyn Error>> {
    let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
    let control_plane = ControlPlane::start().await?;
    control_plane.set_all([
        listener("greeter", "greeter-route").into(),
        simple_route_config("greeter-route", "greeter-cluster").into(),
        eds_cluster("greeter-cluster").into(),
        priorities("greeter-cluster", [[&near], [&far]]).into(),
    ]);
    let channel = XdsChannel::builder("xds:///greeter")
        .bootstrap(Bootstrap::from_json(&control_plane.bootstrap_json())?)
        .build()?;
    let before = greet(&channel).await?;
    near.kill().await;
    // An RPC that was on its way may fail with the connection; the next ones go to the other backend.
    let after = loop {
        match greet(&channel).await {
            Ok(backend) if backend == "near" => {}
            Ok(backend) => break backend,
            Err(status) if status.code() == tonic::Code::Unavailable => eprintln!("{}", status.message()),
            Err(status) => return Err(status.into()),
        }
    };
    Ok([before, after])
}

fn say(backend: String) {
    println!("answered by {backend}");
}

#[tokio::test]
async fn rpcs_fail_over() -> Result<(), Box<dyn Error>> {
    assert_eq!(failover().await?, ["near", "far"]);
    Ok(())
}
