//! The keepalive interval of a channel's connections (gRFC A8).

use std::time::Duration;

use crate::laws::invariants::Violation;

/// The configured interval.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// The intervals that the channel may use.
#[derive(Debug)]
pub(crate) struct Keepalive {
    last: Duration,
    longest: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { last: INTERVAL, longest: INTERVAL }
    }
}

impl Keepalive {
    /// A server sends `too_many_pings`. The channel may have closed the connection in the same step.
    pub(crate) fn too_many_pings(&mut self) {
        self.longest = (2 * self.longest).min(Duration::from_secs(600));
    }

    /// The channel starts an attempt.
    pub(crate) fn connect(&mut self, interval: Option<Duration>) -> Result<(), Violation> {
        let allowed = self.last..=self.longest;
        let is_allowed = interval.is_some_and(|interval| allowed.contains(&interval));
        Violation::unless(is_allowed, "keepalive intervals grow by too_many_pings only", || {
            format!("{interval:?}, not in {allowed:?}")
        })?;
        self.last = interval.unwrap_or(self.last);
        Ok(())
    }
}
