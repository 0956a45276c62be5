//! Floods of messages, as fast as the client reads them.

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use proxyless_testkit::resources::*;
use proxyless_testkit::{AGGREGATE, EDS, LDS, RDS, Resource};
use std::time::Duration;

use super::common::SERVICE;
use super::exchange::{Exchange, response};
use super::hostile::Attack;
use super::memory::{measured, unmeasured};
use super::world::{World, survives};

/// The memory limit of a flood in MiB: the client holds a window of it, and HTTP/2 half a kilobyte for each unread
/// frame.
const FLOOD_PEAK: isize = 64;
/// The memory that may remain while the stream lives: HTTP/2 keeps its lists at their largest size.
const FLOOD_LEFT: isize = 48;

/// The number of messages of a flood, in thousands: `HOSTILE_FLOOD=20` for tens of thousands.
pub(crate) fn thousands(default: usize) -> usize {
    let scale = std::env::var("HOSTILE_FLOOD").ok().and_then(|scale| scale.parse().ok());
    1000 * scale.unwrap_or(default)
}

/// The time limit of a flood on a busy machine.
const FLOOD_PATIENCE: Duration = Duration::from_secs(300);

/// Sends the messages of `make` for the numbers from 1 to `count`, and reads the ACKs.
async fn flood(mut exchange: Exchange, count: usize, make: impl Fn(usize) -> DiscoveryResponse) {
    exchange.begin(&[]);
    exchange.read_on();
    for i in 1..=count {
        if !exchange.respond(&make(i)).await {
            return;
        }
    }
    exchange.log.done();
    exchange.given_up().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_updates() {
    let count = thousands(2);
    let mut memory = measured().await;
    let world = World::configured(|builder| builder).await;
    memory.begin();
    let backend = world.old.address();
    let hostile = world.attack(Attack::streams(move |exchange| {
        // Each version is different, with the same backend.
        let make = move |i: usize| {
            let weight = u32::try_from(i).expect("small");
            let assignment = assignment("cluster", [locality("near", [backend]).weight(weight)]);
            response(EDS, &i.to_string(), vec![Resource::from(assignment).value().clone()])
        };
        flood(exchange, count, make)
    }));
    hostile.wait_for(FLOOD_PATIENCE, "all updates are accepted", |seen| seen.acks >= count).await;
    memory.expect("flood of updates", FLOOD_PEAK, FLOOD_LEFT);
    world.recovers_after(memory, "flood of updates", hostile).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_the_same_again() {
    let count = thousands(4);
    let mut memory = measured().await;
    let world = World::configured(|builder| builder).await;
    memory.begin();
    let resources = world.resources();
    let hostile = world.attack(Attack::streams(move |exchange| {
        let resources = resources.clone();
        let make = move |i: usize| {
            let resource = &resources[i % resources.len()];
            response(resource.type_url(), &i.to_string(), vec![resource.value().clone()])
        };
        flood(exchange, count, make)
    }));
    hostile.wait_for(FLOOD_PATIENCE, "all are accepted", |seen| seen.acks >= count).await;
    memory.expect("flood of the same again", FLOOD_PEAK, FLOOD_LEFT);
    world.recovers_after(memory, "flood of the same again", hostile).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_bad_updates() {
    let count = thousands(2);
    let mut memory = measured().await;
    let world = World::configured(|builder| builder).await;
    memory.begin();
    let hostile = world.attack(Attack::streams(move |exchange| {
        let make = |i: usize| {
            let other = Resource::from(eds_cluster("cluster")).value().clone();
            response([LDS, EDS, RDS][i % 3], &i.to_string(), vec![other; 3])
        };
        flood(exchange, count, make)
    }));
    let seen = hostile.wait_for(FLOOD_PATIENCE, "all are rejected", |seen| seen.nacks >= count).await;
    assert!(seen.why.iter().all(|why| why.contains("in a response of type")), "{:?}", seen.why);
    memory.expect("flood of bad updates", FLOOD_PEAK, FLOOD_LEFT);
    world.recovers_after(memory, "flood of bad updates", hostile).await;
}

/// Messages without an ACK: invalid ones, unknown types, types that were never requested.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_messages_without_an_ack() {
    let count = thousands(4);
    let mut memory = measured().await;
    let world = World::configured(|builder| builder).await;
    memory.begin();
    let good = Resource::from(listener(SERVICE, "route")).value().clone();
    let hostile = world.attack(Attack::streams(move |mut exchange| {
        let good = good.clone();
        async move {
            exchange.begin(&[]);
            exchange.read_on();
            for i in 0..count {
                let message = match i % 4 {
                    0 => vec![0xff; 10],
                    1 => {
                        response("type.googleapis.com/google.protobuf.Value", "1", Vec::new()).encode_to_vec()
                    }
                    2 => response("", "1", vec![Any::default(); 10]).encode_to_vec(),
                    _ => response(AGGREGATE, "1", vec![Any::default(); 10]).encode_to_vec(),
                };
                if !exchange.message(&message).await {
                    return;
                }
            }
            // Answered when all before it were read.
            exchange.respond(&response(LDS, "last", vec![good])).await;
            exchange.given_up().await;
        }
    }));
    let seen = hostile.wait_for(FLOOD_PATIENCE, "the last one is accepted", |seen| seen.acks >= 1).await;
    assert_eq!((seen.acks, seen.nacks, seen.connections), (1, 0, 1), "{seen:?}");
    memory.expect("flood of what is ignored", FLOOD_PEAK, FLOOD_LEFT);
    world.recovers_after(memory, "flood of what is ignored", hostile).await;
}

/// It sends and does not read. The pending ACKs have long nonces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_without_reading() {
    let mut memory = measured().await;
    let world = World::configured(|builder| builder).await;
    memory.begin();
    let good = Resource::from(listener(SERVICE, "route")).value().clone();
    let hostile = world.attack(Attack::streams(move |mut exchange| {
        let good = good.clone();
        async move {
            exchange.begin(&[]);
            let mut response = response(LDS, "1", vec![good]);
            response.nonce = "n".repeat(1 << 20);
            let message = response.encode_to_vec();
            // The client stops reading when it cannot send ACKs: a message is not read for a second.
            for _ in 0..200 {
                let sent = tokio::time::timeout(Duration::from_secs(1), exchange.message(&message)).await;
                if sent.is_err() {
                    exchange.log.done();
                    break;
                }
            }
            exchange.given_up().await;
        }
    }));
    hostile.wait_for(FLOOD_PATIENCE, "the client stops reading", |seen| seen.done == 1).await;
    memory.expect("flood without reading", 24, 16);
    world.recovers_after(memory, "flood without reading", hostile).await;
}

/// As many streams as the client opens get one response each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_end_after_a_response() {
    let _shared = unmeasured().await;
    let good = Resource::from(listener(SERVICE, "route")).value().clone();
    let attack = Attack::streams(move |mut exchange| {
        let good = good.clone();
        async move {
            exchange.begin(&[]);
            exchange.respond(&response(LDS, "1", vec![good])).await;
            exchange.end("0");
            exchange.log.done();
            exchange.given_up().await;
        }
    });
    let seen = survives("ends after a response", attack, |seen| seen.done >= 4).await;
    // The first backoff lies between them, plus or minus 20 %.
    let took = seen.opened[3].duration_since(seen.opened[0]);
    assert!(took > Duration::from_millis(2400), "four streams in {took:?}");
}
