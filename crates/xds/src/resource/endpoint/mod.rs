//! ClusterLoadAssignment (EDS).

mod address_set;
mod host;
pub(super) mod in_place;
mod known;
mod metadata;
mod proxy;
mod validate;

use std::net::SocketAddr;
use std::sync::Arc;

pub use proxyless_sans_io::values::{EndpointExtras, EndpointHealth, Locality};

/// A validated ClusterLoadAssignment.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ClusterLoadAssignment {
    /// Localities by priority: index 0 is the highest. Priorities have no gaps; localities without weight are left out
    /// (A27-96), so a priority may be empty.
    pub priorities: Vec<Vec<LocalityEndpoints>>,
    /// The fraction of RPCs to drop, by category.
    pub drops: Vec<DropCategory>,
}

/// The endpoints of one locality in one priority.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalityEndpoints {
    /// The locality.
    pub locality: Arc<Locality>,
    /// The weight within the priority; never 0.
    pub weight: u32,
    /// The endpoints; may be empty.
    pub endpoints: Vec<LbEndpoint>,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct LbEndpoint {
    /// The primary address, followed by additional ones (gRFC A61).
    pub addresses: Arc<[SocketAddr]>,
    /// The weight; 1 if unset, never 0.
    pub weight: u32,
    /// The health. Endpoints with any other health are left out (A27-100).
    pub health: EndpointHealth,
    /// `endpoint.hostname` (gRFC A81), `metadata["envoy.lb"]["hash_key"]` (gRFC A76) and the proxy in its metadata, or
    /// else in that of its locality (gRFC A86), as far as they are set. The proxy is used if the Cluster enables
    /// [`http_connect`](super::Cluster::http_connect).
    pub extras: Option<Arc<EndpointExtras>>,
}

impl LbEndpoint {
    /// The host name, if it has one (gRFC A81).
    #[must_use]
    pub fn hostname(&self) -> Option<&Arc<str>> {
        self.extras.as_ref()?.hostname.as_ref()
    }

    /// The hash key, if it has one (gRFC A76).
    #[must_use]
    pub fn hash_key(&self) -> Option<&Arc<str>> {
        self.extras.as_ref()?.hash_key.as_ref()
    }

    /// The proxy, if it has one (gRFC A86).
    #[must_use]
    pub fn proxy(&self) -> Option<&Arc<SocketAddr>> {
        self.extras.as_ref()?.proxy.as_ref()
    }
}

/// A fraction of RPCs to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCategory {
    /// The name of the category.
    pub category: Arc<str>,
    /// The fraction in millionths; at most one million.
    pub per_million: u32,
}
