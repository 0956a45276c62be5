//! Converts the load balancing policy of a Cluster resource to the configuration of the policy (gRFC A52).

use std::sync::Arc;

use proxyless_balancer::api::{ConfigError, PolicyConfig};
use proxyless_balancer::policies::least_request::LeastRequestConfig;
use proxyless_balancer::policies::pick_first::PickFirstConfig;
use proxyless_balancer::policies::ring_hash::RingHashConfig;
use proxyless_balancer::policies::round_robin::RoundRobinConfig;
use proxyless_xds::resource::LbPolicy;

use super::wrr_locality::WrrLocalityConfig;
use crate::endpoints::Grouping;

/// The configuration of the policy that picks within one EDS priority.
///
/// # Errors
/// If there is no such policy here.
pub fn policy_config(policy: &LbPolicy) -> Result<Arc<dyn PolicyConfig>, ConfigError> {
    Ok(match policy {
        LbPolicy::WrrLocality(child) => Arc::new(WrrLocalityConfig { child: policy_config(child)? }),
        LbPolicy::RoundRobin => Arc::new(RoundRobinConfig),
        LbPolicy::RingHash { min_ring_size, max_ring_size } => {
            Arc::new(RingHashConfig { min_ring_size: *min_ring_size, max_ring_size: *max_ring_size })
        }
        LbPolicy::LeastRequest { choice_count } => {
            Arc::new(LeastRequestConfig { choice_count: *choice_count })
        }
        LbPolicy::PickFirst { shuffle_address_list } => {
            Arc::new(PickFirstConfig { shuffle_address_list: *shuffle_address_list, ..Default::default() })
        }
        other => {
            return Err(ConfigError { policy: "xds", reason: format!("policy {other:?} is not supported") });
        }
    })
}

/// The form in which the policy takes the endpoints of a priority.
#[must_use]
pub fn grouping(policy: &LbPolicy) -> Grouping {
    match policy {
        LbPolicy::WrrLocality(_) => Grouping::Localities,
        // A42: a policy that picks locality and endpoint in one step takes one list.
        _ => Grouping::Flat,
    }
}
