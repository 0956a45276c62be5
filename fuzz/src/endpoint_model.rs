//! The meaning of an assignment, by envoy's own messages and without regard to speed: the reference of the differential
//! target for endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, HealthStatus, Metadata};
use envoy_types::pb::envoy::config::endpoint::v3 as wire;
use envoy_types::pb::envoy::r#type::v3::fractional_percent::DenominatorType;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::protobuf::value::Kind;
use prost::Message;
use proxyless_xds::Gates;
use proxyless_xds::resource::{
    ClusterLoadAssignment, DropCategory, EndpointExtras, EndpointHealth, LbEndpoint, Locality,
    LocalityEndpoints,
};
use wire::lb_endpoint::HostIdentifier;

/// The validated assignment; `None` if it is invalid.
pub(crate) fn validated(
    message: &wire::ClusterLoadAssignment,
    gates: Gates,
) -> Option<ClusterLoadAssignment> {
    let mut priorities = BTreeMap::<u32, Vec<LocalityEndpoints>>::new();
    let mut addresses = BTreeSet::new();
    for proto in &message.endpoints {
        let priority = priorities.entry(proto.priority).or_default();
        // A27-96: a locality without a weight is ignored.
        let Some(weight) = proto.load_balancing_weight.filter(|weight| weight.value > 0) else { continue };
        let locality = proto.locality.clone()?;
        let locality = Locality { region: locality.region, zone: locality.zone, sub_zone: locality.sub_zone };
        if priority.iter().any(|known| *known.locality == locality) {
            return None;
        }
        let proxy = proxy(proto.metadata.as_ref(), gates)?;
        let mut endpoints = Vec::new();
        for proto in &proto.lb_endpoints {
            if let Some(health) = health(proto) {
                let mut endpoint = endpoint(proto, health, gates, &mut addresses)?;
                let extras = endpoint.extras.as_deref().cloned().unwrap_or_default();
                let proxy = extras.proxy.clone().or(proxy.clone());
                endpoint.extras = EndpointExtras { proxy, ..extras }.shared();
                endpoints.push(endpoint);
            }
        }
        sum(endpoints.iter().map(|endpoint| endpoint.weight))?;
        priority.push(LocalityEndpoints { locality: Arc::new(locality), weight: weight.value, endpoints });
    }
    while priorities.last_entry().is_some_and(|last| last.get().is_empty()) {
        priorities.pop_last();
    }
    if !priorities.keys().copied().eq((0..).take(priorities.len())) {
        return None;
    }
    let priorities: Vec<_> = priorities.into_values().collect();
    for localities in &priorities {
        sum(localities.iter().map(|locality| locality.weight))?;
    }
    let drops = message.policy.iter().flat_map(|policy| &policy.drop_overloads).map(drop_category);
    let drops = drops.collect::<Option<_>>()?;
    (!message.cluster_name.is_empty()).then_some(ClusterLoadAssignment { priorities, drops })
}

/// A27-100: endpoints of any other health are ignored.
fn health(proto: &wire::LbEndpoint) -> Option<EndpointHealth> {
    match HealthStatus::try_from(proto.health_status) {
        Ok(HealthStatus::Unknown) => Some(EndpointHealth::Unknown),
        Ok(HealthStatus::Healthy) => Some(EndpointHealth::Healthy),
        Ok(HealthStatus::Draining) => Some(EndpointHealth::Draining),
        _ => None,
    }
}

fn endpoint(
    proto: &wire::LbEndpoint,
    health: EndpointHealth,
    gates: Gates,
    known: &mut BTreeSet<SocketAddr>,
) -> Option<LbEndpoint> {
    let weight = proto.load_balancing_weight.map_or(1, |weight| weight.value);
    let Some(HostIdentifier::Endpoint(host)) = &proto.host_identifier else { return None };
    let others = host.additional_addresses.iter().map(|other| other.address.as_ref());
    let addresses = std::iter::once(host.address.as_ref()).chain(others).map(socket_address);
    let addresses = addresses.collect::<Option<Vec<_>>>()?;
    let unique = addresses.iter().all(|address| known.insert(*address));
    let proxy = proxy(proto.metadata.as_ref(), gates)?;
    // A86-09: an address hides the untyped value with the same key.
    let typed = proto.metadata.as_ref().and_then(|metadata| metadata.typed_filter_metadata.get("envoy.lb"));
    let hidden = gates.http_connect && typed.is_some_and(is_address);
    let metadata = proto.metadata.as_ref().filter(|_| !hidden);
    let metadata = metadata.and_then(|metadata| metadata.filter_metadata.get("envoy.lb"));
    let hash_key = match metadata.and_then(|fields| fields.fields.get("hash_key")?.kind.as_ref()) {
        Some(Kind::StringValue(key)) if !key.is_empty() && !gates.endpoint_hash_key_backward_compat => {
            Some(key.as_str().into())
        }
        _ => None,
    };
    let hostname = (!host.hostname.is_empty()).then(|| host.hostname.as_str().into());
    let extras = EndpointExtras { hostname, hash_key, proxy }.shared();
    let endpoint = LbEndpoint { addresses: addresses.into(), weight, health, extras };
    (weight > 0 && unique).then_some(endpoint)
}

/// A86: the proxy of metadata, if it has one; `None` outside if any address in it is invalid.
fn proxy(metadata: Option<&Metadata>, gates: Gates) -> Option<Option<Arc<SocketAddr>>> {
    let mut proxy = None;
    for (key, any) in
        metadata.filter(|_| gates.http_connect).into_iter().flat_map(|m| &m.typed_filter_metadata)
    {
        if is_address(any) {
            let address = socket_address(Some(&Address::decode(&*any.value).ok()?))?;
            if key == "envoy.http11_proxy_transport_socket.proxy_address" {
                proxy = Some(Arc::new(address));
            }
        }
    }
    Some(proxy)
}

fn is_address(any: &Any) -> bool {
    any.type_url.rsplit('/').next() == Some("envoy.config.core.v3.Address")
}

fn socket_address(proto: Option<&Address>) -> Option<SocketAddr> {
    let Some(AddressKind::SocketAddress(address)) = &proto?.address else { return None };
    let Some(PortSpecifier::PortValue(port)) = address.port_specifier else { return None };
    Some(SocketAddr::new(address.address.parse::<IpAddr>().ok()?, port.try_into().ok()?))
}

fn drop_category(proto: &wire::cluster_load_assignment::policy::DropOverload) -> Option<DropCategory> {
    let share = proto.drop_percentage.as_ref()?;
    let parts = match DenominatorType::try_from(share.denominator).ok()? {
        DenominatorType::Hundred => 10_000,
        DenominatorType::TenThousand => 100,
        DenominatorType::Million => 1,
    };
    let per_million = (u64::from(share.numerator) * parts).min(1_000_000) as u32;
    (!proto.category.is_empty())
        .then(|| DropCategory { category: proto.category.as_str().into(), per_million })
}

/// The sum, if it fits.
fn sum(weights: impl IntoIterator<Item = u32>) -> Option<u32> {
    weights.into_iter().try_fold(0, u32::checked_add)
}
