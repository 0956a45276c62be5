//! One priority's child with its two timers.

use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{Rng, Time};

use super::choice::ChildView;
use super::config::PriorityChild;
use crate::api::{
    Child, ChildIndex, ConnectivityState, Cx, Picker, PolicyEvent, RouteBuf, Signal, Subchannel,
    SubchannelSpec, Timer,
};

/// A child, the time it has to connect, and the time it has left after it was deactivated.
pub(super) struct PriorityNode {
    pub(super) child: Child,
    ignore_reresolution_requests: bool,
    failover: Option<Deadline>,
    retention: Option<Deadline>,
    /// Whether it reported READY or IDLE more recently than TRANSIENT_FAILURE, and has not used that up.
    may_wait_again: bool,
}

impl PriorityNode {
    /// A child that was not updated yet; `failover` runs from now.
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

    /// Calls the child. True if it published; its failover timer then follows its new state.
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

    /// Starts the retention timer, unless it runs.
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

    /// Which of its timers has this token; that timer is over now.
    pub(super) fn expire(&mut self, token: u32) -> Option<Expired> {
        if self.failover.take_if(|deadline| deadline.token == token).is_some() {
            return Some(Expired::Failover);
        }
        self.retention.take_if(|deadline| deadline.token == token).map(|_| Expired::Retention)
    }

    fn on_state(&mut self, timers: &mut Timers, cx: &mut dyn Cx) {
        match self.child.output().state {
            // X-14, A56: only a child that was READY or IDLE since it last failed gets time again, and a repeated
            // CONNECTING gets none.
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

/// Which timer of a child ran out.
pub(super) enum Expired {
    Failover,
    Retention,
}

/// A running timer and the token that it comes back with.
pub(super) struct Deadline {
    token: u32,
    _timer: Timer,
}

/// Starts timers, each with a token of its own.
#[derive(Default)]
pub(super) struct Timers {
    pub(super) failover_timeout: Duration,
    last_token: u32,
}

impl Timers {
    pub(super) fn start(&mut self, delay: Duration, cx: &mut dyn Cx) -> Deadline {
        self.last_token = self.last_token.wrapping_add(1);
        Deadline { token: self.last_token, _timer: cx.set_timer(RouteBuf::default(), delay, self.last_token) }
    }
}

/// A context that swallows wishes to resolve again.
// A37-58, A37-61: an EDS leaf that reconnects must not cause DNS queries of its neighbours.
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

    fn set_timer(&mut self, route: RouteBuf, delay: Duration, token: u32) -> Timer {
        self.0.set_timer(route, delay, token)
    }

    fn create_signal(&mut self, route: RouteBuf, token: u32) -> Signal {
        self.0.create_signal(route, token)
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
