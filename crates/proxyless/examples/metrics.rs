//! The counters of a channel as Prometheus text: `cargo run -p proxyless --example metrics`.
//!
//! `XdsChannel::describe` has the calls of the channel and of each subchannel, and their states. A program that has a
//! metrics library of its own copies them into it in the same way. Describing costs RPCs nothing: nothing is recorded for it
//! on their path.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fmt::Write as _;

use proxyless::{Bootstrap, ConnectivityState, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::{eds_cluster, listener, priorities, simple_route_config};
use proxyless_testkit::{Backend, ControlPlane};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", measured().await?);
    Ok(())
}

/// The metrics of a channel after four RPCs to two backends.
async fn measured() -> Result<String, Box<dyn Error>> {
    let backends = [Backend::start("a").await?, Backend::start("b").await?];
    let control_plane = ControlPlane::start().await?;
    control_plane.set_all([
        listener("shop", "shop-routes").into(),
        simple_route_config("shop-routes", "shop-cluster").into(),
        eds_cluster("shop-cluster").into(),
        priorities("shop-cluster", [&backends]).into(),
    ]);
    let channel = XdsChannel::builder("xds:///shop")
        .bootstrap(Bootstrap::from_json(&control_plane.bootstrap_json())?)
        .build()?;
    let mut client = EchoClient::new(channel.clone());
    for message in ["one", "two", "three", "four"] {
        client.unary(EchoRequest::new(message)).await?;
    }
    Ok(metrics(&channel).await?)
}

/// The metrics of a channel in Prometheus' text format; a handler of `/metrics` would return them.
async fn metrics(channel: &XdsChannel) -> Result<String, std::fmt::Error> {
    // There is none after the end of the channel.
    let Some(view) = channel.describe().await else { return Ok(String::new()) };
    let mut text = String::from("# TYPE channel_calls_total counter\n");
    let channel_label = format!("target=\"{}\"", view.target);
    for (outcome, count) in [("ok", view.calls.succeeded), ("error", view.calls.failed)] {
        writeln!(text, "channel_calls_total{{{channel_label},outcome=\"{outcome}\"}} {count}")?;
    }
    text += "# TYPE endpoint_calls_total counter\n";
    for subchannel in &view.subchannels {
        let label = format!("{channel_label},address=\"{}\"", subchannel.address);
        for (outcome, count) in [("ok", subchannel.calls.succeeded), ("error", subchannel.calls.failed)] {
            writeln!(text, "endpoint_calls_total{{{label},outcome=\"{outcome}\"}} {count}")?;
        }
    }
    text += "# TYPE endpoint_ready gauge\n";
    for subchannel in &view.subchannels {
        let ready = u8::from(subchannel.state == ConnectivityState::Ready);
        writeln!(text, "endpoint_ready{{{channel_label},address=\"{}\"}} {ready}", subchannel.address)?;
    }
    Ok(text)
}

#[tokio::test]
async fn the_metrics_count_every_call() -> Result<(), Box<dyn Error>> {
    let text = measured().await?;
    assert!(text.contains("channel_calls_total{target=\"xds:///shop\",outcome=\"ok\"} 4\n"), "{text}");
    let value = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    let of_endpoints = text.lines().filter(|line| line.starts_with("endpoint_calls_total"));
    assert_eq!(of_endpoints.filter_map(value).sum::<u64>(), 4, "{text}");
    assert!(text.contains("endpoint_ready{"), "{text}");
    Ok(())
}
