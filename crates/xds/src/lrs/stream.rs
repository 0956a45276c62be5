//! One LRS stream: the server's request, and the report in flight.

use std::collections::BTreeSet;
use std::time::Duration;

use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsResponse;
use envoy_types::pb::google::protobuf::Duration as WireDuration;
use proxyless_sans_io::Time;

use super::report::{ClusterKey, ClusterLoad};
use crate::StreamId;

/// The shortest reporting interval, as in gRPC's C-core.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The state of one stream. It is dropped with the stream: the next one starts with the node and waits for the server's
/// request.
#[derive(Debug, Default)]
pub(super) struct LrsStream {
    pub(super) id: StreamId,
    pub(super) up: bool,
    pub(super) reading: bool,
    pub(super) sending: Option<Sending>,
    /// The server's request; nothing is reported before it.
    pub(super) requested: Option<LoadReportRequest>,
    /// The time of the first request.
    pub(super) asked_since: Option<Time>,
    pub(super) next_report: Option<Time>,
    /// Whether a report was sent in this interval: the stream is not closed right behind it.
    pub(super) reported: bool,
}

/// A request that HTTP/2 has not taken yet.
#[derive(Debug)]
pub(super) enum Sending {
    Node,
    Report(Vec<Taken>),
}

/// The part of a report about one cluster.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) key: ClusterKey,
    pub(super) load: ClusterLoad,
    pub(super) since: Time,
}

impl LrsStream {
    pub(super) fn new(id: StreamId) -> Self {
        Self { id, ..Self::default() }
    }

    /// Applies a request of the server. A new interval starts now; new clusters are counted from the next report on.
    pub(super) fn on_request(&mut self, now: Time, request: LoadReportRequest) {
        if self.requested.as_ref().is_none_or(|old| old.interval != request.interval) {
            self.next_report = Some(now + request.interval);
        }
        self.requested = Some(request);
        self.asked_since.get_or_insert(now);
    }

    /// The time at which the next report is due. A report waits until the previous request was taken.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.next_report.filter(|_| self.sending.is_none())
    }

    /// Removes the load of a cluster from the report that HTTP/2 has not taken, so that it is not sent again.
    pub(super) fn forget(&mut self, key: &ClusterKey) {
        if let Some(Sending::Report(taken)) = &mut self.sending {
            taken.retain(|taken| taken.key != *key);
        }
    }

    /// Whether the stream may be closed if there is nothing to report.
    pub(super) fn is_quiet(&self) -> bool {
        !self.reported && !matches!(self.sending, Some(Sending::Report(_)))
    }
}

/// The server's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadReportRequest {
    clusters: Clusters,
    pub(super) interval: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Clusters {
    All,
    Named(BTreeSet<String>),
}

impl LoadReportRequest {
    pub(super) fn includes(&self, cluster: &str) -> bool {
        match &self.clusters {
            Clusters::All => true,
            Clusters::Named(names) => names.contains(cluster),
        }
    }
}

impl From<LoadStatsResponse> for LoadReportRequest {
    fn from(response: LoadStatsResponse) -> Self {
        let clusters = if response.send_all_clusters {
            Clusters::All
        } else {
            Clusters::Named(response.clusters.into_iter().collect())
        };
        let interval = response.load_reporting_interval.as_ref().map_or(MIN_INTERVAL, interval);
        Self { clusters, interval: interval.max(MIN_INTERVAL) }
    }
}

/// Negative and invalid durations count as the shortest interval.
fn interval(proto: &WireDuration) -> Duration {
    let whole = Duration::from_secs(u64::try_from(proto.seconds).unwrap_or_default());
    whole.saturating_add(Duration::from_nanos(u64::try_from(proto.nanos).unwrap_or_default()))
}
