//! Endpoint assignments, localities and endpoints.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, HealthStatus, Locality, SocketAddress};
use envoy_types::pb::envoy::config::endpoint::v3::cluster_load_assignment::policy::DropOverload;
use envoy_types::pb::envoy::config::endpoint::v3::endpoint::AdditionalAddress;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::google::protobuf::UInt32Value;

use super::per_million;
use super::proxy::set_proxy;
use crate::{Backend, BlackHole, DeadAddress};

/// The endpoints of a cluster.
pub fn assignment(
    name: &str,
    localities: impl IntoIterator<Item = LocalityLbEndpoints>,
) -> ClusterLoadAssignment {
    ClusterLoadAssignment {
        cluster_name: name.into(),
        endpoints: localities.into_iter().collect(),
        ..Default::default()
    }
}

/// An assignment with one locality per priority, in descending order.
pub fn priorities<G>(name: &str, groups: impl IntoIterator<Item = G>) -> ClusterLoadAssignment
where
    G: IntoIterator,
    G::Item: IntoEndpoint,
{
    let localities = (0..).zip(groups).map(|(priority, group): (u32, G)| {
        locality(&format!("priority-{priority}"), group).priority(priority)
    });
    assignment(name, localities)
}

/// Further settings of an assignment.
pub trait AssignmentExt {
    /// Drops this fraction of the requests, under this category.
    #[must_use]
    fn drops(self, category: &str, per_million: u32) -> Self;
}

impl AssignmentExt for ClusterLoadAssignment {
    fn drops(mut self, category: &str, share: u32) -> Self {
        self.policy
            .get_or_insert_default()
            .drop_overloads
            .push(DropOverload { category: category.into(), drop_percentage: Some(per_million(share)) });
        self
    }
}

/// A locality with this zone and these endpoints, with weight 1 and priority 0.
pub fn locality<E: IntoEndpoint>(zone: &str, endpoints: impl IntoIterator<Item = E>) -> LocalityLbEndpoints {
    LocalityLbEndpoints {
        locality: Some(Locality { region: "region".into(), zone: zone.into(), sub_zone: String::new() }),
        lb_endpoints: endpoints.into_iter().map(IntoEndpoint::into_endpoint).collect(),
        ..Default::default()
    }
    .weight(1)
}

/// Further settings of a locality.
pub trait LocalityExt {
    /// Sets the weight among the localities of its priority.
    #[must_use]
    fn weight(self, weight: u32) -> Self;
    /// Removes the weight, which disables the locality.
    #[must_use]
    fn without_weight(self) -> Self;
    /// Sets the priority; 0 is the highest.
    #[must_use]
    fn priority(self, priority: u32) -> Self;
    /// Sets the region.
    #[must_use]
    fn region(self, region: &str) -> Self;
    /// Sets the proxy of endpoints without their own; see [`ClusterExt::http_connect`](super::ClusterExt::http_connect).
    #[must_use]
    fn proxy(self, proxy: SocketAddr) -> Self;
}

impl LocalityExt for LocalityLbEndpoints {
    fn weight(mut self, weight: u32) -> Self {
        self.load_balancing_weight = Some(UInt32Value { value: weight });
        self
    }

    fn without_weight(mut self) -> Self {
        self.load_balancing_weight = None;
        self
    }

    fn priority(mut self, priority: u32) -> Self {
        self.priority = priority;
        self
    }

    fn region(mut self, region: &str) -> Self {
        self.locality.get_or_insert_default().region = region.into();
        self
    }

    fn proxy(mut self, proxy: SocketAddr) -> Self {
        set_proxy(&mut self.metadata, proxy);
        self
    }
}

/// An endpoint; [`EndpointExt`] has further settings.
pub fn endpoint(address: impl IntoEndpoint) -> LbEndpoint {
    address.into_endpoint()
}

/// Further settings of an endpoint.
pub trait EndpointExt {
    /// Sets the weight within the locality.
    #[must_use]
    fn weight(self, weight: u32) -> Self;
    /// Sets the health.
    #[must_use]
    fn health(self, health: HealthStatus) -> Self;
    /// Adds an address.
    #[must_use]
    fn additional_address(self, address: SocketAddr) -> Self;
    /// Sets the proxy to connect through; see [`ClusterExt::http_connect`](super::ClusterExt::http_connect).
    #[must_use]
    fn proxy(self, proxy: SocketAddr) -> Self;
}

impl EndpointExt for LbEndpoint {
    fn weight(mut self, weight: u32) -> Self {
        self.load_balancing_weight = Some(UInt32Value { value: weight });
        self
    }

    fn health(mut self, health: HealthStatus) -> Self {
        self.health_status = health.into();
        self
    }

    fn additional_address(mut self, address: SocketAddr) -> Self {
        if let Some(HostIdentifier::Endpoint(endpoint)) = &mut self.host_identifier {
            let address = socket_address(&address.ip().to_string(), address.port());
            endpoint.additional_addresses.push(AdditionalAddress { address: Some(address) });
        }
        self
    }

    fn proxy(mut self, proxy: SocketAddr) -> Self {
        set_proxy(&mut self.metadata, proxy);
        self
    }
}

/// A value that converts to an endpoint.
pub trait IntoEndpoint {
    /// Converts it to an endpoint.
    fn into_endpoint(self) -> LbEndpoint;
}

impl IntoEndpoint for LbEndpoint {
    fn into_endpoint(self) -> LbEndpoint {
        self
    }
}

impl IntoEndpoint for SocketAddr {
    fn into_endpoint(self) -> LbEndpoint {
        named_endpoint(&self.ip().to_string(), self.port())
    }
}

impl IntoEndpoint for &Backend {
    fn into_endpoint(self) -> LbEndpoint {
        self.address().into_endpoint()
    }
}

impl IntoEndpoint for &BlackHole {
    fn into_endpoint(self) -> LbEndpoint {
        self.address().into_endpoint()
    }
}

impl IntoEndpoint for &DeadAddress {
    fn into_endpoint(self) -> LbEndpoint {
        self.address().into_endpoint()
    }
}

pub(super) fn named_endpoint(host: &str, port: u16) -> LbEndpoint {
    let endpoint = Endpoint { address: Some(socket_address(host, port)), ..Default::default() };
    LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() }
}

pub(super) fn socket_address(host: &str, port: u16) -> Address {
    let address = SocketAddress {
        address: host.into(),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..Default::default()
    };
    Address { address: Some(AddressKind::SocketAddress(address)) }
}
