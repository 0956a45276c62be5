//! Hostile load reporting services, beside a good ADS service.

use std::time::Duration;

use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsResponse;
use envoy_types::pb::google::protobuf::Duration as WireDuration;
use prost::Message as _;
use proxyless_testkit::Resource;
use proxyless_testkit::resources::*;

use super::exchange::Exchange;
use super::floods::thousands;
use super::hostile::{Attack, Hostile, Scripted};
use super::memory::{measured, unmeasured};
use super::world::World;

/// A good ADS service whose cluster reports its load to this script.
fn attacked(world: &World, script: impl Fn(Exchange) -> Scripted + Send + Sync + 'static) -> Hostile {
    let mut resources = world.resources();
    resources[2] = Resource::from(eds_cluster("cluster").report_load());
    world.attack(Attack::streams(move |exchange| -> Scripted {
        if exchange.is_ads() {
            let resources = resources.clone();
            Box::pin(async move { exchange.serve_well(&resources).await })
        } else {
            script(exchange)
        }
    }))
}

fn load_request(seconds: i64, nanos: i32, clusters: &[&str]) -> LoadStatsResponse {
    LoadStatsResponse {
        clusters: clusters.iter().map(ToString::to_string).collect(),
        send_all_clusters: clusters.is_empty(),
        load_reporting_interval: Some(WireDuration { seconds, nanos }),
        report_endpoint_granularity: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_load_requests() {
    let count = thousands(5);
    let mut memory = measured().await;
    let world = World::configured(|builder| builder).await;
    memory.begin();
    let hostile = attacked(&world, move |mut exchange| {
        Box::pin(async move {
            exchange.begin(&[]);
            exchange.read_on();
            for i in 0..count {
                let names = [format!("cluster-{i}"), "cluster".to_owned()];
                let names = names.each_ref().map(String::as_str);
                let message = match i % 4 {
                    0 => load_request(1, 0, &names).encode_to_vec(),
                    1 => load_request(i64::MAX, i32::MAX, &[]).encode_to_vec(),
                    2 => vec![0xff; 10],
                    _ => load_request(-1, -1, &[]).encode_to_vec(),
                };
                if !exchange.message(&message).await {
                    return;
                }
            }
            exchange.log.done();
            exchange.given_up().await;
        })
    });
    hostile.wait_for(Duration::from_secs(300), "all requests are read", |seen| seen.done >= 1).await;
    // A full window of them; see the floods of ADS.
    memory.expect("flood of requests", 64, 48);
    world.recovers_after(memory, "flood of requests", hostile).await;
}

/// Names of clusters that take much more memory than bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_million_clusters_in_one_load_request() {
    let mut memory = measured().await;
    let world = World::configured(|builder| builder).await;
    memory.begin();
    let hostile = attacked(&world, |mut exchange| {
        Box::pin(async move {
            exchange.begin(&[]);
            exchange.read_on();
            exchange.message(&[0x0a, 0].repeat(2_000_000)).await;
            // The one after it is read and applied: reports arrive.
            exchange.message(&load_request(1, 0, &[]).encode_to_vec()).await;
            exchange.given_up().await;
        })
    });
    // The first one has the node.
    hostile.wait("reports come", |seen| seen.reports >= 2).await;
    memory.expect("two million clusters in one request", 32, 4);
    world.recovers_after(memory, "two million clusters", hostile).await;
}

/// At most one report per second for any interval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intervals_of_nothing() {
    let _shared = unmeasured().await;
    let mut running = tokio::task::JoinSet::new();
    for (seconds, nanos) in [(0, 0), (0, 1), (-5, 0), (i64::MIN, i32::MIN)] {
        running.spawn(async move {
            let what = format!("an interval of {seconds} s {nanos} ns");
            let world = World::configured(|builder| builder).await;
            let hostile = attacked(&world, move |mut exchange| {
                Box::pin(async move {
                    exchange.begin(&[]);
                    exchange.message(&load_request(seconds, nanos, &[]).encode_to_vec()).await;
                    let mut times = Vec::new();
                    // The first request has the node.
                    while times.len() < 4 && exchange.request().await.is_some() {
                        times.push(std::time::Instant::now());
                    }
                    let took = times[3].duration_since(times[1]);
                    assert!(took > Duration::from_millis(1900), "three reports in {took:?}");
                    exchange.log.done();
                    exchange.given_up().await;
                })
            });
            hostile.wait(&what, |seen| seen.done >= 1).await;
            world.recovers(&what, hostile).await;
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic");
    }
}

/// A service that is missing, or that ends each stream at once or after its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_end_at_once() {
    let _shared = unmeasured().await;
    let mut running = tokio::task::JoinSet::new();
    for (what, request, status) in
        [("UNIMPLEMENTED", false, "12"), ("OK at once", false, "0"), ("OK after a request", true, "0")]
    {
        running.spawn(async move {
            let world = World::configured(|builder| builder).await;
            let hostile = attacked(&world, move |mut exchange| {
                Box::pin(async move {
                    exchange.begin(&[]);
                    if request {
                        exchange.message(&load_request(1, 0, &[]).encode_to_vec()).await;
                    }
                    exchange.end(status);
                    exchange.log.done();
                })
            });
            let seen = hostile.wait(what, |seen| seen.done >= 3).await;
            // The first stream of all is ADS.
            let took = seen.opened[3].duration_since(seen.opened[1]);
            assert!(took > Duration::from_millis(1600), "{what}: three streams in {took:?}");
            assert_eq!(seen.connections, 1, "{what}: the connection is that of ADS");
            world.recovers(what, hostile).await;
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic");
    }
}
