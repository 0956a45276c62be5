//! The failover and retention timers of the children.

use std::time::Duration;

use proxyless_sans_io::Time;

use crate::api::{ConnectivityState, Cx, Timer, TreePathBuf};

/// The timers of one child.
pub(super) struct ChildTimers {
    failover: Option<Deadline>,
    retention: Option<Deadline>,
    /// Whether it was READY or IDLE since its last TRANSIENT_FAILURE, and has not started the timer since.
    may_wait_again: bool,
}

impl ChildTimers {
    /// The timers of a new child. X-14, A56: the failover timer starts when the child is created.
    pub(super) fn new(failover: Deadline) -> Self {
        Self { failover: Some(failover), retention: None, may_wait_again: false }
    }

    pub(super) fn is_failover_pending(&self) -> bool {
        self.failover.is_some()
    }

    /// The time until the failover timer runs out, if it is running.
    pub(super) fn failover_in(&self, now: Time) -> Option<Duration> {
        self.failover.as_ref().map(|deadline| deadline.at.since(now))
    }

    /// Starts the retention timer, unless it is running.
    pub(super) fn deactivate(&mut self, retention: impl FnOnce() -> Deadline) {
        self.retention.get_or_insert_with(retention);
    }

    pub(super) fn reactivate(&mut self) {
        self.retention = None;
    }

    /// Whether a higher priority has made the child unnecessary.
    pub(super) fn is_deactivated(&self) -> bool {
        self.retention.is_some()
    }

    /// Stops the timer with this tag, and returns which one it was.
    pub(super) fn expire(&mut self, tag: u32) -> Option<Expired> {
        if self.failover.take_if(|deadline| deadline.tag == tag).is_some() {
            return Some(Expired::Failover);
        }
        self.retention.take_if(|deadline| deadline.tag == tag).map(|_| Expired::Retention)
    }

    /// The child has published this state.
    pub(super) fn on_state(&mut self, state: ConnectivityState, starter: &mut TimerStarter, cx: &mut dyn Cx) {
        match state {
            // X-14, A56: the timer restarts only for a child that was READY or IDLE since its last failure, and not for
            // a repeated CONNECTING.
            ConnectivityState::Connecting => {
                if std::mem::take(&mut self.may_wait_again) {
                    self.failover = Some(starter.start(starter.failover_timeout, cx));
                }
            }
            ConnectivityState::Ready | ConnectivityState::Idle => {
                self.may_wait_again = true;
                self.failover = None;
            }
            ConnectivityState::TransientFailure => {
                self.may_wait_again = false;
                self.failover = None;
            }
        }
    }
}

/// The expired timer of a child.
pub(super) enum Expired {
    Failover,
    Retention,
}

/// A running timer and its tag.
pub(super) struct Deadline {
    tag: u32,
    at: Time,
    _timer: Timer,
}

/// Starts timers, each with its own tag.
#[derive(Default)]
pub(super) struct TimerStarter {
    pub(super) failover_timeout: Duration,
    last_tag: u32,
}

impl TimerStarter {
    pub(super) fn start(&mut self, delay: Duration, cx: &mut dyn Cx) -> Deadline {
        self.last_tag = self.last_tag.wrapping_add(1);
        let timer = cx.set_timer(TreePathBuf::default(), delay, self.last_tag);
        Deadline { tag: self.last_tag, at: cx.now() + delay, _timer: timer }
    }
}
