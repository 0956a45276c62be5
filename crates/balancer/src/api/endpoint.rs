//! The endpoints that an update passes down the tree.
//!
//! They are shared slices, grouped by the child that they are for (priority, then locality), so that a level passes a
//! pointer to each child, and unchanged groups and endpoints are recognised by pointer.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use proxyless_sans_io::values::{EndpointExtras, EndpointHealth, Locality};

use super::Security;

/// One endpoint: a backend that may have several addresses (gRFC A61).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The addresses, in order of preference; at least one.
    pub addresses: Arc<[SocketAddr]>,
    /// The weight within the locality; 1 by default. In one list for all localities it is the endpoint's share of the
    /// list, as a fixed-point number (gRFC A113).
    pub weight: u32,
    /// The health. Endpoints that are not healthy, unknown or draining are removed earlier.
    pub health: EndpointHealth,
    /// The locality, for load reports.
    pub locality: Option<Arc<Locality>>,
    /// How its connections are secured (gRFC A29), if the configuration says so.
    pub security: Option<Arc<Security>>,
    /// The host name, the hash key and the proxy, if it has any of them.
    pub extras: Option<Arc<EndpointExtras>>,
}

impl Endpoint {
    /// An endpoint with one address and weight 1.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            addresses: Arc::new([address]),
            weight: 1,
            health: EndpointHealth::Unknown,
            locality: None,
            security: None,
            extras: None,
        }
    }

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

    /// The proxy that its connections go through, if it has one (gRFC A86).
    #[must_use]
    pub fn proxy(&self) -> Option<&Arc<SocketAddr>> {
        self.extras.as_ref()?.proxy.as_ref()
    }
}

/// A named group of endpoints: those for one child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name of the child.
    pub name: Arc<str>,
    /// The weight among its siblings (the locality's weight; 1 where weights do not apply).
    pub weight: u32,
    /// The locality, on the level where groups are localities.
    pub locality: Option<Arc<Locality>>,
    /// The endpoints of the group.
    pub endpoints: Endpoints,
}

/// Endpoints as seen by one level of the tree.
#[derive(Clone, Debug)]
pub enum Endpoints {
    /// The list for a leaf or petiole policy.
    List(Arc<[Arc<Endpoint>]>),
    /// The groups for a policy with named children, in configuration order.
    Groups(Arc<[Group]>),
}

impl Endpoints {
    /// An empty list.
    #[must_use]
    pub fn none() -> Self {
        static NONE: LazyLock<Arc<[Arc<Endpoint>]>> = LazyLock::new(|| Arc::new([]));
        Self::List(Arc::clone(&NONE))
    }

    /// A list for a leaf or petiole policy from unshared endpoints.
    pub fn of(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self::List(endpoints.into_iter().map(Arc::new).collect())
    }

    /// Whether both are the same slice in memory, a cheap sign that nothing changed.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
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

    /// The endpoints for the child of this name; empty if there is no such group.
    #[must_use]
    pub fn group(&self, name: &str) -> Self {
        self.groups()
            .iter()
            .find(|group| &*group.name == name)
            .map_or_else(Self::none, |group| group.endpoints.clone())
    }

    /// The locality of the group of this name, if groups are localities.
    #[must_use]
    pub fn locality(&self, name: &str) -> Option<&Locality> {
        self.groups().iter().find(|group| &*group.name == name)?.locality.as_deref()
    }

    /// The total number of endpoints.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Groups(groups) => groups.iter().map(|group| group.endpoints.count()).sum(),
        }
    }

    /// Visits every endpoint in all groups.
    pub fn flatten<'a>(&'a self, visit: &mut dyn FnMut(&'a Arc<Endpoint>)) {
        match self {
            Self::List(list) => list.iter().for_each(visit),
            Self::Groups(groups) => groups.iter().for_each(|group| group.endpoints.flatten(visit)),
        }
    }
}

impl PartialEq for Endpoints {
    /// By value, comparing pointers first.
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other)
            || match (self, other) {
                (Self::List(a), Self::List(b)) => a == b,
                (Self::Groups(a), Self::Groups(b)) => a == b,
                _ => false,
            }
    }
}

impl Eq for Endpoints {}
