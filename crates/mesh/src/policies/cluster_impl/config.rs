//! The configuration of xds_cluster_impl: circuit breaking, drops and load reporting of one cluster.

use std::sync::Arc;

use proxyless_balancer::api::{Fields, Layered, PolicyConfig};
use proxyless_balancer::policy_config;
use proxyless_xds::resource::{DropCategory, MetricSelection};
use serde_json::json;

use super::circuit::CircuitRegistry;
use super::load_registry::LoadRegistry;
use super::policy::ClusterImpl;

pub(super) const NAME: &str = "xds_cluster_impl_experimental";

/// The configuration of xds_cluster_impl.
#[derive(Clone, Debug)]
pub struct ClusterImplConfig {
    /// The cluster's name (A37-54).
    pub cluster: Arc<str>,
    /// The EDS service name, if CDS has one (A37-53).
    pub eds_service_name: Option<Arc<str>>,
    /// The maximum number of RPCs in flight.
    pub max_requests: u32,
    /// The maximum number of connections to each address (gRFC A105); 1 if unset.
    pub max_connections_per_subchannel: Option<u32>,
    /// The fractions of RPCs to drop.
    pub drops: Vec<DropCategory>,
    /// The registry of the counters of RPCs in flight.
    pub circuits: CircuitRegistry,
    /// The load report settings; `None` if load is not reported (A37-51).
    pub load_reporting: Option<LoadReporting>,
    /// The child policy.
    pub child: Arc<dyn PolicyConfig>,
}

/// The load report settings of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadReporting {
    /// The registry of the counters.
    pub registry: LoadRegistry,
    /// The backend metrics to report.
    pub metrics: MetricSelection,
}

impl ClusterImplConfig {
    /// Whether both configurations are equal except for the child and for connections.
    pub(super) fn equivalent_for_picks(&self, other: &Self) -> bool {
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
        self.equivalent_for_picks(other)
            && self.max_connections_per_subchannel == other.max_connections_per_subchannel
            && *self.child == *other.child
    }
}

policy_config!(ClusterImplConfig, NAME, Layered::<ClusterImpl>::default(), |config| {
    let drop =
        |drop: &DropCategory| json!({"category": &*drop.category, "requestsPerMillion": drop.per_million});
    let mut fields = Fields::from_iter([
        ("cluster".to_owned(), (*config.cluster).into()),
        ("maxConcurrentRequests".to_owned(), config.max_requests.into()),
    ]);
    if let Some(limit) = config.max_connections_per_subchannel {
        fields.insert("maxConnectionsPerSubchannel", limit);
    }
    if let Some(name) = &config.eds_service_name {
        fields.insert("edsServiceName", &**name);
    }
    if !config.drops.is_empty() {
        fields.insert("dropCategories", config.drops.iter().map(drop).collect::<Vec<_>>());
    }
    fields
});
