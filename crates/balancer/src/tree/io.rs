//! The inputs and outputs of a [`Tree`](super::Tree).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::BackoffConfig;

use crate::api::{
    BackendMetrics, CallCounter, CallCounts, Code, ConnectivityState, LiveConnection, Security,
};
use crate::pool::StreamDemand;

/// The connection settings of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeConfig {
    /// The backoff after a failed connection attempt.
    pub backoff: BackoffConfig,
    /// The minimum time limit of a connection attempt; the limit is at least its backoff.
    pub connect_timeout: Duration,
    /// The time for which a READY connection without an owner is kept.
    pub linger: Duration,
    /// The interval of keepalive PINGs (gRFC A8); `None`: no keepalive.
    pub keepalive_interval: Option<Duration>,
    /// The maximum of `max_connections_per_subchannel`, whatever the configuration says (A105-04); 10 by default.
    pub connections_per_subchannel_cap: u32,
    /// The security of connections to endpoints without settings of their own, for metrics.
    pub fallback_security: SecurityLevel,
}

/// The security of a connection (gRFC A94).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecurityLevel {
    /// Plaintext.
    None,
    /// TLS.
    PrivacyAndIntegrity,
}

impl Default for TreeConfig {
    fn default() -> Self {
        Self {
            backoff: BackoffConfig::default(),
            connect_timeout: Duration::from_secs(20),
            linger: Duration::from_secs(5),
            keepalive_interval: None,
            connections_per_subchannel_cap: 10,
            fallback_security: SecurityLevel::None,
        }
    }
}

/// The id of a subchannel in the pool. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubchannelId(pub u64);

/// The id of a connection attempt, unique in its tree. A connection has the id of the attempt that established it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub u64);

/// The id of a stream of load reports, unique in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadStreamId(pub u64);

/// An event of a stream of load reports.
#[derive(Clone, Debug)]
pub enum LoadEvent {
    /// The server reported its load.
    Report(Arc<BackendMetrics>),
    /// The stream ended.
    Ended {
        /// The status.
        code: Code,
        /// The reason, for logs.
        reason: String,
    },
}

/// The loss of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The reason as text.
    pub text: String,
    /// The reason as the label `grpc.disconnect_error` (gRFC A94).
    pub disconnect_error: Arc<str>,
}

impl Loss {
    /// A loss with a known label.
    #[must_use]
    pub fn new(text: String, disconnect_error: Arc<str>) -> Self {
        Self { text, disconnect_error }
    }
}

impl From<&str> for Loss {
    /// A94: the label of reasons that are not told apart.
    fn from(text: &str) -> Self {
        Self::new(text.to_owned(), "unknown".into())
    }
}

/// The driver's answer about a connection attempt.
#[derive(Clone)]
pub enum ConnectionEvent {
    /// Connected. The value goes into the [`ConnectionSlot`](crate::api::ConnectionSlot) for calls.
    Ready(LiveConnection),
    /// The attempt failed or timed out.
    Failed(String),
    /// The server sent GOAWAY; the driver lets calls in flight finish.
    GoAway(Loss),
    /// The server sent GOAWAY because it received too many PINGs (`too_many_pings`). Otherwise like `GoAway`.
    TooManyPings(Loss),
    /// The connection was closed.
    Closed(Loss),
    /// An event of [`TreeEffect::OpenLoadStream`]; the connection stays as it is.
    Load(LoadStreamId, LoadEvent),
}

impl fmt::Debug for ConnectionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(_) => f.write_str("Ready"),
            Self::Failed(why) => write!(f, "Failed({why})"),
            Self::GoAway(why) => write!(f, "GoAway({})", why.text),
            Self::TooManyPings(why) => write!(f, "TooManyPings({})", why.text),
            Self::Closed(why) => write!(f, "Closed({})", why.text),
            Self::Load(stream, event) => write!(f, "Load({}, {event:?})", stream.0),
        }
    }
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEffect {
    /// Connect, and answer with [`ConnectionEvent`]s of this subchannel and attempt.
    Connect {
        /// The subchannel.
        subchannel: SubchannelId,
        /// The attempt; answers carry it, so that late ones are recognised.
        attempt: AttemptId,
        /// The address to connect to.
        address: SocketAddr,
        /// How the connection is secured, if the configuration says so.
        security: Option<Arc<Security>>,
        /// The proxy to connect through (gRFC A86), if any.
        proxy: Option<Arc<SocketAddr>>,
        /// The time limit, after which the driver answers `Failed`.
        timeout: Duration,
        /// The interval of keepalive PINGs; `None`: no keepalive.
        keepalive_interval: Option<Duration>,
        /// Where to report the calls that wait for a stream of the subchannel's connections, if that matters.
        demand: Option<Arc<StreamDemand>>,
        /// Where to count the calls of this connection, besides the subchannel, if the subchannel has others.
        calls: Option<ConnectionCalls>,
    },
    /// Report the number of calls that wait for a stream of the subchannel's connections, from now on. (Connections
    /// that are made later have it in their `Connect`.)
    ReportDemand {
        /// The subchannel.
        subchannel: SubchannelId,
        /// Where to report it.
        demand: Arc<StreamDemand>,
    },
    /// Cancel an attempt. No answer is expected.
    CancelConnect {
        /// The subchannel.
        subchannel: SubchannelId,
        /// The attempt.
        attempt: AttemptId,
    },
    /// Start no more calls on this connection, and close it when the last one has ended. No answer is expected.
    CloseGracefully {
        /// The subchannel.
        subchannel: SubchannelId,
        /// The attempt that made it.
        attempt: AttemptId,
    },
    /// Open a stream of load reports (gRFC A51) on this connection, and answer with [`ConnectionEvent::Load`].
    OpenLoadStream {
        /// The subchannel.
        subchannel: SubchannelId,
        /// The attempt that made the connection.
        attempt: AttemptId,
        /// The stream.
        stream: LoadStreamId,
        /// The interval to request.
        interval: Duration,
    },
    /// Cancel a stream of load reports. No answer is expected.
    CloseLoadStream {
        /// The subchannel.
        subchannel: SubchannelId,
        /// The attempt that made the connection.
        attempt: AttemptId,
        /// The stream.
        stream: LoadStreamId,
    },
}

/// The calls of one connection of a subchannel that has several. Equal if it is the same counter.
#[derive(Clone, Debug)]
pub struct ConnectionCalls(pub Arc<CallCounter>);

impl PartialEq for ConnectionCalls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ConnectionCalls {}

/// The reason for passing the root's output to the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// The state or the picker changed.
    Changed,
    /// The picker is the same, but a connection was lost or state that a picker reads has changed: queued calls must
    /// pick again.
    Bump,
}

/// A subchannel of the pool, for inspection.
#[derive(Clone, Debug, PartialEq)]
pub struct SubchannelNode {
    /// The subchannel's id.
    pub subchannel: SubchannelId,
    /// Its connections, the oldest first; several with gRFC A105.
    pub connections: Vec<ConnectionNode>,
    /// The number of connections that it may have.
    pub max_connections: u32,
    /// The address.
    pub address: SocketAddr,
    /// The id of the security settings; 0 if there are none.
    pub security: u64,
    /// The proxy that it connects through, if any.
    pub proxy: Option<Arc<SocketAddr>>,
    /// The connectivity state.
    pub state: ConnectivityState,
    /// The error, if it failed.
    pub error: Option<String>,
    /// The calls that ended on connections to this address.
    pub calls: CallCounts,
}

/// A live connection of a subchannel, for inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionNode {
    /// The attempt that established it.
    pub attempt: AttemptId,
    /// The calls that ended on it.
    pub calls: CallCounts,
}

/// The number of objects in a tree; all zero after [`Tree::shutdown`](super::Tree::shutdown).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Subchannels of the pool, in any state.
    pub subchannels: usize,
    /// Handles of subchannels that policies hold.
    pub owners: usize,
    /// Timers of policies.
    pub timers: usize,
    /// Signals that policies hold.
    pub signals: usize,
}
