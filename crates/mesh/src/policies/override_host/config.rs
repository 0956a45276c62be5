use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{Fields, PolicyConfig};
use proxyless_balancer::policy_config;
use proxyless_xds::resource::OverrideHostStatus;

use super::policy::OverrideHostPolicy;

pub(super) const NAME: &str = "xds_override_host_experimental";

/// The configuration of xds_override_host.
#[derive(Clone, Debug)]
pub struct OverrideHostConfig {
    /// Which health lets an endpoint serve its sessions (gRFC A55).
    pub override_host_status: OverrideHostStatus,
    /// How long an endpoint that only sessions use is kept after its last use (gRFC A75).
    pub idle_timeout: Duration,
    /// Whether there is anything to do.
    pub sessions: Sessions,
    /// The policy below.
    pub child: Arc<dyn PolicyConfig>,
}

/// Whether any RPC can belong to a session: only if the channel's filters know sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sessions {
    /// Some may: every address has to be known.
    Used,
    /// None does: the policy keeps DRAINING endpoints from its child, and only counts its subchannels.
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

policy_config!(OverrideHostConfig, NAME, OverrideHostPolicy::default(), |config| {
    let OverrideHostStatus { unknown, healthy, draining } = config.override_host_status;
    let statuses = [("UNKNOWN", unknown), ("HEALTHY", healthy), ("DRAINING", draining)];
    let wanted: Vec<&str> = statuses.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| *name).collect();
    let idle_timeout = format!("{}s", config.idle_timeout.as_secs_f64());
    Fields::from_iter([
        ("overrideHostStatus".to_owned(), wanted.into()),
        ("idleTimeout".to_owned(), idle_timeout.into()),
    ])
});
