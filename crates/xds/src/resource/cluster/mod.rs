//! Cluster (CDS), and the ClusterConfig of aggregates (gRFC A37, A99).

mod discovery;
mod metrics;
mod outlier_detection;
mod override_host_status;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use super::LbPolicy;

pub(crate) use discovery::aggregate_config;
pub use metrics::{ListedMetrics, MetricSelection};
pub use outlier_detection::{FailurePercentageEjection, OutlierDetection, SuccessRateEjection};
pub use override_host_status::OverrideHostStatus;

/// A validated Cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// How its endpoints are found.
    pub kind: ClusterKind,
    /// Its load balancing policy; `None` only for aggregates, whose policy is ignored (A75-11, A75-13).
    pub lb_policy: Option<LbPolicy>,
    /// Where load is reported to, if at all.
    pub lrs_server: Option<LrsServer>,
    /// Which metrics of backends go into load reports.
    pub lrs_report_endpoint_metrics: MetricSelection,
    /// Its limits.
    pub circuit_breakers: CircuitBreakers,
    /// How long an unused session's connection is kept (A75-26 to A75-34); one hour unless said otherwise.
    pub idle_timeout: Duration,
    /// Which endpoints are ejected for their errors (gRFC A50); `None`: none.
    pub outlier_detection: Option<OutlierDetection>,
    /// Which health lets an endpoint serve its sessions (gRFC A55).
    pub override_host_status: OverrideHostStatus,
}

/// The kinds of clusters.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterKind {
    /// Endpoints by EDS.
    Eds {
        /// `eds_cluster_config.service_name`, if set (A27-88); else EDS is asked by the cluster's name (A27-89).
        service_name: Option<Arc<str>>,
    },
    /// Addresses of a host name.
    LogicalDns {
        /// The host, not resolved.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
    /// Other clusters in order of preference, listed inline.
    Aggregate(Arc<AggregateClusterConfig>),
    /// The same, listed in a resource of its own (gRFC A99).
    AggregateResource {
        /// The name of the ClusterConfig resource.
        name: Arc<str>,
    },
}

/// The ordered clusters below an aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateClusterConfig {
    /// Their names; at least one.
    pub clusters: Vec<Arc<str>>,
}

/// Where load is reported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LrsServer {
    /// To the server that the Cluster came from.
    SelfServer,
}

/// Limits of a cluster (gRFC A32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreakers {
    /// `max_requests` of the first DEFAULT threshold; 1024 if unset (A37-50, X-13).
    pub max_requests: u32,
}

impl Default for CircuitBreakers {
    fn default() -> Self {
        Self { max_requests: 1024 }
    }
}
