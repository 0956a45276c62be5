//! [`XdsConfig`]: the complete, consistent xDS configuration of a channel (gRFC A74).
//!
//! The dependency manager builds it, the channel core and the policies read it. All members are shared and immutable; a
//! cluster that an update did not change keeps its `Arc`, so that policies skip it by comparing pointers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proxyless_xds::resource::{
    Cluster, ClusterLoadAssignment, HttpConnectionManager, HttpFilter, Listener, ListenerKind,
    RouteConfiguration, RouteSource, VirtualHost,
};

use crate::cluster_map::{ClusterMap, leaves};

/// One consistent set of resources.
#[derive(Clone, Debug)]
pub struct XdsConfig {
    /// The listener.
    pub listener: Arc<Listener>,
    /// The routes: inline or from RDS.
    pub route_config: Arc<RouteConfiguration>,
    /// The virtual host in `route_config` for the channel's authority.
    pub virtual_host: Arc<VirtualHost>,
    /// Each cluster in a route or claim, and each leaf of an aggregate. `Err` is the reason why the cluster is
    /// unusable; RPCs to it fail with that text.
    ///
    /// Aggregates between a root and its leaves have no entry: the root's leaf list is flattened.
    pub clusters: ClusterMap,
}

/// A cluster, or the reason why it is unusable.
pub type ClusterEntry = Result<Arc<ClusterConfig>, Arc<str>>;

impl XdsConfig {
    /// The clusters that differ from those in `old`, directly or by their leaves, and those in only one of both.
    #[must_use]
    pub fn changed_since(&self, old: &Self) -> BTreeSet<Arc<str>> {
        self.clusters.changed_since(&old.clusters)
    }

    /// Whether both have the same route table.
    pub(crate) fn has_same_routes(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.virtual_host, &other.virtual_host)
            && self.max_stream_duration() == other.max_stream_duration()
            && self.http_filters() == other.http_filters()
    }

    /// The listener's HTTP filters (gRFC A39).
    pub(crate) fn http_filters(&self) -> &[HttpFilter] {
        self.connection_manager().map_or(&[], |manager| &manager.filters)
    }

    /// The listener's limit on the duration of RPCs (gRFC A31).
    pub(crate) fn max_stream_duration(&self) -> Option<Duration> {
        self.connection_manager()?.max_stream_duration
    }

    /// The name of the RouteConfiguration; `None` if the routes are in the listener itself.
    #[must_use]
    pub fn route_config_name(&self) -> Option<&Arc<str>> {
        match &self.connection_manager()?.routes {
            RouteSource::Rds(name) => Some(name),
            RouteSource::Inline(_) => None,
        }
    }

    fn connection_manager(&self) -> Option<&HttpConnectionManager> {
        match &self.listener.kind {
            ListenerKind::Api(manager) => Some(manager),
            ListenerKind::Socket => None,
        }
    }
}

/// The part of an [`XdsConfig`] for one cluster: its own entry, and those of its leaves if it is an aggregate. Keeps
/// its allocation while nothing in it changes.
#[derive(Debug)]
pub struct ClusterSlice(Box<[(Arc<str>, ClusterEntry)]>);

impl ClusterSlice {
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

    /// The entry of a cluster, if the slice has it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ClusterEntry> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        self.0.get(at).map(|(_, entry)| entry)
    }
}

/// The configuration of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    /// The cluster's name.
    pub name: Arc<str>,
    /// The cluster's resources, as far as they are known.
    pub state: ClusterState,
}

/// The resources of a cluster.
#[derive(Clone, Debug)]
pub enum ClusterState {
    /// Requested, but not answered yet: the Cluster, or the endpoints of a leaf. Only below an aggregate, or for a
    /// cluster that only RPCs in flight hold; acts as CONNECTING, never as a failure.
    Pending,
    /// A cluster with endpoints.
    Leaf {
        /// The resource.
        cluster: Arc<Cluster>,
        /// The endpoints.
        endpoints: EndpointsState,
        /// The problem in resolving them, for RPC errors.
        resolution_note: Option<Arc<str>>,
    },
    /// An aggregate of leaves.
    Aggregate {
        /// The resource.
        cluster: Arc<Cluster>,
        /// The names of the leaves in order of preference, flattened, without duplicates; at least one. Each is a key
        /// of [`XdsConfig::clusters`].
        leaf_clusters: Arc<[Arc<str>]>,
        /// The problems in resolving them (missing children, for example), for RPC errors.
        resolution_note: Option<Arc<str>>,
    },
}

/// The state of a leaf's endpoints.
#[derive(Clone, Debug)]
pub enum EndpointsState {
    /// An error or a missing resource: acts as one priority without endpoints (A37-36 to A37-38).
    Missing,
    /// These endpoints.
    Known(Arc<ClusterLoadAssignment>),
}

impl ClusterConfig {
    /// A cluster of which only the name is known.
    #[must_use]
    pub fn pending(name: Arc<str>) -> Self {
        Self { name, state: ClusterState::Pending }
    }

    /// Whether the cluster waits for its resources.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        matches!(self.state, ClusterState::Pending)
    }

    /// The Cluster resource, if it is known.
    #[must_use]
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.state {
            ClusterState::Pending => None,
            ClusterState::Leaf { cluster, .. } | ClusterState::Aggregate { cluster, .. } => Some(cluster),
        }
    }
}

impl PartialEq for ClusterState {
    /// Resources are equal if they are the same allocation: comparing thousands of endpoints would cost more than it
    /// saves.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pending, Self::Pending) => true,
            (
                Self::Leaf { cluster: a, endpoints: a_endpoints, resolution_note: a_note },
                Self::Leaf { cluster: b, endpoints: b_endpoints, resolution_note: b_note },
            ) => Arc::ptr_eq(a, b) && a_endpoints == b_endpoints && a_note == b_note,
            (
                Self::Aggregate { cluster: a, leaf_clusters: a_leaves, resolution_note: a_note },
                Self::Aggregate { cluster: b, leaf_clusters: b_leaves, resolution_note: b_note },
            ) => Arc::ptr_eq(a, b) && a_leaves == b_leaves && a_note == b_note,
            _ => false,
        }
    }
}

impl PartialEq for EndpointsState {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Missing, Self::Missing) => true,
            (Self::Known(a), Self::Known(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}
