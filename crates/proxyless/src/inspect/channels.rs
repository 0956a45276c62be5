//! Channels, their connections, and what happened to them.

use std::net::SocketAddr;

use proxyless_balancer::api::{CallCounts, ConnectivityState, PolicyNode};
use proxyless_mesh::channel_core::ChannelTree;
use serde::{Deserialize, Serialize};

/// One channel; see [`ClientPool::channels`](crate::ClientPool::channels).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelReport {
    /// Names the channel in this process; connections and sockets have ids of the same kind.
    pub id: u64,
    /// The target that it was made with.
    pub target: String,
    /// Its state.
    pub state: ConnectivityState,
    /// When it was made, in seconds since 1970.
    pub created: f64,
    /// How often its task was started again after a panic; `events` say what panicked.
    #[serde(default)]
    pub restarts: u64,
    /// Its calls.
    pub calls: CallReport,
    /// Its routes and policies.
    pub tree: ChannelTree,
    /// Its connections (gRPC calls them subchannels).
    pub connections: Vec<ConnectionReport>,
    /// What happened last, in order.
    pub events: Vec<Event>,
    /// How much happened since the beginning; more than `events` has.
    pub events_total: u64,
}

impl ChannelReport {
    /// What RPCs fail with, or a connection failed with: the first error there is.
    pub(crate) fn failure(&self) -> Option<&str> {
        let of_connections = || self.connections.iter().find_map(|connection| connection.error.as_deref());
        let of_policies = || self.tree.root.as_ref().and_then(failure);
        self.tree.error.as_deref().or_else(of_policies).or_else(of_connections)
    }
}

/// What the policy, or one below it, fails RPCs with.
fn failure(node: &PolicyNode) -> Option<&str> {
    let below = || node.children.iter().find_map(|child| failure(&child.node));
    node.error.as_deref().or_else(below)
}

/// Calls of a channel, a subchannel or a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// Those that ended, and those that are on a connection now. Calls that still wait for a connection are not in it.
    pub started: u64,
    /// Those that ended with status OK.
    pub succeeded: u64,
    /// Those that ended otherwise.
    pub failed: u64,
}

impl CallReport {
    pub(crate) fn new(ended: CallCounts, in_flight: u64) -> Self {
        let CallCounts { succeeded, failed } = ended;
        Self { started: ended.ended() + in_flight, succeeded, failed }
    }

    /// Those that are on a connection now.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.succeeded + self.failed)
    }
}

/// A subchannel: all that is known of connecting to one address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// Its id.
    pub id: u64,
    /// The address.
    pub address: SocketAddr,
    /// Its state.
    pub state: ConnectivityState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its calls, over all its connections.
    pub calls: CallReport,
    /// The live connection.
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

/// Something that happened to a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in seconds since 1970.
    pub time: f64,
    /// How bad it is.
    pub severity: Severity,
    /// What happened.
    pub what: String,
    /// The subchannel that it happened to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
}

/// How bad an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Info,
    /// Something is not right.
    Warning,
    /// RPCs fail for it.
    Error,
}
