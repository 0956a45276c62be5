//! The guide's control plane on go-control-plane serves a channel: RPCs fail over between the leaves of its aggregate.
//!
//! `.ci/book` builds the program and names it in `GUIDE_GO_CONTROL_PLANE`; without that variable there is nothing to
//! test here.

use std::error::Error;
use std::process::Stdio;
use std::time::Duration;

use proxyless::{Bootstrap, ClientPool, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::{Backend, dead_address};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tonic::Request;

async fn call(channel: &XdsChannel) -> Result<String, tonic::Status> {
    let mut request = Request::new(EchoRequest::new("tea"));
    request.set_timeout(Duration::from_secs(20));
    Ok(EchoClient::new(channel.clone()).unary(request).await?.into_inner().backend)
}

#[tokio::test]
async fn the_aggregate_of_go_control_plane_fails_over() -> Result<(), Box<dyn Error>> {
    let Some(program) = std::env::var_os("GUIDE_GO_CONTROL_PLANE") else { return Ok(()) };
    let (eu, us) = (Backend::start("eu").await?, Backend::start("us").await?);
    // The port is free when the address is dropped.
    let listen = dead_address()?.address().to_string();
    let mut process = Command::new(program)
        .args(["-listen", &listen])
        .args(["-eu", &eu.address().to_string(), "-us", &us.address().to_string()])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut log = BufReader::new(process.stderr.take().ok_or("no stderr")?).lines();
    let first = log.next_line().await?.unwrap_or_default();
    assert!(first.contains(&listen), "{first}");

    let bootstrap = Bootstrap::builder().server(listen).node_id("guide").build()?;
    let channel =
        XdsChannel::builder("xds:///shop").bootstrap(bootstrap).client_pool(ClientPool::new()).build()?;
    assert_eq!(call(&channel).await?, "eu");
    eu.kill().await;
    // An RPC may be lost with its connection.
    while call(&channel).await.ok().as_deref() != Some("us") {}
    Ok(())
}
