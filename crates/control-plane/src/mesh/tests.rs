//! The short form and raw resources become the resources that clients get.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use prost::{Message, Name};

use super::*;

fn read(text: &str) -> Result<Mesh, Vec<String>> {
    let messages = Messages::new().unwrap();
    Mesh::read(&[Source::new("mesh.yaml", text)], &messages)
        .map_err(|error| error.0.iter().map(ToString::to_string).collect())
}

fn message<M: Message + Name + Default>(mesh: &Mesh, name: &str) -> M {
    let url = M::type_url();
    let one = mesh.resources.iter().find(|one| one.resource.type_url() == url && one.resource.name() == name);
    let one = one.unwrap_or_else(|| panic!("no {url} {name}"));
    M::decode(&one.resource.value().value[..]).unwrap()
}

#[test]
fn a_list_of_addresses_is_a_complete_service() {
    let mesh = read("services: { greeter: [127.0.0.1:1, '[::1]:2'] }").unwrap();
    let kinds: Vec<&str> = mesh.resources.iter().map(|one| short_type(one.resource.type_url())).collect();
    assert_eq!(kinds, ["Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration"]);
    let assignment: ClusterLoadAssignment = message(&mesh, "greeter");
    assert_eq!(assignment.endpoints[0].lb_endpoints.len(), 2);
    assert_eq!(assignment.endpoints[0].load_balancing_weight.unwrap().value, 1);
}

#[test]
fn priorities_come_as_endpoints_localities_and_lists_of_them() {
    let text = "clusters:\n  c:\n    priorities:\n      - [127.0.0.1:1]\n      \
                - { zone: b, endpoints: [127.0.0.1:2] }\n      \
                - localities: [{ zone: c, endpoints: [127.0.0.1:3] }, { zone: d, weight: 9, endpoints: 127.0.0.1:4 }]\n";
    let assignment: ClusterLoadAssignment = message(&read(text).unwrap(), "c");
    let found: Vec<(u32, String, u32)> = assignment
        .endpoints
        .iter()
        .map(|one| {
            let zone = one.locality.clone().unwrap().zone;
            (one.priority, zone, one.load_balancing_weight.unwrap().value)
        })
        .collect();
    let expected = [(0, "", 1), (1, "b", 1), (2, "c", 1), (2, "d", 9)];
    assert_eq!(found, expected.map(|(priority, zone, weight)| (priority, zone.to_owned(), weight)));
}

#[test]
fn raw_resources_may_use_both_spellings_and_json() {
    let json = r#"[{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c", "type": "EDS",
        "edsClusterConfig": {"eds_config": {"ads": {}}}, "connectTimeout": "1.5s",
        "circuit_breakers": {"thresholds": [{"max_requests": 7}]}}]"#;
    let messages = Messages::new().unwrap();
    let mesh = Mesh::read(&[Source::new("mesh.json", json)], &messages).unwrap();
    let cluster: Cluster = message(&mesh, "c");
    assert_eq!(cluster.connect_timeout.unwrap().nanos, 500_000_000);
    assert_eq!(cluster.circuit_breakers.unwrap().thresholds[0].max_requests.unwrap().value, 7);
    assert!(cluster.eds_cluster_config.unwrap().eds_config.is_some());
}

#[test]
fn a_wrapped_resource_has_the_name_of_its_wrapper() {
    let text = "'@type': type.googleapis.com/envoy.service.discovery.v3.Resource\nname: list\nresource:\n  \
                '@type': type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig\n  clusters: [a]\n";
    let mesh = read(text).unwrap();
    let resource = &mesh.resources[0].resource;
    assert_eq!((short_type(resource.type_url()), resource.name()), ("ClusterConfig", "list"));
}

#[test]
fn a_name_that_is_defined_twice_is_a_problem_across_files() {
    let messages = Messages::new().unwrap();
    let a = Source::new("a.yaml", "clusters: { c: [127.0.0.1:1] }");
    let b = Source::new("b.yaml", "clusters:\n  c: { dns: 'x:1' }");
    let error = Mesh::read(&[a, b], &messages).unwrap_err().to_string();
    assert_eq!(error, "b.yaml:2:3: Cluster \"c\" is defined twice, first at a.yaml:1:13");
}

#[test]
fn nothing_that_is_read_panics() {
    let seeds = [
        "services: { a: { routes: [{ cluster: c, headers: [{ name: x, range: [1, 2] }] }] } }",
        "clusters: { c: { localities: [{ endpoints: [{ address: '1.2.3.4:5', health: draining }] }] } }",
        "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\nmetadata: { filter_metadata: { a: { b: [1] } } }",
        "- {a: *b}\n- &b [<<, {<<: 3}]",
    ];
    for seed in seeds {
        for at in (0..seed.len()).step_by(5) {
            for part in ["{", "]", ":", "- ", "~", "\u{0}", "\n\t", "'", "*a", "\u{1f600}"] {
                let text = format!("{}{part}{}", &seed[..at], &seed[at..]);
                let _ = read_quietly(&text);
            }
            let _ = read_quietly(&seed[..at]);
        }
    }
}

/// Without the descriptors for each text.
fn read_quietly(text: &str) -> bool {
    use std::sync::OnceLock;
    static MESSAGES: OnceLock<Messages> = OnceLock::new();
    let messages = MESSAGES.get_or_init(|| Messages::new().unwrap());
    Mesh::read(&[Source::new("mesh.yaml", text)], messages).is_ok()
}
