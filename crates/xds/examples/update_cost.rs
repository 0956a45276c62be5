//! What a configuration update costs before it reaches the mesh: nanoseconds of one case, or of all.
//!
//! `update_cost` prints every case for clusters of 10 to 100,000 endpoints. `update_cost <case> <size> <rounds>` runs one
//! case so often and prints nothing, for a profiler: the difference between two counts of rounds is what rounds cost.
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // a program that measures, not a core

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, HealthStatus, Locality, SocketAddress, address};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use prost::Message;
use proxyless_sans_io::Time;
use proxyless_xds::Gates;
use proxyless_xds::client::{Effect, Input, NackMode, WatchId, XdsCore, XdsCoreConfig};
use proxyless_xds::resource::{DecodeContext, ResourceType, decode};

const KIND: ResourceType = ResourceType::ClusterLoadAssignment;

/// Makes what is run in each round, given a size.
type Case = fn(u32) -> Box<dyn FnMut()>;

/// What is measured. Of the first two the size is a cluster's endpoints, as of the next three; of the last it is a
/// response's clusters, with ten endpoints each.
const CASES: [(&str, Case); 6] = [
    ("envoy-types decode", |size| {
        let bytes = assignment("c", size, |_| 1);
        Box::new(move || drop(black_box(ClusterLoadAssignment::decode(&*bytes).expect("valid"))))
    }),
    ("our decode", |size| {
        let bytes = assignment("c", size, |_| 1);
        Box::new(move || {
            let decoded = decode(KIND, KIND.type_url(), &bytes, &DecodeContext::default());
            drop(black_box(decoded.resource.expect("valid")));
        })
    }),
    ("core: same bytes", |size| core_case(&["c".into()], move |_| vec![assignment("c", size, |_| 1)])),
    ("core: one weight", |size| {
        core_case(&["c".into()], move |round| {
            vec![assignment("c", size, |i| if i == size / 2 { 2 + round } else { 1 })]
        })
    }),
    ("core: all weights", |size| {
        core_case(&["c".into()], move |round| vec![assignment("c", size, |_| 1 + round)])
    }),
    ("core: one of N", |size| {
        let names: Vec<String> = (0..size).map(|i| format!("outbound|8080||service-{i}.default")).collect();
        core_case(&names.clone(), move |round| {
            let weight = |i| if i == 0 { 1 + round } else { 1 };
            (0..).zip(&names).map(|(i, name)| assignment(name, 10, |_| weight(i))).collect()
        })
    }),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [case, size, rounds] = &arguments[..] {
        let case = CASES.iter().find(|(name, _)| name == case).expect("a case").1;
        let mut round = case(size.parse().expect("a size"));
        (0..rounds.parse().expect("a number of rounds")).for_each(|_| round());
        return;
    }
    for (name, case) in CASES {
        for size in
            [10, 1_000, 10_000, 100_000].into_iter().filter(|&n| n < 100_000 || name != "core: one of N")
        {
            let mut round = case(size);
            round();
            let rounds = 2_000_000 / size / 10 + 3;
            let times = (0..rounds).map(|_| {
                let start = Instant::now();
                round();
                start.elapsed()
            });
            let mut times: Vec<_> = times.collect();
            times.sort_unstable();
            let median = times[times.len() / 2].as_nanos();
            println!("{name:20} {size:7} {median:12} ns {:8.1} ns each", median as f64 / f64::from(size));
        }
    }
}

/// A core that gets two different responses by turns, each with these resources.
fn core_case(names: &[String], resources: impl Fn(u32) -> Vec<Vec<u8>>) -> Box<dyn FnMut()> {
    let mut core = XdsCore::new(config());
    for (id, name) in (0..).zip(names) {
        core.handle(
            Time::ZERO,
            Input::Watch { id: WatchId(id), resource_type: KIND, name: name.as_str().into() },
        );
    }
    core.handle(Time::ZERO, Input::StreamUp { stream: 1 });
    settle(&mut core);
    let response = |round| {
        let any = |value| Any { type_url: KIND.type_url().into(), value };
        let resources = resources(round).into_iter().map(any).collect();
        let type_url = KIND.type_url().into();
        let response = DiscoveryResponse { resources, type_url, ..Default::default() };
        Bytes::from(response.encode_to_vec())
    };
    let responses = [response(0), response(1)];
    let mut turn = 0;
    Box::new(move || {
        turn = 1 - turn;
        core.handle(Time::ZERO, Input::Message { stream: 1, bytes: responses[turn].clone() });
        settle(&mut core);
    })
}

/// Sends what is to be sent, and hears what is to be heard.
fn settle(core: &mut XdsCore) {
    while let Some(effect) = core.poll_effect() {
        match effect {
            Effect::Send { stream, .. } => core.handle(Time::ZERO, Input::SendDone { stream }),
            Effect::Notify { token: Some(token), .. } => {
                core.handle(Time::ZERO, Input::TokenReleased { token });
            }
            _ => {}
        }
    }
}

fn config() -> XdsCoreConfig {
    XdsCoreConfig {
        server_uri: "dns:///xds.example".into(),
        ignore_resource_deletion: false,
        fail_on_data_errors: false,
        resource_timer_is_transient_error: false,
        trusted_xds_server: false,
        node: Bytes::new(),
        node_id: "node".into(),
        nack_mode: NackMode::default(),
        gates: Gates::default(),
        resource_timeout: std::time::Duration::from_secs(15),
        seed: 1,
    }
}

/// Three localities in two priorities; addresses in no order.
fn assignment(name: &str, size: u32, weight: impl Fn(u32) -> u32) -> Vec<u8> {
    let locality = |(zone, priority): (u32, u32)| LocalityLbEndpoints {
        locality: Some(Locality {
            region: "europe-west1".into(),
            zone: format!("europe-west1-{zone}"),
            ..Default::default()
        }),
        lb_endpoints: (0..size).filter(|i| i % 3 == zone).map(|i| lb_endpoint(i, weight(i))).collect(),
        load_balancing_weight: Some(UInt32Value { value: 100 }),
        priority,
        ..Default::default()
    };
    let endpoints = [(0, 0), (1, 0), (2, 1)].map(locality).into();
    ClusterLoadAssignment { cluster_name: name.into(), endpoints, ..Default::default() }.encode_to_vec()
}

fn lb_endpoint(i: u32, weight: u32) -> LbEndpoint {
    let [_, a, b, c] = (i.wrapping_mul(0x9e3779b1) & 0x00ff_ffff).to_be_bytes();
    let address = SocketAddress {
        address: format!("10.{a}.{b}.{c}"),
        port_specifier: Some(PortSpecifier::PortValue(8080)),
        ..Default::default()
    };
    let address = Address { address: Some(address::Address::SocketAddress(address)) };
    let endpoint = Endpoint { address: Some(address), ..Default::default() };
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        health_status: HealthStatus::Healthy as i32,
        load_balancing_weight: Some(UInt32Value { value: weight }),
        ..Default::default()
    }
}
