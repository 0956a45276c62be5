//! Channels, their connections and their events.

use std::net::SocketAddr;

use proxyless_balancer::api::{CallCounts, ConnectivityState, PolicyNode};
use proxyless_mesh::channel_core::ChannelTree;
use serde::{Deserialize, Serialize};

/// One channel; see [`ClientPool::channels`](crate::ClientPool::channels).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelReport {
    /// The id of the channel in this process; connections and sockets have ids of the same kind.
    pub id: u64,
    /// The channel's target.
    pub target: String,
    /// The connectivity state.
    pub state: ConnectivityState,
    /// The time of its creation, in seconds since 1970.
    pub created: f64,
    /// How often its task was started again after a panic; `events` say what panicked.
    #[serde(default)]
    pub restarts: u64,
    /// The channel's calls.
    pub calls: CallReport,
    /// The routes and policies.
    pub tree: ChannelTree,
    /// The connections (gRPC calls them subchannels).
    pub connections: Vec<ConnectionReport>,
    /// The latest events, in order.
    pub events: Vec<Event>,
    /// The number of events since the beginning, which may exceed the length of `events`.
    pub events_total: u64,
}

impl ChannelReport {
    /// The error of RPCs, or of a connection: the first one found.
    pub(crate) fn failure(&self) -> Option<&str> {
        let of_connections = || self.connections.iter().find_map(|connection| connection.error.as_deref());
        let of_policies = || self.tree.root.as_ref().and_then(failure);
        self.tree.error.as_deref().or_else(of_policies).or_else(of_connections)
    }
}

/// The error that the policy or a descendant fails RPCs with.
fn failure(node: &PolicyNode) -> Option<&str> {
    let below = || node.children.iter().find_map(|child| failure(&child.node));
    node.error.as_deref().or_else(below)
}

/// Calls of a channel, a subchannel or a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// Calls that ended and calls in flight, without those that still wait for a connection.
    pub started: u64,
    /// Calls that ended with status OK.
    pub succeeded: u64,
    /// Calls that ended with another status.
    pub failed: u64,
}

impl CallReport {
    pub(crate) fn new(ended: CallCounts, in_flight: u64) -> Self {
        let CallCounts { succeeded, failed } = ended;
        Self { started: ended.ended() + in_flight, succeeded, failed }
    }

    /// Calls in flight on a connection.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.succeeded + self.failed)
    }
}

/// A subchannel: the connection to one address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// Its id.
    pub id: u64,
    /// The address.
    pub address: SocketAddr,
    /// The connectivity state.
    pub state: ConnectivityState,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The calls on all its connections.
    pub calls: CallReport,
    /// The live connection, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketReport>,
}

/// A live connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SocketReport {
    /// Its id.
    pub id: u64,
    /// Its calls.
    pub calls: CallReport,
}

/// An event of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The time, in seconds since 1970.
    pub time: f64,
    /// The severity.
    pub severity: Severity,
    /// A description of the event.
    pub what: String,
    /// The subchannel concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
}

/// The severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Normal operation.
    Info,
    /// A problem.
    Warning,
    /// A problem that makes RPCs fail.
    Error,
}
