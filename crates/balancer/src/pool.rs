//! The subchannels of one tree: one entry per address, shared by all owners.
//!
//! Inputs: owners that acquire, release and request connections; the driver's answers; deadlines. Outputs: events for
//! owners, and effects for the driver. Operations that cancel out within an input have no effect: connections are
//! started, and those without owners closed, only at the end of the input ([`Pool::finish`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use proxyless_sans_io::{BackoffConfig, Rng, Time};

use self::load_streams::{Ended, LoadStreams};
use crate::address::CompactAddress;
use crate::api::{
    BackendMetrics, CallCounter, CallCounts, ConnectionSlot, HandleId, Security, SubchannelEvent,
};
use crate::subchannel::{Effect, Phase, SubchannelCore};
use crate::targets;
use crate::tree::{
    AttemptId, ConnectionEvent, LoadEvent, LoadStreamId, SubchannelId, SubchannelNode, TreeConfig, TreeEffect,
};

mod load_streams;

/// The identity of a shared connection. Weight, locality, health and priority are not part of it, so changing them
/// never reconnects.
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

#[derive(Default)]
pub(crate) struct Pool {
    config: TreeConfig,
    backoff: Arc<BackoffConfig>,
    /// The interval for new connections.
    keepalive_interval: Option<Duration>,
    /// Boxed, because the leaves of the map are half empty.
    entries: BTreeMap<SubchannelId, Box<PoolEntry>>,
    /// Connections are shared by address, security and proxy. Weight, locality, health and priority are not part of
    /// the key, so changing them never reconnects.
    by_key: BTreeMap<CompactKey, SubchannelId>,
    deadlines: BTreeSet<(Time, SubchannelId)>,
    /// Entries that lost their last owner during this input.
    orphans: BTreeSet<SubchannelId>,
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
}

struct PoolEntry {
    core: SubchannelCore,
    security: Option<Arc<Security>>,
    proxy: Option<Arc<SocketAddr>>,
    owners: Vec<HandleId>,
    deadline: Option<Time>,
}

struct Start {
    subchannel: SubchannelId,
    timeout: Duration,
}

impl Pool {
    pub(crate) fn new(config: TreeConfig) -> Self {
        Self {
            config,
            backoff: Arc::new(config.backoff),
            keepalive_interval: config.keepalive_interval,
            ..Self::default()
        }
    }

    /// Adds `owner` to the entry of this key. Unless the entry is IDLE, the owner's first event is queued.
    pub(crate) fn acquire(&mut self, key: PoolKey, owner: HandleId) -> (SubchannelId, Arc<ConnectionSlot>) {
        let PoolKey { address, security, proxy } = key;
        let next = &mut self.next_subchannel;
        let key = CompactKey::new(address, security.as_deref(), proxy.as_ref());
        let subchannel = *self.by_key.entry(key).or_insert_with(|| {
            *next += 1;
            SubchannelId(*next - 1)
        });
        let entry = self.entries.entry(subchannel).or_insert_with(|| {
            let slot = Arc::new(ConnectionSlot::with_heir(Arc::clone(&self.past_calls)));
            let core = SubchannelCore::new(address, Arc::clone(&self.backoff), slot);
            // Usually there is one owner.
            Box::new(PoolEntry { core, security, proxy, owners: Vec::with_capacity(1), deadline: None })
        });
        entry.owners.push(owner);
        if !matches!(entry.core.phase(), Phase::Idle { .. }) {
            self.events.push_back(event(&entry.core, owner));
        }
        let slot = Arc::clone(entry.core.slot());
        if matches!(entry.core.phase(), Phase::Ready { .. } | Phase::Idle { .. }) {
            // The entry may have been lingering.
            self.set_deadline(subchannel, None);
        }
        (subchannel, slot)
    }

    /// Removes an owner.
    pub(crate) fn release(&mut self, subchannel: SubchannelId, owner: HandleId) {
        let Some(entry) = self.entries.get_mut(&subchannel) else { return };
        entry.owners.retain(|&id| id != owner);
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
        let connection = self.entries.get(&subchannel).and_then(|entry| connection(&entry.core));
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
        if let Some(timeout) = entry.core.connect(now, attempt, self.config.connect_timeout, rng) {
            self.next_attempt += 1;
            self.starting.insert(attempt, Start { subchannel, timeout });
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
        let effect = match self.entries.get_mut(&subchannel) {
            Some(entry) => entry.core.answer(now, attempt, event),
            None if matches!(event, ConnectionEvent::Ready(_)) => Effect::Unwanted,
            None => Effect::Ignored,
        };
        match effect {
            Effect::Ignored => {}
            // The cancellation crossed with the success.
            Effect::Unwanted => self.effects.push_back(TreeEffect::CloseGracefully { subchannel, attempt }),
            Effect::Changed => self.changed(subchannel),
            Effect::Lost => {
                self.lost = true;
                if too_many_pings {
                    self.double_keepalive_interval();
                }
                self.changed(subchannel);
            }
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
        if entry.core.end_backoff() {
            self.changed(subchannel);
        } else if entry.owners.is_empty() {
            self.close(subchannel);
        }
    }

    /// Ends all backoffs.
    pub(crate) fn reset_backoff(&mut self, now: Time) {
        let subchannels: Vec<_> = self.entries.keys().copied().collect();
        for subchannel in subchannels {
            let changed =
                self.entries.get_mut(&subchannel).is_some_and(|entry| entry.core.reset_backoff(now));
            if changed {
                self.changed(subchannel);
            }
        }
    }

    /// Ends the input: closes entries without owners, and starts the requested attempts.
    pub(crate) fn finish(&mut self, now: Time) {
        for subchannel in std::mem::take(&mut self.orphans) {
            let Some(entry) = self.entries.get_mut(&subchannel) else { continue };
            if !entry.owners.is_empty() {
                continue;
            }
            // Addresses of an endpoint that fail alternately cancel each other's attempts: none of them must begin
            // again without its backoff.
            if let Some((attempt, remember_until)) = entry.core.give_up() {
                if self.starting.remove(&attempt).is_none() {
                    self.effects.push_back(TreeEffect::CancelConnect { subchannel, attempt });
                }
                if remember_until > now {
                    self.set_deadline(subchannel, Some(remember_until));
                } else {
                    self.close(subchannel);
                }
                continue;
            }
            match *entry.core.phase() {
                Phase::Ready { .. } if !self.config.linger.is_zero() => {
                    self.set_deadline(subchannel, Some(now + self.config.linger));
                }
                // Both stay until the backoff ends, so that a new owner does not hammer a dead host.
                Phase::TransientFailure { .. } => {}
                Phase::Idle { remember_until } if remember_until > now => {
                    self.set_deadline(subchannel, Some(remember_until));
                }
                _ => self.close(subchannel),
            }
        }
        self.load_streams.finish(now, &mut self.effects);
        for (attempt, Start { subchannel, timeout }) in std::mem::take(&mut self.starting) {
            if let Some(entry) = self.entries.get(&subchannel) {
                let (address, keepalive_interval) = (entry.core.address(), self.keepalive_interval);
                let (security, proxy) = (entry.security.clone(), entry.proxy.clone());
                self.effects.push_back(TreeEffect::Connect {
                    subchannel,
                    attempt,
                    address,
                    security,
                    proxy,
                    timeout,
                    keepalive_interval,
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
        let node =
            |subchannel: SubchannelId, PoolEntry { core, security, proxy, .. }: &PoolEntry| SubchannelNode {
                subchannel,
                attempt: match *core.phase() {
                    Phase::Ready { attempt, .. } => Some(attempt),
                    _ => None,
                },
                address: core.address(),
                security: security.as_deref().map_or(0, Security::id),
                proxy: proxy.clone(),
                state: core.state(),
                error: core.error().map(|error| error.message.clone()),
                calls: core.slot().calls().counts(),
                calls_since_ready: core.calls_since_ready(),
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

    /// The state of an entry changed: notifies the owners and sets the deadline of the new state.
    fn changed(&mut self, subchannel: SubchannelId) {
        let Some(entry) = self.entries.get(&subchannel) else { return };
        self.load_streams.connection(subchannel, connection(&entry.core));
        let deadline = match *entry.core.phase() {
            Phase::TransientFailure { retry_at, .. } => Some(retry_at),
            _ => None,
        };
        self.set_deadline(subchannel, deadline);
        self.tell_owners(subchannel);
    }

    fn tell_owners(&mut self, subchannel: SubchannelId) {
        let Some(entry) = self.entries.get(&subchannel) else { return };
        if entry.owners.is_empty() {
            self.orphans.insert(subchannel);
        }
        self.events.extend(entry.owners.iter().map(|&owner| event(&entry.core, owner)));
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

    /// Removes an entry and closes its connection or attempt.
    fn close(&mut self, subchannel: SubchannelId) {
        self.set_deadline(subchannel, None);
        let Some(entry) = self.entries.remove(&subchannel) else { return };
        self.load_streams.connection(subchannel, None);
        let key = CompactKey::new(entry.core.address(), entry.security.as_deref(), entry.proxy.as_ref());
        self.by_key.remove(&key);
        self.draining.retain(|slot| slot.strong_count() > 0);
        self.draining.push(Arc::downgrade(entry.core.slot()));
        match *entry.core.phase() {
            Phase::Connecting { attempt, .. } => {
                // An attempt that was not passed to the driver need not be cancelled.
                if self.starting.remove(&attempt).is_none() {
                    self.effects.push_back(TreeEffect::CancelConnect { subchannel, attempt });
                }
            }
            Phase::Ready { attempt, .. } => {
                entry.core.slot().store(None);
                self.lost = true;
                self.effects.push_back(TreeEffect::CloseGracefully { subchannel, attempt });
            }
            Phase::Idle { .. } | Phase::TransientFailure { .. } => {}
        }
    }
}

/// The attempt that established the connection, if there is one.
fn connection(core: &SubchannelCore) -> Option<AttemptId> {
    match *core.phase() {
        Phase::Ready { attempt, .. } => Some(attempt),
        _ => None,
    }
}

/// Pops from a queue, and releases its memory when it becomes empty.
fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let next = queue.pop_front();
    if next.is_none() && queue.capacity() > 64 {
        *queue = VecDeque::new();
    }
    next
}

fn event(core: &SubchannelCore, owner: HandleId) -> SubchannelEvent {
    let state = core.state();
    SubchannelEvent { subchannel: owner, state, health: state, error: core.error().cloned() }
}

#[cfg(test)]
mod tests;
