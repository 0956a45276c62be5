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

pub use proxyless_sans_io::values::{EndpointHealth, Locality};

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
    /// `endpoint.hostname`, if set (gRFC A81).
    pub hostname: Option<Arc<str>>,
    /// `metadata["envoy.lb"]["hash_key"]`, if set (gRFC A76).
    pub hash_key: Option<Arc<str>>,
    /// The proxy in its metadata, or else in that of its locality (gRFC A86). It is used if the Cluster enables
    /// [`http_connect`](super::Cluster::http_connect).
    pub proxy: Option<Arc<SocketAddr>>,
}

/// A fraction of RPCs to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCategory {
    /// The name of the category.
    pub category: Arc<str>,
    /// The fraction in millionths; at most one million.
    pub per_million: u32,
}
