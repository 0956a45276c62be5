//! The xds_override_host policy (gRFCs A55, A75): tracks the subchannels of all known addresses, connects
//! those that pickers request and closes those that sessions no longer use.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{
    Below, ChildOutput, ConfigError, ConnectivityState, Cx, Detail, Endpoints, Layer, PolicyView, Signal,
    SubchannelEvent, SubchannelHandle, SubchannelSpec, Timer, TreeEvent, TreePathBuf, Update, config_of,
};
use proxyless_sans_io::Time;
use proxyless_sans_io::sync::atomic::{Ordering, fence};
use proxyless_sans_io::sync::mpsc::{Receiver, channel};
use proxyless_xds::resource::OverrideHostStatus;

use super::config::{NAME, OverrideHostConfig, Sessions};
use super::draining::WithoutDraining;
use super::hosts::{Hosts, LentHosts};
use super::picker::{ConnectRequests, HostTable, OverrideHostPicker};

use crate::targets;

/// A75-40: the minimum time between two sweeps.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The policy.
#[derive(Default)]
pub(super) struct OverrideHostPolicy {
    without_draining: WithoutDraining,
    /// Always tracked, so that sessions can be enabled without affecting the child.
    lent: LentHosts,
    /// Exists while RPCs can have sessions, which most channels do without.
    sessions: Option<Box<SessionHosts>>,
}

/// The part of the policy that serves sessions.
struct SessionHosts {
    hosts: Hosts,
    table: Arc<HostTable>,
    /// The input of `table`.
    listed: Option<(Endpoints, OverrideHostStatus)>,
    control: Control,
    sweep: Option<Sweep>,
    /// The time of the last sweep, or of the beginning.
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
        let toggled = self.set_sessions(config.sessions, cx);
        let sessions = self.sessions.as_mut();
        let changed = sessions.is_some_and(|sessions| sessions.list(config, &update.endpoints, cx));
        let endpoints = self.without_draining.of(&update.endpoints);
        let update = Update { config: Arc::clone(&config.child), endpoints, ..update.clone() };
        let result = below.update(&update, self, cx);
        self.take_returned(cx);
        if let Some(sessions) = &mut self.sessions {
            if changed {
                sessions.hosts.renew_owned(cx);
                sessions.table = Arc::new(sessions.hosts.table());
            }
            sessions.arm(cx);
        }
        if changed || toggled {
            below.republish();
        }
        result
    }

    fn on_event(&mut self, event: TreeEvent<'_>, _: &mut Below, cx: &mut dyn Cx) {
        let Some(sessions) = &mut self.sessions else { return };
        match event {
            TreeEvent::Timer(_) => {
                sessions.sweep = None;
                sessions.last_sweep = cx.now();
                sessions.hosts.sweep(cx);
            }
            // A75-55: here, not in the pick.
            _ => {
                for address in sessions.control.take_requests() {
                    sessions.hosts.connect(address, &self.lent, cx);
                }
            }
        }
        sessions.arm(cx);
    }

    fn on_subchannel<'a>(
        &mut self,
        event: &'a SubchannelEvent,
        cx: &mut dyn Cx,
    ) -> Option<Cow<'a, SubchannelEvent>> {
        let lent = self.lent.get_mut(event.subchannel).map(|(subchannel, state)| {
            *state = event.state;
            subchannel.target().address
        });
        if let Some(sessions) = &mut self.sessions {
            sessions.hosts.on_event(event, lent, cx);
        }
        // Those that only sessions hold are none of the child's.
        lent.map(|_| Cow::Borrowed(event))
    }

    fn create_subchannel(&mut self, spec: SubchannelSpec, cx: &mut dyn Cx) -> SubchannelHandle {
        let subchannel = cx.create_subchannel(spec);
        if let Some(sessions) = &mut self.sessions {
            sessions.hosts.lend(&subchannel, cx);
        }
        self.lent.lend(subchannel, ConnectivityState::Idle)
    }

    /// Handles the subchannels that the child has dropped.
    fn finish(&mut self, cx: &mut dyn Cx) {
        let taken_over = self.take_returned(cx);
        if let Some(sessions) = self.sessions.as_mut().filter(|_| taken_over) {
            sessions.arm(cx);
        }
    }

    fn publish(&mut self, output: &ChildOutput, cx: &mut dyn Cx) {
        let Some(sessions) = &self.sessions else {
            return cx.publish(output.state, Arc::clone(&output.picker));
        };
        let picker = OverrideHostPicker {
            hosts: Arc::clone(&sessions.table),
            requests: Arc::clone(&sessions.control.requests),
            child: Arc::clone(&output.picker),
        };
        cx.publish(output.state, Arc::new(picker));
    }

    fn describe(&self, now: Time, node: &mut PolicyView) {
        let kept = self.sessions.as_ref().map_or(0, |sessions| sessions.hosts.kept());
        node.counters.insert("kept_for_sessions".to_owned(), kept as u64);
        let Some(sessions) = &self.sessions else { return };
        node.details = sessions.hosts.describe(now);
        if let Some(sweep) = &sessions.sweep {
            node.details.push(Detail::new("sweep", "").with_seconds("next_in_seconds", sweep.at.since(now)));
        }
    }
}

impl OverrideHostPolicy {
    /// Enables or disables sessions; returns false if nothing changes. Subchannels that only sessions held are dropped.
    fn set_sessions(&mut self, sessions: Sessions, cx: &mut dyn Cx) -> bool {
        match (sessions, &self.sessions) {
            (Sessions::Used, None) => self.sessions = Some(Box::new(SessionHosts::new(&self.lent, cx))),
            (Sessions::Unused, Some(_)) => self.sessions = None,
            _ => return false,
        }
        true
    }

    /// Handles subchannels that the child dropped; returns true if the sessions took one over.
    fn take_returned(&mut self, cx: &mut dyn Cx) -> bool {
        match &mut self.sessions {
            Some(sessions) => sessions.hosts.take_returned(&mut self.lent, cx),
            None => {
                drop(self.lent.take_returned());
                false
            }
        }
    }
}

impl SessionHosts {
    fn new(lent: &LentHosts, cx: &mut dyn Cx) -> Self {
        let signal = cx.create_signal(TreePathBuf::default(), 0);
        let (sender, queue) = channel();
        let requests = Arc::new(ConnectRequests { raiser: signal.raiser(), queue: sender });
        Self {
            hosts: Hosts::new(lent),
            table: Arc::default(),
            listed: None,
            control: Control { signal, queue, requests },
            sweep: None,
            last_sweep: cx.now(),
        }
    }

    /// Sets the known endpoints; returns false if they are unchanged.
    fn list(&mut self, config: &OverrideHostConfig, endpoints: &Endpoints, cx: &mut dyn Cx) -> bool {
        self.hosts.set_idle_timeout(config.idle_timeout);
        let listed = (endpoints.clone(), config.override_host_status);
        let changed = self.listed.as_ref() != Some(&listed);
        if changed {
            self.hosts.list(endpoints, config.override_host_status, cx);
            self.listed = Some(listed);
        }
        changed
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
