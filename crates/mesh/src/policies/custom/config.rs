//! A configuration on its way through the xDS client.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use proxyless_balancer::api::{ConfigError, PolicyConfig};
use proxyless_xds::resource::{CustomConfig, CustomPolicy};

/// The configuration of a policy, as the xDS client stores it.
pub(crate) struct OpaqueConfig(pub(super) Arc<dyn PolicyConfig>);

impl OpaqueConfig {
    /// The configuration in a Cluster resource.
    ///
    /// # Errors
    /// If it does not come from a [`Registry`](super::Registry).
    pub(crate) fn open(policy: &CustomPolicy) -> Result<Arc<dyn PolicyConfig>, ConfigError> {
        let config = policy.config.as_any().downcast_ref::<Self>();
        config.map(|config| Arc::clone(&config.0)).ok_or_else(|| ConfigError {
            policy: "xds",
            reason: format!("the configuration of {} does not come from a registry", policy.name),
        })
    }
}

impl CustomConfig for OpaqueConfig {
    fn dyn_eq(&self, other: &dyn CustomConfig) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| *self.0 == *other.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for OpaqueConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
