//! [`XdsConfig`]: everything that one channel needs from xDS, consistent in itself (gRFC A74).
//!
//! The dependency manager builds it, the channel core and the policies read it. All members are shared and immutable;
//! a cluster that an update did not change keeps its `Arc`, so that policies can skip it by comparing pointers.

use std::collections::BTreeMap;
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
    /// The routes: the listener's own, or those that RDS gave.
    pub route_config: Arc<RouteConfiguration>,
    /// The virtual host of `route_config` that serves the channel's authority.
    pub virtual_host: Arc<VirtualHost>,
    /// Each cluster that a route names or someone subscribed to, and each leaf below one that is an aggregate. `Err`
    /// says why the cluster cannot be used; RPCs to it fail with that text.
    ///
    /// Aggregates between a root and its leaves have no entry of their own: the root's leaf list has them flattened.
    pub clusters: BTreeMap<Arc<str>, Result<Arc<ClusterConfig>, Arc<str>>>,
}

/// A cluster and what is below it.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The cluster's name.
    pub name: Arc<str>,
    /// The resource. For a leaf whose Cluster has not come yet (always [`EndpointsState::Pending`]) a stand-in.
    pub cluster: Arc<Cluster>,
    /// Endpoints, or the leaves of an aggregate.
    pub children: ClusterChildren,
}

/// What is below a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterChildren {
    /// A leaf's endpoints.
    Endpoints {
        /// The endpoints.
        endpoints: EndpointsState,
        /// What went wrong on the way to them, for RPC errors.
        resolution_note: Option<Arc<str>>,
    },
    /// An aggregate's leaves.
    Aggregate {
        /// Their names in order of preference, flattened, without duplicates; at least one. Each is a key of
        /// [`XdsConfig::clusters`].
        leaf_clusters: Arc<[Arc<str>]>,
        /// What went wrong on the way to them (children that do not exist, for example), for RPC errors.
        resolution_note: Option<Arc<str>>,
    },
}

/// What is known of a leaf's endpoints.
#[derive(Clone, Debug)]
pub enum EndpointsState {
    /// Asked for, not answered yet. Only below an aggregate; acts as CONNECTING, never as a failure.
    Pending,
    /// An error, or there are none by that name: acts as one priority without endpoints (A37-36 to A37-38).
    Missing,
    /// These.
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
    /// A leaf below an aggregate of which nothing is known yet but its name.
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

    /// Whether nothing distinguishes the two for a policy.
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
