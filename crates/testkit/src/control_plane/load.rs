//! Load reports, as tests ask for them and read them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use envoy_types::pb::envoy::{config::endpoint::v3::ClusterStats, service::load_stats::v3::LoadStatsRequest};
use tonic::Status;

use super::{ControlPlane, load_state::LoadState};
use crate::observed::TimedOut;

/// A `LoadStatsRequest` that arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadReport {
    stream: u64,
    message: LoadStatsRequest,
}

impl LoadReport {
    pub(super) fn new(stream: u64, message: LoadStatsRequest) -> Self {
        Self { stream, message }
    }

    /// The number of the LRS stream that carried it; the first one is 1.
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// What it says of a cluster, if anything.
    pub fn cluster(&self, name: &str) -> Option<&ClusterStats> {
        self.message.cluster_stats.iter().find(|stats| stats.cluster_name == name)
    }

    /// Everything.
    pub fn message(&self) -> &LoadStatsRequest {
        &self.message
    }
}

/// The reports of one cluster, added up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// How many reports there were.
    pub reports: usize,
    /// Requests that were sent.
    pub issued: u64,
    /// Requests that ended well.
    pub succeeded: u64,
    /// Requests that did not.
    pub failed: u64,
    /// Requests that had not ended at the time of the last report.
    pub in_progress: u64,
    /// Requests that were sent, by the zone of their locality.
    pub issued_by_zone: BTreeMap<String, u64>,
    /// Requests that were dropped.
    pub dropped: u64,
    /// Requests that were dropped, by category.
    pub dropped_by_category: BTreeMap<String, u64>,
    /// Named metrics: over how many requests, and their sum.
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
    /// How often load reports are wanted: each second, unless told. Open LRS streams hear of it at once.
    pub fn set_load_interval(&self, interval: Duration) {
        self.loads.update(|s| {
            s.interval = interval;
            s.tell_wishes();
        });
    }

    /// Which clusters' load is wanted: only these, or with `None` all, as at the start. Open LRS streams hear of it at
    /// once.
    pub fn set_load_clusters(&self, clusters: Option<&[&str]>) {
        self.loads.update(|s| {
            s.clusters = clusters.map(|names| names.iter().map(ToString::to_string).collect());
            s.tell_wishes();
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

    /// How many LRS streams are open.
    pub fn open_load_streams(&self) -> usize {
        self.loads.read(LoadState::open_streams)
    }

    /// How many LRS streams were ever opened.
    pub fn load_streams_opened(&self) -> u64 {
        self.loads.read(|s| s.streams_opened)
    }

    /// Every request on LRS streams so far, oldest first. The first of each stream carries the node.
    pub fn load_reports(&self) -> Vec<Arc<LoadReport>> {
        self.loads.read(|s| s.reports.clone())
    }

    /// All that was reported of a cluster so far.
    pub fn load(&self, cluster: &str) -> Load {
        self.loads.read(|s| load_of(s, cluster))
    }

    /// Waits for a request on an LRS stream that matches, among those that came and those to come.
    ///
    /// # Errors
    /// When none comes in time.
    pub async fn wait_load_report(
        &self,
        mut matches: impl FnMut(&LoadReport) -> bool,
    ) -> Result<Arc<LoadReport>, TimedOut> {
        let find = |s: &LoadState| s.reports.iter().find(|report| matches(report)).cloned();
        self.loads.wait(self.patience, "a matching load report", find, describe).await
    }

    /// Waits until what was reported of a cluster is as it should be.
    ///
    /// # Errors
    /// When that does not happen in time.
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
    /// When that does not happen in time.
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
