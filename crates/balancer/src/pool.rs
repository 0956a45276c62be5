//! The subchannels of one tree: one entry per address, shared by all owners.
//!
//! Inputs: owners that acquire, release and request connections; the driver's answers; deadlines. Outputs: events for
//! owners, and effects for the driver. Operations that cancel out within an input have no effect: connections are
//! started, and those without owners closed, only at the end of the input ([`Pool::finish`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use proxyless_sans_io::metrics::{Meter, PlaceId};
use proxyless_sans_io::{BackoffConfig, Rng, SmallMap, Time};

use self::demand::Demands;
use self::load_streams::{Ended, LoadStreams};
use self::metrics::{Happened, PoolMetrics, SubchannelMetrics};
use self::scaling::Owner;
use crate::address::CompactAddress;
use crate::api::{
    BackendMetrics, CallCounter, CallCounts, ConnectionLimit, ConnectionSlot, ConnectivityState, HandleId,
    Security, SubchannelEvent, Wake,
};
use crate::subchannel::{Attempt, Effect, Started, SubchannelCore};
use crate::targets;
use crate::tree::{
    AttemptId, ConnectionCalls, ConnectionEvent, LoadEvent, LoadStreamId, SecurityLevel, SubchannelId,
    SubchannelNode, TreeConfig, TreeEffect,
};

mod demand;
mod load_streams;
mod metrics;
mod scaling;

pub use self::demand::StreamDemand;

/// The identity of a shared connection. Weight, locality, health and priority are not part of it, so changing them
/// never reconnects. Nor is the number of connections (A105-02).
#[derive(Clone, Debug)]
pub(crate) struct PoolKey {
    pub(crate) address: SocketAddr,
    pub(crate) security: Option<Arc<Security>>,
    pub(crate) proxy: Option<Arc<SocketAddr>>,
}

/// A compact [`PoolKey`].
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CompactKey {
    address: CompactAddress,
    /// The id of the security settings; 0 if there are none.
    security: u64,
    proxy: Option<Arc<SocketAddr>>,
}

impl CompactKey {
    fn new(address: SocketAddr, security: Option<&Security>, proxy: Option<&Arc<SocketAddr>>) -> Self {
        let security = security.map_or(0, Security::id);
        Self { address: address.into(), security, proxy: proxy.cloned() }
    }
}

/// The longest keepalive interval that servers can cause. One server must not end the probes of all others, and servers
/// tolerate a PING every five minutes unless configured otherwise.
const MAX_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10 * 60);

pub(crate) struct Pool {
    config: TreeConfig,
    backoff: Arc<BackoffConfig>,
    /// The interval for new connections.
    keepalive_interval: Option<Duration>,
    /// Boxed, because they are large and entries of the map move.
    entries: SmallMap<SubchannelId, Box<PoolEntry>>,
    /// Connections are shared by address, security and proxy. Weight, locality, health and priority are not part of
    /// the key, so changing them never reconnects.
    by_key: SmallMap<CompactKey, SubchannelId>,
    deadlines: BTreeSet<(Time, SubchannelId)>,
    /// Entries that lost their last owner during this input.
    orphans: BTreeSet<SubchannelId>,
    /// Entries that may need another connection, to be looked at when the input ends (gRFC A105).
    scaling: BTreeSet<SubchannelId>,
    /// The reports of calls that wait for a stream.
    demands: Demands,
    /// Attempts requested during this input, in order.
    starting: BTreeMap<AttemptId, Start>,
    next_subchannel: u64,
    next_attempt: u64,
    events: VecDeque<SubchannelEvent>,
    effects: VecDeque<TreeEffect>,
    lost: bool,
    load_streams: LoadStreams,
    /// Load reports for owners.
    reports: VecDeque<(HandleId, Arc<BackendMetrics>)>,
    /// The counts of calls on dropped slots.
    past_calls: Arc<CallCounter>,
    /// The slots of removed entries that calls still hold.
    draining: Vec<Weak<ConnectionSlot>>,
    metrics: PoolMetrics,
}

struct PoolEntry {
    core: SubchannelCore,
    security: Option<Arc<Security>>,
    proxy: Option<Arc<SocketAddr>>,
    owners: Vec<Owner>,
    deadline: Option<Time>,
    /// Present if it may ever have had several connections.
    demand: Option<Arc<StreamDemand>>,
    /// Its metrics, if the channel has recorders.
    metrics: Option<Box<SubchannelMetrics>>,
}

struct Start {
    subchannel: SubchannelId,
    started: Started,
}

impl Pool {
    pub(crate) fn new(config: TreeConfig, wake: Arc<dyn Wake>) -> Self {
        Self {
            config,
            backoff: Arc::new(config.backoff),
            keepalive_interval: config.keepalive_interval,
            entries: SmallMap::new(),
            by_key: SmallMap::new(),
            deadlines: BTreeSet::new(),
            orphans: BTreeSet::new(),
            scaling: BTreeSet::new(),
            demands: Demands::new(wake),
            starting: BTreeMap::new(),
            next_subchannel: 0,
            next_attempt: 0,
            events: VecDeque::new(),
            effects: VecDeque::new(),
            lost: false,
            load_streams: LoadStreams::default(),
            reports: VecDeque::new(),
            past_calls: Arc::default(),
            draining: Vec::new(),
            metrics: PoolMetrics::default(),
        }
    }

    /// Records the metrics of subchannels with this meter.
    pub(crate) fn set_meter(&mut self, meter: Meter) {
        self.metrics = PoolMetrics::new(meter);
    }

    /// Adds `owner` to the entry of this key. Unless the entry is IDLE, the owner's first event is queued.
    pub(crate) fn acquire(
        &mut self,
        key: PoolKey,
        owner: HandleId,
        connection_limit: Option<ConnectionLimit>,
    ) -> (SubchannelId, Arc<ConnectionSlot>) {
        let PoolKey { address, security, proxy } = key;
        let next = &mut self.next_subchannel;
        let key = CompactKey::new(address, security.as_deref(), proxy.as_ref());
        let subchannel = *self.by_key.get_or_insert_with(key, || {
            *next += 1;
            SubchannelId(*next - 1)
        });
        let entry = self.entries.get_or_insert_with(subchannel, || {
            let slot = Arc::new(ConnectionSlot::with_heir(Arc::clone(&self.past_calls)));
            let core = SubchannelCore::new(address, Arc::clone(&self.backoff), slot);
            // Usually there is one owner.
            let owners = Vec::with_capacity(1);
            Box::new(PoolEntry { core, security, proxy, owners, deadline: None, demand: None, metrics: None })
        });
        let limited = connection_limit.as_ref().is_some_and(|limit| limit.value() > 1);
        entry.owners.push(Owner { id: owner, connection_limit });
        if entry.core.state() != ConnectivityState::Idle {
            self.events.push_back(event(&entry.core, owner));
        }
        let (slot, backoff) = (Arc::clone(entry.core.slot()), entry.core.backoff_until());
        if limited || entry.demand.is_some() {
            self.scaling.insert(subchannel);
        }
        // The entry may have been lingering.
        self.set_deadline(subchannel, backoff);
        (subchannel, slot)
    }

    /// Removes an owner.
    pub(crate) fn release(&mut self, subchannel: SubchannelId, owner: HandleId) {
        let Some(entry) = self.entries.get_mut(&subchannel) else { return };
        entry.owners.retain(|of| of.id != owner);
        self.load_streams.request(subchannel, owner, None, None);
        if entry.owners.is_empty() {
            self.orphans.insert(subchannel);
        }
    }

    /// Requests out-of-band load reports at this interval for an owner, or ends its request.
    pub(crate) fn watch_load(
        &mut self,
        subchannel: SubchannelId,
        owner: HandleId,
        interval: Option<Duration>,
    ) {
        let connection = self.entries.get(&subchannel).and_then(|entry| oldest(&entry.core));
        self.load_streams.request(subchannel, owner, interval, connection);
    }

    /// Handles an event of a stream of load reports. Returns the address if its server does not have the service.
    pub(crate) fn on_load(
        &mut self,
        now: Time,
        subchannel: SubchannelId,
        stream: LoadStreamId,
        event: LoadEvent,
        rng: &mut Rng,
    ) -> Option<SocketAddr> {
        match event {
            LoadEvent::Report(metrics) => {
                let owners = self.load_streams.on_report(subchannel, stream);
                self.reports.extend(owners.into_iter().map(|owner| (owner, Arc::clone(&metrics))));
                None
            }
            LoadEvent::Ended { code, reason } => {
                let address = self.entries.get(&subchannel)?.core.address();
                let ended =
                    self.load_streams.on_end(now, subchannel, stream, code, &self.config.backoff, rng);
                tracing::debug!(target: targets::SUBCHANNEL, %address, ?ended, reason, "load reports ended");
                (ended == Ended::Unimplemented).then_some(address)
            }
        }
    }

    /// The next load report, and the owner that it is for.
    pub(crate) fn poll_report(&mut self) -> Option<(HandleId, Arc<BackendMetrics>)> {
        pop(&mut self.reports)
    }

    /// Starts an attempt if the entry is IDLE.
    pub(crate) fn connect(&mut self, now: Time, subchannel: SubchannelId, rng: &mut Rng) {
        let Some(entry) = self.entries.get_mut(&subchannel) else { return };
        let attempt = AttemptId(self.next_attempt);
        if let Some(started) = entry.core.connect(now, attempt, self.config.connect_timeout, rng) {
            self.next_attempt += 1;
            self.starting.insert(attempt, Start { subchannel, started });
            self.tell_owners(subchannel);
        }
    }

    /// Handles an answer of the driver.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        subchannel: SubchannelId,
        attempt: AttemptId,
        event: ConnectionEvent,
    ) {
        let too_many_pings = matches!(event, ConnectionEvent::TooManyPings(_));
        let happened = Happened::of(&event);
        let (before, effect) = match self.entries.get_mut(&subchannel) {
            Some(entry) => (entry.core.state(), entry.core.answer(now, attempt, event)),
            None if matches!(event, ConnectionEvent::Ready(_)) => (ConnectivityState::Idle, Effect::Unwanted),
            None => (ConnectivityState::Idle, Effect::Ignored),
        };
        match effect {
            Effect::Ignored => {}
            // The cancellation crossed with the success.
            Effect::Unwanted => self.effects.push_back(TreeEffect::CloseGracefully { subchannel, attempt }),
            Effect::Changed => {
                self.count(subchannel, attempt, &happened);
                self.changed(subchannel, before);
            }
            Effect::Lost => {
                self.count(subchannel, attempt, &happened);
                self.lost = true;
                if too_many_pings {
                    self.double_keepalive_interval();
                }
                self.changed(subchannel, before);
            }
        }
    }

    /// The latest owner of a subchannel has it in this place, for metrics. A94: the labels are those of the latest owner;
    /// another place does not replace the subchannel.
    pub(crate) fn locate(&mut self, subchannel: SubchannelId, place: PlaceId) {
        if let Some(entry) = self.entries.get_mut(&subchannel) {
            let level = SecurityLevel::of(entry.security.as_deref(), self.config.fallback_security);
            self.metrics.locate(&mut entry.metrics, place, level);
        }
    }

    fn count(&mut self, subchannel: SubchannelId, attempt: AttemptId, happened: &Happened) {
        if let Some(metrics) = self.entries.get_mut(&subchannel).and_then(|entry| entry.metrics.as_mut()) {
            metrics.count(attempt, happened);
        }
    }

    /// A8: after `too_many_pings`, new connections of the channel send half as many PINGs.
    fn double_keepalive_interval(&mut self) {
        if let Some(interval) = &mut self.keepalive_interval
            && *interval < MAX_KEEPALIVE_INTERVAL
        {
            *interval = interval.saturating_mul(2).min(MAX_KEEPALIVE_INTERVAL);
            tracing::warn!(target: targets::SUBCHANNEL, ?interval, "too_many_pings: the keepalive interval is doubled");
        }
    }

    /// The time at which [`Self::expire`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let own = self.deadlines.first().map(|&(at, _)| at);
        own.into_iter().chain(self.load_streams.next_deadline()).min()
    }

    /// Processes the earliest deadline (of a backoff, a lingering connection or a remembered failure), if it is not
    /// after `now`.
    pub(crate) fn expire(&mut self, now: Time) {
        self.load_streams.expire(now);
        let Some(&(at, subchannel)) = self.deadlines.first() else { return };
        if at > now {
            return;
        }
        self.set_deadline(subchannel, None);
        let Some(entry) = self.entries.get_mut(&subchannel) else { return };
        let before = entry.core.state();
        if entry.core.is_ready() && entry.owners.is_empty() {
            // It has lingered.
            self.close(subchannel);
        } else if entry.core.end_backoff() {
            self.changed(subchannel, before);
        } else if entry.owners.is_empty() {
            self.close(subchannel);
        }
    }

    /// Ends all backoffs.
    pub(crate) fn reset_backoff(&mut self, now: Time) {
        let subchannels: Vec<_> = self.entries.keys().copied().collect();
        for subchannel in subchannels {
            let Some(entry) = self.entries.get_mut(&subchannel) else { continue };
            let before = entry.core.state();
            if entry.core.reset_backoff(now) {
                self.changed(subchannel, before);
            }
        }
    }

    /// Ends the input: closes entries without owners, and starts the attempts that were requested or are needed.
    pub(crate) fn finish(&mut self, now: Time, rng: &mut Rng) {
        for subchannel in std::mem::take(&mut self.orphans) {
            let Some(entry) = self.entries.get_mut(&subchannel) else { continue };
            if !entry.owners.is_empty() {
                continue;
            }
            // Addresses of an endpoint that fail alternately cancel each other's attempts: none of them must begin
            // again without its backoff.
            if let Some((attempt, remember_until)) = entry.core.give_up() {
                self.cancel(subchannel, attempt);
                if remember_until > now {
                    self.set_deadline(subchannel, Some(remember_until));
                } else {
                    self.close(subchannel);
                }
                continue;
            }
            // Calls that still wait for a stream have those of the lingering connections.
            if let Some(attempt) = entry.core.give_up_scaling() {
                self.cancel(subchannel, attempt);
            }
            let Some(entry) = self.entries.get(&subchannel) else { continue };
            match *entry.core.attempt() {
                _ if entry.core.is_ready() && !self.config.linger.is_zero() => {
                    self.set_deadline(subchannel, Some(now + self.config.linger));
                }
                _ if entry.core.is_ready() => self.close(subchannel),
                // Both stay until the backoff ends, so that a new owner does not hammer a dead host.
                Attempt::Backoff { .. } => {}
                Attempt::None { remember_until } if remember_until > now => {
                    self.set_deadline(subchannel, Some(remember_until));
                }
                _ => self.close(subchannel),
            }
        }
        for subchannel in std::mem::take(&mut self.scaling) {
            self.scale(now, subchannel, rng);
        }
        self.load_streams.finish(now, &mut self.effects);
        for (attempt, Start { subchannel, started }) in std::mem::take(&mut self.starting) {
            if let Some(entry) = self.entries.get(&subchannel) {
                let (address, keepalive_interval) = (entry.core.address(), self.keepalive_interval);
                let (security, proxy) = (entry.security.clone(), entry.proxy.clone());
                self.effects.push_back(TreeEffect::Connect {
                    subchannel,
                    attempt,
                    address,
                    security,
                    proxy,
                    timeout: started.timeout,
                    keepalive_interval,
                    demand: entry.demand.clone(),
                    calls: started.calls.map(ConnectionCalls),
                });
            }
        }
    }

    /// Closes every connection, owned or not.
    pub(crate) fn close_all(&mut self) {
        self.load_streams.close_all(&mut self.effects);
        let subchannels: Vec<_> = self.entries.keys().copied().collect();
        for subchannel in subchannels {
            self.close(subchannel);
        }
        self.events.clear();
        self.reports.clear();
        self.orphans.clear();
        self.scaling.clear();
    }

    pub(crate) fn poll_event(&mut self) -> Option<SubchannelEvent> {
        pop(&mut self.events)
    }

    pub(crate) fn poll_effect(&mut self) -> Option<TreeEffect> {
        pop(&mut self.effects)
    }

    /// Whether a connection was lost since the last call.
    pub(crate) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    /// Describes all entries.
    pub(crate) fn describe(&self) -> Vec<SubchannelNode> {
        let cap = self.config.connections_per_subchannel_cap;
        let node = |subchannel: SubchannelId, entry: &PoolEntry| SubchannelNode {
            subchannel,
            connections: entry.core.describe(),
            max_connections: entry.max_connections(cap),
            address: entry.core.address(),
            security: entry.security.as_deref().map_or(0, Security::id),
            proxy: entry.proxy.clone(),
            state: entry.core.state(),
            error: entry.core.error().map(|error| error.message.clone()),
            calls: entry.core.slot().calls().counts(),
        };
        self.entries.iter().map(|(&subchannel, entry)| node(subchannel, entry)).collect()
    }

    /// The calls that ended on any entry, including removed ones.
    pub(crate) fn calls(&self) -> CallCounts {
        let draining: Vec<_> = self.draining.iter().filter_map(Weak::upgrade).collect();
        let live = self.entries.values().map(|entry| entry.core.slot()).chain(&draining);
        live.fold(self.past_calls.counts(), |sum, slot| sum + slot.calls().counts())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// An attempt of an entry ended or a connection was lost: notifies the owners if the state changed, and sets the
    /// deadline.
    fn changed(&mut self, subchannel: SubchannelId, before: ConnectivityState) {
        let Some(entry) = self.entries.get(&subchannel) else { return };
        self.load_streams.connection(subchannel, oldest(&entry.core));
        let (deadline, changed) = (entry.core.backoff_until(), entry.core.state() != before);
        if entry.owners.is_empty() {
            self.orphans.insert(subchannel);
        }
        if entry.demand.is_some() {
            self.scaling.insert(subchannel);
        }
        self.set_deadline(subchannel, deadline);
        if changed {
            self.tell_owners(subchannel);
        }
    }

    /// Cancels an attempt.
    fn cancel(&mut self, subchannel: SubchannelId, attempt: AttemptId) {
        // An attempt that was not passed to the driver need not be cancelled.
        if self.starting.remove(&attempt).is_none() {
            self.effects.push_back(TreeEffect::CancelConnect { subchannel, attempt });
        }
    }

    fn tell_owners(&mut self, subchannel: SubchannelId) {
        let Some(entry) = self.entries.get(&subchannel) else { return };
        if entry.owners.is_empty() {
            self.orphans.insert(subchannel);
        }
        self.events.extend(entry.owners.iter().map(|owner| event(&entry.core, owner.id)));
    }

    fn set_deadline(&mut self, subchannel: SubchannelId, deadline: Option<Time>) {
        let Some(entry) = self.entries.get_mut(&subchannel) else { return };
        if let Some(old) = std::mem::replace(&mut entry.deadline, deadline) {
            self.deadlines.remove(&(old, subchannel));
        }
        if let Some(new) = deadline {
            self.deadlines.insert((new, subchannel));
        }
    }

    /// Removes an entry and closes its connections and its attempt.
    fn close(&mut self, subchannel: SubchannelId) {
        self.set_deadline(subchannel, None);
        let Some(entry) = self.entries.remove(&subchannel) else { return };
        self.load_streams.connection(subchannel, None);
        let key = CompactKey::new(entry.core.address(), entry.security.as_deref(), entry.proxy.as_ref());
        self.by_key.remove(&key);
        self.draining.retain(|slot| slot.strong_count() > 0);
        self.draining.push(Arc::downgrade(entry.core.slot()));
        if let Attempt::Connecting { attempt, .. } = *entry.core.attempt() {
            self.cancel(subchannel, attempt);
        }
        if entry.core.is_ready() {
            entry.core.slot().store(None);
            self.lost = true;
        }
        let close = |attempt| TreeEffect::CloseGracefully { subchannel, attempt };
        self.effects.extend(entry.core.connections().map(close));
    }
}

/// The attempt that established the oldest connection, if there is one.
fn oldest(core: &SubchannelCore) -> Option<AttemptId> {
    core.connections().next()
}

/// Pops from a queue; releases its memory when it becomes empty, since most channels are quiet most of the time.
fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let next = queue.pop_front();
    if next.is_none() {
        *queue = VecDeque::new();
    }
    next
}

fn event(core: &SubchannelCore, owner: HandleId) -> SubchannelEvent {
    let state = core.state();
    SubchannelEvent { subchannel: owner, state, health: state, error: core.error().cloned() }
}

#[cfg(test)]
mod scaling_tests;
#[cfg(test)]
mod tests;
