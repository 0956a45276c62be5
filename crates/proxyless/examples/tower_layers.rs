//! Tower layers around a channel: `cargo run -p proxyless --example tower_layers`.
//!
//! A channel is a `tower::Service` of HTTP requests, so any layer works around it, as around tonic's `Channel`. Here an
//! interceptor adds metadata, and a layer measures each RPC up to its response headers.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use proxyless::{Bootstrap, XdsBody, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::{eds_cluster, listener, priorities, simple_route_config};
use proxyless_testkit::{Backend, ControlPlane};
use tonic::body::Body;
use tonic::service::InterceptorLayer;
use tower::layer::layer_fn;
use tower::{Service, ServiceBuilder};

/// The path of an RPC, and the time until its response headers.
type Measured = (String, Duration);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    layered().await?;
    Ok(())
}

/// Returns what the layer measured, and the metadata that the backend received.
async fn layered() -> Result<(Vec<Measured>, Option<String>), Box<dyn Error>> {
    let backend = Backend::start("only").await?;
    let control_plane = ControlPlane::start().await?;
    control_plane.set_all([
        listener("shop", "shop-routes").into(),
        simple_route_config("shop-routes", "shop-cluster").into(),
        eds_cluster("shop-cluster").into(),
        priorities("shop-cluster", [[&backend]]).into(),
    ]);
    let channel = XdsChannel::builder("xds:///shop")
        .bootstrap(Bootstrap::from_json(&control_plane.bootstrap_json())?)
        .build()?;

    let (sink, measured) = mpsc::channel();
    let service = ServiceBuilder::new()
        .layer(InterceptorLayer::new(|mut request: tonic::Request<()>| {
            request.metadata_mut().insert("x-tenant", tonic::metadata::MetadataValue::from_static("blue"));
            Ok(request)
        }))
        .layer(layer_fn(|channel| Stopwatch { channel, sink: sink.clone() }))
        .service(channel);
    let mut client = EchoClient::new(service);
    for message in ["one", "two"] {
        client.unary(EchoRequest::new(message)).await?;
    }

    let measured: Vec<Measured> = measured.try_iter().collect();
    for (path, time) in &measured {
        println!("{path} took {time:?}");
    }
    let tenant = backend.calls().first().and_then(|call| call.header("x-tenant").map(str::to_owned));
    println!("the backend received x-tenant: {}", tenant.as_deref().unwrap_or("nothing"));
    Ok((measured, tenant))
}

/// Measures the RPCs of a channel.
#[derive(Clone, Debug)]
struct Stopwatch {
    channel: XdsChannel,
    sink: mpsc::Sender<Measured>,
}

impl Service<http::Request<Body>> for Stopwatch {
    type Response = http::Response<XdsBody>;
    type Error = <XdsChannel as Service<http::Request<Body>>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (path, sink) = (request.uri().path().to_owned(), self.sink.clone());
        let (started, response) = (Instant::now(), self.channel.call(request));
        Box::pin(async move {
            let response = response.await;
            let _ = sink.send((path, started.elapsed())); // nobody may be listening any more
            response
        })
    }
}

#[tokio::test]
async fn layers_see_requests_and_backends_see_metadata() -> Result<(), Box<dyn Error>> {
    let (measured, tenant) = layered().await?;
    let paths: Vec<&str> = measured.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/proxyless.testkit.Echo/Unary"; 2]);
    assert_eq!(tenant.as_deref(), Some("blue"));
    Ok(())
}
