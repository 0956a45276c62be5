use std::sync::Arc;

use proxyless_balancer::api::{Fields, PolicyConfig};
use proxyless_balancer::policy_config;
use proxyless_xds::resource::{DropCategory, MetricSelection};
use serde_json::json;

use super::circuit::CircuitRegistry;
use super::load_registry::LoadRegistry;
use super::policy::ClusterImpl;
use crate::policies::layer::Layered;

pub(super) const NAME: &str = "xds_cluster_impl_experimental";

/// The configuration of xds_cluster_impl.
#[derive(Clone, Debug)]
pub struct ClusterImplConfig {
    /// The cluster's name (A37-54).
    pub cluster: Arc<str>,
    /// The EDS service name, where CDS gives one (A37-53).
    pub eds_service_name: Option<Arc<str>>,
    /// How many RPCs may be in flight.
    pub max_requests: u32,
    /// Which share of RPCs to drop.
    pub drops: Vec<DropCategory>,
    /// Where the counters of RPCs in flight are.
    pub circuits: CircuitRegistry,
    /// How load is reported; `None` if it is not (A37-51).
    pub load_reporting: Option<LoadReporting>,
    /// The policy below.
    pub child: Arc<dyn PolicyConfig>,
}

/// How the load of a cluster is reported.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadReporting {
    /// Where the counters are made known.
    pub registry: LoadRegistry,
    /// Which metrics of backends are reported.
    pub metrics: MetricSelection,
}

impl ClusterImplConfig {
    /// Whether both do the same to RPCs; the policy below may differ.
    pub(super) fn same_rules(&self, other: &Self) -> bool {
        self.cluster == other.cluster
            && self.eds_service_name == other.eds_service_name
            && self.max_requests == other.max_requests
            && self.drops == other.drops
            && self.circuits == other.circuits
            && self.load_reporting == other.load_reporting
    }
}

impl PartialEq for ClusterImplConfig {
    fn eq(&self, other: &Self) -> bool {
        self.same_rules(other) && *self.child == *other.child
    }
}

policy_config!(ClusterImplConfig, NAME, Layered::<ClusterImpl>::default(), |config| {
    let drop =
        |drop: &DropCategory| json!({"category": &*drop.category, "requestsPerMillion": drop.per_million});
    let mut fields = Fields::from_iter([
        ("cluster".to_owned(), (*config.cluster).into()),
        ("maxConcurrentRequests".to_owned(), config.max_requests.into()),
    ]);
    if let Some(name) = &config.eds_service_name {
        fields.insert("edsServiceName", &**name);
    }
    if !config.drops.is_empty() {
        fields.insert("dropCategories", config.drops.iter().map(drop).collect::<Vec<_>>());
    }
    fields
});
