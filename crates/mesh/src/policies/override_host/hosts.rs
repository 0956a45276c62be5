//! All known addresses, with the subchannels of the child and those kept for sessions.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{
    ConnectivityState, Cx, Detail, Endpoint, EndpointHealth, Endpoints, Failures, HandleId, Lent, PickTarget,
    SubchannelEvent, SubchannelHandle, SubchannelSpec,
};
use proxyless_sans_io::Time;
use proxyless_xds::resource::OverrideHostStatus;

use super::host_state::HostState;
use super::picker::{HostTable, Row};

/// Subchannels that the child holds, with their states.
pub(super) type LentHosts = Lent<ConnectivityState>;

/// All addresses.
#[derive(Default)]
pub(super) struct Hosts {
    by_address: BTreeMap<SocketAddr, Host>,
    /// Subchannels that only sessions hold.
    owned: BTreeMap<HandleId, SocketAddr>,
    idle_timeout: Duration,
    failures: Arc<Failures>,
}

#[derive(Default)]
struct Host {
    /// The endpoint, if the last update had one that sessions may use.
    endpoint: Option<Arc<Endpoint>>,
    usable: bool,
    /// Subchannels that the child holds, oldest first.
    lent: Vec<HandleId>,
    /// The policy's own subchannel; only while the child has none.
    own: Option<SubchannelHandle>,
    shared: Arc<HostState>,
}

impl Hosts {
    /// The addresses of the subchannels that the child holds already.
    pub(super) fn new(lent: &LentHosts) -> Self {
        let mut hosts = Self::default();
        for (subchannel, state) in lent.iter() {
            let host = hosts.by_address.entry(subchannel.target().address).or_default();
            host.lent.push(subchannel.id());
            host.shared.set_target(Some(subchannel.target()));
            host.shared.set_state(Some(*state));
        }
        hosts
    }

    /// A75-34: applies from now on.
    pub(super) fn set_idle_timeout(&mut self, idle_timeout: Duration) {
        self.idle_timeout = idle_timeout;
    }

    /// A75-22: sets the endpoints of an update, of all priorities. Removed endpoints lose the subchannels that only
    /// sessions held.
    pub(super) fn list(&mut self, endpoints: &Endpoints, status: OverrideHostStatus, cx: &mut dyn Cx) {
        self.by_address.values_mut().for_each(|host| host.endpoint = None);
        endpoints.flatten(&mut |endpoint| {
            let usable = status.contains(endpoint.health);
            // A55: DRAINING endpoints are kept if, and only if, sessions may use them.
            if endpoint.health == EndpointHealth::Draining && !usable {
                return;
            }
            for &address in endpoint.addresses.iter() {
                let host = self.by_address.entry(address).or_default();
                host.endpoint = Some(Arc::clone(endpoint));
                host.usable = usable;
            }
        });
        let gone =
            |address: &SocketAddr| self.by_address.get(address).is_none_or(|host| host.endpoint.is_none());
        let gone: Vec<_> = self.owned.values().copied().filter(gone).collect();
        gone.into_iter().for_each(|address| self.let_go(address, cx));
        self.by_address.retain(|_, host| !host.is_forgotten());
    }

    /// Recreates the policy's own subchannels: the additions by layers above depend on the endpoint at the time of
    /// creation. The connections stay.
    pub(super) fn renew_owned(&mut self, cx: &mut dyn Cx) {
        for address in self.owned.values().copied().collect::<Vec<_>>() {
            self.own(address, cx);
        }
    }

    /// The table for picks.
    pub(super) fn table(&self) -> HostTable {
        let row = |(&address, host): (&SocketAddr, &Host)| {
            Some(Row {
                address,
                addresses: Arc::clone(&host.endpoint.as_ref()?.addresses),
                usable: host.usable,
                shared: Arc::clone(&host.shared),
            })
        };
        let rows = self.by_address.iter().filter_map(row).collect();
        HostTable { rows, failures: Arc::clone(&self.failures) }
    }

    /// Handles an event; `lent` is the address of the subchannel if the child holds it.
    pub(super) fn on_event(&mut self, event: &SubchannelEvent, lent: Option<SocketAddr>, cx: &mut dyn Cx) {
        let owned = self.owned.get(&event.subchannel).copied();
        if let Some(host) = lent.or(owned).and_then(|address| self.by_address.get(&address)) {
            if event.state == ConnectivityState::TransientFailure {
                host.shared.failed(self.failures.next());
            }
            // Connectivity, not health: a session survives an ejection.
            host.set_state(event.state, cx);
        }
    }

    /// The child gets this subchannel.
    pub(super) fn lend(&mut self, subchannel: &SubchannelHandle, cx: &mut dyn Cx) {
        let host = self.by_address.entry(subchannel.target().address).or_default();
        host.lent.push(subchannel.id());
        host.set_target(Some(subchannel.target()), cx);
        // The child has a subchannel now: the policy's own is not needed.
        if let Some(own) = host.own.take() {
            self.owned.remove(&own.id());
        }
    }

    /// A75-49, A75-51: a pick waits for this address.
    pub(super) fn connect(&mut self, address: SocketAddr, lent: &LentHosts, cx: &mut dyn Cx) {
        let Some(host) = self.by_address.get(&address) else { return };
        host.shared.take_request();
        match host.shared.state() {
            // A75-35: neither the child nor a session has a subchannel: the policy creates its own.
            None if host.usable && host.endpoint.is_some() => {
                host.shared.used(cx.now());
                self.own(address, cx);
            }
            // A75-25: the attempt gets a whole idle_timeout: without a use, a sweep could give it up at once.
            Some(ConnectivityState::Idle) => host.shared.used(cx.now()),
            _ => return,
        }
        let Some(host) = self.by_address.get(&address) else { return };
        let lent = host.lent.last().and_then(|&id| lent.get(id)).map(|(subchannel, _)| subchannel);
        if let Some(subchannel) = lent.or(host.own.as_ref()) {
            cx.connect(subchannel);
        }
    }

    /// Handles subchannels that the child dropped; returns true if the policy took one over.
    pub(super) fn take_returned(&mut self, lent: &mut LentHosts, cx: &mut dyn Cx) -> bool {
        let (mut taken_over, now) = (false, cx.now());
        for (subchannel, _) in lent.take_returned() {
            let (id, address) = (subchannel.id(), subchannel.target().address);
            let Some(host) = self.by_address.get_mut(&address) else { continue };
            host.lent.retain(|&lent| lent != id);
            // Others may have been dropped as well.
            let newest = host.lent.iter().rev().find_map(|&id| lent.get(id));
            if let Some((newest, _)) = newest {
                host.set_target(Some(newest.target()), cx);
            } else if host.own.is_none() && host.endpoint.is_some() && is_live(host, self.idle_timeout, now) {
                // A75-41: a session used it within idle_timeout.
                host.set_target(Some(subchannel.target()), cx);
                // A51: its policy is gone, and with it the reader of its load reports.
                cx.watch_load(&subchannel, None);
                host.own = Some(subchannel);
                self.owned.insert(id, address);
                taken_over = true;
            } else if host.own.is_none() {
                // A75-42: otherwise it is dropped.
                host.set_target(None, cx);
                if host.is_forgotten() {
                    self.by_address.remove(&address);
                }
            }
        }
        taken_over
    }

    /// A75-25: drops the policy's own subchannels that no session has used for idle_timeout.
    pub(super) fn sweep(&mut self, cx: &mut dyn Cx) {
        let now = cx.now();
        let expired = |address: &SocketAddr| {
            self.by_address.get(address).is_none_or(|host| !is_live(host, self.idle_timeout, now))
        };
        let expired: Vec<_> = self.owned.values().copied().filter(expired).collect();
        for address in expired {
            // A75-52: an abandoned attempt counts as failed for the RPCs waiting for it; otherwise it would be retried
            // and abandoned repeatedly.
            if let Some(host) = self.by_address.get(&address) {
                host.shared.failed(self.failures.next());
            }
            self.let_go(address, cx);
        }
    }

    /// A75-39: the expiry of the next of the policy's own subchannels, if any.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        let expiry =
            |address| self.by_address.get(address)?.shared.last_used().map(|at| at + self.idle_timeout);
        self.owned.values().filter_map(expiry).min()
    }

    /// The number of subchannels that only sessions hold.
    pub(super) fn kept(&self) -> usize {
        self.owned.len()
    }

    /// The addresses used by sessions within idle_timeout, and those kept for sessions alone.
    pub(super) fn describe(&self, now: Time) -> Vec<Detail> {
        let used =
            |(_, host): &(&SocketAddr, &Host)| host.own.is_some() || is_live(host, self.idle_timeout, now);
        let describe =
            |(address, host): (&SocketAddr, &Host)| host.describe(*address, self.idle_timeout, now);
        self.by_address.iter().filter(used).map(describe).collect()
    }

    /// Creates a subchannel of the policy's own, replacing an existing one.
    fn own(&mut self, address: SocketAddr, cx: &mut dyn Cx) {
        let Some(host) = self.by_address.get_mut(&address) else { return };
        let Some(endpoint) = &host.endpoint else { return };
        let subchannel = cx.create_subchannel(SubchannelSpec::new(address, Arc::clone(endpoint)));
        host.set_target(Some(subchannel.target()), cx);
        self.owned.insert(subchannel.id(), address);
        if let Some(old) = host.own.replace(subchannel) {
            self.owned.remove(&old.id());
        }
    }

    fn let_go(&mut self, address: SocketAddr, cx: &mut dyn Cx) {
        let Some(host) = self.by_address.get_mut(&address) else { return };
        if let Some(own) = host.own.take() {
            self.owned.remove(&own.id());
            host.set_target(None, cx);
        }
    }
}

impl Host {
    /// Sets the subchannel of the address. RPCs that wait for it pick again.
    fn set_target(&self, target: Option<&Arc<PickTarget>>, cx: &mut dyn Cx) {
        if self.shared.set_target(target) {
            cx.bump();
        }
    }

    /// Sets the state of the subchannel. RPCs that wait for it pick again.
    fn set_state(&self, state: ConnectivityState, cx: &mut dyn Cx) {
        if self.shared.set_state(Some(state)) {
            cx.bump();
        }
    }

    /// Whether it is not listed and has no subchannel.
    fn is_forgotten(&self) -> bool {
        self.endpoint.is_none() && self.own.is_none() && self.lent.is_empty()
    }

    fn describe(&self, address: SocketAddr, idle_timeout: Duration, now: Time) -> Detail {
        let state = self.shared.state().map_or("no subchannel".to_owned(), |state| state.to_string());
        let health =
            self.endpoint.as_ref().map_or("not listed".to_owned(), |endpoint| endpoint.health.to_string());
        let mut detail =
            Detail::new("session", address.to_string()).with("state", state).with("health", health);
        if !self.usable {
            detail = detail.with("usable", false);
        }
        if let Some(last_used) = self.shared.last_used() {
            detail = detail.with_seconds("last_used_seconds_ago", now.since(last_used));
            // A75-25: only subchannels that the child does not hold expire.
            if self.own.is_some() {
                detail = detail.with_seconds("kept_for_seconds", (last_used + idle_timeout).since(now));
            }
        }
        detail
    }
}

/// Whether a session used the host within idle_timeout.
fn is_live(host: &Host, idle_timeout: Duration, now: Time) -> bool {
    host.shared.last_used().is_some_and(|last_used| last_used + idle_timeout > now)
}
