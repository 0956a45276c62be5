//! Servers that stay silent, or stop halfway.

use bytes::Bytes;
use proxyless_testkit::resources::*;
use proxyless_testkit::{LDS, Resource};

use super::common::SERVICE;
use super::exchange::{ServerLimits, framed, response};
use super::hostile::Attack;
use super::memory::unmeasured;
use super::world::{World, starts_after, survives};
use prost::Message as _;

/// A server that sends these bytes on each stream, and then nothing more.
fn silent_after(bytes: impl Into<Bytes>) -> Attack {
    let bytes = bytes.into();
    Attack::streams(move |mut exchange| {
        let bytes = bytes.clone();
        async move {
            exchange.begin(&[]);
            exchange.request().await;
            exchange.send(bytes).await;
            exchange.log.done();
            exchange.given_up().await;
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_at_each_point() {
    let _shared = unmeasured().await;
    let good = Resource::from(listener(SERVICE, "route")).value().clone();
    let message = framed(&response(LDS, "1", vec![good]).encode_to_vec());
    let half = message.slice(..message.len() / 2);
    let and_a_half = [&message[..], &message[..7]].concat();
    let mute = Attack::raw(|io, log| async move {
        log.done();
        // Neither reads nor writes.
        let _open = io;
        std::future::pending::<()>().await;
    });
    let no_headers = Attack::streams(|mut exchange| async move {
        exchange.request().await;
        exchange.log.done();
        std::future::pending::<()>().await;
    });
    let cases = [
        ("silence", mute),
        ("no headers", no_headers),
        ("headers only", silent_after("")),
        ("part of a prefix", silent_after(message.slice(..3))),
        ("a prefix", silent_after(message.slice(..5))),
        ("half a message", silent_after(half)),
        ("a message and a half", silent_after(and_a_half)),
        ("a listener and nothing more", silent_after(message)),
    ];
    let mut running = tokio::task::JoinSet::new();
    for (what, attack) in cases {
        let again = attack.clone();
        running.spawn(async move { drop(survives(what, attack, |seen| seen.done >= 1).await) });
        running.spawn(async move { starts_after(what, again, |seen| seen.done >= 1).await });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic");
    }
}

/// A server that allows one stream, which load reports occupy: ADS gets a separate connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_reports_do_not_take_the_only_stream_from_ads() {
    let _shared = unmeasured().await;
    let world = World::configured(|builder| builder).await;
    let mut resources = world.resources();
    resources[2] = eds_cluster("cluster").report_load().into();
    let attack = Attack::streams(move |mut exchange| {
        let resources = resources.clone();
        async move {
            match (exchange.is_ads(), exchange.number) {
                // The first ADS stream ends while load reports wait for its slot.
                (true, 1) => {
                    let log = exchange.log.clone();
                    let serving = exchange.serve_well(&resources);
                    // The last response requests load reports: the stream follows soon.
                    let _ = tokio::time::timeout(std::time::Duration::from_millis(1500), serving).await;
                    log.done();
                }
                (true, _) => exchange.serve_well(&resources).await,
                (false, _) => {
                    exchange.begin(&[]);
                    exchange.given_up().await;
                }
            }
        }
    });
    let limits = ServerLimits { max_concurrent_streams: Some(1) };
    let hostile = world.attack(attack.with(limits));
    // ADS, then load reports in its slot, then ADS on a different connection.
    let seen = hostile.wait("ADS is back", |seen| seen.streams >= 3 && seen.connections >= 2).await;
    assert!(seen.connections <= 3, "{seen:?}");
    world.recovers("load reports took the only stream", hostile).await;
}
