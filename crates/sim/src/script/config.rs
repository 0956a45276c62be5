//! What the control plane serves, as plain values: easy to make at random, to edit, and to reason about.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use proxyless_xds::resource::{EjectionSettings, ResourceType};

/// Names a resource.
pub(crate) type Key = (ResourceType, String);

/// Everything that the control plane and DNS know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// By name; a channel asks for one of them.
    pub listeners: BTreeMap<String, Listener>,
    /// Route configurations for RDS.
    pub routes: BTreeMap<String, Vec<Route>>,
    /// Clusters.
    pub clusters: BTreeMap<String, Cluster>,
    /// Endpoint assignments.
    pub assignments: BTreeMap<String, Assignment>,
    /// Lists of clusters that are resources (gRFC A99).
    pub lists: BTreeMap<String, Vec<String>>,
    /// What host names resolve to.
    pub hosts: BTreeMap<String, Vec<SocketAddr>>,
}

/// Where a listener has its routes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Listener {
    /// By RDS.
    Rds(String),
    /// In itself.
    Inline(Vec<Route>),
    /// It is a socket listener, of no use to clients.
    Socket,
    /// As the other, but without a filter for sessions.
    WithoutSessions(Box<Listener>),
}

/// A route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The beginning of the paths that it takes.
    pub prefix: String,
    /// Its clusters with their weights; one alone counts whatever its weight.
    pub clusters: Vec<(String, u32)>,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// How its endpoints are found.
    pub kind: ClusterKind,
    /// Its load balancing policy.
    pub policy: Policy,
    /// The most RPCs at once, if limited.
    pub max_requests: Option<u32>,
    /// Whether its load is reported.
    pub reports_load: bool,
    /// What it says of sessions.
    pub session: Session,
    /// When its endpoints are ejected.
    pub outlier_detection: Option<EjectionSettings>,
}

/// What a cluster says of sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// Which health lets an endpoint serve its sessions, if it is not the usual.
    pub override_host_status: Option<Vec<Health>>,
    /// How long what only sessions use is kept, if it is not the usual.
    pub idle_timeout: Option<Duration>,
}

/// How a cluster finds its endpoints.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterKind {
    /// By EDS, under this name.
    Eds(String),
    /// By DNS.
    Dns(String),
    /// It stands for these clusters.
    Aggregate(Vec<String>),
    /// It stands for the clusters of this list (gRFC A99).
    List(String),
}

/// The load balancing policies that the simulator uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Localities by weight, endpoints in turn.
    RoundRobin,
    /// By hash; the simulator's RPCs have random ones.
    RingHash,
    /// Localities by weight, and by hash in each of them.
    LocalRings,
    /// Localities by weight inside localities by weight, endpoints in turn.
    Nested,
    /// The first endpoint that connects.
    PickFirst,
}

/// The endpoints of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    /// Localities by priority.
    pub priorities: Vec<Vec<Locality>>,
    /// Whether every RPC is dropped.
    pub drop_all: bool,
}

/// A locality of an assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct Locality {
    /// Its name.
    pub zone: String,
    /// Its weight; 0 takes it out.
    pub weight: u32,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its addresses; at least one.
    pub addresses: Vec<SocketAddr>,
    /// What the control plane says of its health.
    pub health: Health,
}

/// The health of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// To be used.
    Healthy,
    /// Only for sessions.
    Draining,
    /// Not to be used.
    Unhealthy,
}

impl Mesh {
    /// Whether there is such a resource.
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

    /// The other addresses that one policy tries beside an address of a leaf.
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
    /// What it is, whether it has a filter for sessions or not.
    pub(crate) fn kind(&self) -> &Self {
        match self {
            Self::WithoutSessions(listener) => listener.kind(),
            kind => kind,
        }
    }

    /// The same without the filter for sessions if it has one, and with one if not.
    pub(crate) fn toggled(self) -> Self {
        match self {
            Self::WithoutSessions(listener) => *listener,
            with => Self::WithoutSessions(Box::new(with)),
        }
    }
}

impl Cluster {
    /// A cluster of this kind with round robin and no limits.
    #[must_use]
    pub fn new(kind: ClusterKind) -> Self {
        Self {
            kind,
            policy: Policy::RoundRobin,
            max_requests: None,
            reports_load: false,
            session: Session::default(),
            outlier_detection: None,
        }
    }

    /// A cluster whose endpoints come under this EDS name.
    #[must_use]
    pub fn eds(name: &str) -> Self {
        Self::new(ClusterKind::Eds(name.into()))
    }

    /// A cluster whose endpoints come by DNS.
    #[must_use]
    pub fn dns(host: &str) -> Self {
        Self::new(ClusterKind::Dns(host.into()))
    }

    /// A cluster that stands for these.
    #[must_use]
    pub fn aggregate(children: &[&str]) -> Self {
        Self::new(ClusterKind::Aggregate(children.iter().map(|&name| name.into()).collect()))
    }

    /// A cluster that stands for those of a list.
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

/// A route of everything below a prefix to one cluster.
#[must_use]
pub fn route(prefix: &str, cluster: &str) -> Route {
    Route { prefix: prefix.into(), clusters: vec![(cluster.into(), 1)] }
}

/// The address of a backend.
#[must_use]
pub fn backend(n: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, n), PORT))
}

/// The port of every endpoint.
pub(crate) const PORT: u16 = 80;
