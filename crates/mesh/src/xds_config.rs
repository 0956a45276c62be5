//! [`XdsConfig`]: the complete, consistent xDS configuration of a channel (gRFC A74).
//!
//! The dependency manager builds it, the channel core and the policies read it. All members are shared and immutable; a
//! cluster that an update did not change keeps its `Arc`, so that policies skip it by comparing pointers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proxyless_xds::resource::{
    CircuitBreakers, Cluster, ClusterKind, ClusterLoadAssignment, LbPolicy, Listener, MetricSelection,
    OverrideHostStatus, RouteConfiguration, VirtualHost,
};

/// One consistent set of resources.
#[derive(Clone, Debug)]
pub struct XdsConfig {
    /// The listener.
    pub listener: Arc<Listener>,
    /// The routes: inline or from RDS.
    pub route_config: Arc<RouteConfiguration>,
    /// The virtual host in `route_config` for the channel's authority.
    pub virtual_host: Arc<VirtualHost>,
    /// Each cluster in a route or subscription, and each leaf of an aggregate. `Err` is the reason why the cluster is
    /// unusable; RPCs to it fail with that text.
    ///
    /// Aggregates between a root and its leaves have no entry: the root's leaf list is flattened.
    pub clusters: BTreeMap<Arc<str>, ClusterEntry>,
}

/// A cluster, or the reason why it is unusable.
pub type ClusterEntry = Result<Arc<ClusterConfig>, Arc<str>>;

impl XdsConfig {
    /// The clusters that differ from those in `old`, directly or by their leaves, and those in only one of both. Costs
    /// a pointer comparison per cluster.
    #[must_use]
    pub fn changed_since(&self, old: &Self) -> BTreeSet<Arc<str>> {
        let same_names = self.clusters.len() == old.clusters.len()
            && self
                .clusters
                .keys()
                .zip(old.clusters.keys())
                .all(|(new, old)| Arc::ptr_eq(new, old) || new == old);
        let mut changed: BTreeSet<_> = if same_names {
            let both = self.clusters.iter().zip(old.clusters.values());
            both.filter(|((_, new), old)| !same_entry(new, old))
                .map(|((name, _), _)| Arc::clone(name))
                .collect()
        } else {
            let same = |(name, new): &(&Arc<str>, &ClusterEntry)| {
                old.clusters.get(*name).is_some_and(|old| same_entry(new, old))
            };
            let gone = old.clusters.keys().filter(|name| !self.clusters.contains_key(*name));
            let other = self.clusters.iter().filter(|entry| !same(entry)).map(|(name, _)| name);
            other.chain(gone).cloned().collect()
        };
        if !changed.is_empty() {
            let above = self
                .clusters
                .iter()
                .filter(|(_, entry)| leaves(entry).iter().any(|leaf| changed.contains(leaf)));
            let above: Vec<_> = above.map(|(name, _)| Arc::clone(name)).collect();
            changed.extend(above);
        }
        changed
    }
}

fn same_entry(a: &ClusterEntry, b: &ClusterEntry) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
        (Err(a), Err(b)) => a == b,
        _ => false,
    }
}

/// The leaves of an aggregate.
fn leaves(entry: &ClusterEntry) -> &[Arc<str>] {
    match entry.as_ref().map(|cluster| &cluster.children) {
        Ok(ClusterChildren::Aggregate { leaf_clusters, .. }) => leaf_clusters,
        _ => &[],
    }
}

/// The part of an [`XdsConfig`] for one cluster: its own entry, and those of its leaves if it is an aggregate. Keeps
/// its allocation while nothing in it changes.
#[derive(Debug)]
pub struct ClusterView(Box<[(Arc<str>, ClusterEntry)]>);

impl ClusterView {
    /// The part for `root`.
    #[must_use]
    pub fn new(config: &XdsConfig, root: &str) -> Self {
        let mut entries = Vec::new();
        if let Some((name, entry)) = config.clusters.get_key_value(root) {
            let below = leaves(entry).iter().filter_map(|leaf| config.clusters.get_key_value(leaf));
            let all = [(name, entry)].into_iter().chain(below);
            entries.extend(all.map(|(name, entry)| (Arc::clone(name), entry.clone())));
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self(entries.into())
    }

    /// The entry of a cluster, if the view has it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ClusterEntry> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        self.0.get(at).map(|(_, entry)| entry)
    }
}

/// A cluster with its endpoints or leaves.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The cluster's name.
    pub name: Arc<str>,
    /// The resource. A placeholder for a leaf whose Cluster is still loading (always [`EndpointsState::Pending`]).
    pub cluster: Arc<Cluster>,
    /// Endpoints, or the leaves of an aggregate.
    pub children: ClusterChildren,
}

/// The children of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterChildren {
    /// A leaf's endpoints.
    Endpoints {
        /// The endpoints.
        endpoints: EndpointsState,
        /// The problem in resolving them, for RPC errors.
        resolution_note: Option<Arc<str>>,
    },
    /// An aggregate's leaves.
    Aggregate {
        /// Their names in order of preference, flattened, without duplicates; at least one. Each is a key of
        /// [`XdsConfig::clusters`].
        leaf_clusters: Arc<[Arc<str>]>,
        /// The problems in resolving them (missing children, for example), for RPC errors.
        resolution_note: Option<Arc<str>>,
    },
}

/// The state of a leaf's endpoints.
#[derive(Clone, Debug)]
pub enum EndpointsState {
    /// Requested, but not answered yet. Only below an aggregate, or for a cluster that only RPCs in flight hold; acts
    /// as CONNECTING, never as a failure.
    Pending,
    /// An error or a missing resource: acts as one priority without endpoints (A37-36 to A37-38).
    Missing,
    /// These endpoints.
    Known(Arc<ClusterLoadAssignment>),
}

impl PartialEq for EndpointsState {
    /// Known endpoints are equal if they are the same allocation: comparing thousands would cost more than it saves.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pending, Self::Pending) | (Self::Missing, Self::Missing) => true,
            (Self::Known(a), Self::Known(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl ClusterConfig {
    /// A leaf of which only the name is known.
    #[must_use]
    pub fn unknown_leaf(name: Arc<str>) -> Self {
        let cluster = Cluster {
            kind: ClusterKind::Eds { service_name: None },
            lb_policy: Some(LbPolicy::WrrLocality(Box::new(LbPolicy::RoundRobin))),
            lrs_server: None,
            lrs_report_endpoint_metrics: MetricSelection::default(),
            circuit_breakers: CircuitBreakers::default(),
            idle_timeout: Duration::from_secs(3600),
            outlier_detection: None,
            override_host_status: OverrideHostStatus::default(),
        };
        let children =
            ClusterChildren::Endpoints { endpoints: EndpointsState::Pending, resolution_note: None };
        Self { name, cluster: Arc::new(cluster), children }
    }

    /// Whether both are equal for a policy.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        self.name == other.name
            && Arc::ptr_eq(&self.cluster, &other.cluster)
            && self.children == other.children
    }

    /// Whether this is a leaf that waits for its resources.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        matches!(self.children, ClusterChildren::Endpoints { endpoints: EndpointsState::Pending, .. })
    }
}
