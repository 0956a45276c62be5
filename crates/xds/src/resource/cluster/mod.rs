//! Cluster (CDS), and the ClusterConfig of aggregates (gRFC A37, A99).

mod discovery;
mod metrics;
mod outlier_detection;
mod override_host_status;
mod transport_socket;
mod upstream_tls;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::values::EjectionSettings;

use super::LbPolicy;

pub(crate) use discovery::aggregate_config;
pub use metrics::{ListedMetrics, MetricSelection};
pub use override_host_status::OverrideHostStatus;
pub use upstream_tls::{RootCertificates, UpstreamTls};

/// A validated Cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The discovery of its endpoints.
    pub kind: ClusterKind,
    /// The load balancing policy; `None` only for aggregates, whose policy is ignored (A75-11, A75-13).
    pub lb_policy: Option<LbPolicy>,
    /// The load reporting server, if load is reported.
    pub lrs_server: Option<LrsServer>,
    /// The backend metrics that are included in load reports.
    pub lrs_report_endpoint_metrics: MetricSelection,
    /// The circuit breaker limits.
    pub circuit_breakers: CircuitBreakers,
    /// The time for which the connection of an unused session is kept (A75-26 to A75-34); one hour by default.
    pub idle_timeout: Duration,
    /// The outlier detection settings (gRFC A50), if enabled.
    pub outlier_detection: Option<Arc<EjectionSettings>>,
    /// The health statuses in which an endpoint serves its sessions (gRFC A55).
    pub override_host_status: OverrideHostStatus,
    /// The TLS settings of connections to its endpoints (gRFC A29), if it has any. They apply to channels with xDS
    /// credentials only.
    pub tls: Option<Arc<UpstreamTls>>,
    /// Whether endpoints with a proxy are connected to through it, by HTTP CONNECT (gRFC A86).
    pub http_connect: bool,
}

/// The kinds of clusters.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterKind {
    /// Endpoints from EDS.
    Eds {
        /// `eds_cluster_config.service_name`, if set (A27-88); otherwise the cluster's name is used (A27-89).
        service_name: Option<Arc<str>>,
    },
    /// The addresses of a host name.
    LogicalDns {
        /// The host name, unresolved.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
    /// Other clusters in order of preference, listed inline.
    Aggregate(Arc<AggregateClusterConfig>),
    /// Other clusters in order of preference, listed in a separate resource (gRFC A99).
    AggregateResource {
        /// The name of the ClusterConfig resource.
        name: Arc<str>,
    },
}

/// The ordered clusters of an aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateClusterConfig {
    /// The names of the clusters; at least one.
    pub clusters: Vec<Arc<str>>,
}

/// The load reporting server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LrsServer {
    /// The server that the Cluster came from.
    SelfServer,
}

/// The circuit breaker limits of a cluster (gRFC A32, A105).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreakers {
    /// `max_requests` of the first DEFAULT threshold; 1024 if unset (A37-50, X-13).
    pub max_requests: u32,
    /// `max_connections` of the first DEFAULT threshold per host, at least 1, if it is set and its gate is open: the
    /// number of connections to each endpoint (A105-01).
    pub max_connections_per_host: Option<u32>,
}

impl Default for CircuitBreakers {
    fn default() -> Self {
        Self { max_requests: 1024, max_connections_per_host: None }
    }
}
