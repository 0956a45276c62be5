//! xDS resources: from bytes to validated types.
//!
//! [`decode`] takes one resource of a response and returns its name, and either the validated resource or all
//! violations with their field paths. No later stage handles protobuf.

mod any;
mod cluster;
mod common;
mod elements;
mod endpoint;
mod error;
mod extension;
mod fault;
mod field;
mod filter;
mod lb_config;
mod lb_custom;
mod lb_json;
mod lb_weighted;
mod listener;
mod matcher;
mod named;
mod protobuf;
mod re2;
mod route;
mod stateful_session;

#[cfg(test)]
mod tests;

pub use any::{DecodeContext, Decoded, decode};
pub(crate) use any::{Update, decode_update};
pub use cluster::{
    AggregateClusterConfig, CircuitBreakers, Cluster, ClusterKind, ListedMetrics, LrsServer, MetricSelection,
    OverrideHostStatus, RootCertificates, UpstreamTls,
};
pub use common::MILLION;
pub(crate) use elements::{has_more_reported_clusters, has_more_resources};
pub use endpoint::{
    ClusterLoadAssignment, DropCategory, EndpointExtras, EndpointHealth, LbEndpoint, Locality,
    LocalityEndpoints,
};
pub(crate) use error::cut;
pub use error::{Violation, Violations};
pub use fault::{AbortSource, DelaySource, FaultAbort, FaultConfig, FaultDelay, Fraction};
pub use filter::{FilterOverrides, HttpFilter, HttpFilterConfig};
pub use lb_config::LbPolicy;
pub use lb_custom::{CustomConfig, CustomConfigReader, CustomPolicies, CustomPolicy, is_built_in_policy};
pub use lb_weighted::WeightedRoundRobin;
pub use listener::{HttpConnectionManager, Listener, ListenerKind, RouteSource};
pub use matcher::{HeaderMatcher, HeaderValueMatcher, PathMatcher, StringMatchKind, StringMatcher};
pub use proxyless_sans_io::values::{EjectionSettings, FailurePercentageEjection, SuccessRateEjection};
pub use route::{
    ClusterSpecifier, HashPolicy, HashPolicyKind, HeaderRewrite, RetryPolicy, Route, RouteAction,
    RouteConfiguration, RouteMatch, VirtualHost, WeightedCluster,
};
pub use stateful_session::CookieSession;

use std::sync::Arc;

/// The supported resource types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// Listener (LDS).
    Listener,
    /// RouteConfiguration (RDS).
    RouteConfiguration,
    /// Cluster (CDS).
    Cluster,
    /// ClusterLoadAssignment (EDS).
    ClusterLoadAssignment,
    /// The ClusterConfig of an aggregate cluster (gRFC A99).
    AggregateClusterConfig,
}

impl ResourceType {
    /// All types, in the order in which a client requests them.
    pub const ALL: [Self; 5] = [
        Self::Listener,
        Self::RouteConfiguration,
        Self::Cluster,
        Self::ClusterLoadAssignment,
        Self::AggregateClusterConfig,
    ];

    /// The type URL.
    #[must_use]
    pub const fn type_url(self) -> &'static str {
        match self {
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::RouteConfiguration => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::ClusterLoadAssignment => {
                "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
            }
            Self::AggregateClusterConfig => {
                "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig"
            }
        }
    }

    /// The full name of the message.
    pub(crate) fn full_name(self) -> &'static str {
        self.type_url().rsplit('/').next().unwrap_or_default()
    }

    /// The type with this URL, if it is supported.
    #[must_use]
    pub fn from_type_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == url)
    }

    /// The message name, human-readable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Listener => "Listener",
            Self::RouteConfiguration => "RouteConfiguration",
            Self::Cluster => "Cluster",
            Self::ClusterLoadAssignment => "ClusterLoadAssignment",
            Self::AggregateClusterConfig => "ClusterConfig",
        }
    }

    /// Whether a response lists all resources of the type, so that absence means deletion (LDS and CDS only).
    #[must_use]
    pub const fn all_resources_required_in_sotw(self) -> bool {
        matches!(self, Self::Listener | Self::Cluster)
    }
}

/// A validated resource.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each variant is its type
pub enum Resource {
    Listener(Arc<Listener>),
    RouteConfiguration(Arc<RouteConfiguration>),
    Cluster(Arc<Cluster>),
    ClusterLoadAssignment(Arc<ClusterLoadAssignment>),
    AggregateClusterConfig(Arc<AggregateClusterConfig>),
}

impl Resource {
    /// The type of the resource.
    #[must_use]
    pub fn resource_type(&self) -> ResourceType {
        match self {
            Self::Listener(_) => ResourceType::Listener,
            Self::RouteConfiguration(_) => ResourceType::RouteConfiguration,
            Self::Cluster(_) => ResourceType::Cluster,
            Self::ClusterLoadAssignment(_) => ResourceType::ClusterLoadAssignment,
            Self::AggregateClusterConfig(_) => ResourceType::AggregateClusterConfig,
        }
    }
}
