//! The names by which policies appear in configurations, errors and logs.

use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{Endpoints, PolicyConfig, Update};
use proxyless_balancer::policies::least_request::LeastRequestConfig;
use proxyless_balancer::policies::outlier_detection::OutlierDetectionConfig;
use proxyless_balancer::policies::priority::PriorityConfig;
use proxyless_balancer::policies::random_subsetting::RandomSubsettingConfig;
use proxyless_balancer::policies::ring_hash::RingHashConfig;
use proxyless_balancer::policies::round_robin::RoundRobinConfig;
use proxyless_balancer::policies::weighted_round_robin::WeightedRoundRobinConfig;
use proxyless_balancer::policies::weighted_target::WeightedTargetConfig;
use proxyless_balancer::testing::Bench;
use proxyless_mesh::endpoints::Grouping;
use proxyless_mesh::policies::cds::{CdsConfig, CdsSettings};
use proxyless_mesh::policies::cluster_impl::{CircuitRegistry, ClusterImplConfig, LoadRegistry};
use proxyless_mesh::policies::cluster_manager::ClusterManagerConfig;
use proxyless_mesh::policies::custom::Registry;
use proxyless_mesh::policies::override_host::{OverrideHostConfig, Sessions};
use proxyless_mesh::policies::wrr_locality::WrrLocalityConfig;
use proxyless_xds::resource::OverrideHostStatus;

fn cds(cluster: &str) -> CdsConfig {
    let settings = CdsSettings {
        failover_timeout: Duration::from_secs(10),
        aggregate_backward_compat: false,
        sessions: Sessions::Used,
        loads: LoadRegistry::default(),
        security: Default::default(),
        names: Default::default(),
        circuits: CircuitRegistry::default(),
    };
    CdsConfig { cluster: cluster.into(), lb_policy: None, settings: Arc::new(settings) }
}

#[test]
fn a27_08_policies_that_xds_brings_are_named_experimental() {
    let child: Arc<dyn PolicyConfig> = Arc::new(RoundRobinConfig);
    let cluster_impl = ClusterImplConfig {
        cluster: "c".into(),
        eds_service_name: None,
        max_requests: 1024,
        max_connections_per_subchannel: None,
        drops: Vec::new(),
        load_reporting: None,
        circuits: CircuitRegistry::default(),
        child: Arc::clone(&child),
    };
    let priority = PriorityConfig::new([]);
    let subset = RandomSubsettingConfig { subset_size: 1, child: Arc::clone(&child) };
    let outlier_detection = OutlierDetectionConfig { detection: Arc::default(), child: Arc::clone(&child) };
    let override_host = OverrideHostConfig {
        override_host_status: OverrideHostStatus::default(),
        idle_timeout: Duration::from_secs(3600),
        sessions: Sessions::Used,
        child: Arc::clone(&child),
    };
    let policies: [(Arc<dyn PolicyConfig>, &str); 12] = [
        (Arc::new(ClusterManagerConfig::default()), "xds_cluster_manager_experimental"),
        (Arc::new(cds("c")), "cds_experimental"),
        (Arc::new(outlier_detection), "outlier_detection_experimental"),
        (Arc::new(cluster_impl), "xds_cluster_impl_experimental"),
        (Arc::new(override_host), "xds_override_host_experimental"),
        (Arc::new(priority), "priority_experimental"),
        (Arc::new(WrrLocalityConfig { child, grouping: Grouping::Flat }), "xds_wrr_locality_experimental"),
        (Arc::new(WeightedTargetConfig { targets: Default::default() }), "weighted_target_experimental"),
        (Arc::new(RingHashConfig::default()), "ring_hash_experimental"),
        (Arc::new(LeastRequestConfig::default()), "least_request_experimental"),
        (Arc::new(WeightedRoundRobinConfig::default()), "weighted_round_robin_experimental"),
        (Arc::new(subset), "random_subsetting_experimental"),
    ];
    for (config, name) in policies {
        assert_eq!(config.policy_name(), name);
        // A52-16: an application cannot take it.
        let taken = Registry::new().register(name, |_| Ok(RoundRobinConfig)).check();
        assert!(taken.is_err(), "{name}");
    }
    assert_eq!(RoundRobinConfig.policy_name(), "round_robin", "older than xDS");
}

#[test]
fn a27_08_errors_have_the_policys_name() {
    let update = Update::new(Arc::new(cds("nowhere")), Endpoints::none());
    let error = Bench::new().try_update(&update).expect_err("a cluster that is not configured");
    assert_eq!(error.to_string(), "cds_experimental: the configuration has no cluster nowhere");
}
