//! A test bench: one policy in a real [`Tree`], with virtual time and a scripted driver.
//!
//! ```
//! use std::sync::Arc;
//! use proxyless_balancer::policies::round_robin::RoundRobinConfig;
//! use proxyless_balancer::testing::{Bench, address, endpoints};
//!
//! let mut bench = Bench::new();
//! bench.update(Arc::new(RoundRobinConfig), endpoints(1..=2));
//! bench.ready(address(1));
//! assert_eq!(bench.picks(3), [address(1); 3]);
//! ```
//!
//! Its methods panic where a test should fail: it is for tests only.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_sans_io::{Rng, Time};

use crate::api::{
    ActualHost, CallAttributes, ConfigError, ConnectivityState, Endpoint, Endpoints, OverrideHost, PickArgs,
    PickResult, PolicyConfig, Update, Wake,
};
use crate::tree::{
    AttemptId, ConnectionEvent, Publication, StreamDemand, SubchannelId, Tree, TreeConfig, TreeEffect,
};

/// The `n`th test address: 10.0.0.0 plus `n`, port 80.
#[must_use]
pub fn address(n: u16) -> SocketAddr {
    let [high, low] = n.to_be_bytes();
    (Ipv4Addr::new(10, 0, high, low), 80).into()
}

/// An endpoint with the `n`th test address.
#[must_use]
pub fn endpoint(n: u16) -> Endpoint {
    Endpoint::new(address(n))
}

/// An endpoint with several addresses.
#[must_use]
pub fn endpoint_at(addresses: &[SocketAddr]) -> Endpoint {
    Endpoint { addresses: addresses.into(), ..endpoint(0) }
}

/// One endpoint for each number.
pub fn endpoints(numbers: impl IntoIterator<Item = u16>) -> Endpoints {
    Endpoints::of(numbers.into_iter().map(endpoint))
}

/// The result of a pick, in a comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Picked {
    /// The target's address.
    Target(SocketAddr),
    /// Queued.
    Queue,
    /// Failed with this message.
    Fail(String),
    /// Dropped with this message.
    Drop(String),
}

/// A tree, its virtual time, and its driver.
pub struct Bench {
    tree: Tree,
    now: Time,
    rng: Rng,
    effects: Vec<TreeEffect>,
    connections: BTreeMap<(SubchannelId, AttemptId), Connection>,
    demands: BTreeMap<SocketAddr, Arc<StreamDemand>>,
    reresolutions: usize,
    published: Vec<(Publication, ConnectivityState)>,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    attempt: AttemptId,
    address: SocketAddr,
    ready: bool,
}

/// For cores that a test drives itself: nothing needs to be woken.
#[derive(Debug)]
pub struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

impl Bench {
    /// Creates a bench with the default configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::with_config(TreeConfig::default())
    }

    /// Creates a bench with the default configuration and this seed.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self::build(TreeConfig::default(), seed)
    }

    /// Creates a bench with this configuration.
    #[must_use]
    pub fn with_config(config: TreeConfig) -> Self {
        Self::build(config, 0)
    }

    fn build(config: TreeConfig, seed: u64) -> Self {
        Self {
            tree: Tree::new(config, seed, Arc::new(NoWake)),
            now: Time::ZERO,
            rng: Rng::new(seed),
            effects: Vec::new(),
            connections: BTreeMap::new(),
            demands: BTreeMap::new(),
            reresolutions: 0,
            published: Vec::new(),
        }
    }

    /// The tree.
    pub fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Updates the root policy, which must accept it.
    #[track_caller]
    pub fn update(&mut self, config: Arc<dyn PolicyConfig>, endpoints: Endpoints) {
        self.try_update(&Update::new(config, endpoints)).expect("the policy accepts the update");
    }

    /// Updates the root policy.
    ///
    /// # Errors
    /// If the policy rejects the update.
    pub fn try_update(&mut self, update: &Update) -> Result<(), ConfigError> {
        let result = self.tree.update(self.now, update);
        self.drain();
        result
    }

    /// Completes the pending attempt to this address.
    #[track_caller]
    pub fn ready(&mut self, address: SocketAddr) {
        let (id, connection) = self.attempt(address);
        self.connections.insert((id, connection.attempt), Connection { ready: true, ..connection });
        self.answer(id, connection.attempt, ConnectionEvent::Ready(Arc::new(address)));
    }

    /// Fails the pending attempt to this address with "connection refused".
    #[track_caller]
    pub fn fail(&mut self, address: SocketAddr) {
        self.fail_with(address, "connection refused");
    }

    /// Fails the pending attempt to this address.
    #[track_caller]
    pub fn fail_with(&mut self, address: SocketAddr, why: &str) {
        let (id, connection) = self.attempt(address);
        self.connections.remove(&(id, connection.attempt));
        self.answer(id, connection.attempt, ConnectionEvent::Failed(why.into()));
    }

    /// Completes all pending attempts.
    pub fn ready_all(&mut self) {
        for address in self.connecting() {
            self.ready(address);
        }
    }

    /// Fails all pending attempts.
    pub fn fail_all(&mut self) {
        for address in self.connecting() {
            self.fail(address);
        }
    }

    /// The server at this address sends GOAWAY.
    #[track_caller]
    pub fn go_away(&mut self, address: SocketAddr) {
        self.lose(address, ConnectionEvent::GoAway("NO_ERROR".into()));
    }

    /// Closes the connection to this address.
    #[track_caller]
    pub fn close(&mut self, address: SocketAddr) {
        self.lose(address, ConnectionEvent::Closed("connection reset".into()));
    }

    /// The addresses of pending attempts, in start order.
    #[must_use]
    pub fn connecting(&self) -> Vec<SocketAddr> {
        let mut open: Vec<_> = self.connections.values().filter(|connection| !connection.ready).collect();
        open.sort_by_key(|connection| connection.attempt);
        open.into_iter().map(|connection| connection.address).collect()
    }

    /// The addresses of live connections, in order.
    #[must_use]
    pub fn connected(&self) -> BTreeSet<SocketAddr> {
        self.connections
            .values()
            .filter(|connection| connection.ready)
            .map(|connection| connection.address)
            .collect()
    }

    /// Advances time, with a tick at each deadline.
    pub fn advance(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.tree.next_deadline().filter(|&at| at <= end) {
            self.tick(at);
        }
        self.now = end;
    }

    /// Advances time to the next deadline; false if there is none.
    pub fn advance_to_deadline(&mut self) -> bool {
        let deadline = self.tree.next_deadline();
        if let Some(at) = deadline {
            self.tick(at);
        }
        deadline.is_some()
    }

    /// Makes the root leave IDLE.
    pub fn exit_idle(&mut self) {
        self.tree.exit_idle(self.now);
        self.drain();
    }

    /// Ends all backoffs.
    pub fn reset_backoff(&mut self) {
        self.tree.reset_backoff(self.now);
        self.drain();
    }

    /// Shuts the tree down.
    pub fn shutdown(&mut self) {
        self.tree.shutdown(self.now);
        self.drain();
    }

    /// The root's state.
    #[must_use]
    pub fn state(&self) -> ConnectivityState {
        self.tree.output().state
    }

    /// Picks for a plain RPC and handles the signals raised.
    pub fn pick(&mut self) -> Picked {
        self.pick_with(CallAttributes::default())
    }

    /// Picks for an RPC with these attributes and handles the signals raised.
    pub fn pick_with(&mut self, attributes: CallAttributes) -> Picked {
        self.pick_and_answer(&HeaderMap::new(), attributes).0
    }

    /// Picks for an RPC with these headers and handles the signals raised.
    pub fn pick_with_headers(&mut self, headers: &HeaderMap) -> Picked {
        self.pick_and_answer(headers, CallAttributes::default()).0
    }

    /// Picks for an RPC of a session whose cookie contains these addresses, and handles the signals raised. Also
    /// returns the host for the filter.
    pub fn pick_session(&mut self, cookie: &[SocketAddr]) -> (Picked, Option<ActualHost>) {
        let mut session = OverrideHost::new(cookie.into(), self.now);
        let picked = self.pick_again(&mut session);
        (picked, session.actual)
    }

    /// Picks again for an RPC of a session.
    pub fn pick_again(&mut self, session: &mut OverrideHost) -> Picked {
        session.now = self.now;
        let attributes = CallAttributes { override_host: Some(session.clone()), ..CallAttributes::default() };
        let (picked, attributes) = self.pick_and_answer(&HeaderMap::new(), attributes);
        if let Some(answered) = attributes.override_host {
            *session = answered;
        }
        picked
    }

    fn pick_and_answer(
        &mut self,
        headers: &HeaderMap,
        attributes: CallAttributes,
    ) -> (Picked, CallAttributes) {
        let mut args = PickArgs { path: "/test.Service/Method", headers, attributes, rng: &mut self.rng };
        let result = self.tree.output().picker.pick(&mut args);
        let attributes = args.attributes;
        self.tree.on_signals(self.now);
        self.drain();
        let picked = match result {
            PickResult::Complete(pick) => Picked::Target(pick.target.address),
            PickResult::Queue => Picked::Queue,
            PickResult::Fail(error) => Picked::Fail(error.message.clone()),
            PickResult::Drop(error) => Picked::Drop(error.message.clone()),
        };
        (picked, attributes)
    }

    /// The addresses of `n` picks that all complete.
    #[track_caller]
    pub fn picks(&mut self, n: usize) -> Vec<SocketAddr> {
        (0..n)
            .map(|_| match self.pick() {
                Picked::Target(address) => address,
                other => panic!("the pick did not complete: {other:?}"),
            })
            .collect()
    }

    /// The distinct addresses among `n` picks that all complete.
    #[track_caller]
    pub fn picked(&mut self, n: usize) -> BTreeSet<SocketAddr> {
        self.picks(n).into_iter().collect()
    }

    /// So many calls wait for a stream of the connections to an address. No effect if the tree does not want to know.
    pub fn set_queued(&mut self, address: SocketAddr, count: usize) {
        if let Some(demand) = self.demands.get(&address) {
            demand.set_queued(count);
        }
        self.tree.on_signals(self.now);
        self.drain();
    }

    /// The effects since the last call.
    pub fn take_effects(&mut self) -> Vec<TreeEffect> {
        std::mem::take(&mut self.effects)
    }

    /// The number of re-resolution requests since the last call.
    pub fn take_reresolutions(&mut self) -> usize {
        std::mem::take(&mut self.reresolutions)
    }

    /// The outputs published since the last call, with the state after each.
    pub fn take_published(&mut self) -> Vec<(Publication, ConnectivityState)> {
        std::mem::take(&mut self.published)
    }

    /// The states published since the last call.
    pub fn take_states(&mut self) -> Vec<ConnectivityState> {
        self.take_published().into_iter().map(|(_, state)| state).collect()
    }

    fn tick(&mut self, at: Time) {
        self.now = self.now.max(at);
        self.tree.on_tick(self.now);
        self.drain();
    }

    #[track_caller]
    fn attempt(&self, address: SocketAddr) -> (SubchannelId, Connection) {
        self.find(address, |connection| !connection.ready)
            .unwrap_or_else(|| panic!("no open attempt to {address}; open: {:?}", self.connecting()))
    }

    #[track_caller]
    fn lose(&mut self, address: SocketAddr, event: ConnectionEvent) {
        let (id, connection) = self
            .find(address, |connection| connection.ready)
            .unwrap_or_else(|| panic!("no connection to {address}; there are: {:?}", self.connected()));
        self.connections.remove(&(id, connection.attempt));
        self.answer(id, connection.attempt, event);
    }

    fn find(
        &self,
        address: SocketAddr,
        test: impl Fn(&Connection) -> bool,
    ) -> Option<(SubchannelId, Connection)> {
        let mut all = self.connections.iter();
        all.find(|(_, found)| found.address == address && test(found)).map(|(&(id, _), &found)| (id, found))
    }

    fn answer(&mut self, id: SubchannelId, attempt: AttemptId, event: ConnectionEvent) {
        self.tree.on_connections(self.now, [(id, attempt, event)]);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(effect) = self.tree.poll_effect() {
            self.effects.push(effect.clone());
            match effect {
                TreeEffect::Connect { subchannel, attempt, address, demand, .. } => {
                    let connection = Connection { attempt, address, ready: false };
                    self.connections.insert((subchannel, attempt), connection);
                    self.demands.extend(demand.map(|demand| (address, demand)));
                }
                TreeEffect::ReportDemand { subchannel, demand } => {
                    let found = self.connections.iter().find(|((id, _), _)| *id == subchannel);
                    self.demands.extend(found.map(|(_, connection)| (connection.address, demand)));
                }
                TreeEffect::CancelConnect { subchannel, attempt }
                | TreeEffect::CloseGracefully { subchannel, attempt } => {
                    self.connections.remove(&(subchannel, attempt));
                }
                TreeEffect::OpenLoadStream { .. } | TreeEffect::CloseLoadStream { .. } => {}
            }
        }
        if self.tree.take_reresolution_request() {
            self.reresolutions += 1;
        }
        if let Some(published) = self.tree.take_published() {
            self.published.push((published, self.tree.output().state));
        }
    }
}
