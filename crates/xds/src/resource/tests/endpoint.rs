use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, HealthStatus, Metadata};
use envoy_types::pb::envoy::config::endpoint::v3 as wire;
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, UInt32Value, Value};
use prost::Message;
use wire::cluster_load_assignment::Policy;
use wire::cluster_load_assignment::policy::DropOverload;
use wire::endpoint::AdditionalAddress;
use wire::lb_endpoint::HostIdentifier;

use super::builders::{address, assignment, inner, lb_endpoint, locality, socket};
use super::{accepts, as_assignment, decode_message_with, gates, rejects};
use crate::resource::{
    ClusterLoadAssignment, DecodeContext, DropCategory, EndpointHealth, LbEndpoint, Resource, ResourceType,
    Update, decode_update,
};

fn weight(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

fn accepted(message: &wire::ClusterLoadAssignment) -> Arc<ClusterLoadAssignment> {
    as_assignment(accepts(message))
}

/// An assignment with one locality, whose only endpoint has been changed.
fn with_endpoint(change: impl FnOnce(&mut wire::LbEndpoint)) -> wire::ClusterLoadAssignment {
    let mut endpoint = lb_endpoint("127.0.0.1", 80);
    change(&mut endpoint);
    assignment(vec![wire::LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..locality("a", 0, &[]) }])
}

fn accepted_endpoint(change: impl FnOnce(&mut wire::LbEndpoint)) -> LbEndpoint {
    accepted(&with_endpoint(change)).priorities[0][0].endpoints[0].clone()
}

const ENDPOINT: &str = "endpoints[0].lb_endpoints[0]";

/// The zones of each priority.
fn zones(assignment: &ClusterLoadAssignment) -> Vec<Vec<&str>> {
    let priorities = assignment.priorities.iter();
    priorities.map(|priority| priority.iter().map(|locality| &*locality.locality.zone).collect()).collect()
}

#[test]
fn a27_95_no_localities_are_valid() {
    assert_eq!(*accepted(&assignment(vec![])), ClusterLoadAssignment::default());
}

#[test]
fn a27_51_the_grouping_is_kept() {
    let message = assignment(vec![locality("b", 1, &[1]), locality("a", 0, &[2, 3]), locality("c", 0, &[4])]);
    let assignment = accepted(&message);
    assert_eq!(zones(&assignment), [vec!["a", "c"], vec!["b"]]);
    let ports: Vec<u16> =
        assignment.priorities[0][0].endpoints.iter().map(|endpoint| endpoint.addresses[0].port()).collect();
    assert_eq!(ports, [2, 3]);
}

#[test]
fn a27_96_a_locality_without_weight_is_skipped() {
    for value in [None, weight(0)] {
        let skipped = wire::LocalityLbEndpoints {
            load_balancing_weight: value,
            // Nothing of it is looked at.
            locality: None,
            lb_endpoints: vec![wire::LbEndpoint::default()],
            ..locality("b", 0, &[])
        };
        let message = assignment(vec![locality("a", 0, &[1]), skipped]);
        assert_eq!(zones(&accepted(&message)), [["a"]]);
    }
}

#[test]
fn a27_96_a_skipped_locality_still_fills_its_priority() {
    // Other clients reject a priority without any weight: see the deviations of docs/conformance.md.
    let skipped =
        |priority| wire::LocalityLbEndpoints { load_balancing_weight: None, ..locality("b", priority, &[]) };
    let message = assignment(vec![locality("a", 0, &[1]), skipped(1), locality("c", 2, &[2])]);
    assert_eq!(zones(&accepted(&message)), [vec!["a"], vec![], vec!["c"]]);
    // In the lowest priority it has no effect, at any position.
    let message = assignment(vec![locality("a", 0, &[1]), skipped(u32::MAX)]);
    assert_eq!(zones(&accepted(&message)), [["a"]]);
    assert!(accepted(&assignment(vec![skipped(0)])).priorities.is_empty());
}

#[test]
fn a27_97_weights_are_read() {
    let heavy = wire::LocalityLbEndpoints { load_balancing_weight: weight(7), ..locality("a", 0, &[1]) };
    assert_eq!(accepted(&assignment(vec![heavy])).priorities[0][0].weight, 7);
}

#[test]
fn a27_99_a_locality_without_endpoints_is_valid() {
    assert!(accepted(&assignment(vec![locality("a", 0, &[])])).priorities[0][0].endpoints.is_empty());
}

#[test]
fn a27_100_other_endpoints_are_ignored() {
    for (status, expected) in [
        (HealthStatus::Unknown, EndpointHealth::Unknown),
        (HealthStatus::Healthy, EndpointHealth::Healthy),
        (HealthStatus::Draining, EndpointHealth::Draining),
    ] {
        let endpoint = accepted_endpoint(|endpoint| endpoint.health_status = status as i32);
        assert_eq!(endpoint.health, expected);
    }
    for status in
        [HealthStatus::Unhealthy as i32, HealthStatus::Timeout as i32, HealthStatus::Degraded as i32, 77]
    {
        let message = with_endpoint(|endpoint| {
            endpoint.health_status = status;
            // Nothing of it is looked at.
            endpoint.host_identifier = None;
            endpoint.load_balancing_weight = weight(0);
        });
        assert!(accepted(&message).priorities[0][0].endpoints.is_empty());
    }
}

#[test]
fn a27_101_an_entry_without_endpoint_is_rejected() {
    for identifier in [None, Some(HostIdentifier::EndpointName("a".into()))] {
        let message = with_endpoint(|endpoint| endpoint.host_identifier = identifier);
        rejects(&message, &format!("{ENDPOINT}.endpoint"), "must be set");
    }
}

#[test]
fn a27_102_an_endpoint_without_address_is_rejected() {
    let message = with_endpoint(|endpoint| inner(endpoint).address = None);
    rejects(&message, &format!("{ENDPOINT}.endpoint.address"), "must be set");
}

#[test]
fn a27_103_another_address_is_rejected() {
    use envoy_types::pb::envoy::config::core::v3::address::Address::Pipe;
    for other in [None, Some(Pipe(Default::default()))] {
        let message = with_endpoint(|endpoint| inner(endpoint).address = Some(Address { address: other }));
        rejects(&message, &format!("{ENDPOINT}.endpoint.address.socket_address"), "must be set");
    }
}

#[test]
fn a27_104_only_ip_literals_are_accepted() {
    for good in ["10.1.2.3", "::1", "2001:db8::1"] {
        let endpoint = accepted_endpoint(|endpoint| inner(endpoint).address = Some(address(good, 443)));
        assert_eq!(endpoint.addresses[0].ip().to_string(), good);
        assert_eq!(endpoint.addresses[0].port(), 443);
    }
    for bad in ["", "localhost", "1.2.3", "1.2.3.4:5", "[::1]"] {
        let message = with_endpoint(|endpoint| inner(endpoint).address = Some(address(bad, 443)));
        let path = format!("{ENDPOINT}.endpoint.address.socket_address.address");
        rejects(&message, &path, "is not an IP address");
    }
}

#[test]
fn a27_105_a_port_must_be_set_and_fit() {
    let path = format!("{ENDPOINT}.endpoint.address.socket_address.port_value");
    for port in [None, Some(PortSpecifier::NamedPort("http".into()))] {
        let message = with_endpoint(|endpoint| {
            socket(inner(endpoint).address.as_mut().expect("an address")).port_specifier = port;
        });
        rejects(&message, &path, "must be set");
    }
    let message = with_endpoint(|endpoint| inner(endpoint).address = Some(address("::1", 65536)));
    rejects(&message, &path, "65536 is beyond 65535");
    let endpoint = accepted_endpoint(|endpoint| inner(endpoint).address = Some(address("::1", 65535)));
    assert_eq!(endpoint.addresses[0].port(), 65535);
}

fn with_drop(category: &str, share: Option<FractionalPercent>) -> wire::ClusterLoadAssignment {
    let drop_overloads = vec![DropOverload { category: category.into(), drop_percentage: share }];
    wire::ClusterLoadAssignment {
        policy: Some(Policy {
            drop_overloads,
            // A27-107: no effect.
            overprovisioning_factor: weight(0),
            ..Default::default()
        }),
        ..assignment(vec![])
    }
}

#[test]
fn a27_106_a37_49_drops_are_parts_of_a_million() {
    for (numerator, denominator, expected) in [
        (5, 0, 50_000),
        (5, 1, 500),
        (5, 2, 5),
        (0, 0, 0),
        (101, 0, 1_000_000),
        (u32::MAX, 1, 1_000_000),
        (u32::MAX, 2, 1_000_000),
    ] {
        let message = with_drop("lb", Some(FractionalPercent { numerator, denominator }));
        let expected = DropCategory { category: "lb".into(), per_million: expected };
        assert_eq!(accepted(&message).drops, [expected]);
    }
}

#[test]
fn a27_106_bad_drops_are_rejected() {
    let path = "policy.drop_overloads[0]";
    let all = FractionalPercent { numerator: 1, denominator: 0 };
    rejects(&with_drop("", Some(all)), &format!("{path}.category"), "must not be empty");
    rejects(&with_drop("lb", None), &format!("{path}.drop_percentage"), "must be set");
    let unknown = FractionalPercent { numerator: 1, denominator: 9 };
    rejects(
        &with_drop("lb", Some(unknown)),
        &format!("{path}.drop_percentage.denominator"),
        "9 is not a known denominator",
    );
}

#[test]
fn x_01_gaps_in_priorities_are_rejected() {
    let gap = |priorities: &[u32]| {
        let localities = priorities.iter().zip(1..).map(|(priority, port)| locality("a", *priority, &[port]));
        assignment(localities.collect())
    };
    rejects(&gap(&[0, 2]), "endpoints", "there is a priority 2, but no priority 1");
    rejects(&gap(&[1]), "endpoints", "there is a priority 1, but no priority 0");
    // Not a list of four billion priorities.
    rejects(&gap(&[0, u32::MAX]), "endpoints", "but no priority 1");
    assert_eq!(accepted(&gap(&[2, 0, 1])).priorities.len(), 3);
}

#[test]
fn x_02_a_locality_twice_in_a_priority_is_rejected() {
    let message = assignment(vec![locality("a", 0, &[1]), locality("a", 0, &[2])]);
    rejects(&message, "endpoints[1].locality", "is listed twice in priority 0");
    let message = assignment(vec![locality("a", 0, &[1]), locality("a", 1, &[2])]);
    let assignment = accepted(&message);
    assert!(
        Arc::ptr_eq(&assignment.priorities[0][0].locality, &assignment.priorities[1][0].locality),
        "localities should be shared"
    );
}

#[test]
fn a27_51_a_locality_needs_a_name() {
    let message = assignment(vec![wire::LocalityLbEndpoints { locality: None, ..locality("a", 0, &[]) }]);
    rejects(&message, "endpoints[0].locality", "must be set");
}

#[test]
fn x_03_an_address_twice_is_rejected() {
    let message = assignment(vec![locality("a", 0, &[1, 2]), locality("b", 1, &[3, 2])]);
    rejects(&message, "endpoints[1].lb_endpoints[1].endpoint.address", "127.0.0.1:2 is listed twice");
    let message = with_endpoint(|endpoint| {
        inner(endpoint).additional_addresses = vec![additional(Some(address("127.0.0.1", 80)))];
    });
    rejects(
        &message,
        &format!("{ENDPOINT}.endpoint.additional_addresses[0].address"),
        "127.0.0.1:80 is listed twice",
    );
}

#[test]
fn x_04_weights_must_not_add_up_beyond_uint32() {
    let of_weight = |zone, priority, port, value| wire::LocalityLbEndpoints {
        load_balancing_weight: weight(value),
        ..locality(zone, priority, &[port])
    };
    let message = assignment(vec![of_weight("a", 0, 1, u32::MAX), of_weight("b", 0, 2, 1)]);
    rejects(&message, "endpoints", "localities of priority 0 add up beyond uint32");
    accepts(&assignment(vec![of_weight("a", 0, 1, u32::MAX), of_weight("b", 1, 2, 1)]));

    let mut heavy = locality("a", 0, &[1, 2]);
    heavy.lb_endpoints[0].load_balancing_weight = weight(u32::MAX);
    rejects(&assignment(vec![heavy.clone()]), "endpoints[0].lb_endpoints", "add up beyond uint32");
    heavy.lb_endpoints[1].health_status = HealthStatus::Unhealthy as i32;
    accepts(&assignment(vec![heavy]));
}

#[test]
fn x_05_the_weight_of_an_endpoint_is_never_zero() {
    assert_eq!(accepted_endpoint(|_| {}).weight, 1);
    assert_eq!(accepted_endpoint(|endpoint| endpoint.load_balancing_weight = weight(9)).weight, 9);
    let message = with_endpoint(|endpoint| endpoint.load_balancing_weight = weight(0));
    rejects(&message, &format!("{ENDPOINT}.load_balancing_weight"), "must not be zero");
}

/// Decodes the next version of an assignment.
fn next_version(
    known: &Arc<ClusterLoadAssignment>,
    message: &wire::ClusterLoadAssignment,
) -> Arc<ClusterLoadAssignment> {
    let kind = ResourceType::ClusterLoadAssignment;
    let known = Resource::ClusterLoadAssignment(Arc::clone(known));
    let find = |name: &str| (name == message.cluster_name).then_some(&known);
    let cx = DecodeContext::default();
    let update = decode_update(kind, kind.type_url(), &message.encode_to_vec(), &cx, &find);
    let Update::Resource(decoded) = update else { panic!("{update:?}") };
    as_assignment(decoded.resource.expect("valid"))
}

#[test]
fn the_next_version_shares_the_addresses_that_stay() {
    let ports: Vec<u32> = (1..=9).collect();
    let first = accepted(&assignment(vec![locality("a", 0, &ports), locality("b", 1, &[10, 11])]));
    // One goes, one comes, two change; one moves to where it is not expected.
    let mut message = assignment(vec![
        locality("a", 0, &[1, 2, 4, 20, 5, 6, 7, 8, 9]),
        locality("b", 1, &[10, 11]),
        locality("c", 1, &[3]),
    ]);
    message.endpoints[0].lb_endpoints[0].load_balancing_weight = weight(7);
    message.endpoints[1].lb_endpoints[1].health_status = HealthStatus::Draining as i32;
    let second = next_version(&first, &message);
    assert_eq!(second, accepted(&message), "sharing does not change the result");

    let all = |assignment: &Arc<ClusterLoadAssignment>| {
        let localities = assignment.priorities.iter().flatten();
        let endpoints = localities.flat_map(|locality| &locality.endpoints);
        endpoints.map(|endpoint| Arc::clone(&endpoint.addresses)).collect::<Vec<_>>()
    };
    let old = all(&first);
    let shared = all(&second).into_iter().filter(|new| old.iter().any(|old| Arc::ptr_eq(old, new)));
    let shared: Vec<u16> = shared.map(|addresses| addresses[0].port()).collect();
    assert_eq!(shared, [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn an_endpoint_in_use_takes_little_memory() {
    let ports: Vec<u32> = (1..=1000).collect();
    let assignment = accepted(&assignment(vec![locality("a", 0, &ports)]));
    let endpoints = &assignment.priorities[0][0].endpoints;
    let list = size_of::<LbEndpoint>() * endpoints.capacity() / endpoints.len();
    // The list of addresses has two counters.
    let addresses = size_of::<std::net::SocketAddr>() + 2 * size_of::<usize>();
    assert!(list + addresses <= 112, "{list} + {addresses} bytes");
}

fn additional(address: Option<Address>) -> AdditionalAddress {
    AdditionalAddress { address }
}

#[test]
fn a61_additional_addresses_follow_the_first() {
    let endpoint = accepted_endpoint(|endpoint| {
        inner(endpoint).additional_addresses =
            vec![additional(Some(address("::1", 81))), additional(Some(address("10.0.0.1", 82)))];
    });
    let addresses: Vec<String> = endpoint.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["127.0.0.1:80", "[::1]:81", "10.0.0.1:82"]);
}

#[test]
fn a61_additional_addresses_are_held_to_the_same_rules() {
    let path = format!("{ENDPOINT}.endpoint.additional_addresses[1].address");
    for (bad, below, why) in [
        (None, "", "must be set"),
        (Some(Address::default()), ".socket_address", "must be set"),
        (Some(address("host", 1)), ".socket_address.address", "is not an IP address"),
        (Some(address("::2", 65536)), ".socket_address.port_value", "is beyond 65535"),
    ] {
        let message = with_endpoint(|endpoint| {
            inner(endpoint).additional_addresses =
                vec![additional(Some(address("::1", 81))), additional(bad)];
        });
        rejects(&message, &format!("{path}{below}"), why);
    }
}

#[test]
fn a81_the_hostname_is_read() {
    let endpoint = accepted_endpoint(|endpoint| inner(endpoint).hostname = "a.example".into());
    assert_eq!(endpoint.hostname().map(|name| &**name), Some("a.example"));
    assert_eq!(accepted_endpoint(|_| {}).extras, None);
}

fn with_hash_key(kind: Kind) -> wire::ClusterLoadAssignment {
    let fields = [("hash_key".to_owned(), Value { kind: Some(kind) })].into();
    let filter_metadata = [("envoy.lb".to_owned(), Struct { fields })].into();
    let metadata = Metadata { filter_metadata, ..Default::default() };
    with_endpoint(|endpoint| endpoint.metadata = Some(metadata))
}

#[test]
fn a76_08_a76_10_the_hash_key_is_read_unless_the_opt_out_is_set() {
    let hash_key = |assignment: &ClusterLoadAssignment| {
        assignment.priorities[0][0].endpoints[0].hash_key().map(ToString::to_string)
    };
    let message = with_hash_key(Kind::StringValue("key".into()));
    assert_eq!(hash_key(&accepted(&message)).as_deref(), Some("key"));
    assert_eq!(hash_key(&accepted(&with_hash_key(Kind::StringValue(String::new())))), None);
    assert_eq!(hash_key(&accepted(&with_hash_key(Kind::BoolValue(true)))), None);
    let cx = gates(|gates| gates.endpoint_hash_key_backward_compat = true);
    assert_eq!(hash_key(&as_assignment(decode_message_with(&message, &cx).expect("valid"))), None);
}

#[test]
fn all_violations_of_an_assignment_are_collected() {
    let mut bad = locality("a", 0, &[1, 2, 3]);
    bad.lb_endpoints[0].host_identifier = None;
    bad.lb_endpoints[2].load_balancing_weight = weight(0);
    let message = assignment(vec![bad, locality("b", 2, &[1])]);
    let found = super::decode_message(&message).expect_err("violations");
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "endpoints[0].lb_endpoints[0].endpoint",
            "endpoints[0].lb_endpoints[2].load_balancing_weight",
            "endpoints"
        ]
    );
}

#[test]
fn ten_thousand_endpoints_are_validated() {
    let localities = (0..10).map(|i| {
        let ports: Vec<u32> = (0..1000).map(|port| i * 1000 + port + 1).collect();
        locality(&format!("zone-{i}"), i % 3, &ports)
    });
    let assignment = accepted(&assignment(localities.collect()));
    let endpoints = assignment.priorities.iter().flatten().map(|locality| locality.endpoints.len());
    assert_eq!(endpoints.sum::<usize>(), 10_000);
}
