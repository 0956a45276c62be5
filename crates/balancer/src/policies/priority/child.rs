//! The child of one priority with its two timers.

use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{Rng, Time};

use super::choice::ChildView;
use super::config::PriorityChild;
use crate::api::{
    Child, ChildIndex, ConnectivityState, Cx, Picker, PolicyEvent, Signal, Subchannel, SubchannelSpec, Timer,
    TreePathBuf,
};

/// A child with its failover timer and its retention timer.
pub(super) struct PriorityNode {
    pub(super) child: Child,
    ignore_reresolution_requests: bool,
    failover: Option<Deadline>,
    retention: Option<Deadline>,
    /// Whether it was READY or IDLE since its last TRANSIENT_FAILURE, and has not started the timer since.
    may_wait_again: bool,
}

impl PriorityNode {
    /// Creates a child before its first update; `failover` runs from now.
    pub(super) fn new(index: ChildIndex, config: &PriorityChild, failover: Deadline) -> Self {
        Self {
            child: Child::new(index, &config.config),
            ignore_reresolution_requests: config.ignore_reresolution_requests,
            // X-14, A56: the failover timer starts when the child is created.
            failover: Some(failover),
            retention: None,
            may_wait_again: false,
        }
    }

    pub(super) fn configure(&mut self, config: &PriorityChild) {
        self.ignore_reresolution_requests = config.ignore_reresolution_requests;
    }

    /// Calls the child. Returns true if it published; its failover timer then follows its new state.
    pub(super) fn call<R>(
        &mut self,
        timers: &mut Timers,
        cx: &mut dyn Cx,
        f: impl FnOnce(&mut Child, &mut dyn Cx) -> R,
    ) -> (R, bool) {
        let result = if self.ignore_reresolution_requests {
            f(&mut self.child, &mut WithoutReresolution(&mut *cx))
        } else {
            f(&mut self.child, &mut *cx)
        };
        let published = self.child.take_dirty();
        if published {
            self.on_state(timers, cx);
        }
        (result, published)
    }

    pub(super) fn view(&self, carried_over: bool) -> ChildView {
        let state = self.child.output().state;
        ChildView::Present { state, failover_pending: self.failover.is_some(), carried_over }
    }

    /// Starts the retention timer, unless it is running.
    pub(super) fn deactivate(&mut self, retention: impl FnOnce() -> Deadline) {
        self.retention.get_or_insert_with(retention);
    }

    pub(super) fn reactivate(&mut self) {
        self.retention = None;
    }

    /// Whether a higher priority has made it unnecessary.
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

    fn on_state(&mut self, timers: &mut Timers, cx: &mut dyn Cx) {
        match self.child.output().state {
            // X-14, A56: the timer restarts only for a child that was READY or IDLE since its last failure, and not for
            // a repeated CONNECTING.
            ConnectivityState::Connecting => {
                if std::mem::take(&mut self.may_wait_again) {
                    self.failover = Some(timers.start(timers.failover_timeout, cx));
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
    _timer: Timer,
}

/// Starts timers, each with its own tag.
#[derive(Default)]
pub(super) struct Timers {
    pub(super) failover_timeout: Duration,
    last_tag: u32,
}

impl Timers {
    pub(super) fn start(&mut self, delay: Duration, cx: &mut dyn Cx) -> Deadline {
        self.last_tag = self.last_tag.wrapping_add(1);
        Deadline { tag: self.last_tag, _timer: cx.set_timer(TreePathBuf::default(), delay, self.last_tag) }
    }
}

/// A context that suppresses requests for re-resolution.
// A37-58, A37-61: an EDS leaf that reconnects must not cause DNS queries for its siblings.
struct WithoutReresolution<'a>(&'a mut dyn Cx);

impl Cx for WithoutReresolution<'_> {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn rng(&mut self) -> &mut Rng {
        self.0.rng()
    }

    fn create_subchannel(&mut self, spec: SubchannelSpec) -> Subchannel {
        self.0.create_subchannel(spec)
    }

    fn connect(&mut self, subchannel: &Subchannel) {
        self.0.connect(subchannel);
    }

    fn set_timer(&mut self, path: TreePathBuf, delay: Duration, tag: u32) -> Timer {
        self.0.set_timer(path, delay, tag)
    }

    fn create_signal(&mut self, path: TreePathBuf, tag: u32) -> Signal {
        self.0.create_signal(path, tag)
    }

    fn defer(&mut self, signal: &Signal) {
        self.0.defer(signal);
    }

    fn publish(&mut self, state: ConnectivityState, picker: Arc<dyn Picker>) {
        self.0.publish(state, picker);
    }

    fn bump(&mut self) {
        self.0.bump();
    }

    fn request_reresolution(&mut self) {}

    fn record(&mut self, event: PolicyEvent) {
        self.0.record(event);
    }
}
