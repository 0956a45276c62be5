use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::Fields;
use proxyless_balancer::policy_config;
use proxyless_xds::resource::LbPolicy;

use super::policy::Cds;
use crate::policies::cluster_impl::{CircuitRegistry, LoadRegistry};
use crate::policies::layer::Layered;
use crate::policies::override_host::Sessions;

pub(super) const NAME: &str = "cds_experimental";

/// The configuration of cds. What there is to say of the cluster is in the `ClusterView` of the update.
#[derive(Clone, Debug, PartialEq)]
pub struct CdsConfig {
    /// The cluster.
    pub cluster: Arc<str>,
    /// The policy to use instead of the cluster's own: that of the aggregate above it, with the gate of A75-14 open.
    pub lb_policy: Option<LbPolicy>,
    /// What is the same for all clusters of a channel.
    pub settings: Arc<CdsSettings>,
}

/// What is the same for all clusters of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct CdsSettings {
    /// How long a priority may be CONNECTING before the next is tried (gRFC A56).
    pub failover_timeout: Duration,
    /// Whether leaves use the LB policy of their aggregate (A75-14).
    pub aggregate_backward_compat: bool,
    /// Whether any RPC can belong to a session.
    pub sessions: Sessions,
    /// The counters for circuit breaking.
    pub circuits: CircuitRegistry,
    /// Where the counters for load reports are made known.
    pub loads: LoadRegistry,
}

policy_config!(CdsConfig, NAME, Layered::<Cds>::default(), |config| {
    Fields::from_iter([("cluster".to_owned(), (*config.cluster).into())])
});
