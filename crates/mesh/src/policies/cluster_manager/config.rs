use std::sync::Arc;

use proxyless_balancer::api::PolicyConfig;
use proxyless_balancer::policy_config;

use super::policy::ClusterManager;

pub(super) const NAME: &str = "xds_cluster_manager_experimental";

/// The clusters that routes or RPCs in flight name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterManagerConfig {
    /// In any order; ids are distinct and small, since pickers index by them.
    pub clusters: Vec<ManagedCluster>,
}

/// One cluster.
#[derive(Clone, Debug)]
pub struct ManagedCluster {
    /// What [`proxyless_balancer::api::CallAttributes::cluster`] says for it.
    pub id: u32,
    /// Its name. Another name under the same id is another cluster.
    pub name: Arc<str>,
    /// The configuration of its child.
    pub config: Arc<dyn PolicyConfig>,
}

impl PartialEq for ManagedCluster {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name && *self.config == *other.config
    }
}

policy_config!(ClusterManagerConfig, NAME, ClusterManager::default());
