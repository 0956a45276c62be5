//! The configuration of cds: the cluster's name and the settings of the channel.

use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{Fields, Layered};
use proxyless_balancer::policy_config;
use proxyless_sans_io::Interner;
use proxyless_xds::resource::LbPolicy;

use super::policy::Cds;
use crate::policies::cluster_impl::{CircuitRegistry, LoadRegistry};
use crate::policies::override_host::Sessions;
use crate::security::SecurityRegistry;

pub(super) const NAME: &str = "cds_experimental";

/// The configuration of cds. The cluster itself is in the `ClusterSlice` of the update.
#[derive(Clone, Debug, PartialEq)]
pub struct CdsConfig {
    /// The cluster.
    pub cluster: Arc<str>,
    /// The policy to use instead of the cluster's own: that of the aggregate above, if the gate of A75-14 is open.
    pub lb_policy: Option<Arc<LbPolicy>>,
    /// The settings shared by all clusters of a channel.
    pub settings: Arc<CdsSettings>,
}

/// The settings shared by all clusters of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct CdsSettings {
    /// The time for a priority to connect before the next is tried (gRFC A56).
    pub failover_timeout: Duration,
    /// Whether leaves use the LB policy of their aggregate (A75-14).
    pub aggregate_backward_compat: bool,
    /// Whether RPCs can have sessions.
    pub sessions: Sessions,
    /// The counters of circuit breaking.
    pub circuits: CircuitRegistry,
    /// The registry of load report counters.
    pub loads: LoadRegistry,
    /// The TLS settings in use.
    pub security: SecurityRegistry,
    /// The names of localities and priorities, which are the same in many clusters.
    pub names: Interner<str>,
}

policy_config!(CdsConfig, NAME, Layered::<Cds>::default(), |config| {
    Fields::from_iter([("cluster".to_owned(), (*config.cluster).into())])
});
