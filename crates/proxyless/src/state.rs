//! [`ChannelState`].

use std::fmt;

use proxyless_balancer::api::ConnectivityState;

/// The state of a channel, by gRPC's connectivity semantics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChannelState {
    /// Not used yet, unused for the idle timeout, or neither connected nor connecting. An RPC or
    /// [`XdsChannel::ready`](crate::XdsChannel::ready) makes it connect.
    #[default]
    Idle,
    /// Waiting for configuration or connections.
    Connecting,
    /// RPCs can be sent.
    Ready,
    /// RPCs fail, unless they are wait-for-ready; the channel keeps trying.
    TransientFailure,
    /// Permanent: the runtime in which the channel was made has ended.
    Shutdown,
}

impl From<ConnectivityState> for ChannelState {
    fn from(state: ConnectivityState) -> Self {
        match state {
            ConnectivityState::Idle => Self::Idle,
            ConnectivityState::Connecting => Self::Connecting,
            ConnectivityState::Ready => Self::Ready,
            ConnectivityState::TransientFailure => Self::TransientFailure,
        }
    }
}

impl fmt::Display for ChannelState {
    /// The names that gRPC uses in logs, channelz and documentation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "IDLE",
            Self::Connecting => "CONNECTING",
            Self::Ready => "READY",
            Self::TransientFailure => "TRANSIENT_FAILURE",
            Self::Shutdown => "SHUTDOWN",
        })
    }
}
