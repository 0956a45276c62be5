//! What goes into a [`Tree`](super::Tree) and what comes out of it.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::BackoffConfig;

use crate::api::{CallCounts, ConnectivityState};

/// The numbers of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeConfig {
    /// Where the tree's randomness starts.
    pub seed: u64,
    /// How long a failed connection is left alone.
    pub backoff: BackoffConfig,
    /// How long an attempt to connect may take at least; it may take as long as its backoff.
    pub connect_timeout: Duration,
    /// How long a READY connection without owner is kept for the next one.
    pub linger: Duration,
}

impl Default for TreeConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            backoff: BackoffConfig::default(),
            connect_timeout: Duration::from_secs(20),
            linger: Duration::from_secs(5),
        }
    }
}

/// Names a connection of the pool. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What the driver says about one attempt to connect.
#[derive(Clone)]
pub enum ConnectionEvent {
    /// It is connected: what calls are to find in the [`ConnectionSlot`](crate::api::ConnectionSlot).
    Ready(Arc<dyn Any + Send + Sync>),
    /// It could not connect, or not in time.
    Failed(String),
    /// The server asked to go away; the driver lets running calls finish.
    GoAway(String),
    /// The connection is gone.
    Closed(String),
}

impl fmt::Debug for ConnectionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(_) => f.write_str("Ready"),
            Self::Failed(why) => write!(f, "Failed({why})"),
            Self::GoAway(why) => write!(f, "GoAway({why})"),
            Self::Closed(why) => write!(f, "Closed({why})"),
        }
    }
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeEffect {
    /// Connect, and answer with [`ConnectionEvent`]s of this connection and attempt.
    Connect {
        /// The connection.
        connection: ConnectionId,
        /// The attempt; answers carry it, so that late ones are recognised.
        attempt: u64,
        /// Where to.
        address: SocketAddr,
        /// After this long, the driver answers `Failed`.
        timeout: Duration,
    },
    /// Give an attempt up. No answer is expected.
    CancelConnect {
        /// The connection.
        connection: ConnectionId,
        /// The attempt.
        attempt: u64,
    },
    /// Start no more calls on this connection, and close it when the last one ended. No answer is expected.
    CloseGracefully {
        /// The connection.
        connection: ConnectionId,
        /// The attempt that made it.
        attempt: u64,
    },
    /// Resolve the endpoints again.
    RequestReresolution,
}

/// Why the root's output is to be handed to the data path again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The state or the picker is another one.
    Changed,
    /// The picker is the same, but a connection was lost or what a picker looks at has changed: calls that wait must
    /// pick again.
    Bump,
}

/// A connection of the pool, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionNode {
    /// Its name.
    pub connection: ConnectionId,
    /// The attempt that made it READY, while it is.
    pub attempt: Option<u64>,
    /// Where it goes.
    pub address: SocketAddr,
    /// Its state.
    pub state: ConnectivityState,
    /// Why it failed.
    pub error: Option<String>,
    /// The calls that ended on connections to this address.
    pub calls: CallCounts,
    /// Those of them that ended since it last became READY.
    pub calls_since_ready: CallCounts,
}

/// How much a tree holds; all zero after [`Tree::shutdown`](super::Tree::shutdown).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Connections of the pool, in any state.
    pub connections: usize,
    /// Subchannels that policies hold.
    pub owners: usize,
    /// Running timers of policies.
    pub timers: usize,
    /// Signals that policies hold.
    pub signals: usize,
}
