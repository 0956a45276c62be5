//! The idle timer of a channel.

use std::time::Duration;

use proxyless_sans_io::Time;

/// Checks at each timeout whether the channel was used since the last check.
///
/// A channel therefore goes IDLE between one and two timeouts after its last RPC, and RPCs need not record the time.
#[derive(Debug)]
pub(super) struct IdleTimer {
    /// `None` if the channel never goes IDLE.
    timeout: Option<Duration>,
    deadline: Option<Time>,
}

impl IdleTimer {
    /// Creates a timer that is not running.
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, deadline: None }
    }

    /// Starts or restarts the timer.
    pub(super) fn start(&mut self, now: Time) {
        self.deadline = self.timeout.map(|timeout| now + timeout);
    }

    pub(super) fn stop(&mut self) {
        self.deadline = None;
    }

    /// Whether a check is due; the timer then waits for the answer.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        self.deadline.take_if(|deadline| *deadline <= now).is_some()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}
