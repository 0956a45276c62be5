//! Warns when the process has too few file descriptors for the endpoints of its clusters.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use proxyless_transport::ConnectError;
use tokio::time::Instant;
use tracing::warn;

use crate::targets;

/// The interval of the warning.
const INTERVAL: Duration = Duration::from_secs(60);

/// The control plane decides how many endpoints there are, and most policies connect to all of them. Attempts that fail
/// without a descriptor are repeated after their backoff, like any other.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    said: Mutex<Option<Instant>>,
}

impl Descriptors {
    /// A connection attempt found no descriptor.
    pub(crate) fn ran_out(&self, error: &ConnectError) {
        if self.is_time(Instant::now()) {
            warn!(
                target: targets::SUBCHANNEL,
                %error,
                "no file descriptor is left for a connection: the limit (RLIMIT_NOFILE) is too low for the endpoints \
                 that the control plane lists"
            );
        }
    }

    fn is_time(&self, now: Instant) -> bool {
        // The time is consistent even if a holder panicked.
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let due = said.is_none_or(|said| now >= said + INTERVAL);
        if due {
            *said = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_a_minute() {
        let (descriptors, begin) = (Descriptors::default(), Instant::now());
        let said = [0, 0, 59, 60, 61, 119, 120]
            .map(|second| descriptors.is_time(begin + Duration::from_secs(second)));
        assert_eq!(said, [true, false, false, true, false, false, true]);
    }
}
