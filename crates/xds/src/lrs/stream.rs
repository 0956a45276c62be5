//! One LRS stream: what the server asked for on it, and what is on its way out.

use std::collections::BTreeSet;
use std::time::Duration;

use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsResponse;
use envoy_types::pb::google::protobuf::Duration as WireDuration;
use proxyless_sans_io::Time;

use super::report::{ClusterKey, ClusterLoad};

/// Servers that ask for more frequent reports get them this often, as in gRPC's C core.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The state of one stream. It ends with the stream: another one begins with the node and the server's wishes.
#[derive(Debug)]
pub(super) struct LrsStream {
    pub(super) id: u64,
    pub(super) up: bool,
    pub(super) reading: bool,
    pub(super) sending: Option<Sending>,
    /// What the server asked for; nothing is reported before.
    pub(super) wishes: Option<Wishes>,
    pub(super) next_report: Option<Time>,
    /// Whether a report went out in this interval: the stream is not closed on its heels.
    pub(super) reported: bool,
}

/// A request that HTTP/2 has not pulled yet.
#[derive(Debug)]
pub(super) enum Sending {
    Node,
    Report(Vec<Taken>),
}

/// A cluster's part of a report.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) key: ClusterKey,
    pub(super) load: ClusterLoad,
    pub(super) since: Time,
}

impl LrsStream {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            up: false,
            reading: false,
            sending: None,
            wishes: None,
            next_report: None,
            reported: false,
        }
    }

    /// Takes in what the server asks for. A new interval begins now; new clusters count from the next report on.
    pub(super) fn ask(&mut self, now: Time, wishes: Wishes) {
        if self.wishes.as_ref().is_none_or(|old| old.interval != wishes.interval) {
            self.next_report = Some(now + wishes.interval);
        }
        self.wishes = Some(wishes);
    }

    /// When the next report is due. A report waits until the request before it is out.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.next_report.filter(|_| self.sending.is_none())
    }

    /// Whether the stream may be closed if there is nothing to report.
    pub(super) fn is_quiet(&self) -> bool {
        !self.reported && !matches!(self.sending, Some(Sending::Report(_)))
    }
}

/// What the server asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wishes {
    clusters: Clusters,
    pub(super) interval: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Clusters {
    All,
    Named(BTreeSet<String>),
}

impl Wishes {
    pub(super) fn want(&self, cluster: &str) -> bool {
        match &self.clusters {
            Clusters::All => true,
            Clusters::Named(names) => names.contains(cluster),
        }
    }
}

impl From<LoadStatsResponse> for Wishes {
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

/// What is negative, or no duration at all, is short.
fn interval(proto: &WireDuration) -> Duration {
    let whole = Duration::from_secs(u64::try_from(proto.seconds).unwrap_or_default());
    whole.saturating_add(Duration::from_nanos(u64::try_from(proto.nanos).unwrap_or_default()))
}
