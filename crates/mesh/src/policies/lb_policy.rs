//! Converts the load balancing policy of a Cluster resource to the configuration of the policy (gRFC A52).

use std::sync::{Arc, LazyLock};

use proxyless_balancer::api::{ConfigError, PolicyConfig};
use proxyless_balancer::policies::least_request::LeastRequestConfig;
use proxyless_balancer::policies::pick_first::PickFirstConfig;
use proxyless_balancer::policies::random_subsetting::RandomSubsettingConfig;
use proxyless_balancer::policies::ring_hash::RingHashConfig;
use proxyless_balancer::policies::round_robin::RoundRobinConfig;
use proxyless_balancer::policies::weighted_round_robin::{UtilizationMetric, WeightedRoundRobinConfig};
use proxyless_xds::resource::{LbPolicy, WeightedRoundRobin};

use super::custom::OpaqueConfig;
use super::wrr_locality::WrrLocalityConfig;
use crate::endpoints::Grouping;

/// The configuration of the policy that picks within one EDS priority.
///
/// # Errors
/// If there is no such policy here.
pub fn policy_config(policy: &LbPolicy) -> Result<Arc<dyn PolicyConfig>, ConfigError> {
    Ok(match policy {
        LbPolicy::WrrLocality(child) => {
            Arc::new(WrrLocalityConfig { child: policy_config(child)?, grouping: grouping(child) })
        }
        LbPolicy::RoundRobin => {
            // That of nearly all clusters.
            static CONFIG: LazyLock<Arc<RoundRobinConfig>> = LazyLock::new(Arc::default);
            Arc::clone(&CONFIG) as Arc<dyn PolicyConfig>
        }
        LbPolicy::RingHash { min_ring_size, max_ring_size, request_hash_header } => {
            let request_hash_header = request_hash_header.as_ref().and_then(|name| name.parse().ok());
            Arc::new(RingHashConfig {
                min_ring_size: *min_ring_size,
                max_ring_size: *max_ring_size,
                request_hash_header,
            })
        }
        LbPolicy::LeastRequest { choice_count } => {
            Arc::new(LeastRequestConfig { choice_count: *choice_count })
        }
        LbPolicy::WeightedRoundRobin(config) => Arc::new(weighted_round_robin(config)),
        LbPolicy::RandomSubsetting { subset_size, child } => {
            Arc::new(RandomSubsettingConfig { subset_size: *subset_size, child: policy_config(child)? })
        }
        LbPolicy::PickFirst { shuffle_address_list } => {
            Arc::new(PickFirstConfig { shuffle_address_list: *shuffle_address_list, ..Default::default() })
        }
        LbPolicy::Custom(custom) => OpaqueConfig::open(custom)?,
        other => {
            return Err(ConfigError { policy: "xds", reason: format!("policy {other:?} is not supported") });
        }
    })
}

/// A58: absent fields have the defaults of the policy.
fn weighted_round_robin(config: &WeightedRoundRobin) -> WeightedRoundRobinConfig {
    let default = WeightedRoundRobinConfig::default();
    let names = config.metric_names_for_computing_utilization.iter();
    WeightedRoundRobinConfig {
        enable_oob_load_report: config.enable_oob_load_report.unwrap_or(default.enable_oob_load_report),
        oob_reporting_period: config.oob_reporting_period.unwrap_or(default.oob_reporting_period),
        blackout_period: config.blackout_period.unwrap_or(default.blackout_period),
        weight_expiration_period: config.weight_expiration_period.unwrap_or(default.weight_expiration_period),
        weight_update_period: config.weight_update_period.unwrap_or(default.weight_update_period),
        error_utilization_penalty: config
            .error_utilization_penalty
            .map_or(default.error_utilization_penalty, f64::from),
        // A114-03: names of other fields are never in a report.
        metric_names_for_computing_utilization: names
            .filter_map(|name| UtilizationMetric::parse(name))
            .collect(),
    }
}

/// The form in which the policy takes the endpoints of a priority.
#[must_use]
pub fn grouping(policy: &LbPolicy) -> Grouping {
    match policy {
        LbPolicy::WrrLocality(_) => Grouping::Localities,
        LbPolicy::RandomSubsetting { child, .. } => grouping(child),
        // A policy of the application takes endpoints as its children do.
        LbPolicy::Custom(custom) if custom.children.iter().map(grouping).any(Grouping::is_by_locality) => {
            Grouping::Localities
        }
        // A42: a policy that picks locality and endpoint in one step takes one list.
        _ => Grouping::Flat,
    }
}
