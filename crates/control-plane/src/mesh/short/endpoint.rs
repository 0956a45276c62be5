//! Endpoints, localities and priorities.

use envoy_types::pb::envoy::config::core::v3::{HealthStatus, Metadata};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value as ProtoValue};
use proxyless_testkit::resources::{
    AssignmentExt as _, EndpointExt as _, LocalityExt as _, assignment, endpoint as socket_endpoint, locality,
};

use crate::file::node::{Node, Value};
use crate::file::problem::Problems;
use crate::file::read::{self, Fields};

pub(super) const HEALTH: &[(&str, HealthStatus)] = &[
    ("unknown", HealthStatus::Unknown),
    ("healthy", HealthStatus::Healthy),
    ("unhealthy", HealthStatus::Unhealthy),
    ("draining", HealthStatus::Draining),
    ("timeout", HealthStatus::Timeout),
    ("degraded", HealthStatus::Degraded),
];

/// The assignment of a cluster that has `endpoints`, `localities` or `priorities`.
pub(super) fn cluster_endpoints(
    name: &str,
    fields: &Fields<'_>,
    problems: &mut Problems,
) -> ClusterLoadAssignment {
    let mut localities = Vec::new();
    if let Some(node) = fields.get("endpoints") {
        localities.push(locality("", endpoints(node, problems)).region(""));
    }
    if let Some(node) = fields.get("localities") {
        let items = read::list(node, "localities", problems).unwrap_or_default();
        localities.extend(items.iter().filter_map(|item| one_locality(item, 0, problems)));
    }
    if let Some(node) = fields.get("priorities") {
        let items = read::list(node, "priorities", problems).unwrap_or_default();
        for (priority, item) in (0..).zip(items) {
            localities.extend(one_priority(item, priority, problems));
        }
    }
    let mut assignment = assignment(name, localities);
    if let Some(drops) = fields.get("drops") {
        for entry in read::map(drops, "drops", problems).unwrap_or_default() {
            if let Some(share) = read::percentage(&entry.value, problems) {
                assignment = assignment.drops(&entry.key, share);
            }
        }
    }
    assignment
}

/// A priority: a list of endpoints, or a map with `localities`, or one locality.
fn one_priority(node: &Node, priority: u32, problems: &mut Problems) -> Vec<LocalityLbEndpoints> {
    match &node.value {
        Value::List(_) => vec![locality("", endpoints(node, problems)).region("").priority(priority)],
        Value::Map(_) if node.get("localities").is_some() => {
            let Some(fields) = Fields::of(node, "a priority", &["localities"], problems) else {
                return Vec::new();
            };
            let list = fields
                .read("localities", problems, |node, problems| read::list(node, "localities", problems));
            list.unwrap_or_default()
                .iter()
                .filter_map(|item| one_locality(item, priority, problems))
                .collect()
        }
        _ => one_locality(node, priority, problems).into_iter().collect(),
    }
}

fn one_locality(node: &Node, priority: u32, problems: &mut Problems) -> Option<LocalityLbEndpoints> {
    let known = ["region", "zone", "sub_zone", "weight", "priority", "endpoints"];
    let fields = Fields::of(node, "a locality", &known, problems)?;
    let found = match fields.get("endpoints") {
        Some(node) => endpoints(node, problems),
        None => return problems.fail(node.at, "a locality needs endpoints"),
    };
    let text = |name: &str, problems: &mut Problems| {
        fields.read(name, problems, read::text).unwrap_or_default().to_owned()
    };
    let (region, zone, sub_zone) =
        (text("region", problems), text("zone", problems), text("sub_zone", problems));
    let mut made = locality(&zone, found).region(&region).priority(priority);
    made.locality.get_or_insert_default().sub_zone = sub_zone;
    if let Some(priority) = fields.read("priority", problems, read::whole) {
        made = made.priority(priority);
    }
    match fields.get("weight") {
        Some(weight) => read::whole(weight, problems).map(|weight| made.weight(weight)),
        None => Some(made),
    }
}

pub(super) fn endpoints(node: &Node, problems: &mut Problems) -> Vec<LbEndpoint> {
    match &node.value {
        Value::List(items) => items.iter().filter_map(|item| endpoint(item, problems)).collect(),
        _ => endpoint(node, problems).into_iter().collect(),
    }
}

/// An endpoint: its address, or a map.
fn endpoint(node: &Node, problems: &mut Problems) -> Option<LbEndpoint> {
    if !matches!(node.value, Value::Map(_)) {
        return address(node, problems).map(socket_endpoint);
    }
    let known = ["address", "additional_addresses", "weight", "health", "hostname", "hash_key"];
    let fields = Fields::of(node, "an endpoint", &known, problems)?;
    let Some(at) = fields.get("address") else {
        return problems.fail(node.at, "an endpoint needs an address");
    };
    let mut made = socket_endpoint(address(at, problems)?);
    if let Some(list) = fields.get("additional_addresses") {
        for item in read::list(list, "additional_addresses", problems).unwrap_or_default() {
            made = made.additional_address(address(item, problems)?);
        }
    }
    if let Some(weight) = fields.read("weight", problems, read::whole) {
        made = made.weight(weight);
    }
    if let Some(health) = fields.read("health", problems, |node, problems| read::word(node, HEALTH, problems))
    {
        made = made.health(health);
    }
    if let Some(hostname) = fields.read("hostname", problems, read::text)
        && let Some(HostIdentifier::Endpoint(endpoint)) = &mut made.host_identifier
    {
        endpoint.hostname = hostname.to_owned();
    }
    if let Some(key) = fields.read("hash_key", problems, read::text) {
        let value = ProtoValue { kind: Some(Kind::StringValue(key.to_owned())) };
        let of_lb = Struct { fields: [("hash_key".to_owned(), value)].into() };
        made.metadata =
            Some(Metadata { filter_metadata: [("envoy.lb".to_owned(), of_lb)].into(), ..Default::default() });
    }
    Some(made)
}

/// An address of EDS, which is never a host name.
fn address(node: &Node, problems: &mut Problems) -> Option<std::net::SocketAddr> {
    let (host, port) = read::host_and_port(node, problems)?;
    match host.parse::<std::net::IpAddr>() {
        Ok(ip) => Some((ip, port).into()),
        Err(_) => {
            let hint = "for a host name make a cluster with dns: HOST:PORT";
            problems.fail(node.at, format!("an endpoint needs an IP address, not {host:?}; {hint}"))
        }
    }
}
