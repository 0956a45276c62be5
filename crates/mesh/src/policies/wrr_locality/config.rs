//! The configuration of xds_wrr_locality: the policy within each locality.

use std::sync::Arc;

use proxyless_balancer::api::{Layered, PolicyConfig};
use proxyless_balancer::policy_config;

use super::policy::WrrLocality;
use crate::endpoints::Grouping;

pub(super) const NAME: &str = "xds_wrr_locality_experimental";

/// The configuration of xds_wrr_locality. The weights are part of the endpoints.
#[derive(Clone, Debug)]
pub struct WrrLocalityConfig {
    /// The policy within each locality.
    pub child: Arc<dyn PolicyConfig>,
    /// The form in which that policy takes endpoints.
    pub grouping: Grouping,
}

impl PartialEq for WrrLocalityConfig {
    fn eq(&self, other: &Self) -> bool {
        self.grouping == other.grouping && *self.child == *other.child
    }
}

policy_config!(WrrLocalityConfig, NAME, Layered::<WrrLocality>::default());
