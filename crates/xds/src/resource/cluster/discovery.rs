//! The discovery of a cluster's endpoints (A27-86 to A27-89, A37-63 to A37-77, gRFC A99).

use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3 as wire;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3 as aggregate;
use prost::Name;
use wire::cluster::{ClusterDiscoveryType, CustomClusterType, DiscoveryType};

use super::{AggregateClusterConfig, ClusterKind};
use crate::resource::common::{ads_or_self, port, socket_address};
use crate::resource::extension::Extension;
use crate::resource::field::Field;

/// The kind of a cluster, with its parameters.
pub(super) fn cluster_kind(at: &Field<'_>, proto: &wire::Cluster) -> Option<ClusterKind> {
    match &proto.cluster_discovery_type {
        Some(ClusterDiscoveryType::ClusterType(custom)) => custom_kind(&at.field("cluster_type"), custom),
        Some(ClusterDiscoveryType::Type(kind)) if *kind == DiscoveryType::Eds as i32 => eds(at, proto),
        Some(ClusterDiscoveryType::Type(kind)) if *kind == DiscoveryType::LogicalDns as i32 => {
            logical_dns(at, proto)
        }
        // A37-63: no other type is supported. An unset type means STATIC.
        _ => at.field("type").fail("must be EDS or LOGICAL_DNS, or there must be a cluster_type"),
    }
}

fn eds(at: &Field<'_>, proto: &wire::Cluster) -> Option<ClusterKind> {
    let at = at.field("eds_cluster_config");
    let config = at.require(proto.eds_cluster_config.as_ref())?;
    // A27-86, A27-87: EDS must use the same stream.
    let source = ads_or_self(&at.field("eds_config"), config.eds_config.as_ref());
    // A47: an xdstp cluster name is not used as the EDS service name.
    if config.service_name.is_empty() && proto.name.starts_with("xdstp:") {
        at.field("service_name").reject("must be set if the cluster has an xdstp: name");
    }
    // A27-88, A27-89: the service name, if set.
    let service_name = Some(config.service_name.as_str()).filter(|name| !name.is_empty()).map(Arc::from);
    source.map(|()| ClusterKind::Eds { service_name })
}

/// A37-65 to A37-73: one locality with one endpoint that has a host name and a port.
fn logical_dns(at: &Field<'_>, proto: &wire::Cluster) -> Option<ClusterKind> {
    let at = at.field("load_assignment");
    let assignment = at.require(proto.load_assignment.as_ref())?;
    let at = at.field("endpoints");
    let locality = only_one(&at, &assignment.endpoints, "locality")?;
    let at = at.index(0);
    let at = at.field("lb_endpoints");
    let endpoint = only_one(&at, &locality.lb_endpoints, "endpoint")?;
    let at = at.index(0);
    let at = at.field("endpoint");
    let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else { return at.require(None) };
    let at = at.field("address");
    let address = socket_address(&at, endpoint.address.as_ref())?;
    let at = at.field("socket_address");
    if !address.resolver_name.is_empty() {
        at.field("resolver_name").reject("must not be set");
    }
    let host = at.field("address").require_text(&address.address);
    let port = port(&at, address);
    Some(ClusterKind::LogicalDns { host: host?.into(), port: port? })
}

fn only_one<'p, T>(at: &Field<'_>, items: &'p [T], what: &str) -> Option<&'p T> {
    match items {
        [item] => Some(item),
        _ => at.fail(format!("must be exactly one {what}, not {}", items.len())),
    }
}

fn custom_kind(at: &Field<'_>, proto: &CustomClusterType) -> Option<ClusterKind> {
    // A37-74: the config is required.
    let at = at.field("typed_config");
    let extension = Extension::read(&at, proto.typed_config.as_ref())?;
    if extension.type_name == aggregate::ClusterConfig::full_name() {
        // A37-76: it must decode.
        let config = aggregate_config(&at, &extension.decode(&at)?)?;
        return Some(ClusterKind::Aggregate(Arc::new(config)));
    }
    // A99-13, A99-14: without the gate this type is unknown.
    let gate = at.context().gates.aggregate_cluster_resource;
    if gate && extension.type_name == aggregate::AggregateClusterResource::full_name() {
        return aggregate_resource(&at, &extension.decode(&at)?);
    }
    // A37-75: no other type is supported.
    at.fail(format!("the cluster type {} is not supported", extension.type_name))
}

/// The ordered clusters of an aggregate, inline or as a resource (A99-05).
pub(crate) fn aggregate_config(
    at: &Field<'_>,
    proto: &aggregate::ClusterConfig,
) -> Option<AggregateClusterConfig> {
    let at = at.field("clusters");
    // A37-77: an empty aggregate can never serve.
    if proto.clusters.is_empty() {
        return at.fail("must not be empty");
    }
    let names = proto.clusters.iter().enumerate();
    let names = names.filter_map(|(i, name)| at.index(i).require_text(name));
    Some(AggregateClusterConfig { clusters: names.map(Arc::from).collect() })
}

/// A99-17, A99-18: the list of clusters is a separate resource on the same stream.
fn aggregate_resource(at: &Field<'_>, proto: &aggregate::AggregateClusterResource) -> Option<ClusterKind> {
    let source = ads_or_self(&at.field("config_source"), proto.config_source.as_ref());
    let name = at.field("resource_name").require_text(&proto.resource_name);
    source.and(name).map(|name| ClusterKind::AggregateResource { name: name.into() })
}
