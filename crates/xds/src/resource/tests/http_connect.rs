//! HTTP CONNECT: the transport socket of a Cluster, and the proxies in the metadata of endpoints (gRFC A86).

use std::net::SocketAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::address::Address::Pipe;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::config::core::v3::{self as core, Address, Metadata, TransportSocket};
use envoy_types::pb::envoy::config::endpoint::v3 as wire;
use envoy_types::pb::envoy::extensions::transport_sockets::http_11_proxy::v3::Http11ProxyUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Any, StringValue, Struct, Value};
use tls::common_tls_context::ValidationContextType;

use super::builders::{
    PROXY_KEY, address, any, any_of_type, assignment, eds_cluster, locality, socket, typed_metadata,
};
use super::{as_assignment, as_cluster, decode_message_with, gates, rejects_with};
use crate::resource::{ClusterLoadAssignment, DecodeContext};

const CONFIG: &str = "transport_socket.typed_config";
const INNER: &str = "transport_socket.typed_config.transport_socket";
const OF_ENDPOINT: &str = "endpoints[0].lb_endpoints[0].metadata.typed_filter_metadata";
const OF_LOCALITY: &str = "endpoints[0].metadata.typed_filter_metadata";

/// The gate is open, and the bootstrap has the provider instance `certs`.
fn cx() -> DecodeContext {
    DecodeContext {
        certificate_providers: Some(Arc::new(["certs".to_owned()].into())),
        ..gates(|gates| gates.http_connect = true)
    }
}

fn transport_socket(config: Option<Any>) -> TransportSocket {
    TransportSocket { name: "any".into(), config_type: config.map(ConfigType::TypedConfig) }
}

/// A cluster with the wrapper around this transport socket.
fn wrapped(inner: Option<TransportSocket>) -> Cluster {
    let wrapper = Http11ProxyUpstreamTransport { transport_socket: inner, ..Default::default() };
    Cluster { transport_socket: Some(transport_socket(Some(any(&wrapper)))), ..eds_cluster() }
}

fn upstream_tls(instance: &str) -> tls::UpstreamTlsContext {
    let validation = tls::CertificateValidationContext {
        ca_certificate_provider_instance: Some(tls::CertificateProviderPluginInstance {
            instance_name: instance.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let common = tls::CommonTlsContext {
        validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
        ..Default::default()
    };
    tls::UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() }
}

#[test]
fn a86_01_a86_02_a86_03_the_wrapper_enables_http_connect() {
    let cluster = as_cluster(decode_message_with(&wrapped(None), &cx()).expect("valid"));
    assert!(cluster.http_connect);
    assert_eq!(cluster.tls, None);
    let plain = as_cluster(decode_message_with(&eds_cluster(), &cx()).expect("valid"));
    assert!(!plain.http_connect);
    // Also for a client without TLS, which the wrapper alone does not need.
    let without_tls = DecodeContext { certificate_providers: None, ..cx() };
    assert!(as_cluster(decode_message_with(&wrapped(None), &without_tls).expect("valid")).http_connect);
}

#[test]
fn a86_04_a86_06_tls_settings_in_the_wrapper_are_those_outside_of_it() {
    let socket = transport_socket(Some(any(&upstream_tls("certs"))));
    let inside = as_cluster(decode_message_with(&wrapped(Some(socket.clone())), &cx()).expect("valid"));
    let outside = Cluster { transport_socket: Some(socket), ..eds_cluster() };
    let outside = as_cluster(decode_message_with(&outside, &cx()).expect("valid"));
    assert!(inside.tls.is_some() && inside.tls == outside.tls);
    assert!(inside.http_connect && !outside.http_connect);
}

#[test]
fn a86_04_the_rules_of_tls_settings_hold_in_the_wrapper() {
    let bad = wrapped(Some(transport_socket(Some(any(&upstream_tls("other"))))));
    let path = format!(
        "{INNER}.typed_config.common_tls_context.validation_context.ca_certificate_provider_instance.instance_name"
    );
    rejects_with(&bad, &cx(), &path, "\"other\" is not a certificate provider of the bootstrap");
    let good = wrapped(Some(transport_socket(Some(any(&upstream_tls("certs"))))));
    let without_tls = DecodeContext { certificate_providers: None, ..cx() };
    rejects_with(&good, &without_tls, INNER, "TLS to endpoints is not supported by this client");
}

#[test]
fn a86_05_other_transport_sockets_in_the_wrapper_are_rejected() {
    let wrapper = any(&Http11ProxyUpstreamTransport::default());
    for inner in [any(&RawBuffer {}), wrapper, any_of_type("a.B", b"")] {
        let path = format!("{INNER}.typed_config");
        let bad = wrapped(Some(transport_socket(Some(inner))));
        rejects_with(&bad, &cx(), &path, "is not supported");
    }
    let empty = wrapped(Some(transport_socket(None)));
    rejects_with(&empty, &cx(), &format!("{INNER}.typed_config"), "must be set");
    let name = "envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport";
    let malformed = transport_socket(Some(any_of_type(name, &[0xff])));
    let malformed = Cluster { transport_socket: Some(malformed), ..eds_cluster() };
    rejects_with(&malformed, &cx(), CONFIG, "does not decode");
}

#[test]
fn a86_15_without_the_gate_the_wrapper_is_rejected_and_metadata_is_ignored() {
    let closed = DecodeContext { gates: Default::default(), ..cx() };
    rejects_with(&wrapped(None), &closed, CONFIG, "Http11ProxyUpstreamTransport is not supported");
    let bad = with(None, Some(proxy("not an address", 1)));
    assert_eq!(proxies(&as_assignment(decode_message_with(&bad, &closed).expect("valid"))), [None, None]);
}

#[test]
fn the_lists_of_tls_settings_in_the_wrapper_count_as_elements_of_the_cluster() {
    let mut context = upstream_tls("certs");
    let common = context.common_tls_context.as_mut().expect("set above");
    common.alpn_protocols = vec![String::new(); 10_001];
    let cluster = wrapped(Some(transport_socket(Some(any(&context)))));
    let found = decode_message_with(&cluster, &cx()).expect_err("too many");
    assert_eq!(found, [(String::new(), "more than 10000 elements, the limit".to_owned())]);
}

/// Two endpoints in a locality with this metadata, of which the first has its own metadata.
fn with(of_locality: Option<Metadata>, of_endpoint: Option<Metadata>) -> wire::ClusterLoadAssignment {
    let mut locality = locality("a", 0, &[1, 2]);
    locality.metadata = of_locality;
    locality.lb_endpoints[0].metadata = of_endpoint;
    assignment(vec![locality])
}

fn proxy(host: &str, port: u32) -> Metadata {
    typed_metadata([(PROXY_KEY, any(&address(host, port)))])
}

fn proxies(assignment: &ClusterLoadAssignment) -> Vec<Option<SocketAddr>> {
    let endpoints = assignment.priorities.iter().flatten().flat_map(|locality| &locality.endpoints);
    endpoints.map(|endpoint| endpoint.proxy().map(|proxy| **proxy)).collect()
}

#[track_caller]
fn accepted(of_locality: Option<Metadata>, of_endpoint: Option<Metadata>) -> Vec<Option<SocketAddr>> {
    let message = with(of_locality, of_endpoint);
    proxies(&as_assignment(decode_message_with(&message, &cx()).expect("valid")))
}

fn parsed(address: &str) -> Option<SocketAddr> {
    Some(address.parse().expect("an address"))
}

#[test]
fn a86_11_the_proxy_of_the_endpoint_counts_before_that_of_its_locality() {
    let (own, common) = (Some(proxy("10.0.0.1", 3128)), Some(proxy("2001:db8::1", 65535)));
    assert_eq!(accepted(None, None), [None, None]);
    assert_eq!(accepted(None, own.clone()), [parsed("10.0.0.1:3128"), None]);
    let both = parsed("[2001:db8::1]:65535");
    assert_eq!(accepted(common.clone(), None), [both, both]);
    assert_eq!(accepted(common, own), [parsed("10.0.0.1:3128"), both]);
}

#[test]
fn a86_11_other_keys_and_other_types_are_ignored() {
    let other_key = typed_metadata([("proxy_address", any(&address("10.0.0.1", 1)))]);
    let other_type = typed_metadata([(PROXY_KEY, any(&StringValue { value: "10.0.0.1:1".into() }))]);
    let untyped = Metadata {
        filter_metadata: [(PROXY_KEY.to_owned(), Struct::default())].into(),
        ..Default::default()
    };
    let unknown_type = typed_metadata([(PROXY_KEY, any_of_type("", &[0xff]))]);
    for ignored in [other_key, other_type, untyped, unknown_type] {
        let common = parsed("10.0.0.9:9");
        assert_eq!(accepted(Some(proxy("10.0.0.9", 9)), Some(ignored.clone())), [common, common]);
        assert_eq!(accepted(Some(ignored), None), [None, None]);
    }
}

#[test]
fn a86_08_invalid_addresses_are_rejected_whatever_their_key_and_all_at_once() {
    let bad = |key| typed_metadata([(key, any(&address("proxy.example", 1)))]);
    let why = "\"proxy.example\" is not an IP address";
    let at = |of: &str, key: &str| format!("{of}[{key:?}].socket_address.address");
    rejects_with(&with(None, Some(bad("a"))), &cx(), &at(OF_ENDPOINT, "a"), why);
    rejects_with(&with(None, Some(bad(PROXY_KEY))), &cx(), &at(OF_ENDPOINT, PROXY_KEY), why);
    rejects_with(&with(Some(bad("a")), None), &cx(), &at(OF_LOCALITY, "a"), why);
    let all = with(Some(bad("a")), Some(bad(PROXY_KEY)));
    let found = decode_message_with(&all, &cx()).expect_err("violations");
    let paths: Vec<_> = found.into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, [at(OF_LOCALITY, "a"), at(OF_ENDPOINT, PROXY_KEY)]);
}

#[test]
fn a86_08_metadata_of_ignored_endpoints_and_localities_is_ignored() {
    let mut message = with(None, Some(proxy("proxy.example", 1)));
    message.endpoints[0].lb_endpoints[0].health_status = core::HealthStatus::Unhealthy.into();
    let accepted = as_assignment(decode_message_with(&message, &cx()).expect("valid"));
    assert_eq!(proxies(&accepted), [None]);
    let mut message = with(Some(proxy("proxy.example", 1)), None);
    message.endpoints[0].load_balancing_weight = None;
    decode_message_with(&message, &cx()).expect("valid");
}

#[test]
fn a86_10_an_address_has_an_ip_and_a_port() {
    let mut named_port = address("10.0.0.1", 0);
    socket(&mut named_port).port_specifier = Some(PortSpecifier::NamedPort("http".into()));
    let mut no_port = address("10.0.0.1", 0);
    socket(&mut no_port).port_specifier = None;
    let pipe = Address { address: Some(Pipe(core::Pipe { path: "/a".into(), mode: 1 })) };
    for (address, path, why) in [
        (Address::default(), ".socket_address", "must be set"),
        (pipe, ".socket_address", "must be set"),
        (address("", 1), ".socket_address.address", "is not an IP address"),
        (address("10.0.0.1:1", 1), ".socket_address.address", "is not an IP address"),
        (named_port, ".socket_address.port_value", "must be set"),
        (no_port, ".socket_address.port_value", "must be set"),
        (address("10.0.0.1", 65536), ".socket_address.port_value", "65536 is beyond 65535"),
    ] {
        let metadata = typed_metadata([(PROXY_KEY, any(&address))]);
        let path = format!("{OF_ENDPOINT}[{PROXY_KEY:?}]{path}");
        rejects_with(&with(None, Some(metadata)), &cx(), &path, why);
    }
    let malformed = typed_metadata([(PROXY_KEY, any_of_type("envoy.config.core.v3.Address", &[0xff]))]);
    let path = format!("{OF_ENDPOINT}[{PROXY_KEY:?}]");
    rejects_with(&with(None, Some(malformed)), &cx(), &path, "does not decode");
}

#[test]
fn a86_09_a_registered_value_hides_the_untyped_one_with_its_key() {
    let key = Value { kind: Some(Kind::StringValue("k".into())) };
    let filter = Struct { fields: [("hash_key".to_owned(), key)].into() };
    let hash_key = |typed: Any, cx: &DecodeContext| {
        let filter_metadata = [("envoy.lb".to_owned(), filter.clone())].into();
        let metadata = Metadata { filter_metadata, ..typed_metadata([("envoy.lb", typed)]) };
        let assignment = as_assignment(decode_message_with(&with(None, Some(metadata)), cx).expect("valid"));
        assignment.priorities[0][0].endpoints[0].hash_key().cloned()
    };
    let registered = any(&address("10.0.0.1", 1));
    assert_eq!(hash_key(registered.clone(), &cx()), None);
    assert_eq!(hash_key(registered, &DecodeContext::default()).as_deref(), Some("k"));
    assert_eq!(hash_key(any(&StringValue::default()), &cx()).as_deref(), Some("k"));
}
