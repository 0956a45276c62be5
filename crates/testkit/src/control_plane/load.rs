//! Load reports in tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::endpoint::v3::ClusterStats;
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use tonic::Status;

use super::ControlPlane;
use super::load_state::LoadState;
use crate::observed::TimedOut;

/// A received `LoadStatsRequest`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadReport {
    stream: u64,
    message: LoadStatsRequest,
}

impl LoadReport {
    pub(super) fn new(stream: u64, message: LoadStatsRequest) -> Self {
        Self { stream, message }
    }

    /// The number of its LRS stream; the first one is 1.
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// The part about a cluster, if any.
    pub fn cluster(&self, name: &str) -> Option<&ClusterStats> {
        self.message.cluster_stats.iter().find(|stats| stats.cluster_name == name)
    }

    /// The complete message.
    pub fn message(&self) -> &LoadStatsRequest {
        &self.message
    }
}

/// The sum of the reports of one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// The number of reports.
    pub reports: usize,
    /// Requests issued.
    pub issued: u64,
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests in progress at the time of the last report.
    pub in_progress: u64,
    /// Requests issued, by the zone of their locality.
    pub issued_by_zone: BTreeMap<String, u64>,
    /// Requests dropped.
    pub dropped: u64,
    /// Requests dropped, by category.
    pub dropped_by_category: BTreeMap<String, u64>,
    /// Named metrics: the number of requests, and the sum.
    pub metrics: BTreeMap<String, (u64, f64)>,
}

impl Load {
    fn add(&mut self, stats: &ClusterStats) {
        self.reports += 1;
        self.in_progress = 0;
        self.dropped += stats.total_dropped_requests;
        for drop in &stats.dropped_requests {
            *self.dropped_by_category.entry(drop.category.clone()).or_default() += drop.dropped_count;
        }
        for of in &stats.upstream_locality_stats {
            self.issued += of.total_issued_requests;
            self.succeeded += of.total_successful_requests;
            self.failed += of.total_error_requests;
            self.in_progress += of.total_requests_in_progress;
            let zone = of.locality.as_ref().map(|locality| locality.zone.clone()).unwrap_or_default();
            *self.issued_by_zone.entry(zone).or_default() += of.total_issued_requests;
            for metric in &of.load_metric_stats {
                let (requests, total) = self.metrics.entry(metric.metric_name.clone()).or_default();
                *requests += metric.num_requests_finished_with_metric;
                *total += metric.total_metric_value;
            }
        }
    }
}

impl ControlPlane {
    /// Sets the interval of load reports; one second by default. Applies to open LRS streams at once.
    pub fn set_load_interval(&self, interval: Duration) {
        self.loads.update(|s| {
            s.interval = interval;
            s.send_request_to_all();
        });
    }

    /// Sets the clusters whose load is requested; `None` requests all, the default. Applies to open LRS streams at
    /// once.
    pub fn set_load_clusters(&self, clusters: Option<&[&str]>) {
        self.loads.update(|s| {
            s.clusters = clusters.map(|names| names.iter().map(ToString::to_string).collect());
            s.send_request_to_all();
        });
    }

    /// Ends every open LRS stream with status OK. ([`close_streams`](Self::close_streams) is for ADS streams.)
    pub fn close_load_streams(&self) {
        self.loads.update(|s| s.send(&Ok(None)));
    }

    /// Ends every open LRS stream with this status.
    pub fn fail_load_streams(&self, status: Status) {
        self.loads.update(|s| s.send(&Err(status)));
    }

    /// The number of open LRS streams.
    pub fn open_load_streams(&self) -> usize {
        self.loads.read(LoadState::open_streams)
    }

    /// The number of LRS streams opened so far.
    pub fn load_streams_opened(&self) -> u64 {
        self.loads.read(|s| s.streams_opened)
    }

    /// All requests on LRS streams so far, oldest first. The first of each stream contains the node.
    pub fn load_reports(&self) -> Vec<Arc<LoadReport>> {
        self.loads.read(|s| s.reports.clone())
    }

    /// The sum of all reports of a cluster so far.
    pub fn load(&self, cluster: &str) -> Load {
        self.loads.read(|s| load_of(s, cluster))
    }

    /// Waits for a matching request on an LRS stream, past or future.
    ///
    /// # Errors
    /// If there is none in time.
    pub async fn wait_load_report(
        &self,
        mut matches: impl FnMut(&LoadReport) -> bool,
    ) -> Result<Arc<LoadReport>, TimedOut> {
        let find = |s: &LoadState| s.reports.iter().find(|report| matches(report)).cloned();
        self.loads.wait(self.patience, "a matching load report", find, describe).await
    }

    /// Waits until the reported load of a cluster matches.
    ///
    /// # Errors
    /// If that does not happen in time.
    pub async fn wait_load(
        &self,
        cluster: &str,
        mut reached: impl FnMut(&Load) -> bool,
    ) -> Result<Load, TimedOut> {
        let find = |s: &LoadState| Some(load_of(s, cluster)).filter(|load| reached(load));
        let seen = |s: &LoadState| format!("{:?}; {}", load_of(s, cluster), describe(s));
        self.loads.wait(self.patience, format!("load of {cluster}"), find, seen).await
    }

    /// Waits until this many LRS streams are open.
    ///
    /// # Errors
    /// If that does not happen in time.
    pub async fn wait_open_load_streams(&self, count: usize) -> Result<(), TimedOut> {
        let find = |s: &LoadState| (s.open_streams() == count).then_some(());
        self.loads.wait(self.patience, format!("{count} open LRS streams"), find, describe).await
    }
}

fn load_of(state: &LoadState, cluster: &str) -> Load {
    let mut load = Load::default();
    let stats = state.reports.iter().flat_map(|report| &report.message.cluster_stats);
    stats.filter(|stats| stats.cluster_name == cluster).for_each(|stats| load.add(stats));
    load
}

fn describe(state: &LoadState) -> String {
    let (reports, opened) = (state.reports.len(), state.streams_opened);
    format!("{reports} requests on {opened} LRS streams ({} open)", state.open_streams())
}
