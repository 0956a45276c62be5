//! The contents of the control plane and DNS, as plain values that are easy to generate, edit and reason about.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use proxyless_xds::resource::{EjectionSettings, ResourceType};

/// The type and name of a resource.
pub(crate) type Key = (ResourceType, String);

/// The contents of the control plane and DNS.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// Listeners by name; each channel requests one.
    pub listeners: BTreeMap<String, Listener>,
    /// Route configurations by RDS name.
    pub routes: BTreeMap<String, Vec<Route>>,
    /// Clusters by name.
    pub clusters: BTreeMap<String, Cluster>,
    /// Endpoint assignments by EDS name.
    pub assignments: BTreeMap<String, Assignment>,
    /// Aggregate cluster resources (gRFC A99): lists of clusters by name.
    pub lists: BTreeMap<String, Vec<String>>,
    /// DNS records.
    pub hosts: BTreeMap<String, Vec<SocketAddr>>,
}

/// The kind of a listener.
#[derive(Clone, Debug, PartialEq)]
pub enum Listener {
    /// An API listener with its routes in RDS.
    Rds(String),
    /// An API listener with inline routes.
    Inline(Vec<Route>),
    /// A socket listener, which clients reject.
    Socket,
    /// The other kind without the session filter.
    WithoutSessions(Box<Listener>),
    /// The other kind with a fault filter.
    WithFaults(Faults, Box<Listener>),
}

/// A fault filter (gRFC A33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The delay of RPCs.
    pub delay: Duration,
    /// The percentage of RPCs that are delayed.
    pub delayed: u32,
    /// The percentage of RPCs that are aborted.
    pub aborted: u32,
    /// The maximum number of active faults.
    pub max_active: Option<u32>,
}

/// A route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The path prefix that it matches.
    pub prefix: String,
    /// Its clusters with their weights; the weight of a single cluster is ignored.
    pub clusters: Vec<(String, u32)>,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The source of its endpoints.
    pub kind: ClusterKind,
    /// Its load balancing policy.
    pub policy: Policy,
    /// The circuit breaker's limit of concurrent RPCs.
    pub max_requests: Option<u32>,
    /// Its limit of connections to each endpoint, unless 1 (gRFC A105).
    pub max_connections: Option<u32>,
    /// Whether it wants load reports.
    pub reports_load: bool,
    /// Its session settings.
    pub session: Session,
    /// Its outlier detection settings.
    pub outlier_detection: Option<EjectionSettings>,
}

/// The session settings of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// `override_host_status`, unless default.
    pub override_host_status: Option<Vec<Health>>,
    /// The idle timeout of subchannels held for sessions, unless default.
    pub idle_timeout: Option<Duration>,
}

/// The source of a cluster's endpoints.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterKind {
    /// EDS, with this name.
    Eds(String),
    /// DNS, with this host.
    Dns(String),
    /// An aggregate of these clusters.
    Aggregate(Vec<String>),
    /// An aggregate of the clusters in this resource (gRFC A99).
    List(String),
}

/// The load balancing policies that the simulator uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Weighted localities, round robin within each.
    RoundRobin,
    /// Ring hash; the simulator's RPCs have random hashes.
    RingHash,
    /// Weighted localities, ring hash within each.
    LocalRings,
    /// Weighted localities nested in weighted localities, round robin within each.
    Nested,
    /// Weighted localities, least request within each.
    LeastRequest,
    /// Weighted localities, weighted round robin with out-of-band reports within each.
    WeightedRoundRobin,
    /// Weighted localities, weighted round robin with the reports of calls within each.
    WeightedByCalls,
    /// Weighted localities for a random subset of the endpoints that contains all of them.
    Subset,
    /// Weighted localities for a random subset of `SMALL_SUBSET` endpoints.
    SmallSubset,
    /// Pick first.
    PickFirst,
}

/// The endpoints of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    /// Localities, by priority.
    pub priorities: Vec<Vec<Locality>>,
    /// Whether its drop overload policy drops every RPC.
    pub drop_all: bool,
}

/// A locality of an assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct Locality {
    /// Its zone.
    pub zone: String,
    /// Its weight; a locality of weight 0 is not used.
    pub weight: u32,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its addresses, at least one.
    pub addresses: Vec<SocketAddr>,
    /// Its health status in EDS.
    pub health: Health,
}

/// The health status of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// In use.
    Healthy,
    /// In use for sessions only.
    Draining,
    /// Not in use.
    Unhealthy,
}

impl Mesh {
    /// Whether this resource exists.
    pub(crate) fn has(&self, (resource_type, name): &Key) -> bool {
        match resource_type {
            ResourceType::Listener => self.listeners.contains_key(name),
            ResourceType::RouteConfiguration => self.routes.contains_key(name),
            ResourceType::Cluster => self.clusters.contains_key(name),
            ResourceType::ClusterLoadAssignment => self.assignments.contains_key(name),
            ResourceType::AggregateClusterConfig => self.lists.contains_key(name),
        }
    }

    /// Every address of a leaf.
    pub(crate) fn addresses(&self, leaf: &str) -> Vec<SocketAddr> {
        match self.clusters.get(leaf).map(|cluster| &cluster.kind) {
            Some(ClusterKind::Eds(eds)) => {
                self.assignments.get(eds).map(|found| found.addresses().collect()).unwrap_or_default()
            }
            Some(ClusterKind::Dns(host)) => self.hosts.get(host).cloned().unwrap_or_default(),
            Some(ClusterKind::Aggregate(_) | ClusterKind::List(_)) | None => Vec::new(),
        }
    }

    /// The other addresses that the same policy tries along with an address of a leaf.
    pub(crate) fn siblings(&self, leaf: &str, address: SocketAddr) -> Vec<SocketAddr> {
        let cluster = self.clusters.get(leaf);
        let mut siblings = match cluster.map(|cluster| (&cluster.kind, cluster.policy)) {
            Some((ClusterKind::Eds(eds), policy)) if policy != Policy::PickFirst => {
                let endpoints = self.assignments.get(eds).into_iter().flat_map(Assignment::endpoints);
                let mut own = endpoints.filter(|endpoint| endpoint.addresses.contains(&address));
                own.next().map(|endpoint| endpoint.addresses.clone()).unwrap_or_default()
            }
            _ => self.addresses(leaf),
        };
        siblings.retain(|sibling| *sibling != address);
        siblings
    }

    /// The names of all resources of a type.
    pub(crate) fn names(&self, resource_type: ResourceType) -> Vec<String> {
        match resource_type {
            ResourceType::Listener => self.listeners.keys().cloned().collect(),
            ResourceType::RouteConfiguration => self.routes.keys().cloned().collect(),
            ResourceType::Cluster => self.clusters.keys().cloned().collect(),
            ResourceType::ClusterLoadAssignment => self.assignments.keys().cloned().collect(),
            ResourceType::AggregateClusterConfig => self.lists.keys().cloned().collect(),
        }
    }
}

impl Listener {
    /// Its kind, ignoring the filters.
    pub(crate) fn kind(&self) -> &Self {
        match self {
            Self::WithoutSessions(listener) | Self::WithFaults(_, listener) => listener.kind(),
            kind => kind,
        }
    }

    /// Its fault filter.
    pub(crate) fn faults(&self) -> Option<&Faults> {
        match self {
            Self::WithFaults(faults, _) => Some(faults),
            Self::WithoutSessions(listener) => listener.faults(),
            _ => None,
        }
    }

    /// The same listener with the session filter added or removed.
    pub(crate) fn toggled(self) -> Self {
        match self {
            Self::WithoutSessions(listener) => *listener,
            with => Self::WithoutSessions(Box::new(with)),
        }
    }
}

impl Cluster {
    /// A cluster with round robin and no limits.
    #[must_use]
    pub fn new(kind: ClusterKind) -> Self {
        Self {
            kind,
            policy: Policy::RoundRobin,
            max_requests: None,
            max_connections: None,
            reports_load: false,
            session: Session::default(),
            outlier_detection: None,
        }
    }

    /// An EDS cluster.
    #[must_use]
    pub fn eds(name: &str) -> Self {
        Self::new(ClusterKind::Eds(name.into()))
    }

    /// A DNS cluster.
    #[must_use]
    pub fn dns(host: &str) -> Self {
        Self::new(ClusterKind::Dns(host.into()))
    }

    /// An aggregate cluster.
    #[must_use]
    pub fn aggregate(children: &[&str]) -> Self {
        Self::new(ClusterKind::Aggregate(children.iter().map(|&name| name.into()).collect()))
    }

    /// An aggregate cluster that refers to a resource (gRFC A99).
    #[must_use]
    pub fn list(name: &str) -> Self {
        Self::new(ClusterKind::List(name.into()))
    }
}

impl Assignment {
    /// One locality per priority, each with these backends.
    #[must_use]
    pub fn of(priorities: &[&[u8]]) -> Self {
        let locality = |(i, backends): (usize, &&[u8])| {
            let endpoints = backends.iter().map(|&n| Endpoint::new(n)).collect();
            vec![Locality { zone: format!("z{i}"), weight: 1, endpoints }]
        };
        Self { priorities: priorities.iter().enumerate().map(locality).collect(), drop_all: false }
    }

    /// Every endpoint.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.priorities.iter().flatten().flat_map(|locality| &locality.endpoints)
    }

    /// Every address.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.endpoints().flat_map(|endpoint| endpoint.addresses.iter().copied())
    }
}

impl Endpoint {
    /// A healthy endpoint with one address.
    #[must_use]
    pub fn new(n: u8) -> Self {
        Self { addresses: vec![backend(n)], health: Health::Healthy }
    }
}

/// A route of a path prefix to one cluster.
#[must_use]
pub fn route(prefix: &str, cluster: &str) -> Route {
    Route { prefix: prefix.into(), clusters: vec![(cluster.into(), 1)] }
}

/// The address of a backend.
#[must_use]
pub fn backend(n: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, n), PORT))
}

/// The size of a random subset that does not contain all endpoints of most clusters.
pub(crate) const SMALL_SUBSET: u32 = 2;

/// The port of every endpoint.
pub(crate) const PORT: u16 = 80;
