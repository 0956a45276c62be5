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

use crate::address::CompactAddress;
use crate::api::{CallCounter, CallCounts, ConnectionSlot, HandleId, SubchannelEvent};
use crate::subchannel::{Effect, Phase, SubchannelCore};
use crate::tree::{AttemptId, ConnectionEvent, SubchannelId, SubchannelNode, TreeConfig, TreeEffect};

/// The identity of a shared connection. Weight, locality, health and priority are not part of it, so changing them
/// never reconnects; the TLS identity will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    pub(crate) address: SocketAddr,
}

/// A compact [`PoolKey`].
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CompactKey {
    address: CompactAddress,
}

impl From<PoolKey> for CompactKey {
    fn from(key: PoolKey) -> Self {
        Self { address: key.address.into() }
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
    /// Boxed, because the leaves of the map are half empty.
    entries: BTreeMap<SubchannelId, Box<PoolEntry>>,
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
    /// The counts of calls on dropped slots.
    past_calls: Arc<CallCounter>,
    /// The slots of removed entries that calls still hold.
    draining: Vec<Weak<ConnectionSlot>>,
}

struct PoolEntry {
    core: SubchannelCore,
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
            entries: BTreeMap::new(),
            by_key: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            orphans: BTreeSet::new(),
            starting: BTreeMap::new(),
            next_subchannel: 0,
            next_attempt: 0,
            events: VecDeque::new(),
            effects: VecDeque::new(),
            lost: false,
            past_calls: Arc::default(),
            draining: Vec::new(),
        }
    }

    /// Adds `owner` to the entry of this key. Unless the entry is IDLE, the owner's first event is queued.
    pub(crate) fn acquire(&mut self, key: PoolKey, owner: HandleId) -> (SubchannelId, Arc<ConnectionSlot>) {
        let next = &mut self.next_subchannel;
        let subchannel = *self.by_key.entry(key.into()).or_insert_with(|| {
            *next += 1;
            SubchannelId(*next - 1)
        });
        let entry = self.entries.entry(subchannel).or_insert_with(|| {
            let slot = Arc::new(ConnectionSlot::with_heir(Arc::clone(&self.past_calls)));
            let core = SubchannelCore::new(key.address, Arc::clone(&self.backoff), slot);
            // Usually there is one owner.
            Box::new(PoolEntry { core, owners: Vec::with_capacity(1), deadline: None })
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
        if entry.owners.is_empty() {
            self.orphans.insert(subchannel);
        }
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
            tracing::warn!(target: "subchannel", ?interval, "too_many_pings: the keepalive interval is doubled");
        }
    }

    /// The time at which [`Self::expire`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Processes the earliest deadline (of a backoff, a lingering connection or a remembered failure), if it is not
    /// after `now`.
    pub(crate) fn expire(&mut self, now: Time) {
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
            // Addresses of one endpoint that hang up in turn have each other's attempts given up: none of them must
            // begin again without its backoff.
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
        for (attempt, Start { subchannel, timeout }) in std::mem::take(&mut self.starting) {
            if let Some(entry) = self.entries.get(&subchannel) {
                let (address, keepalive_interval) = (entry.core.address(), self.keepalive_interval);
                let connect =
                    TreeEffect::Connect { subchannel, attempt, address, timeout, keepalive_interval };
                self.effects.push_back(connect);
            }
        }
    }

    /// Closes every connection, owned or not.
    pub(crate) fn close_all(&mut self) {
        let subchannels: Vec<_> = self.entries.keys().copied().collect();
        for subchannel in subchannels {
            self.close(subchannel);
        }
        self.events.clear();
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
        let node = |subchannel: SubchannelId, PoolEntry { core, .. }: &PoolEntry| SubchannelNode {
            subchannel,
            attempt: match *core.phase() {
                Phase::Ready { attempt, .. } => Some(attempt),
                _ => None,
            },
            address: core.address(),
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
        self.by_key.remove(&PoolKey { address: entry.core.address() }.into());
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
mod tests {
    use super::*;

    fn pool() -> (Pool, SubchannelId, Rng) {
        let mut pool = Pool::new(TreeConfig::default());
        let (subchannel, _) = pool.acquire(key(), HandleId(1));
        (pool, subchannel, Rng::new(1))
    }

    fn key() -> PoolKey {
        PoolKey { address: "127.0.0.1:1".parse().unwrap() }
    }

    #[test]
    fn an_attempt_that_ends_with_its_input_has_no_effect() {
        let (mut pool, subchannel, mut rng) = pool();
        pool.connect(Time::ZERO, subchannel, &mut rng);
        pool.release(subchannel, HandleId(1));
        pool.finish(Time::ZERO);
        assert_eq!(pool.poll_effect(), None);
        assert_eq!(pool.len(), 0);
    }

    #[test]
    fn an_entry_that_changes_owners_within_an_input_stays() {
        let (mut pool, subchannel, mut rng) = pool();
        pool.connect(Time::ZERO, subchannel, &mut rng);
        pool.finish(Time::ZERO);
        assert!(matches!(pool.poll_effect(), Some(TreeEffect::Connect { .. })));
        pool.release(subchannel, HandleId(1));
        assert_eq!(pool.acquire(key(), HandleId(2)).0, subchannel);
        pool.finish(Time::ZERO);
        assert_eq!(pool.poll_effect(), None);
    }

    #[test]
    fn attempts_begin_in_the_order_of_the_wishes() {
        let (mut pool, first, mut rng) = pool();
        let (second, _) = pool.acquire(PoolKey { address: "127.0.0.1:2".parse().unwrap() }, HandleId(2));
        pool.connect(Time::ZERO, second, &mut rng);
        pool.connect(Time::ZERO, first, &mut rng);
        pool.connect(Time::ZERO, second, &mut rng);
        pool.finish(Time::ZERO);
        let started = std::iter::from_fn(|| match pool.poll_effect()? {
            TreeEffect::Connect { subchannel, .. } => Some(subchannel),
            other => panic!("{other:?}"),
        });
        assert_eq!(started.collect::<Vec<_>>(), [second, first]);
    }

    #[test]
    fn a_loss_at_once_is_remembered_without_owners_until_its_backoff_is_over() {
        let (mut pool, subchannel, mut rng) = pool();
        pool.connect(Time::ZERO, subchannel, &mut rng);
        pool.answer(Time::ZERO, subchannel, AttemptId(0), ConnectionEvent::Ready(Arc::new(())));
        pool.answer(Time::ZERO, subchannel, AttemptId(0), ConnectionEvent::Closed("reset".into()));
        // As pick_first does after a lost connection.
        pool.release(subchannel, HandleId(1));
        pool.finish(Time::ZERO);
        assert_eq!(pool.acquire(key(), HandleId(2)).0, subchannel);
        assert_eq!(pool.next_deadline(), None);
        pool.release(subchannel, HandleId(2));
        pool.finish(Time::ZERO);
        let until = pool.next_deadline().unwrap();
        assert!((0.8..=1.2).contains(&until.since_epoch().as_secs_f64()), "{until:?}");
        pool.expire(until);
        pool.finish(until);
        assert_eq!((pool.len(), pool.next_deadline()), (0, None));
    }

    #[test]
    fn an_attempt_that_is_given_up_takes_no_failure_back() {
        let (mut pool, subchannel, mut rng) = pool();
        pool.connect(Time::ZERO, subchannel, &mut rng);
        pool.answer(Time::ZERO, subchannel, AttemptId(0), ConnectionEvent::Ready(Arc::new(())));
        pool.answer(Time::ZERO, subchannel, AttemptId(0), ConnectionEvent::Closed("reset".into()));
        // The first loss is followed by an attempt at once; another address wins.
        pool.connect(Time::ZERO, subchannel, &mut rng);
        pool.release(subchannel, HandleId(1));
        pool.finish(Time::ZERO);
        assert_eq!(pool.acquire(key(), HandleId(2)).0, subchannel, "its past is not forgotten");
        pool.connect(Time::ZERO, subchannel, &mut rng);
        pool.finish(Time::ZERO);
        pool.answer(Time::ZERO, subchannel, AttemptId(2), ConnectionEvent::Ready(Arc::new(())));
        pool.answer(Time::ZERO, subchannel, AttemptId(2), ConnectionEvent::Closed("reset".into()));
        let until = pool.next_deadline().expect("the second loss is followed by a backoff");
        assert!(until > Time::ZERO, "{until:?}");
        // Nor does it stay for ever.
        pool.expire(until);
        pool.connect(until, subchannel, &mut rng);
        pool.release(subchannel, HandleId(2));
        pool.finish(until);
        let forgotten = pool.next_deadline().expect("it is remembered for a while");
        pool.expire(forgotten);
        pool.finish(forgotten);
        assert_eq!((pool.len(), pool.next_deadline()), (0, None));
    }

    /// The keepalive interval in seconds of the attempt after so many connections that end with this event.
    fn keepalive_after(seconds: u64, times: u64, end: &ConnectionEvent) -> u64 {
        let keepalive_interval = Some(Duration::from_secs(seconds));
        let mut pool = Pool::new(TreeConfig { keepalive_interval, ..TreeConfig::default() });
        let (subchannel, _) = pool.acquire(key(), HandleId(1));
        let mut rng = Rng::new(1);
        // Each connection lasts long enough to be followed by the next one at once.
        let mut now = Time::ZERO;
        for attempt in (0..times).map(AttemptId) {
            pool.connect(now, subchannel, &mut rng);
            pool.finish(now);
            pool.answer(now, subchannel, attempt, ConnectionEvent::Ready(Arc::new(())));
            now = now + Duration::from_secs(60);
            pool.answer(now, subchannel, attempt, end.clone());
            // A late repetition is ignored.
            pool.answer(now, subchannel, attempt, end.clone());
        }
        while pool.poll_effect().is_some() {}
        pool.connect(now, subchannel, &mut rng);
        pool.finish(now);
        match pool.poll_effect() {
            Some(TreeEffect::Connect { keepalive_interval: Some(interval), .. }) => interval.as_secs(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a8_too_many_pings_doubles_the_keepalive_interval() {
        assert_eq!(keepalive_after(10, 1, &ConnectionEvent::TooManyPings("calm".into())), 20);
        assert_eq!(keepalive_after(10, 1, &ConnectionEvent::GoAway("bye".into())), 10);
        assert_eq!(keepalive_after(10, 1, &ConnectionEvent::Closed("reset".into())), 10);
    }

    #[test]
    fn a8_too_many_pings_does_not_end_keepalive() {
        let after =
            |seconds, times| keepalive_after(seconds, times, &ConnectionEvent::TooManyPings("calm".into()));
        assert_eq!(after(10, 5), 320);
        assert_eq!(after(10, 6), 600);
        assert_eq!(after(10, 50), 600);
        assert_eq!(after(3600, 2), 3600, "the configured interval is not shortened");
    }

    #[test]
    fn loss_of_a_lingering_connection_removes_it() {
        let (mut pool, subchannel, mut rng) = pool();
        pool.connect(Time::ZERO, subchannel, &mut rng);
        pool.answer(Time::ZERO, subchannel, AttemptId(0), ConnectionEvent::Ready(Arc::new(())));
        pool.release(subchannel, HandleId(1));
        pool.finish(Time::ZERO);
        assert!(pool.next_deadline().is_some());
        let later = Time::ZERO + Duration::from_secs(1);
        pool.answer(later, subchannel, AttemptId(0), ConnectionEvent::Closed("reset".into()));
        pool.finish(later);
        assert_eq!((pool.len(), pool.next_deadline()), (0, None));
        assert!(pool.take_lost());
    }
}
