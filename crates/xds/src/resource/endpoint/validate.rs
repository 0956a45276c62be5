//! Validation of a [`ClusterLoadAssignment`] (A27-95 to A27-107, X-01 to X-05, gRFC A61, A76, A81,
//! A86).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::{self as core, HealthStatus};
use envoy_types::pb::envoy::config::endpoint::v3::cluster_load_assignment::policy::DropOverload;

use super::address_set::AddressSet;
use super::host::Host;
use super::known::Known;
use super::metadata::{LB_KEY, Metadata};
use super::proxy::proxy_address;
use super::{
    ClusterLoadAssignment, DropCategory, EndpointExtras, EndpointHealth, LbEndpoint, Locality,
    LocalityEndpoints, in_place,
};
use crate::resource::Resource;
use crate::resource::common::{per_million, port_value};
use crate::resource::field::Field;
use crate::resource::named::NamedResource;

impl NamedResource for in_place::ClusterLoadAssignment<'_> {
    const NAME_FIELD: &'static str = "cluster_name";

    fn name(&self) -> &str {
        self.cluster_name
    }

    fn validate(&self, at: &Field<'_>, known: Option<&Resource>) -> Option<Resource> {
        let known = match known {
            Some(Resource::ClusterLoadAssignment(known)) => Known::new(known),
            _ => Known::default(),
        };
        let priorities = priorities(&at.field("endpoints"), &self.endpoints, known);
        // A27-107: only the drops of the policy are used.
        let at = at.field("policy");
        let at = at.field("drop_overloads");
        let drops = self
            .policy
            .drop_overloads
            .iter()
            .enumerate()
            .filter_map(|(i, proto)| drop_category(&at.index(i), proto));
        let drops = drops.collect();
        Some(Resource::ClusterLoadAssignment(Arc::new(ClusterLoadAssignment { priorities, drops })))
    }
}

/// The localities by priority. A27-95: an empty list is valid.
fn priorities(
    at: &Field<'_>,
    protos: &[in_place::LocalityLbEndpoints<'_>],
    known: Known<'_>,
) -> Vec<Vec<LocalityEndpoints>> {
    let count = protos.iter().map(|proto| proto.lb_endpoints.len()).sum();
    let addresses = AddressSet::with_capacity(count);
    let mut localities = Localities { seen: BTreeSet::new(), addresses, known, proxy: None };
    // A map, not a list: a priority may be any number up to four billion.
    let mut priorities = BTreeMap::<u32, Vec<LocalityEndpoints>>::new();
    for (i, proto) in protos.iter().enumerate() {
        let priority = priorities.entry(proto.priority).or_default();
        priority.extend(localities.locality(&at.index(i), proto));
    }
    // Priorities below all weighted localities are unused.
    let last = priorities.iter().rev().find(|(_, localities)| !localities.is_empty());
    let count = last.map_or(0, |(priority, _)| u64::from(*priority) + 1);
    priorities.retain(|priority, _| u64::from(*priority) < count);
    check_gaps(at, priorities.keys().copied());
    for (priority, localities) in &priorities {
        // the sum of the weights in a priority.
        if sum_exceeds_u32(localities.iter().map(|locality| locality.weight)) {
            at.reject(format!("the weights of the localities of priority {priority} add up beyond uint32"));
        }
    }
    // Most priorities have fewer localities than a list has room for after its first entry.
    let exact = priorities.into_values().map(|mut localities| {
        localities.shrink_to_fit();
        localities
    });
    exact.collect()
}

/// priorities must not have gaps.
fn check_gaps(at: &Field<'_>, priorities: impl Iterator<Item = u32>) {
    let mut expected = 0;
    for priority in priorities {
        if u64::from(priority) != expected {
            at.reject(format!("there is a priority {priority}, but no priority {expected}"));
        }
        expected = u64::from(priority) + 1;
    }
}

/// Uniqueness checks across the localities of an assignment.
struct Localities<'a> {
    seen: BTreeSet<(u32, Arc<Locality>)>,
    addresses: AddressSet,
    known: Known<'a>,
    /// The latest proxy: neighbours usually have the same.
    proxy: Option<Arc<SocketAddr>>,
}

impl Localities<'_> {
    /// A locality; `None` if it has no weight, or after a violation.
    fn locality(
        &mut self,
        at: &Field<'_>,
        proto: &in_place::LocalityLbEndpoints<'_>,
    ) -> Option<LocalityEndpoints> {
        // A27-96: localities without weight are ignored.
        let weight = proto.load_balancing_weight.map(|weight| weight.value).filter(|&weight| weight != 0)?;
        let at_locality = at.field("locality");
        let locality = at_locality.require(proto.locality.as_ref()).map(|locality| share(at, locality));
        if let Some(locality) = &locality
            && !self.seen.insert((proto.priority, Arc::clone(locality)))
        {
            // duplicate localities are ambiguous.
            at_locality.reject(format!("is listed twice in priority {}", proto.priority));
        }
        self.known.enter(locality.as_deref());
        let proxy = self.proxy(at, &proto.metadata);
        let at_endpoints = at.field("lb_endpoints");
        let mut endpoints = Vec::with_capacity(proto.lb_endpoints.len());
        for (i, proto) in proto.lb_endpoints.iter().enumerate() {
            if let Some(endpoint) = self.endpoint(&at_endpoints.index(i), proto, proxy.as_ref()) {
                endpoints.push(endpoint);
            }
        }
        // the sum of the weights in a locality.
        if sum_exceeds_u32(endpoints.iter().map(|endpoint| endpoint.weight)) {
            at_endpoints.reject("the weights of the endpoints add up beyond uint32");
        }
        Some(LocalityEndpoints { locality: locality?, weight, endpoints })
    }

    /// The proxy that metadata names.
    fn proxy(&mut self, at: &Field<'_>, metadata: &Metadata<'_>) -> Option<Arc<SocketAddr>> {
        // Hardly any metadata has one.
        if metadata.is_without_addresses() {
            return None;
        }
        let proxy = proxy_address(at, metadata)?;
        if self.proxy.as_deref() != Some(&proxy) {
            self.proxy = Some(Arc::new(proxy));
        }
        self.proxy.clone()
    }

    /// An endpoint; `None` if its health excludes it, or after a violation. `proxy` is that of the locality.
    fn endpoint(
        &mut self,
        at: &Field<'_>,
        proto: &in_place::LbEndpoint<'_>,
        proxy: Option<&Arc<SocketAddr>>,
    ) -> Option<LbEndpoint> {
        // A27-100: other endpoints are ignored without being validated.
        let health = match HealthStatus::try_from(proto.health_status) {
            Ok(HealthStatus::Unknown) => EndpointHealth::Unknown,
            Ok(HealthStatus::Healthy) => EndpointHealth::Healthy,
            Ok(HealthStatus::Draining) => EndpointHealth::Draining,
            _ => return None,
        };
        let weight = proto.load_balancing_weight.map_or(1, |weight| weight.value);
        // an explicit weight must not be zero.
        if weight == 0 {
            at.field("load_balancing_weight").reject("must not be zero");
        }
        let hash_key = hash_key(at, &proto.metadata);
        // A86-11: the metadata of the endpoint first, then that of its locality.
        let proxy = self.proxy(at, &proto.metadata).or_else(|| proxy.cloned());
        // A27-101: named endpoints are not supported.
        let at = at.field("endpoint");
        let proto = at.require(proto.endpoint.as_ref())?;
        let addresses = self.addresses(&at, proto)?;
        let hostname = Some(proto.hostname).filter(|hostname| !hostname.is_empty()).map(Arc::from);
        let extras = EndpointExtras { hostname, hash_key, proxy }.shared();
        Some(LbEndpoint { addresses, weight, health, extras })
    }

    fn addresses(&mut self, at: &Field<'_>, proto: &in_place::Endpoint<'_>) -> Option<Arc<[SocketAddr]>> {
        let first = self.address(&at.field("address"), proto.address.as_ref());
        if proto.additional_addresses.is_empty() {
            return first
                .map(|address| self.known.addresses(address).unwrap_or_else(|| Arc::from([address])));
        }
        // A61: additional addresses follow the same rules.
        let at_others = at.field("additional_addresses");
        let others = proto.additional_addresses.iter().enumerate();
        let others = others.filter_map(|(i, proto)| {
            self.address(&at_others.index(i).field("address"), proto.address.as_ref())
        });
        let addresses = first.into_iter().chain(others).collect();
        Some(addresses)
    }

    fn address(&mut self, at: &Field<'_>, proto: Option<&in_place::Address<'_>>) -> Option<SocketAddr> {
        let address = ip_address(at, proto)?;
        // addresses must be unique within the assignment.
        if !self.addresses.insert(address) {
            at.reject(format!("{address} is listed twice"));
        }
        Some(address)
    }
}

/// The locality, shared by all resources that have it.
fn share(at: &Field<'_>, proto: &core::Locality) -> Arc<Locality> {
    at.context().localities.share(Locality {
        region: proto.region.clone(),
        zone: proto.zone.clone(),
        sub_zone: proto.sub_zone.clone(),
    })
}

/// An address that must be an IP literal and a port (A27-102 to A27-105).
#[inline]
pub(super) fn ip_address(at: &Field<'_>, proto: Option<&in_place::Address<'_>>) -> Option<SocketAddr> {
    if let Some(in_place::Address { socket_address: Some(proto) }) = proto
        && let (Host::Ip(ip), Some(port)) = (proto.address, proto.port_value)
        && let Ok(port) = port.try_into()
    {
        return Some(SocketAddr::new(ip, port));
    }
    explain_ip_address(at, proto)
}

/// Like [`ip_address`], with an explanation of the violation.
#[cold]
fn explain_ip_address(at: &Field<'_>, proto: Option<&in_place::Address<'_>>) -> Option<SocketAddr> {
    let proto = at.require(proto)?;
    let at = at.field("socket_address");
    let proto = at.require(proto.socket_address.as_ref())?;
    let ip = match proto.address {
        Host::Ip(ip) => Some(ip),
        Host::Other(text) => at.field("address").fail(format!("{text:?} is not an IP address")),
    };
    let port = port_value(&at, proto.port_value);
    Some(SocketAddr::new(ip?, port?))
}

/// A76: the endpoint's key on the ring, if the server chose one.
fn hash_key(at: &Field<'_>, metadata: &Metadata<'_>) -> Option<Arc<str>> {
    let key = metadata.hash_key().filter(|key| !key.is_empty())?;
    let gates = &at.context().gates;
    // A86-09: a registered value hides the untyped one with the same key.
    let hidden = gates.http_connect && metadata.is_registered(LB_KEY);
    (!gates.endpoint_hash_key_backward_compat && !hidden).then(|| key.into())
}

/// A27-106: a fraction of RPCs to drop.
fn drop_category(at: &Field<'_>, proto: &DropOverload) -> Option<DropCategory> {
    let category = at.field("category").require_text(&proto.category);
    let at = at.field("drop_percentage");
    let share = at.require(proto.drop_percentage.as_ref()).and_then(|share| per_million(&at, share));
    Some(DropCategory { category: category?.into(), per_million: share? })
}

fn sum_exceeds_u32(weights: impl Iterator<Item = u32>) -> bool {
    weights.map(u64::from).sum::<u64>() > u64::from(u32::MAX)
}
