//! The load that clients report (LRS): sums by cluster.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::endpoint::v3::ClusterStats;

/// The sum of the reports of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadView {
    /// The number of reports.
    pub reports: u64,
    /// Requests issued.
    pub issued: u64,
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests dropped.
    pub dropped: u64,
    /// Requests in progress at the time of the latest report.
    pub in_progress: u64,
    /// Requests issued by locality: region, zone and sub-zone with slashes.
    pub by_locality: BTreeMap<String, u64>,
}

impl LoadView {
    /// Adds a report.
    pub(super) fn add(&mut self, stats: &ClusterStats) {
        self.reports += 1;
        self.dropped = self.dropped.saturating_add(stats.total_dropped_requests);
        self.in_progress = 0;
        for of in &stats.upstream_locality_stats {
            self.issued = self.issued.saturating_add(of.total_issued_requests);
            self.succeeded = self.succeeded.saturating_add(of.total_successful_requests);
            self.failed = self.failed.saturating_add(of.total_error_requests);
            self.in_progress = self.in_progress.saturating_add(of.total_requests_in_progress);
            let locality = of.locality.clone().unwrap_or_default();
            let parts = [locality.region, locality.zone, locality.sub_zone];
            let name = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
            let sum = self.by_locality.entry(name).or_default();
            *sum = sum.saturating_add(of.total_issued_requests);
        }
    }
}
