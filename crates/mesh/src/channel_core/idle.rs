//! When a channel that nobody uses goes IDLE.

use std::time::Duration;

use proxyless_sans_io::Time;

/// Asks, one timeout after the other, whether the channel was used since it last asked.
///
/// A channel therefore goes IDLE between one and two timeouts after its last RPC: RPCs need not note the time.
#[derive(Debug)]
pub(super) struct IdleTimer {
    /// `None` if the channel never goes IDLE.
    timeout: Option<Duration>,
    deadline: Option<Time>,
}

impl IdleTimer {
    /// A timer that does not run yet.
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, deadline: None }
    }

    /// Starts, or starts over.
    pub(super) fn start(&mut self, now: Time) {
        self.deadline = self.timeout.map(|timeout| now + timeout);
    }

    pub(super) fn stop(&mut self) {
        self.deadline = None;
    }

    /// Whether it is time to ask; the timer then waits for the answer.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        self.deadline.take_if(|deadline| *deadline <= now).is_some()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}
