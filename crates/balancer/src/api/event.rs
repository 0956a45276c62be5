//! What happens inside policies and is worth telling people.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A decision of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyEvent {
    /// Outlier detection takes an endpoint out of service.
    Ejected {
        /// The endpoint, by its addresses.
        endpoint: String,
        /// For how long.
        time: Duration,
        /// The calls in the interval that it is ejected for.
        calls: u64,
        /// Those of them that failed.
        failed: u64,
    },
    /// The ejection of an endpoint is over.
    Returned {
        /// The endpoint, by its addresses.
        endpoint: String,
    },
    /// RPCs go to a lower priority from now on.
    FailedOver {
        /// The cluster that has the priorities.
        cluster: Arc<str>,
        /// The priority or leaf cluster that served before.
        from: String,
        /// The one that serves now.
        to: String,
    },
    /// RPCs go to a higher priority from now on: it is back, or the order has changed.
    MovedUp {
        /// The cluster that has the priorities.
        cluster: Arc<str>,
        /// The priority or leaf cluster that served before.
        from: String,
        /// The one that serves now.
        to: String,
    },
}

impl PolicyEvent {
    /// Whether it is a sign of trouble.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        matches!(self, Self::Ejected { .. } | Self::FailedOver { .. })
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
            Self::FailedOver { cluster, from, to } => write!(f, "{cluster}: failed over from {from} to {to}"),
            Self::MovedUp { cluster, from, to } => write!(f, "{cluster}: moved up from {from} to {to}"),
        }
    }
}
