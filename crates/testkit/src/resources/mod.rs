//! Builders for xDS resources: short calls for tests that return complete messages.
//!
//! Functions create messages that a gRPC client accepts; the `…Ext` traits change one aspect of them. Set everything
//! else on the message itself.
//!
//! ```
//! use proxyless_testkit::resources::*;
//!
//! let near = "127.0.0.1:5001".parse::<std::net::SocketAddr>()?;
//! let far = "127.0.0.1:5002".parse::<std::net::SocketAddr>()?;
//! let _ = listener("greeter", "greeter-route");
//! let _ = route_config("greeter-route", [virtual_host(["*"], [route("greeter-cluster").prefix("/hello.")])]);
//! let _ = eds_cluster("greeter-cluster").lb_policy(round_robin());
//! let _ = assignment("greeter-cluster", [locality("near", [near]), locality("far", [far]).priority(1)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cluster;
mod endpoint;
mod fault;
mod listener;
mod policy;
mod proxy;
mod route;
mod session;
#[cfg(test)]
mod tests;
mod tls;

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{AggregatedConfigSource, ConfigSource};
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::envoy::r#type::v3::fractional_percent::DenominatorType;
use envoy_types::pb::google::protobuf;

pub use crate::control_plane::pack;
pub use cluster::{
    ClusterExt, aggregate_cluster, aggregate_resource, aggregate_resource_cluster, eds_cluster,
    logical_dns_cluster,
};
pub use endpoint::{
    AssignmentExt, EndpointExt, IntoEndpoint, LocalityExt, assignment, endpoint, locality, priorities,
};
pub use envoy_types::pb::envoy::config::core::v3::HealthStatus;
pub use fault::{fault_abort, fault_delay};
pub use listener::{RouteSource, connection_manager, http_filter, listener, listener_with};
pub use policy::{
    OutlierDetectionExt, custom_policy, extension, least_request, outlier_detection, pick_first, ring_hash,
    round_robin, weighted_round_robin, wrr_locality,
};
pub use route::{
    HeaderExt, RouteExt, header, route, route_config, simple_route_config, virtual_host, weighted_route,
};
pub use session::{ConnectionManagerExt, no_stateful_session, stateful_session, stateful_session_with};
pub use tls::{UpstreamTlsExt, upstream_tls};

/// A config source for the same ADS stream.
pub fn ads_source() -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    }
}

/// A fraction in millionths.
pub fn per_million(numerator: u32) -> FractionalPercent {
    FractionalPercent { numerator, denominator: DenominatorType::Million.into() }
}

/// A protobuf duration, capped at the maximum.
pub fn duration(duration: Duration) -> protobuf::Duration {
    protobuf::Duration {
        seconds: duration.as_secs().try_into().unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos().try_into().unwrap_or(0),
    }
}
