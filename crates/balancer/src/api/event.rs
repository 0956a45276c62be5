//! Decisions of policies that are recorded for inspection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A decision of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyEvent {
    /// Outlier detection ejects an endpoint.
    Ejected {
        /// The endpoint, by its addresses.
        endpoint: String,
        /// The duration of the ejection.
        time: Duration,
        /// The calls in the interval that caused the ejection.
        calls: u64,
        /// The failed calls among them.
        failed: u64,
    },
    /// The ejection of an endpoint has ended.
    Returned {
        /// The endpoint, by its addresses.
        endpoint: String,
    },
    /// A server does not have the service of out-of-band load reports (gRFC A51).
    NoLoadReports {
        /// Its address.
        address: SocketAddr,
    },
    /// RPCs go to a lower priority from now on.
    FailedOver {
        /// The cluster that the priorities belong to.
        cluster: Arc<str>,
        /// The priority or leaf cluster that served before.
        from: String,
        /// The priority or leaf cluster that serves now.
        to: String,
    },
    /// RPCs go to a higher priority from now on: it has recovered, or the order has changed.
    MovedUp {
        /// The cluster that the priorities belong to.
        cluster: Arc<str>,
        /// The priority or leaf cluster that served before.
        from: String,
        /// The priority or leaf cluster that serves now.
        to: String,
    },
    /// A decision of an application's policy.
    Noted {
        /// The name of the policy.
        policy: &'static str,
        /// The decision, in words.
        text: String,
    },
}

impl PolicyEvent {
    /// Whether the event indicates a problem.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        matches!(self, Self::Ejected { .. } | Self::FailedOver { .. } | Self::NoLoadReports { .. })
    }
}

impl fmt::Display for PolicyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ejected { endpoint, time, calls, failed } => {
                let time = time.as_secs_f64();
                write!(f, "{endpoint}: ejected for {time} s: {failed} of {calls} RPCs failed")
            }
            Self::Returned { endpoint } => write!(f, "{endpoint}: back in service after its ejection"),
            Self::NoLoadReports { address } => {
                write!(f, "{address}: no out-of-band load reports: the server answered UNIMPLEMENTED")
            }
            Self::FailedOver { cluster, from, to } => write!(f, "{cluster}: failed over from {from} to {to}"),
            Self::Noted { policy, text } => write!(f, "{policy}: {text}"),
            Self::MovedUp { cluster, from, to } => write!(f, "{cluster}: moved up from {from} to {to}"),
        }
    }
}
