//! `common_lb_config.override_host_status` (gRFC A55): the health statuses in which an endpoint serves its sessions.

use envoy_types::pb::envoy::config::cluster::v3 as wire;
use envoy_types::pb::envoy::config::core::v3::HealthStatus;

use crate::resource::EndpointHealth;

/// A set of [`EndpointHealth`]s; UNKNOWN and HEALTHY by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverrideHostStatus {
    /// Whether the set contains UNKNOWN.
    pub unknown: bool,
    /// Whether the set contains HEALTHY.
    pub healthy: bool,
    /// Whether the set contains DRAINING.
    pub draining: bool,
}

impl Default for OverrideHostStatus {
    // A55: the default for an unset field.
    fn default() -> Self {
        Self { unknown: true, healthy: true, draining: false }
    }
}

impl OverrideHostStatus {
    /// Whether the set contains `health`.
    #[must_use]
    pub fn contains(self, health: EndpointHealth) -> bool {
        match health {
            EndpointHealth::Unknown => self.unknown,
            EndpointHealth::Healthy => self.healthy,
            EndpointHealth::Draining => self.draining,
        }
    }

    pub(super) fn of(proto: &wire::Cluster) -> Self {
        let set = proto.common_lb_config.as_ref().and_then(|config| config.override_host_status.as_ref());
        // A55: statuses that endpoints cannot have here are ignored, not rejected.
        set.map_or_else(Self::default, |set| {
            let has = |status: HealthStatus| set.statuses.contains(&(status as i32));
            Self {
                unknown: has(HealthStatus::Unknown),
                healthy: has(HealthStatus::Healthy),
                draining: has(HealthStatus::Draining),
            }
        })
    }
}
