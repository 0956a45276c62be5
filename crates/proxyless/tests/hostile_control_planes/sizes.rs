//! Messages, lists and texts at and above their limits.

use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use proxyless::Limits;
use proxyless_testkit::resources::*;
use proxyless_testkit::{CDS, EDS, LDS, RDS, Resource};

use super::common::{SERVICE, until_failure};
use super::exchange::{Exchange, response};
use super::hostile::Attack;
use super::memory::{measured, unmeasured};
use super::world::{World, survives};

const MIB: usize = 1 << 20;
/// For large messages on a machine that is busy with others.
const LARGE_PATIENCE: Duration = Duration::from_secs(120);

/// Sends the prefix of a message and this many zeros of its content, piece by piece; returns whether the client read
/// them.
async fn stream_zeros(exchange: &mut Exchange, announced: u32, length: usize) -> bool {
    let prefix = [&[0], &announced.to_be_bytes()[..]].concat();
    if !exchange.send(prefix).await {
        return false;
    }
    let zeros = Bytes::from_static(&[0; 1 << 16]);
    for begin in (0..length).step_by(zeros.len()) {
        if !exchange.send(zeros.slice(..zeros.len().min(length - begin))).await {
            return false;
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_of_500_mb_is_above_the_limit() {
    let mut memory = measured().await;
    let world = World::configured(|builder| builder).await;
    memory.begin();
    let hostile = world.attack(Attack::streams(|mut exchange| async move {
        exchange.begin(&[]);
        assert!(!stream_zeros(&mut exchange, 500_000_000, 500_000_000).await, "nobody wants all of it");
        exchange.log.done();
    }));
    hostile.wait("the client gives the stream up", |seen| seen.done >= 2).await;
    memory.expect("a message of 500 MB above the limit", 8, 4);
    world.recovers_after(memory, "a message of 500 MB", hostile).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_above_the_limit_is_named_in_errors() {
    let _shared = unmeasured().await;
    let world = World::unconfigured(|builder| builder).await;
    let hostile = world.attack(Attack::streams(|mut exchange| async move {
        exchange.begin(&[]);
        stream_zeros(&mut exchange, u32::MAX, 10_000_000).await;
    }));
    until_failure(
        &world.channel,
        "a message of 4294967295 bytes is longer than the limit of 209715200 bytes",
    )
    .await;
    world.recovers("a message of 4 GB", hostile).await;
}

/// All of the message is read, and freed: it is a response of an unknown type.
async fn large_message_is_taken(bytes: usize, peak: isize) {
    let mut memory = measured().await;
    let mut limits = Limits::default();
    limits.message_bytes = bytes;
    let world = World::configured(|builder| builder.limits(limits)).await;
    memory.begin();
    let good = Resource::from(listener(SERVICE, "route")).value().clone();
    let hostile = world.attack(Attack::streams(move |mut exchange| {
        let good = good.clone();
        async move {
            exchange.begin(&[]);
            exchange.read_on();
            // An unknown protobuf field, number 1000.
            let content = u32::try_from(bytes - 8).expect("four bytes");
            let key = [0xc2, 0x3e];
            let mut length = Vec::new();
            prost::encoding::encode_varint(content.into(), &mut length);
            let head = [&key[..], &length].concat();
            let total = u32::try_from(head.len() + content as usize).expect("four bytes");
            exchange.send([&[0], &total.to_be_bytes()[..], &head].concat()).await;
            let zeros = Bytes::from_static(&[0; 1 << 16]);
            let mut left = content as usize;
            while left > 0 {
                let part = zeros.slice(..left.min(zeros.len()));
                left -= part.len();
                assert!(exchange.send(part).await, "the message is within the limit");
            }
            exchange.respond(&response(LDS, "1", vec![good])).await;
            exchange.given_up().await;
        }
    }));
    hostile.wait_for(LARGE_PATIENCE, "the message behind it is accepted", |seen| seen.acks >= 1).await;
    assert_eq!(hostile.seen().connections, 1);
    memory.expect(&format!("a message of {bytes} bytes within the limit"), peak, 4);
    world.recovers_after(memory, "a message within the limit", hostile).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_within_the_limit_is_taken_and_given_back() {
    // Both copies exist while it grows.
    large_message_is_taken(16 * MIB, 16 * 3 + 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes up to 1.5 GB"]
async fn message_of_500_mb_is_below_the_limit() {
    large_message_is_taken(500_000_000, 500 * 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_messages_are_not_inflated() {
    let mut memory = measured().await;
    // The start of the DEFLATE of a gigabyte of zeros; the rest does not matter, as it is never inflated.
    let bomb = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3][..], &[0xec, 0xc1, 1, 1], &[0; 1000]].concat();
    let encodings = [&[("grpc-encoding", "gzip")][..], &[("content-encoding", "gzip")], &[]];
    let mut worlds = Vec::new();
    for _ in encodings {
        worlds.push(World::configured(|builder| builder).await);
    }
    memory.begin();
    let mut attacked = Vec::new();
    for (world, encoding) in worlds.into_iter().zip(encodings) {
        let bomb = bomb.clone();
        let hostile = world.attack(Attack::streams(move |mut exchange| {
            let framed = [&[1], &(bomb.len() as u32).to_be_bytes()[..], &bomb].concat();
            async move {
                exchange.begin(encoding);
                exchange.send(framed).await;
                exchange.given_up().await;
                exchange.log.done();
            }
        }));
        hostile.wait("the client gives the stream up", |seen| seen.done >= 1).await;
        attacked.push((world, hostile));
    }
    memory.expect("gzip bombs", 4, 2);
    let mut running = tokio::task::JoinSet::new();
    for (world, hostile) in attacked {
        running.spawn(world.recovers("a gzip bomb", hostile));
    }
    running.join_all().await;
}

/// Sends responses with these resources, one after the other, and returns their NACKs.
async fn nacks_of(responses: Vec<(&'static str, Vec<u8>)>, peak: isize) -> Vec<String> {
    let mut memory = measured().await;
    let world = World::configured(|builder| builder).await;
    let message = |(i, (type_url, resources)): (usize, &(&str, Vec<u8>))| {
        let head = response(type_url, &i.to_string(), Vec::new()).encode_to_vec();
        Bytes::from([&head[..], resources].concat())
    };
    let messages: Vec<_> = responses.iter().enumerate().map(message).collect();
    memory.begin();
    let hostile = world.attack(Attack::streams(move |mut exchange| {
        let messages = messages.clone();
        async move {
            exchange.begin(&[]);
            for (i, message) in messages.iter().enumerate() {
                exchange.message(message).await;
                exchange.answer_to(&i.to_string()).await;
            }
            exchange.log.done();
            exchange.given_up().await;
        }
    }));
    let seen = hostile.wait_for(LARGE_PATIENCE, "NACKs", |seen| seen.done >= 1).await;
    memory.expect("too many elements", peak, 4);
    world.recovers_after(memory, "too many elements", hostile).await;
    assert_eq!(seen.nacks, responses.len(), "{:?}", seen.why);
    seen.why.into()
}

/// The key of a field with a length, and the length, of an element without content.
fn empty(number: u8, count: usize) -> Vec<u8> {
    [number << 3 | 2, 0].repeat(count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_resources() {
    let mut responses: Vec<_> = [LDS, RDS, CDS, EDS].map(|of| (of, empty(2, 1_000_000))).into();
    responses.push((CDS, empty(2, 100_000)));
    let mut why = nacks_of(responses, 32).await;
    let allowed = why.pop().expect("the last one");
    assert!(allowed.ends_with("; and 99950 more"), "{allowed}");
    assert!(why.iter().all(|why| why == "more than 100000 resources, the limit"), "{why:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_elements() {
    let resource = |type_url: &'static str, value: Vec<u8>| {
        let resource = Any { type_url: type_url.into(), value };
        (type_url, response("", "", vec![resource]).encode_to_vec())
    };
    let name = b"\x0a\x07cluster";
    let cases = [
        // Localities.
        (EDS, [&name[..], &empty(2, 1_000_000)].concat(), "more than 250000 endpoints, the limit"),
        (CDS, aggregate_cluster("cluster", vec![""; 400_000]).encode_to_vec(), "more than 10000 elements"),
        // Health checks, which take a kilobyte each.
        (CDS, [&name[..], &empty(8, 400_000)].concat(), "more than 10000 elements"),
        (CDS, [&name[..], &empty(8, 1_000_000)].concat(), "more than the limit of 1048576"),
        // Headers to add.
        (RDS, [&name[..], &empty(6, 1_000_000)].concat(), "more than 250000 elements"),
        // Filter chains. A Listener with a different name would delete the one in use.
        (
            LDS,
            [listener(SERVICE, "route").encode_to_vec(), empty(3, 1_000_000)].concat(),
            "more than 250000 elements",
        ),
    ];
    let expected = cases.each_ref().map(|(_, _, why)| *why);
    let responses = cases.map(|(of, value, _)| resource(of, value));
    let why = nacks_of(responses.into(), 32).await;
    for (why, expected) in why.iter().zip(expected) {
        assert!(why.contains(expected), "{why}");
        assert!(why.contains("(cluster)") || why.contains(SERVICE), "the resource is named: {why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_texts() {
    let _shared = unmeasured().await;
    let long = "x".repeat(4 * MIB);
    let good = Resource::from(listener(SERVICE, "route")).value().clone();
    let unnamed = Any { type_url: long.clone(), value: good.value.clone() };
    let named = Resource::from(eds_cluster(&long)).value().clone();
    // Versions and nonces are returned unchanged, and errors are truncated.
    let attack = Attack::streams(move |mut exchange| {
        let mut responses = vec![
            response(LDS, &long, vec![good.clone()]),
            response(RDS, "2", vec![unnamed.clone()]),
            response(CDS, "3", vec![named.clone(), Any { value: b"\xff".to_vec(), ..named.clone() }]),
        ];
        responses[1].version_info = long.clone();
        async move {
            exchange.begin(&[]);
            for response in responses {
                exchange.respond(&response).await;
                exchange.answer_to(&response.nonce).await;
            }
            exchange.log.done();
            exchange.given_up().await;
        }
    });
    let seen = survives("long texts", attack, |seen| seen.done >= 1).await;
    assert_eq!(seen.nacks, 2, "{:?}", seen.why);
    assert!(seen.why.iter().all(|why| why.len() <= 8192), "{:?}", seen.why.iter().map(String::len));
}
