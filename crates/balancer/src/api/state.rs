//! Connectivity of a subchannel, a policy or a channel.

use std::fmt;

use serde::{Deserialize, Serialize};

/// gRPC's connectivity states, without SHUTDOWN (an object that is shut down no longer exists).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConnectivityState {
    /// Not connected and not trying.
    #[default]
    Idle,
    /// Trying to connect.
    Connecting,
    /// Connected.
    Ready,
    /// The last attempt failed; the next one follows after a backoff.
    TransientFailure,
}

impl fmt::Display for ConnectivityState {
    /// The names that gRPC uses in logs, channelz and documentation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "IDLE",
            Self::Connecting => "CONNECTING",
            Self::Ready => "READY",
            Self::TransientFailure => "TRANSIENT_FAILURE",
        })
    }
}
