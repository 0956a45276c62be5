//! ClusterLoadAssignment (EDS).

mod address_set;
mod host;
mod known;
mod metadata;
mod validate;
pub(super) mod wire;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// A validated ClusterLoadAssignment.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ClusterLoadAssignment {
    /// Localities by priority: index 0 is the highest. Priorities have no gaps; localities without weight are left out
    /// (A27-96), so a priority may be empty.
    pub priorities: Vec<Vec<LocalityEndpoints>>,
    /// The fraction of RPCs to drop, by category.
    pub drops: Vec<DropCategory>,
}

/// Region, zone and sub-zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The sub-zone.
    pub sub_zone: String,
}

impl fmt::Display for Locality {
    /// Human-readable; not unique, since empty parts are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.region, &self.zone, &self.sub_zone].map(String::as_str);
        let set: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if set.is_empty() { f.write_str("(no locality)") } else { f.write_str(&set.join(" / ")) }
    }
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
}

/// The health of a usable endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are xDS's own
pub enum EndpointHealth {
    Unknown,
    Healthy,
    /// Used for sessions only (gRFC A55, A75); never passed to the child policy.
    Draining,
}

/// A fraction of RPCs to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCategory {
    /// The name of the category.
    pub category: Arc<str>,
    /// The fraction in millionths; at most one million.
    pub per_million: u32,
}
