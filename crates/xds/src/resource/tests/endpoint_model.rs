//! The former decoder of [`ClusterLoadAssignment`], to compare with: slower, by Envoy's own messages, with ordered
//! sets. It shares `Field`, `decode_named` and the validators of ports and fractions with the one in use, and nothing
//! else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::{Address, HealthStatus, Metadata};
use envoy_types::pb::envoy::config::endpoint::v3 as wire;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::protobuf::value::Kind;
use wire::cluster_load_assignment::policy::DropOverload;
use wire::lb_endpoint::HostIdentifier;

use crate::resource::any::Decoded;
use crate::resource::common::{per_million, port, socket_address};
use crate::resource::field::Field;
use crate::resource::named::{NamedResource, decode_named};
use crate::resource::{
    ClusterLoadAssignment, DecodeContext, DropCategory, EndpointExtras, EndpointHealth, LbEndpoint, Locality,
    LocalityEndpoints, Resource,
};

/// Decodes and validates an assignment.
pub(super) fn decode(value: &[u8], cx: &DecodeContext) -> Decoded {
    decode_named(<wire::ClusterLoadAssignment as prost::Message>::decode(value), None, cx, &|_| None)
}

impl NamedResource for wire::ClusterLoadAssignment {
    const NAME_FIELD: &'static str = "cluster_name";

    fn name(&self) -> &str {
        &self.cluster_name
    }

    fn validate(&self, at: &Field<'_>, _: Option<&Resource>) -> Option<Resource> {
        let priorities = priorities(&at.field("endpoints"), &self.endpoints);
        // of the policy only the drops count.
        let overloads = self.policy.as_ref().map_or(&[][..], |policy| &policy.drop_overloads);
        let at = at.field("policy");
        let at = at.field("drop_overloads");
        let drops = overloads.iter().enumerate().filter_map(|(i, proto)| drop_category(&at.index(i), proto));
        let drops = drops.collect();
        Some(Resource::ClusterLoadAssignment(Arc::new(ClusterLoadAssignment { priorities, drops })))
    }
}

/// The localities by priority. A27-95: an empty list is valid.
fn priorities(at: &Field<'_>, protos: &[wire::LocalityLbEndpoints]) -> Vec<Vec<LocalityEndpoints>> {
    let mut localities = Localities::default();
    // A map, not a list: a priority may be any number up to four billion.
    let mut priorities = BTreeMap::<u32, Vec<LocalityEndpoints>>::new();
    for (i, proto) in protos.iter().enumerate() {
        let priority = priorities.entry(proto.priority).or_default();
        priority.extend(localities.locality(&at.index(i), proto));
    }
    // Priorities below all weighted localities carry nothing.
    let last = priorities.iter().rev().find(|(_, localities)| !localities.is_empty());
    let count = last.map_or(0, |(priority, _)| u64::from(*priority) + 1);
    priorities.retain(|priority, _| u64::from(*priority) < count);
    check_gaps(at, priorities.keys().copied());
    for (priority, localities) in &priorities {
        // the weights of a priority.
        if sum_exceeds_u32(localities.iter().map(|locality| locality.weight)) {
            at.reject(format!("the weights of the localities of priority {priority} add up beyond uint32"));
        }
    }
    priorities.into_values().collect()
}

/// every priority above one that is used must be there.
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
#[derive(Default)]
struct Localities {
    /// Every locality once, to be shared by its priorities.
    shared: BTreeSet<Arc<Locality>>,
    seen: BTreeSet<(u32, Arc<Locality>)>,
    addresses: BTreeSet<SocketAddr>,
}

impl Localities {
    /// A locality; `None` if it carries no load, or after a violation.
    fn locality(&mut self, at: &Field<'_>, proto: &wire::LocalityLbEndpoints) -> Option<LocalityEndpoints> {
        // without weight there is nothing to do for it.
        let weight = proto.load_balancing_weight.map(|weight| weight.value).filter(|&weight| weight != 0)?;
        let at_locality = at.field("locality");
        let locality = at_locality.require(proto.locality.as_ref()).map(|locality| self.share(locality));
        if let Some(locality) = &locality
            && !self.seen.insert((proto.priority, Arc::clone(locality)))
        {
            // duplicate localities are ambiguous.
            at_locality.reject(format!("is listed twice in priority {}", proto.priority));
        }
        let proxy = proto.metadata.as_ref().and_then(|metadata| proxy(at, metadata));
        let at_endpoints = at.field("lb_endpoints");
        let endpoints = proto.lb_endpoints.iter().enumerate();
        let endpoints =
            endpoints.filter_map(|(i, proto)| self.endpoint(&at_endpoints.index(i), proto, proxy));
        let endpoints = endpoints.collect::<Vec<_>>();
        // the weights of a locality.
        if sum_exceeds_u32(endpoints.iter().map(|endpoint| endpoint.weight)) {
            at_endpoints.reject("the weights of the endpoints add up beyond uint32");
        }
        Some(LocalityEndpoints { locality: locality?, weight, endpoints })
    }

    fn share(&mut self, proto: &envoy_types::pb::envoy::config::core::v3::Locality) -> Arc<Locality> {
        let locality = Locality {
            region: proto.region.clone(),
            zone: proto.zone.clone(),
            sub_zone: proto.sub_zone.clone(),
        };
        if let Some(shared) = self.shared.get(&locality) {
            return Arc::clone(shared);
        }
        let locality = Arc::new(locality);
        self.shared.insert(Arc::clone(&locality));
        locality
    }

    /// An endpoint; `None` if its health says not to use it, or after a violation.
    fn endpoint(
        &mut self,
        at: &Field<'_>,
        proto: &wire::LbEndpoint,
        of_locality: Option<SocketAddr>,
    ) -> Option<LbEndpoint> {
        // other endpoints are ignored, whatever is in them.
        let health = match HealthStatus::try_from(proto.health_status) {
            Ok(HealthStatus::Unknown) => EndpointHealth::Unknown,
            Ok(HealthStatus::Healthy) => EndpointHealth::Healthy,
            Ok(HealthStatus::Draining) => EndpointHealth::Draining,
            _ => return None,
        };
        let weight = proto.load_balancing_weight.map_or(1, |weight| weight.value);
        // an endpoint that is there takes part.
        if weight == 0 {
            at.field("load_balancing_weight").reject("must not be zero");
        }
        let hash_key = proto.metadata.as_ref().and_then(|metadata| hash_key(at, metadata));
        let own = proto.metadata.as_ref().and_then(|metadata| proxy(at, metadata));
        let proxy = own.or(of_locality).map(Arc::new);
        // an endpoint by name is none.
        let at = at.field("endpoint");
        let Some(HostIdentifier::Endpoint(proto)) = &proto.host_identifier else {
            return at.require(None);
        };
        let addresses = self.addresses(&at, proto)?;
        let hostname = Some(proto.hostname.as_str()).filter(|hostname| !hostname.is_empty()).map(Arc::from);
        let extras = EndpointExtras { hostname, hash_key, proxy }.shared();
        Some(LbEndpoint { addresses, weight, health, extras })
    }

    fn addresses(&mut self, at: &Field<'_>, proto: &wire::Endpoint) -> Option<Arc<[SocketAddr]>> {
        let first = self.address(&at.field("address"), proto.address.as_ref());
        if proto.additional_addresses.is_empty() {
            return first.map(|address| Arc::from([address]));
        }
        // the others are held to the same rules.
        let at_others = at.field("additional_addresses");
        let others = proto.additional_addresses.iter().enumerate();
        let others = others.filter_map(|(i, proto)| {
            self.address(&at_others.index(i).field("address"), proto.address.as_ref())
        });
        let addresses = first.into_iter().chain(others).collect();
        Some(addresses)
    }

    fn address(&mut self, at: &Field<'_>, proto: Option<&Address>) -> Option<SocketAddr> {
        let address = ip_address(at, proto)?;
        // once in the whole assignment.
        if !self.addresses.insert(address) {
            at.reject(format!("{address} is listed twice"));
        }
        Some(address)
    }
}

fn ip_address(at: &Field<'_>, address: Option<&Address>) -> Option<SocketAddr> {
    let at_address = at.field("socket_address");
    let address = socket_address(at, address)?;
    let ip = address.address.parse::<IpAddr>();
    if ip.is_err() {
        at_address.field("address").reject(format!("{:?} is not an IP address", address.address));
    }
    let port = port(&at_address, address);
    Some(SocketAddr::new(ip.ok()?, port?))
}

/// the endpoint's place on the ring, if the server chose one.
fn hash_key(at: &Field<'_>, metadata: &Metadata) -> Option<Arc<str>> {
    if at.context().gates.endpoint_hash_key_backward_compat {
        return None;
    }
    // a typed value hides the other.
    let hidden = metadata.typed_filter_metadata.get("envoy.lb").is_some_and(is_address);
    if hidden && at.context().gates.http_connect {
        return None;
    }
    match &metadata.filter_metadata.get("envoy.lb")?.fields.get("hash_key")?.kind {
        Some(Kind::StringValue(key)) if !key.is_empty() => Some(key.as_str().into()),
        _ => None,
    }
}

/// the proxy, and all other values of its type.
fn proxy(at: &Field<'_>, metadata: &Metadata) -> Option<SocketAddr> {
    if !at.context().gates.http_connect {
        return None;
    }
    let at = at.field("metadata");
    let at = at.field("typed_filter_metadata");
    let sorted: BTreeMap<_, _> = metadata.typed_filter_metadata.iter().collect();
    let mut proxy = None;
    for (key, any) in sorted.into_iter().filter(|(_, any)| is_address(any)) {
        let at = at.key(key);
        let address = match <Address as prost::Message>::decode(&*any.value) {
            Ok(address) => ip_address(&at, Some(&address)),
            Err(error) => at.fail(format!("does not decode: {error}")),
        };
        if key == "envoy.http11_proxy_transport_socket.proxy_address" {
            proxy = address;
        }
    }
    proxy
}

fn is_address(any: &Any) -> bool {
    any.type_url.rsplit('/').next() == Some("envoy.config.core.v3.Address")
}

/// a share of RPCs to drop.
fn drop_category(at: &Field<'_>, proto: &DropOverload) -> Option<DropCategory> {
    let category = at.field("category").require_text(&proto.category);
    let at = at.field("drop_percentage");
    let share = at.require(proto.drop_percentage.as_ref()).and_then(|share| per_million(&at, share));
    Some(DropCategory { category: category?.into(), per_million: share? })
}

fn sum_exceeds_u32(weights: impl Iterator<Item = u32>) -> bool {
    weights.map(u64::from).sum::<u64>() > u64::from(u32::MAX)
}
