//! The load report of one cluster, as numbers and as a message.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as wire;
use envoy_types::pb::envoy::config::endpoint::v3::cluster_stats::DroppedRequests;
use envoy_types::pb::google::protobuf::Duration as WireDuration;

use super::locality::{MetricSums, Sum};
use crate::resource::Locality;

/// The identity of a cluster in reports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterKey {
    pub(super) cluster: Arc<str>,
    pub(super) eds_service_name: Option<Arc<str>>,
}

/// New load of one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClusterLoad {
    pub(super) localities: BTreeMap<Locality, LocalityCounts>,
    pub(super) categories: BTreeMap<Arc<str>, u64>,
    pub(super) uncategorized: u64,
}

/// New load of one locality.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LocalityCounts {
    pub(super) issued: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    /// The current number, not the increase.
    pub(super) in_progress: u64,
    pub(super) metrics: MetricSums,
}

impl ClusterLoad {
    pub(super) fn is_zero(&self) -> bool {
        self.localities.values().all(LocalityCounts::is_zero)
            && self.categories.values().all(|&count| count == 0)
            && self.uncategorized == 0
    }

    /// The part to keep when a report was not sent: all but the requests in progress, which the next report counts
    /// itself.
    pub(super) fn into_unsent(mut self) -> Self {
        self.localities.values_mut().for_each(|counts| counts.in_progress = 0);
        self
    }

    /// The message; `covered` is the length of the interval.
    pub(super) fn message(&self, key: &ClusterKey, covered: Duration) -> wire::ClusterStats {
        let dropped = |(category, &dropped_count): (&Arc<str>, &u64)| DroppedRequests {
            category: category.to_string(),
            dropped_count,
        };
        let localities = self.localities.iter().filter(|(_, counts)| !counts.is_zero());
        wire::ClusterStats {
            cluster_name: key.cluster.to_string(),
            // A37-53: empty if CDS has none.
            cluster_service_name: key.eds_service_name.as_deref().unwrap_or_default().to_owned(),
            upstream_locality_stats: localities.map(|(locality, counts)| counts.message(locality)).collect(),
            // drops of circuit breaking are in the total and in no category.
            total_dropped_requests: self.uncategorized + self.categories.values().sum::<u64>(),
            dropped_requests: self.categories.iter().map(dropped).collect(),
            load_report_interval: Some(WireDuration {
                seconds: i64::try_from(covered.as_secs()).unwrap_or(i64::MAX),
                // `subsec_nanos` is below a billion.
                nanos: covered.subsec_nanos().cast_signed(),
            }),
        }
    }
}

impl AddAssign for ClusterLoad {
    fn add_assign(&mut self, other: Self) {
        for (locality, counts) in other.localities {
            *self.localities.entry(locality).or_default() += counts;
        }
        for (category, count) in other.categories {
            *self.categories.entry(category).or_default() += count;
        }
        self.uncategorized += other.uncategorized;
    }
}

impl LocalityCounts {
    pub(super) fn is_zero(&self) -> bool {
        let Self { issued, succeeded, failed, in_progress, metrics } = self;
        [issued, succeeded, failed, in_progress].into_iter().all(|&count| count == 0) && metrics.is_zero()
    }

    /// A27-58: per-endpoint statistics are not reported.
    fn message(&self, locality: &Locality) -> wire::UpstreamLocalityStats {
        let Locality { region, zone, sub_zone } = locality.clone();
        let named = |(name, sum): (&String, &Sum)| wire::EndpointLoadMetricStats {
            metric_name: name.clone(),
            num_requests_finished_with_metric: sum.requests,
            total_metric_value: sum.total,
        };
        wire::UpstreamLocalityStats {
            locality: Some(core::Locality { region, zone, sub_zone }),
            total_successful_requests: self.succeeded,
            total_requests_in_progress: self.in_progress,
            total_error_requests: self.failed,
            total_issued_requests: self.issued,
            cpu_utilization: unnamed(self.metrics.cpu_utilization),
            mem_utilization: unnamed(self.metrics.mem_utilization),
            application_utilization: unnamed(self.metrics.application_utilization),
            load_metric_stats: self.metrics.named.iter().map(named).collect(),
            ..Default::default()
        }
    }
}

impl AddAssign for LocalityCounts {
    fn add_assign(&mut self, other: Self) {
        self.issued += other.issued;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.in_progress += other.in_progress;
        self.metrics += other.metrics;
    }
}

fn unnamed(sum: Sum) -> Option<wire::UnnamedEndpointLoadMetricStats> {
    (sum.requests > 0).then_some(wire::UnnamedEndpointLoadMetricStats {
        num_requests_finished_with_metric: sum.requests,
        total_metric_value: sum.total,
    })
}
