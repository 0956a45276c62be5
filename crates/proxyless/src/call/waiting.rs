//! The waits of a call, and the error if the deadline passes first.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use proxyless_mesh::cluster_claim::ClusterClaim;
use tonic::Status;

use crate::channel::Shared;
use crate::snapshot::Published;

/// A wait of a call.
#[derive(Clone, Copy)]
pub(super) enum Waiting<'a> {
    Route,
    Connection,
    /// A place among the streams of the picked connection.
    Stream {
        cluster: &'a ClusterClaim,
    },
    Response {
        cluster: &'a ClusterClaim,
    },
    /// The end of a delay that a filter injected (gRFC A33).
    InjectedDelay {
        filter: &'a str,
    },
    /// The end of a pause between two attempts.
    NextAttempt,
}

impl Waiting<'_> {
    /// The status of a call whose deadline passed after it had run for `elapsed`.
    pub(super) fn expired(
        self,
        shared: &Shared,
        elapsed: Duration,
        peer: Option<SocketAddr>,
        last_error: Option<&str>,
    ) -> Status {
        let mut text = format!("deadline exceeded after {elapsed:.3?} waiting for {}", self.what());
        if let Some(peer) = peer {
            text.push_str(match self {
                Self::Stream { .. } => " to ",
                _ => " from ",
            });
            // Writing to a string does not fail, here and below.
            let _ = write!(text, "{peer}");
        }
        match self {
            Self::Stream { cluster } | Self::Response { cluster } => {
                let _ = write!(text, " (cluster {})", cluster.name());
            }
            Self::Route | Self::Connection => {
                let Shared { target, published, server, node, .. } = shared;
                let Published { missing, connecting, .. } = &**published;
                let state = *published.states().borrow();
                let _ = write!(
                    text,
                    ": {target} is {state}{connecting}{missing} (management server {server}, node {node})"
                );
            }
            Self::InjectedDelay { filter } => {
                let _ = write!(text, " of the fault filter {filter:?}");
            }
            Self::NextAttempt => {}
        }
        if let Some(error) = last_error {
            let _ = write!(text, "; last error: {error}");
        }
        Status::deadline_exceeded(text)
    }

    fn what(self) -> &'static str {
        match self {
            Self::Route => "a route",
            Self::Connection => "a connection",
            Self::Stream { .. } => "a stream of the connection",
            Self::Response { .. } => "the response",
            Self::InjectedDelay { .. } => "the end of the delay",
            Self::NextAttempt => "the next attempt",
        }
    }
}
