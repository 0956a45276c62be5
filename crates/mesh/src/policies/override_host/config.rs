//! The configuration of xds_override_host: the health statuses that keep sessions, and the idle timeout.

use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{Fields, Layered, PolicyConfig};
use proxyless_balancer::policy_config;
use proxyless_xds::resource::OverrideHostStatus;

use super::policy::OverrideHostPolicy;

pub(super) const NAME: &str = "xds_override_host_experimental";

/// The configuration of xds_override_host.
#[derive(Clone, Debug)]
pub struct OverrideHostConfig {
    /// The health statuses in which an endpoint serves its sessions (gRFC A55).
    pub override_host_status: OverrideHostStatus,
    /// The time for which an endpoint used only by sessions is kept after its last use (gRFC A75).
    pub idle_timeout: Duration,
    /// Whether RPCs can have sessions.
    pub sessions: Sessions,
    /// The child policy.
    pub child: Arc<dyn PolicyConfig>,
}

/// Whether RPCs can have sessions: only if the channel has a session filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sessions {
    /// They can: every address must be known.
    Used,
    /// They cannot: the policy removes DRAINING endpoints, and otherwise only tracks the child's subchannels.
    #[default]
    Unused,
}

impl PartialEq for OverrideHostConfig {
    fn eq(&self, other: &Self) -> bool {
        self.override_host_status == other.override_host_status
            && self.idle_timeout == other.idle_timeout
            && self.sessions == other.sessions
            && *self.child == *other.child
    }
}

policy_config!(OverrideHostConfig, NAME, Layered::<OverrideHostPolicy>::default(), |config| {
    let OverrideHostStatus { unknown, healthy, draining } = config.override_host_status;
    let statuses = [("UNKNOWN", unknown), ("HEALTHY", healthy), ("DRAINING", draining)];
    let wanted: Vec<&str> = statuses.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| *name).collect();
    let idle_timeout = format!("{}s", config.idle_timeout.as_secs_f64());
    Fields::from_iter([
        ("overrideHostStatus".to_owned(), wanted.into()),
        ("idleTimeout".to_owned(), idle_timeout.into()),
    ])
});
