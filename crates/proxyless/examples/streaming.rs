//! Streaming RPCs, and what happens to them when a backend drains: `cargo run -p proxyless --example streaming`.
//!
//! A conversation stays on the backend where it began, also while that backend drains (GOAWAY); RPCs that begin later go
//! to the other one. A deadline covers the whole stream, to its last message.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use proxyless::{Bootstrap, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::{eds_cluster, listener, priorities, simple_route_config};
use proxyless_testkit::{Backend, ControlPlane};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    streams().await?;
    Ok(())
}

/// Returns the backends of a conversation before and during a drain, and of a stream that began during it.
async fn streams() -> Result<[String; 3], Box<dyn Error>> {
    let (first, second) = (Backend::start("first").await?, Backend::start("second").await?);
    let control_plane = ControlPlane::start().await?;
    control_plane.set_all([
        listener("chat", "chat-routes").into(),
        simple_route_config("chat-routes", "chat-cluster").into(),
        eds_cluster("chat-cluster").into(),
        priorities("chat-cluster", [[&first], [&second]]).into(),
    ]);
    let channel = XdsChannel::builder("xds:///chat")
        .bootstrap(Bootstrap::from_json(&control_plane.bootstrap_json())?)
        .build()?;
    let mut client = EchoClient::new(channel);

    // Both directions: requests are sent while responses arrive.
    let (requests, receiver) = mpsc::channel(4);
    let mut request = Request::new(ReceiverStream::new(receiver));
    request.set_timeout(Duration::from_secs(30)); // of the whole conversation
    requests.send(EchoRequest::new("hello")).await?;
    let mut responses = client.chat(request).await?.into_inner();
    let before = next(&mut responses).await?;
    println!("the conversation began with {before}, which drains now");

    // The control plane moves new RPCs away, and the backend closes its connections when their RPCs have ended.
    control_plane.set(priorities("chat-cluster", [[&second]]));
    first.goaway();
    second.wait_connections(1).await?;
    requests.send(EchoRequest::new("still there?")).await?;
    let during = next(&mut responses).await?;
    println!("it continues with {during}");

    // One request, three responses.
    let repeat = EchoRequest { message: "news".into(), repeat: 3 };
    let news: Vec<_> = client.repeat(repeat).await?.into_inner().collect::<Result<_, _>>().await?;
    let backend = news.first().map(|news| news.backend.clone()).unwrap_or_default();
    println!("a stream that begins now has {} messages of {backend}", news.len());

    drop(requests); // ends the conversation
    let end = responses.next().await;
    println!("the conversation has ended: {}", if end.is_none() { "OK" } else { "not as expected" });
    Ok([before, during, backend])
}

async fn next(responses: &mut Streaming<proxyless_testkit::echo::EchoResponse>) -> Result<String, Status> {
    match responses.message().await? {
        Some(response) => Ok(response.backend),
        None => Err(Status::internal("the stream has ended")),
    }
}

#[tokio::test]
async fn a_conversation_survives_a_drain_and_new_streams_move() -> Result<(), Box<dyn Error>> {
    assert_eq!(streams().await?, ["first", "first", "second"]);
    Ok(())
}
