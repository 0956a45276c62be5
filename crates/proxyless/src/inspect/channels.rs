//! Channels, their subchannels and their events.

use std::net::SocketAddr;
use std::time::SystemTime;

use proxyless_balancer::api::{CallCounts, ConnectivityState, PolicyView};
use proxyless_mesh::channel_core::TreeView;
use serde::{Deserialize, Serialize};

use super::since_1970;
use super::tls::TlsView;

/// One channel: its calls, routes, policies, subchannels and events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChannelView {
    /// The id of the channel, unique in this process also among subchannels and sockets.
    pub id: u64,
    /// The target, such as `xds:///greeter`.
    pub target: String,
    /// The published state; CONNECTING while the channel waits for its first configuration.
    pub state: ConnectivityState,
    /// The time of its creation.
    #[serde(with = "since_1970")]
    pub created: SystemTime,
    /// The number of restarts of its task after panics, which are among the `events`.
    #[serde(default)]
    pub restarts: u64,
    /// The RPCs of the channel; an RPC that was retried counts once.
    pub calls: CallsView,
    /// The faults injected into the RPCs of the channel (gRFC A33).
    #[serde(default, skip_serializing_if = "FaultsView::is_empty")]
    pub faults: FaultsView,
    /// The routes and policies.
    pub tree: TreeView,
    /// The subchannels: one for each address.
    #[serde(rename = "connections")]
    pub subchannels: Vec<SubchannelView>,
    /// The latest events, in order.
    pub events: Vec<Event>,
    /// The number of events since the beginning, which may exceed the length of `events`.
    pub events_total: u64,
}

impl ChannelView {
    /// The error of RPCs, or of a subchannel: the first one found.
    pub(crate) fn failure(&self) -> Option<&str> {
        let of_subchannels = || self.subchannels.iter().find_map(|subchannel| subchannel.error.as_deref());
        let of_policies = || self.tree.root.as_ref().and_then(failure);
        self.tree.error.as_deref().or_else(of_policies).or_else(of_subchannels)
    }
}

/// The error that the policy or a descendant fails RPCs with.
fn failure(node: &PolicyView) -> Option<&str> {
    let below = || node.children.iter().find_map(|child| failure(&child.node));
    node.error.as_deref().or_else(below)
}

/// Calls of a channel, a subchannel or a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallsView {
    /// Calls that ended and calls in flight, without those that still wait for a connection.
    pub started: u64,
    /// Calls that ended with status OK.
    pub succeeded: u64,
    /// Calls that ended with another status.
    pub failed: u64,
}

impl CallsView {
    pub(crate) fn new(ended: CallCounts, in_flight: u64) -> Self {
        let CallCounts { succeeded, failed, .. } = ended;
        Self { started: ended.ended() + in_flight, succeeded, failed }
    }

    /// Calls in flight on a connection.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.succeeded + self.failed)
    }
}

/// The faults that filters injected into RPCs (gRFC A33).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FaultsView {
    /// RPCs with an active fault: those that are delayed now.
    pub active: u64,
    /// RPCs that were delayed, including those that are delayed now.
    pub delayed: u64,
    /// RPCs that were aborted.
    pub aborted: u64,
}

impl FaultsView {
    /// Whether there was no fault.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A subchannel: the connections to one address, one after the other, or several at once (gRFC A105).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SubchannelView {
    /// Its unique id.
    pub id: u64,
    /// The address of the backend.
    pub address: SocketAddr,
    /// The proxy that it is connected to through (gRFC A86), if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<SocketAddr>,
    /// The state of its connections: READY if there is one.
    pub state: ConnectivityState,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The calls on all its connections.
    pub calls: CallsView,
    /// The live connections, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketView>,
    /// The number of connections that it may have (`max_connections_per_subchannel`, gRFC A105).
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub max_connections: u32,
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

/// A live connection of a subchannel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SocketView {
    /// Its unique id.
    pub id: u64,
    /// The calls on this connection.
    pub calls: CallsView,
    /// The server's MAX_CONCURRENT_STREAMS, if it has set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_streams: Option<u32>,
    /// TLS of the connection, unless it is plaintext, or a connector of the program has secured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsView>,
}

/// An event of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// The time of the event.
    #[serde(with = "since_1970")]
    pub time: SystemTime,
    /// The severity.
    pub severity: Severity,
    /// The kind of the event.
    #[serde(default)]
    pub kind: EventKind,
    /// A human-readable sentence.
    pub description: String,
    /// The id of the subchannel concerned, if any.
    #[serde(rename = "connection", default, skip_serializing_if = "Option::is_none")]
    pub subchannel: Option<u64>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// RPCs go to another priority or leaf cluster.
    Failover,
    /// Outlier detection ejected an endpoint, or took it back.
    Ejection,
    /// A resource was requested.
    Subscription,
    /// A resource has changed, or has an error or none any longer.
    Configuration,
    /// A host name was resolved, or could not be.
    Dns,
    /// A connection attempt has started.
    ConnectionAttempt,
    /// A connection was established, failed or ended.
    Connection,
    /// The state of the channel has changed.
    State,
    /// A task panicked, or runs again.
    Panic,
    /// Any other event.
    #[default]
    #[serde(other)]
    Other,
}

/// The severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// Normal operation.
    Info,
    /// A problem that the channel can handle.
    Warning,
    /// A problem that makes RPCs fail.
    Error,
}
