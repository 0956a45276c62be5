//! Backends, and the connections of channels to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use proxyless_balancer::tree::SubchannelId;
use proxyless_sans_io::{BackoffConfig, Rng, Time};

use crate::laws::invariants::Violation;

/// The response of a backend to connection attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It sends its SETTINGS after this delay.
    Accepts(Duration),
    /// It refuses the connection.
    Refuses,
    /// It does not respond: the attempt times out.
    Silent,
    /// It sends its SETTINGS and closes the connection: no call gets through.
    HangsUp,
}

/// All backends; they accept by default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backends {
    behaviours: BTreeMap<SocketAddr, Behaviour>,
    /// The percentage of RPCs that end with an error.
    failing: BTreeMap<SocketAddr, u8>,
}

impl Backends {
    /// Sets the behaviour of a backend.
    pub(crate) fn set(&mut self, address: SocketAddr, behaviour: Behaviour) {
        self.behaviours.insert(address, behaviour);
    }

    /// The behaviour of a backend.
    pub(crate) fn behaviour(&self, address: SocketAddr) -> Behaviour {
        self.behaviours.get(&address).copied().unwrap_or(Behaviour::Accepts(Duration::from_millis(1)))
    }

    /// Whether a connection attempt would succeed.
    pub(crate) fn accepts(&self, address: SocketAddr) -> bool {
        matches!(self.behaviour(address), Behaviour::Accepts(_))
    }

    /// Sets the percentage of a backend's RPCs that end with an error.
    pub(crate) fn set_failing(&mut self, address: SocketAddr, percent: u8) {
        self.failing.insert(address, percent);
    }

    /// RPCs to every backend succeed from now on.
    pub(crate) fn stop_failing(&mut self) {
        self.failing.clear();
    }

    /// Whether an RPC ends with an error.
    pub(crate) fn fails(&self, address: SocketAddr, rng: &mut Rng) -> bool {
        self.failing.get(&address).is_some_and(|&percent| rng.below(100) < u64::from(percent))
    }
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// The backend responds to the attempt by its current behaviour.
    Answered,
    /// The attempt times out.
    TimedOut,
    /// The backend sends GOAWAY.
    GoAway,
    /// The connection breaks.
    Broken,
    /// The attempt succeeded while it was being cancelled.
    Crossed {
        /// The connection.
        id: SubchannelId,
        /// The backend.
        address: SocketAddr,
    },
}

/// The connections of one channel as its core knows them, by attempt.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    live: BTreeMap<u64, Connection>,
    /// The start of each attempt to an address since a connection last settled or carried a call, unless its connection
    /// is live: that attempt has succeeded, and counts only when the connection is lost early.
    fruitless: BTreeMap<SocketAddr, Vec<Time>>,
    /// The number of consecutive attempts that failed or led to a short-lived connection.
    failures: BTreeMap<SocketAddr, u32>,
}

/// The time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest delay of a backend that accepts.
const SLOWEST_ACCEPT: Duration = Duration::from_secs(15);

/// The longest backoff after this many consecutive failures.
pub(crate) fn longest_backoff(failures: u32) -> Duration {
    let BackoffConfig { initial, multiplier, max, jitter } = BackoffConfig::default();
    let Some(grown) = failures.checked_sub(1) else { return Duration::ZERO };
    let factor = multiplier.powi(grown.min(100).cast_signed());
    initial.mul_f64(factor.min(max.as_secs_f64() / initial.as_secs_f64())).mul_f64(1.0 + jitter)
}

/// A connection that was READY this long counts as a success.
const SETTLED: Duration = Duration::from_secs(1);

/// A connection or connection attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// Its id.
    pub(crate) id: SubchannelId,
    /// The backend.
    pub(crate) address: SocketAddr,
    /// Its phase.
    pub(crate) phase: Phase,
    /// The time at which it became READY.
    ready_since: Option<Time>,
    /// Whether the attempt times out regardless of the backend's later behaviour.
    times_out: bool,
    /// The time limit of the attempt, fixed at its start.
    longest: Duration,
    /// The start of the attempt.
    began: Time,
    /// The number of consecutive failures before it was READY.
    failures_before: u32,
    /// Whether its early loss makes the attempt a fruitless one: not after a call or a reset of backoffs.
    may_be_fruitless: bool,
    /// Whether it is broken, although the core does not know yet.
    broken: bool,
}

impl Connection {
    /// Whether it has been READY long enough to count as a success.
    pub(crate) fn is_settled(&self, now: Time) -> bool {
        self.ready_since.is_some_and(|since| now.since(since) >= SETTLED)
    }
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The core waits for an answer.
    Dialing,
    /// The core uses it.
    Ready,
    /// The core cancelled the attempt just as it succeeded: it must close the connection.
    Unwanted,
}

impl Connections {
    /// The core requests a connection.
    ///
    /// # Errors
    /// If it already has as many as are allowed, waits for one, or is in backoff.
    pub(crate) fn connect(
        &mut self,
        now: Time,
        id: SubchannelId,
        attempt: u64,
        address: SocketAddr,
        max_connections: u32,
    ) -> Result<(), Violation> {
        self.check_rate(now, address)?;
        let same = |found: &Connection| found.id == id || found.address == address;
        let same: Vec<_> = self.live.values().filter(|found| same(found)).collect();
        // A105-09: one attempt at a time, for one subchannel.
        let waits = same.iter().any(|found| found.id != id || found.phase != Phase::Ready);
        if waits {
            return Err(Violation::new("one attempt per connection", format!("{id:?} to {address} twice")));
        }
        // A105-07: never more connections than the limit.
        Violation::unless(same.len() < max_connections as usize, "connections are limited", || {
            format!("{id:?} to {address} has {} of {max_connections}", same.len())
        })?;
        let longest = self.longest_attempt(address);
        let dialing = Connection {
            id,
            address,
            phase: Phase::Dialing,
            ready_since: None,
            times_out: false,
            longest,
            began: now,
            failures_before: 0,
            may_be_fruitless: true,
            broken: false,
        };
        match self.live.insert(attempt, dialing) {
            None => Ok(()),
            Some(_) => Err(Violation::new("attempt ids are unique", format!("attempt {attempt} twice"))),
        }
    }

    /// The backend gets at most one attempt per backoff, plus one.
    fn check_rate(&mut self, now: Time, address: SocketAddr) -> Result<(), Violation> {
        let BackoffConfig { initial, jitter, .. } = BackoffConfig::default();
        let least = initial.mul_f64(1.0 - jitter);
        let attempts = self.fruitless.entry(address).or_default();
        attempts.push(now);
        let [.., before_last, last, _] = attempts[..] else { return Ok(()) };
        Violation::unless(now.since(before_last) >= least, "attempts are spaced by their backoff", || {
            format!("{address} at {before_last:?}, {last:?} and {now:?}")
        })
    }

    /// All backoffs are reset, by the user or because the channel goes IDLE.
    pub(crate) fn reset_backoff(&mut self) {
        self.fruitless.clear();
        self.failures.clear();
        self.live.values_mut().for_each(|found| found.may_be_fruitless = false);
    }

    /// A call was sent on a connection.
    pub(crate) fn used(&mut self, attempt: u64) {
        if let Some(found) = self.live.get_mut(&attempt) {
            found.may_be_fruitless = false;
            self.fruitless.remove(&found.address);
        }
    }

    /// The core cancels an attempt.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn cancel(&mut self, id: SubchannelId, attempt: u64) -> Result<Connection, Violation> {
        let cancelled = self.end(id, attempt, &[Phase::Dialing], "only live attempts are cancelled")?;
        // A cancelled attempt is not a failure, and does not reset the count.
        if let Some(attempts) = self.fruitless.get_mut(&cancelled.address) {
            attempts.retain(|&at| at != cancelled.began);
        }
        Ok(cancelled)
    }

    /// The core closes a connection.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn close(&mut self, id: SubchannelId, attempt: u64) -> Result<Connection, Violation> {
        let closed =
            self.end(id, attempt, &[Phase::Ready, Phase::Unwanted], "only live connections are closed")?;
        // The core forgets the backoff of an entry that it releases.
        self.fruitless.remove(&closed.address);
        self.failures.remove(&closed.address);
        Ok(closed)
    }

    fn end(
        &mut self,
        id: SubchannelId,
        attempt: u64,
        phases: &[Phase],
        rule: &'static str,
    ) -> Result<Connection, Violation> {
        match self.live.remove(&attempt) {
            Some(found) if found.id == id && phases.contains(&found.phase) => Ok(found),
            other => Err(Violation::new(rule, format!("{id:?}, attempt {attempt}: {other:?}"))),
        }
    }

    /// A connection succeeds that the core no longer waits for.
    pub(crate) fn cross(&mut self, id: SubchannelId, attempt: u64, address: SocketAddr) {
        let crossed = Connection {
            id,
            address,
            phase: Phase::Unwanted,
            ready_since: None,
            times_out: false,
            longest: Duration::ZERO,
            began: Time::ZERO,
            failures_before: 0,
            may_be_fruitless: true,
            broken: false,
        };
        self.live.insert(attempt, crossed);
    }

    /// The core is told that an attempt succeeded.
    pub(crate) fn ready(&mut self, now: Time, attempt: u64) {
        let Some(&Connection { address, began, .. }) = self.live.get(&attempt) else { return };
        // A105-12: a successful attempt resets the backoff, so while its connection lives, calls that wait for a stream
        // get a further one at once, also if it replaces one that was lost early.
        if let Some(attempts) = self.fruitless.get_mut(&address) {
            attempts.retain(|&at| at != began);
        }
        let failures_before = self.failures.get(&address).copied().unwrap_or_default();
        if let Some(found) = self.live.get_mut(&attempt) {
            found.phase = Phase::Ready;
            found.ready_since = Some(now);
            found.failures_before = failures_before;
        }
    }

    /// A connection breaks; the core will be told.
    pub(crate) fn breaks(&mut self, attempt: u64) {
        if let Some(found) = self.live.get_mut(&attempt) {
            found.broken = true;
        }
    }

    /// Whether a subchannel has a connection, or had one whose end the core has not been told of.
    pub(crate) fn is_connected(&self, subchannel: SubchannelId) -> bool {
        self.live.values().any(|found| found.id == subchannel && found.phase == Phase::Ready)
    }

    /// The connections of a subchannel that take calls, the oldest first.
    pub(crate) fn open(&self, subchannel: SubchannelId) -> impl Iterator<Item = u64> {
        // Attempts follow one another, so they are in order of age.
        let of_subchannel = self.live.iter().filter(move |(_, found)| found.id == subchannel);
        of_subchannel
            .filter(|(_, found)| found.phase == Phase::Ready && !found.broken)
            .map(|(&attempt, _)| attempt)
    }

    /// Whether a subchannel is connecting, or may be in a backoff.
    pub(crate) fn is_troubled(&self, subchannel: SubchannelId, address: SocketAddr) -> bool {
        let dials = |found: &Connection| found.id == subchannel && found.phase != Phase::Ready;
        self.failures.contains_key(&address) || self.live.values().any(dials)
    }

    /// The core is told that it is over.
    pub(crate) fn over(&mut self, now: Time, attempt: u64) {
        let Some(found) = self.live.remove(&attempt) else { return };
        if !found.is_settled(now) {
            *self.failures.entry(found.address).or_default() += 1;
            // One that never was READY is among them already.
            if found.may_be_fruitless && found.ready_since.is_some() {
                let attempts = self.fruitless.entry(found.address).or_default();
                attempts.push(found.began);
                attempts.sort_unstable();
            }
            return;
        }
        self.fruitless.remove(&found.address);
        // It makes up for the failures before it.
        let failures = self.failures.get(&found.address).copied().unwrap_or_default();
        match failures.saturating_sub(found.failures_before) {
            0 => drop(self.failures.remove(&found.address)),
            left => drop(self.failures.insert(found.address, left)),
        }
        for other in self.live.values_mut().filter(|other| other.address == found.address) {
            other.failures_before = other.failures_before.saturating_sub(found.failures_before);
        }
    }

    /// An attempt times out.
    pub(crate) fn will_time_out(&mut self, attempt: u64) {
        if let Some(found) = self.live.get_mut(&attempt) {
            found.times_out = true;
        }
    }

    /// The longest time that the next attempt to a backend may take: the larger of the timeout and the backoff.
    pub(crate) fn longest_attempt(&self, address: SocketAddr) -> Duration {
        let failures = self.failures.get(&address).copied().unwrap_or_default();
        CONNECT_TIMEOUT.max(longest_backoff(failures + 1))
    }

    /// The longest time that an attempt in progress may take, at least the connect timeout.
    pub(crate) fn longest_dialing(&self) -> Duration {
        let dialing = self.live.values().filter(|found| found.phase == Phase::Dialing);
        dialing.map(|found| found.longest).max().unwrap_or(CONNECT_TIMEOUT).max(CONNECT_TIMEOUT)
    }

    /// The longest time until there is a connection to a backend that accepts after `delay`.
    pub(crate) fn longest_wait(&self, address: SocketAddr, delay: Duration) -> Duration {
        let failures = self.failures.get(&address).copied().unwrap_or_default();
        let of_address = || self.live.values().filter(|found| found.address == address);
        let found = of_address().find(|found| found.phase == Phase::Ready).or_else(|| of_address().next());
        match found.map(|found| (found.phase, found.times_out, found.longest)) {
            Some((Phase::Ready, ..)) => Duration::ZERO,
            // It was dialed when the backend was slower or did not accept.
            Some((Phase::Dialing, true, longest)) => longest + longest_backoff(failures + 1) + delay,
            Some((Phase::Dialing, false, _)) => delay.max(SLOWEST_ACCEPT),
            Some((Phase::Unwanted, ..)) | None => longest_backoff(failures) + delay,
        }
    }

    pub(crate) fn get(&self, attempt: u64) -> Option<&Connection> {
        self.live.get(&attempt)
    }

    /// All connections, with their attempts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Connection)> {
        self.live.iter().map(|(&attempt, found)| (attempt, found))
    }

    /// The phase of the connection to an address, if the core knows one.
    pub(crate) fn phase_of(&self, address: SocketAddr) -> Option<Phase> {
        let known = self.live.values().filter(|found| found.phase != Phase::Unwanted);
        let phases = known.filter(|found| found.address == address).map(|found| found.phase);
        phases.max_by_key(|&phase| phase == Phase::Ready)
    }

    /// The number of connections in a phase.
    pub(crate) fn count(&self, phase: Phase) -> usize {
        self.live.values().filter(|found| found.phase == phase).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connections to one backend, with up to four at once, in milliseconds.
    #[derive(Default)]
    struct Rig(Connections);

    impl Rig {
        fn connect(&mut self, millis: u64, attempt: u64) -> Result<(), Violation> {
            self.0.connect(at(millis), SubchannelId(0), attempt, "10.0.0.1:80".parse().expect("address"), 4)
        }

        /// An attempt that succeeds at once.
        fn ready(&mut self, millis: u64, attempt: u64) -> Result<(), Violation> {
            self.connect(millis, attempt)?;
            self.0.ready(at(millis), attempt);
            Ok(())
        }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// Three attempts in a few milliseconds, of which one was fruitless.
    #[test]
    fn a_live_connection_is_no_fruitless_attempt() -> Result<(), Violation> {
        let mut rig = Rig::default();
        rig.ready(0, 1)?;
        // Calls wait for a stream, so there is a further attempt; then the first connection is lost.
        rig.connect(1, 2)?;
        rig.0.over(at(2), 1);
        rig.0.ready(at(3), 2);
        rig.ready(4, 3)?;
        // Now all of them were fruitless.
        rig.0.over(at(5), 2);
        rig.0.over(at(5), 3);
        assert!(rig.connect(700, 4).is_err());
        Ok(())
    }

    #[test]
    fn a_backend_that_hangs_up_gets_one_attempt_per_backoff_and_one_more() -> Result<(), Violation> {
        let mut rig = Rig::default();
        for attempt in [1, 2] {
            rig.ready(attempt, attempt)?;
            rig.0.over(at(attempt), attempt);
        }
        assert!(rig.connect(3, 3).is_err());
        Ok(())
    }

    #[test]
    fn a_connection_that_carried_a_call_is_no_fruitless_attempt() -> Result<(), Violation> {
        let mut rig = Rig::default();
        for attempt in 1..=5 {
            rig.ready(attempt, attempt)?;
            rig.0.used(attempt);
            rig.0.over(at(attempt), attempt);
        }
        Ok(())
    }

    #[test]
    fn backoff_is_at_most_the_nominal_delay_and_its_jitter() {
        assert_eq!(longest_backoff(0), Duration::ZERO);
        assert_eq!(longest_backoff(1), Duration::from_millis(1_200));
        assert_eq!(longest_backoff(2), Duration::from_millis(1_920));
        assert_eq!(longest_backoff(1_000), Duration::from_secs(144));
    }
}
