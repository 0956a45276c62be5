//! A client and its servers: `cargo run -p proxyless --example greeter`.
//!
//! Without an argument it starts a control plane and two backends inside the process, and kills the backend that
//! answers, so that RPCs fail over to the other. With arguments it is one part of a mesh of processes:
//!
//! ```console
//! $ cargo run -p proxyless --example greeter -- serve 127.0.0.1:50051   # a backend, until Ctrl-C
//! $ cargo run -p proxyless --example greeter -- xds:///greeter          # one RPC
//! ```
//!
//! The client finds its control plane by `GRPC_XDS_BOOTSTRAP` or `GRPC_XDS_BOOTSTRAP_CONFIG`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::time::Duration;

use proxyless::{Bootstrap, PeerAddress, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::{eds_cluster, listener, priorities, simple_route_config};
use proxyless_testkit::{Backend, ControlPlane};
use tonic::Request;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            failover().await?;
        }
        // All that an application needs.
        [target] => println!("answered by {}", greet(&XdsChannel::new(target)?).await?),
        ["serve", address] => serve(address).await?,
        _ => return Err("arguments: nothing, a target such as xds:///greeter, or: serve ADDRESS".into()),
    }
    Ok(())
}

/// One RPC, by a client like those that tonic generates. Returns the backend that answered.
async fn greet(channel: &XdsChannel) -> Result<String, tonic::Status> {
    // Clients are cheap, and so are clones of the channel: all of them share its connections.
    let mut client = EchoClient::new(channel.clone());
    let mut request = Request::new(EchoRequest::new("hello"));
    request.set_timeout(Duration::from_secs(5));
    let response = client.unary(request).await?;
    if let Some(peer) = response.extensions().get::<PeerAddress>() {
        println!("a response from {peer}");
    }
    Ok(response.into_inner().backend)
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
    println!("answered by {before}; now it is killed");
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
    println!("answered by {after}");
    Ok([before, after])
}

/// A backend of a mesh of processes. It is any gRPC server: backends do not know that clients use xDS.
async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let backend = Backend::start_at(address, address.parse()?).await?;
    println!("serving proxyless.testkit.Echo on {}, until Ctrl-C", backend.address());
    // Killed by the signal.
    std::future::pending().await
}

#[tokio::test]
async fn rpcs_fail_over() -> Result<(), Box<dyn Error>> {
    assert_eq!(failover().await?, ["near", "far"]);
    Ok(())
}
