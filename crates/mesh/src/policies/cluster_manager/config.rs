//! The configuration of xds_cluster_manager: one child per cluster, by the id that routes assign to RPCs.

use std::sync::Arc;

use proxyless_balancer::api::{ClusterId, PolicyConfig};
use proxyless_balancer::policy_config;
use proxyless_sans_io::Chunks;

use super::policy::ClusterManager;
use crate::xds_config::ClusterSlice;

pub(super) const NAME: &str = "xds_cluster_manager_experimental";

/// The clusters of routes and RPCs in flight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterManagerConfig {
    /// In any order; ids are distinct.
    pub clusters: Chunks<ManagedCluster>,
}

/// One cluster.
#[derive(Clone, Debug)]
pub struct ManagedCluster {
    /// The value of [`proxyless_balancer::api::CallAttributes::cluster`].
    pub id: ClusterId,
    /// The name. A different name under the same id is a different cluster.
    pub name: Arc<str>,
    /// The configuration of the child.
    pub config: Arc<dyn PolicyConfig>,
    /// The cluster's part of the channel's configuration.
    pub slice: Option<Arc<ClusterSlice>>,
}

impl ManagedCluster {
    /// Whether both are the same in memory, so that there is nothing to do.
    pub(super) fn ptr_eq(&self, other: &Self) -> bool {
        self.has_same_key(other) && Arc::ptr_eq(&self.config, &other.config) && self.has_same_slice(other)
    }

    pub(super) fn has_same_key(&self, other: &Self) -> bool {
        self.id == other.id && (Arc::ptr_eq(&self.name, &other.name) || self.name == other.name)
    }

    fn has_same_slice(&self, other: &Self) -> bool {
        self.slice.as_ref().map(Arc::as_ptr) == other.slice.as_ref().map(Arc::as_ptr)
    }
}

impl PartialEq for ManagedCluster {
    fn eq(&self, other: &Self) -> bool {
        self.has_same_key(other) && self.has_same_slice(other) && *self.config == *other.config
    }
}

policy_config!(ClusterManagerConfig, NAME, ClusterManager::default());
