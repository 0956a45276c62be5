//! The xds_override_host policy (gRFCs A55, A75): tracks the subchannels of all known addresses, connects
//! those that pickers request and closes those that sessions no longer use.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{
    Below, ChildOutput, ConfigError, Cx, Detail, Endpoints, Layer, PolicyView, Signal, SubchannelEvent,
    SubchannelHandle, SubchannelSpec, Timer, TreeEvent, TreePathBuf, Update, config_of,
};
use proxyless_sans_io::Time;
use proxyless_sans_io::sync::atomic::{Ordering, fence};
use proxyless_sans_io::sync::mpsc::{Receiver, channel};
use proxyless_xds::resource::OverrideHostStatus;

use super::config::{NAME, OverrideHostConfig, Sessions};
use super::draining::WithoutDraining;
use super::hosts::Hosts;
use super::picker::{ConnectRequests, HostTable, OverrideHostPicker};

use crate::targets;

/// A75-40: the minimum time between two sweeps.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The policy.
#[derive(Default)]
pub(super) struct OverrideHostPolicy {
    without_draining: WithoutDraining,
    hosts: Hosts,
    table: Arc<HostTable>,
    /// The input of `table`.
    listed: Option<(Endpoints, OverrideHostStatus)>,
    control: Option<Control>,
    sweep: Option<Sweep>,
    /// The time of the last sweep, or of the policy's creation.
    last_sweep: Time,
}

/// The policy's end of the connection requests of picks.
struct Control {
    signal: Signal,
    queue: Receiver<SocketAddr>,
    requests: Arc<ConnectRequests>,
}

impl Control {
    /// The queued connection requests. Later ones raise the signal again.
    fn take_requests(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.signal.lower();
        // Pairs with the fence in the picker.
        fence(Ordering::SeqCst);
        self.queue.try_iter()
    }
}

struct Sweep {
    at: Time,
    _timer: Timer,
}

impl Layer for OverrideHostPolicy {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &OverrideHostConfig = config_of(NAME, &update.config)?;
        tracing::trace!(target: targets::XDS_OVERRIDE_HOST_LB, idle_timeout = ?config.idle_timeout, "update");
        let toggled = self.hosts.set_sessions(config.sessions);
        if toggled {
            (self.table, self.listed) = Default::default();
        }
        let changed = config.sessions == Sessions::Used && self.list(config, &update.endpoints, cx);
        let endpoints = self.without_draining.of(&update.endpoints);
        let update = Update { config: Arc::clone(&config.child), endpoints, ..update.clone() };
        let result = below.update(&update, self, cx);
        self.hosts.take_returned(cx);
        if changed {
            self.hosts.renew_owned(cx);
            self.table = Arc::new(self.hosts.table());
        }
        if changed || toggled {
            below.republish();
        }
        self.arm(cx);
        result
    }

    fn on_event(&mut self, event: TreeEvent<'_>, _: &mut Below, cx: &mut dyn Cx) {
        match event {
            TreeEvent::Timer(_) => {
                self.sweep = None;
                self.last_sweep = cx.now();
                self.hosts.sweep(cx);
            }
            // A75-55: here, not in the pick.
            _ => {
                let Some(control) = &self.control else { return };
                for address in control.take_requests() {
                    self.hosts.connect(address, cx);
                }
            }
        }
        self.arm(cx);
    }

    fn on_subchannel<'a>(
        &mut self,
        event: &'a SubchannelEvent,
        cx: &mut dyn Cx,
    ) -> Option<Cow<'a, SubchannelEvent>> {
        self.hosts.on_event(event, cx).then_some(Cow::Borrowed(event))
    }

    fn create_subchannel(&mut self, spec: SubchannelSpec, cx: &mut dyn Cx) -> SubchannelHandle {
        self.hosts.create_subchannel(spec, cx)
    }

    /// Handles the subchannels that the child has dropped.
    fn finish(&mut self, cx: &mut dyn Cx) {
        if self.hosts.take_returned(cx) {
            self.arm(cx);
        }
    }

    fn publish(&mut self, output: &ChildOutput, cx: &mut dyn Cx) {
        let control = match (self.hosts.sessions(), &self.control) {
            (Sessions::Used, Some(control)) => control,
            _ => return cx.publish(output.state, Arc::clone(&output.picker)),
        };
        let picker = OverrideHostPicker {
            hosts: Arc::clone(&self.table),
            requests: Arc::clone(&control.requests),
            child: Arc::clone(&output.picker),
        };
        cx.publish(output.state, Arc::new(picker));
    }

    fn describe(&self, now: Time, node: &mut PolicyView) {
        node.counters.insert("kept_for_sessions".to_owned(), self.hosts.kept() as u64);
        node.details = self.hosts.describe(now);
        if let Some(sweep) = &self.sweep {
            node.details.push(Detail::new("sweep", "").with_seconds("next_in_seconds", sweep.at.since(now)));
        }
    }
}

impl OverrideHostPolicy {
    /// Sets the known endpoints; returns false if they are unchanged.
    fn list(&mut self, config: &OverrideHostConfig, endpoints: &Endpoints, cx: &mut dyn Cx) -> bool {
        self.start(cx);
        self.hosts.set_idle_timeout(config.idle_timeout);
        let listed = (endpoints.clone(), config.override_host_status);
        let changed = self.listed.as_ref() != Some(&listed);
        if changed {
            self.hosts.list(endpoints, config.override_host_status, cx);
            self.listed = Some(listed);
        }
        changed
    }

    fn start(&mut self, cx: &mut dyn Cx) {
        if self.control.is_none() {
            let signal = cx.create_signal(TreePathBuf::default(), 0);
            let (sender, queue) = channel();
            let requests = Arc::new(ConnectRequests { raiser: signal.raiser(), queue: sender });
            self.control = Some(Control { signal, queue, requests });
            self.last_sweep = cx.now();
        }
    }

    /// A75-38, A75-39: sweeps when the next subchannel may expire, idle_timeout after its last use; never while there
    /// is nothing to sweep.
    fn arm(&mut self, cx: &mut dyn Cx) {
        let next = self.hosts.next_expiry().map(|at| at.max(self.last_sweep + MIN_SWEEP_INTERVAL));
        if next != self.sweep.as_ref().map(|sweep| sweep.at) {
            self.sweep = next.map(|at| {
                let delay = at.since(cx.now());
                Sweep { at, _timer: cx.set_timer(TreePathBuf::default(), delay, 0) }
            });
        }
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
