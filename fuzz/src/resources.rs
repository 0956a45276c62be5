//! Resources through the real decoder.
//!
//! Properties of all targets: no panic; the same bytes give the same outcome; a rejected resource has at least one
//! violation, and a valid one has a name and the expected type. Bytes that envoy's own messages reject are rejected.
//! Re-encoded bytes have the same meaning: unknown fields and the order of fields do not matter.

use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
use envoy_types::pb::envoy::service::discovery::v3::Resource as Wrapper;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use proxyless_xds::Gates;
use proxyless_xds::resource::{DecodeContext, Decoded, Resource, ResourceType, decode};

use crate::endpoint_model;

/// A Listener (LDS).
pub fn listener(data: &[u8]) {
    resource::<Listener>(ResourceType::Listener, data);
}

/// A RouteConfiguration (RDS).
pub fn route_configuration(data: &[u8]) {
    resource::<RouteConfiguration>(ResourceType::RouteConfiguration, data);
}

/// A Cluster (CDS).
pub fn cluster(data: &[u8]) {
    resource::<Cluster>(ResourceType::Cluster, data);
}

/// A ClusterLoadAssignment (EDS), which is read in place, without envoy's messages.
///
/// Also: envoy's messages and a model of the rules give the same resource, or also reject it.
pub fn endpoints(data: &[u8]) {
    let kind = ResourceType::ClusterLoadAssignment;
    resource::<ClusterLoadAssignment>(kind, data);
    let Ok(message) = ClusterLoadAssignment::decode(data) else { return };
    for cx in contexts() {
        let decoded = decode(kind, kind.type_url(), data, &cx);
        let model = endpoint_model::validated(&message, cx.gates).map(Arc::new);
        let model = model.map(Resource::ClusterLoadAssignment);
        assert_eq!(decoded.resource.as_ref().ok(), model.as_ref(), "{:?}", decoded.resource.as_ref().err());
    }
}

/// The ClusterConfig of an aggregate cluster (gRFC A99). The message has no name, so it is wrapped.
pub fn aggregate_cluster(data: &[u8]) {
    let wrapped = wrap("a", Any { type_url: ClusterConfig::type_url(), value: data.to_vec() });
    for cx in contexts() {
        let decoded = checked(ResourceType::AggregateClusterConfig, &wrapped.type_url, &wrapped.value, &cx);
        assert!(ClusterConfig::decode(data).is_ok() || decoded.resource.is_err());
    }
}

/// A resource of any type in the discovery `Resource` wrapper; the first byte is the expected type.
pub fn wrapped(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else { return };
    let kind = ResourceType::ALL[usize::from(kind) % ResourceType::ALL.len()];
    for cx in contexts() {
        let decoded = checked(kind, &Wrapper::type_url(), data, &cx);
        assert!(Wrapper::decode(data).is_ok() || decoded.resource.is_err());
    }
}

/// A resource in the wrapper that gives it a name.
pub(crate) fn wrap(name: &str, resource: Any) -> Any {
    let wrapper = Wrapper { name: name.into(), resource: Some(resource), ..Default::default() };
    Any { type_url: Wrapper::type_url(), value: wrapper.encode_to_vec() }
}

fn resource<M: Message + Name + Default>(kind: ResourceType, data: &[u8]) {
    for cx in contexts() {
        let decoded = checked(kind, kind.type_url(), data, &cx);
        match M::decode(data) {
            Ok(message) => {
                let again = decode(kind, kind.type_url(), &message.encode_to_vec(), &cx);
                assert_same(&decoded, &again, "after envoy-types read and wrote it");
            }
            Err(error) => assert!(decoded.resource.is_err(), "good, but envoy-types says: {error}"),
        }
    }
}

/// Once with every gate closed, and once with every gate open.
fn contexts() -> [DecodeContext; 2] {
    let open = Gates::from_variables(|_| Some("true".to_owned()));
    [
        DecodeContext::default(),
        DecodeContext {
            gates: open,
            trusted_xds_server: true,
            certificate_providers: Some(Arc::new(["certs".to_owned()].into())),
            ..DecodeContext::default()
        },
    ]
}

fn checked(kind: ResourceType, type_url: &str, data: &[u8], cx: &DecodeContext) -> Decoded {
    let decoded = decode(kind, type_url, data, cx);
    match &decoded.resource {
        Ok(resource) => {
            assert_eq!(resource.resource_type(), kind);
            assert!(decoded.name.is_some(), "a good resource without a name");
        }
        Err(violations) => {
            assert!(!violations.first.is_empty(), "rejected without a reason");
            assert!(!violations.to_string().is_empty());
        }
    }
    assert_same(&decoded, &decode(kind, type_url, data, cx), "the second time");
    decoded
}

/// Compares the debug output, too: a NaN is not equal to itself.
#[track_caller]
fn assert_same(a: &Decoded, b: &Decoded, when: &str) {
    assert_eq!(a.name, b.name, "{when}");
    if a.resource != b.resource {
        assert_eq!(format!("{:?}", a.resource), format!("{:?}", b.resource), "{when}");
    }
}
