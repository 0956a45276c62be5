//! The endpoints that an update hands down the tree.
//!
//! They travel as shared slices, grouped by the child they are for (priority, then locality), so that a level hands
//! its children a pointer, and an unchanged group is recognised by pointer; and so is an unchanged endpoint of a group
//! that changed.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

/// Region, zone and sub-zone of a group of endpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The sub-zone.
    pub sub_zone: String,
}

impl std::fmt::Display for Locality {
    /// For people; not unique, since empty parts are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [&self.region, &self.zone, &self.sub_zone].map(String::as_str);
        let set: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if set.is_empty() { f.write_str("(no locality)") } else { f.write_str(&set.join(" / ")) }
    }
}

/// The health that the control plane gave an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)] // the names are xDS's own
pub enum HealthStatus {
    #[default]
    Unknown,
    Healthy,
    Draining,
}

/// One endpoint: one backend that may be reached by several addresses (gRFC A61).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its addresses, in the order of preference; at least one.
    pub addresses: Arc<[SocketAddr]>,
    /// Its weight inside its locality; 1 if the control plane gave none.
    pub weight: u32,
    /// Its health. What is neither healthy, unknown nor draining never gets this far.
    pub health: HealthStatus,
    /// Its host name, for gRFC A81.
    pub hostname: Option<Arc<str>>,
    /// Its hash key, for gRFC A76; ring_hash uses the first address if there is none.
    pub hash_key: Option<Arc<str>>,
    /// Where it is, for load reports; `None` if nobody said so.
    pub locality: Option<Arc<Locality>>,
}

impl Endpoint {
    /// An endpoint with one address, weight 1 and nothing else.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            addresses: Arc::new([address]),
            weight: 1,
            health: HealthStatus::Unknown,
            hostname: None,
            hash_key: None,
            locality: None,
        }
    }
}

/// A named part of the endpoints: what one child gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The child that it is for.
    pub name: Arc<str>,
    /// The weight of the group among its siblings (the locality's weight; 1 where weights mean nothing).
    pub weight: u32,
    /// The locality, on the level where groups are localities.
    pub locality: Option<Arc<Locality>>,
    /// What is in it.
    pub endpoints: Endpoints,
}

/// Endpoints as one level of the tree sees them.
#[derive(Clone, Debug)]
pub enum Endpoints {
    /// What a leaf or petiole policy gets.
    List(Arc<[Arc<Endpoint>]>),
    /// What a policy with named children gets, in the order of the configuration.
    Groups(Arc<[Group]>),
}

impl Endpoints {
    /// No endpoints at all.
    #[must_use]
    pub fn none() -> Self {
        static NONE: LazyLock<Arc<[Arc<Endpoint>]>> = LazyLock::new(|| Arc::new([]));
        Self::List(Arc::clone(&NONE))
    }

    /// What a leaf or petiole policy gets, from endpoints that nobody shares yet.
    pub fn of(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self::List(endpoints.into_iter().map(Arc::new).collect())
    }

    /// Whether both are the same slice in memory: a cheap sign that nothing changed.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) => Arc::ptr_eq(a, b),
            (Self::Groups(a), Self::Groups(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The endpoints of a leaf; empty if these are groups.
    #[must_use]
    pub fn list(&self) -> &[Arc<Endpoint>] {
        match self {
            Self::List(list) => list,
            Self::Groups(_) => &[],
        }
    }

    /// The groups; empty if these are the endpoints of a leaf.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        match self {
            Self::Groups(groups) => groups,
            Self::List(_) => &[],
        }
    }

    /// The endpoints for the child of this name; none if no group has it.
    #[must_use]
    pub fn group(&self, name: &str) -> Self {
        self.groups()
            .iter()
            .find(|group| &*group.name == name)
            .map_or_else(Self::none, |group| group.endpoints.clone())
    }

    /// How many endpoints there are below here.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Groups(groups) => groups.iter().map(|group| group.endpoints.count()).sum(),
        }
    }

    /// Every endpoint below here, whatever its group.
    pub fn flatten<'a>(&'a self, visit: &mut dyn FnMut(&'a Arc<Endpoint>)) {
        match self {
            Self::List(list) => list.iter().for_each(visit),
            Self::Groups(groups) => groups.iter().for_each(|group| group.endpoints.flatten(visit)),
        }
    }
}

impl PartialEq for Endpoints {
    /// By value, with pointers compared first.
    fn eq(&self, other: &Self) -> bool {
        self.same(other)
            || match (self, other) {
                (Self::List(a), Self::List(b)) => a == b,
                (Self::Groups(a), Self::Groups(b)) => a == b,
                _ => false,
            }
    }
}

impl Eq for Endpoints {}
