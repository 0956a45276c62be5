//! The history as JSON.

use serde::{Deserialize, Serialize};

use super::marks::MarkKind;

/// The last five minutes of all channels: `/proxyless/history.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistoryView {
    /// The time at which the recording started, in milliseconds since 1970: its identity.
    pub recording: u64,
    /// The number of the last sample.
    pub last_sample: u64,
    /// The time of each sample in seconds since 1970, the oldest first.
    pub times: Vec<f64>,
    /// Channels, clusters and endpoints.
    pub series: Vec<HistorySeries>,
    /// The series that found no place.
    #[serde(default)]
    pub left_out: LeftOut,
    /// What happened, in the order in which it was seen.
    pub marks: Vec<HistoryMark>,
}

/// The rates and latencies of a channel, a cluster or an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistorySeries {
    /// The target of the channel.
    pub target: String,
    /// The leaf cluster; `None` for the channel as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The address of the endpoint; `None` for the cluster as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Ended RPCs per second.
    pub rate: Vec<Option<f64>>,
    /// Those with another status than OK.
    pub errors: Vec<Option<f64>>,
    /// The median latency in seconds.
    pub p50: Vec<Option<f64>>,
    /// The latency that 90 % of the RPCs do not exceed; not of endpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub p90: Vec<Option<f64>>,
    /// The latency that 99 % of the RPCs do not exceed.
    pub p99: Vec<Option<f64>>,
}

/// The numbers of series that found no place in the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Channels.
    pub targets: usize,
    /// Clusters.
    pub clusters: usize,
    /// Endpoints.
    pub endpoints: usize,
}

/// An event on the time axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistoryMark {
    /// The time in seconds since 1970.
    pub time: f64,
    /// The id of the channel.
    pub channel: u64,
    /// The kind.
    pub kind: MarkKind,
    /// A human-readable sentence.
    pub text: String,
}
