//! Backends, and the connections that channels have to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use proxyless_balancer::tree::ConnectionId;
use proxyless_sans_io::{BackoffConfig, Rng, Time};

use crate::laws::invariants::Violation;

/// What a backend does with attempts to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Its SETTINGS come after this long.
    Accepts(Duration),
    /// It refuses.
    Refuses,
    /// It says nothing: the attempt ends at its timeout.
    Silent,
    /// It sends its SETTINGS and hangs up: no call gets through.
    HangsUp,
}

/// All backends; those that nothing was said of accept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backends {
    behaviours: BTreeMap<SocketAddr, Behaviour>,
    /// How many of a hundred RPCs end with an error.
    failing: BTreeMap<SocketAddr, u8>,
}

impl Backends {
    /// Sets how a backend behaves.
    pub(crate) fn set(&mut self, address: SocketAddr, behaviour: Behaviour) {
        self.behaviours.insert(address, behaviour);
    }

    /// How a backend behaves.
    pub(crate) fn behaviour(&self, address: SocketAddr) -> Behaviour {
        self.behaviours.get(&address).copied().unwrap_or(Behaviour::Accepts(Duration::from_millis(1)))
    }

    /// Whether a connection would come about.
    pub(crate) fn accepts(&self, address: SocketAddr) -> bool {
        matches!(self.behaviour(address), Behaviour::Accepts(_))
    }

    /// So many of a hundred RPCs to a backend end with an error from now on.
    pub(crate) fn set_failing(&mut self, address: SocketAddr, percent: u8) {
        self.failing.insert(address, percent);
    }

    /// RPCs that come to a backend end well from now on.
    pub(crate) fn stop_failing(&mut self) {
        self.failing.clear();
    }

    /// Whether an RPC ends with an error.
    pub(crate) fn fails(&self, address: SocketAddr, rng: &mut Rng) -> bool {
        self.failing.get(&address).is_some_and(|&percent| rng.below(100) < u64::from(percent))
    }
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// The backend answers the attempt, as it behaves now.
    Answered,
    /// The attempt's time is over.
    TimedOut,
    /// The backend says GOAWAY.
    GoAway,
    /// The connection breaks.
    Broken,
    /// The attempt succeeded just when it was cancelled.
    Crossed {
        /// The connection.
        id: ConnectionId,
        /// Where to.
        address: SocketAddr,
    },
}

/// The connections of one channel, as its core has them: by attempt.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    live: BTreeMap<u64, Connection>,
    /// When attempts to an address began, as long as none led to a connection that proved itself.
    fruitless: BTreeMap<SocketAddr, Vec<Time>>,
    /// How many attempts in a row came to nothing, or to a connection that did not last.
    failures: BTreeMap<SocketAddr, u32>,
}

/// How long an attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// No backend that accepts is slower than this.
const SLOWEST_ACCEPT: Duration = Duration::from_secs(15);

/// The longest delay after so many failures in a row.
pub(crate) fn longest_backoff(failures: u32) -> Duration {
    let BackoffConfig { initial, multiplier, max, jitter } = BackoffConfig::default();
    let Some(grown) = failures.checked_sub(1) else { return Duration::ZERO };
    let factor = multiplier.powi(grown.min(100).cast_signed());
    initial.mul_f64(factor.min(max.as_secs_f64() / initial.as_secs_f64())).mul_f64(1.0 + jitter)
}

/// A connection that lived this long was worth having.
const SETTLED: Duration = Duration::from_secs(1);

/// A connection, or an attempt to make it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// Its name.
    pub(crate) id: ConnectionId,
    /// Where to.
    pub(crate) address: SocketAddr,
    /// How far it is.
    pub(crate) phase: Phase,
    /// Since when it is READY.
    ready_since: Option<Time>,
    /// Whether the attempt gets no answer, whatever the backend does from now on.
    times_out: bool,
    /// How long the attempt may take: that is settled when it begins.
    longest: Duration,
}

impl Connection {
    /// Whether it has been READY for so long that it was worth having.
    pub(crate) fn is_settled(&self, now: Time) -> bool {
        self.ready_since.is_some_and(|since| now.since(since) >= SETTLED)
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The core waits for an answer.
    Dialing,
    /// The core uses it.
    Ready,
    /// The core had cancelled the attempt when it succeeded: it must be closed.
    Unwanted,
}

impl Connections {
    /// The core wants a connection.
    ///
    /// # Errors
    /// If it has one, or waits for one, or has not waited for its backoff.
    pub(crate) fn connect(
        &mut self,
        now: Time,
        id: ConnectionId,
        attempt: u64,
        address: SocketAddr,
    ) -> Result<(), Violation> {
        self.check_rate(now, address)?;
        let same = self.live.values().any(|found| found.id == id || found.address == address);
        if same {
            return Err(Violation::new("one attempt per connection", format!("{id:?} to {address} twice")));
        }
        let longest = self.longest_attempt(address);
        let dialing =
            Connection { id, address, phase: Phase::Dialing, ready_since: None, times_out: false, longest };
        match self.live.insert(attempt, dialing) {
            None => Ok(()),
            Some(_) => {
                Err(Violation::new("attempts have their own numbers", format!("attempt {attempt} twice")))
            }
        }
    }

    /// A backend that refuses, or hangs up at once, gets an attempt per backoff, and one more.
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

    /// All backoffs are reset: by the user, or since the channel goes IDLE.
    pub(crate) fn reset_backoff(&mut self) {
        self.fruitless.clear();
        self.failures.clear();
    }

    /// A call was sent on a connection.
    pub(crate) fn used(&mut self, attempt: u64) {
        if let Some(found) = self.live.get(&attempt) {
            self.fruitless.remove(&found.address);
        }
    }

    /// The core cancels an attempt.
    ///
    /// # Errors
    /// If it has none.
    pub(crate) fn cancel(&mut self, id: ConnectionId, attempt: u64) -> Result<Connection, Violation> {
        let cancelled = self.end(id, attempt, &[Phase::Dialing], "only live attempts are cancelled")?;
        // It was no failure, and takes back none.
        if let Some(attempts) = self.fruitless.get_mut(&cancelled.address) {
            attempts.pop();
        }
        Ok(cancelled)
    }

    /// The core closes a connection.
    ///
    /// # Errors
    /// If it has none.
    pub(crate) fn close(&mut self, id: ConnectionId, attempt: u64) -> Result<Connection, Violation> {
        let closed =
            self.end(id, attempt, &[Phase::Ready, Phase::Unwanted], "only live connections are closed")?;
        // The core forgets what it lets go.
        self.fruitless.remove(&closed.address);
        self.failures.remove(&closed.address);
        Ok(closed)
    }

    fn end(
        &mut self,
        id: ConnectionId,
        attempt: u64,
        phases: &[Phase],
        rule: &'static str,
    ) -> Result<Connection, Violation> {
        match self.live.remove(&attempt) {
            Some(found) if found.id == id && phases.contains(&found.phase) => Ok(found),
            other => Err(Violation::new(rule, format!("{id:?}, attempt {attempt}: {other:?}"))),
        }
    }

    /// A connection comes that the core does not wait for any more.
    pub(crate) fn cross(&mut self, id: ConnectionId, attempt: u64, address: SocketAddr) {
        let longest = Duration::ZERO;
        let crossed =
            Connection { id, address, phase: Phase::Unwanted, ready_since: None, times_out: false, longest };
        self.live.insert(attempt, crossed);
    }

    /// The core learns that an attempt succeeded.
    pub(crate) fn ready(&mut self, now: Time, attempt: u64) {
        if let Some(found) = self.live.get_mut(&attempt) {
            found.phase = Phase::Ready;
            found.ready_since = Some(now);
        }
    }

    /// The core learns that it is over.
    pub(crate) fn over(&mut self, now: Time, attempt: u64) {
        let Some(found) = self.live.remove(&attempt) else { return };
        if found.is_settled(now) {
            self.fruitless.remove(&found.address);
            self.failures.remove(&found.address);
        } else {
            *self.failures.entry(found.address).or_default() += 1;
        }
    }

    /// An attempt gets no answer.
    pub(crate) fn will_time_out(&mut self, attempt: u64) {
        if let Some(found) = self.live.get_mut(&attempt) {
            found.times_out = true;
        }
    }

    /// How long an attempt to connect to a backend may take. It may use up the time until the next one.
    pub(crate) fn longest_attempt(&self, address: SocketAddr) -> Duration {
        let failures = self.failures.get(&address).copied().unwrap_or_default();
        CONNECT_TIMEOUT.max(longest_backoff(failures + 1))
    }

    /// How long one of the attempts under way may take, and a failover in any case.
    pub(crate) fn longest_dialing(&self) -> Duration {
        let dialing = self.live.values().filter(|found| found.phase == Phase::Dialing);
        dialing.map(|found| found.longest).max().unwrap_or(CONNECT_TIMEOUT).max(CONNECT_TIMEOUT)
    }

    /// How long it may take from now on until there is a connection to a backend that accepts after `delay`.
    pub(crate) fn longest_wait(&self, address: SocketAddr, delay: Duration) -> Duration {
        let failures = self.failures.get(&address).copied().unwrap_or_default();
        let found = self.live.values().find(|found| found.address == address);
        match found.map(|found| (found.phase, found.times_out, found.longest)) {
            Some((Phase::Ready, ..)) => Duration::ZERO,
            // It was dialed when it accepted more slowly, or not at all.
            Some((Phase::Dialing, true, longest)) => longest + longest_backoff(failures + 1) + delay,
            Some((Phase::Dialing, false, _)) => delay.max(SLOWEST_ACCEPT),
            Some((Phase::Unwanted, ..)) | None => longest_backoff(failures) + delay,
        }
    }

    /// One of them.
    pub(crate) fn get(&self, attempt: u64) -> Option<&Connection> {
        self.live.get(&attempt)
    }

    /// All of them, with their attempts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Connection)> {
        self.live.iter().map(|(&attempt, found)| (attempt, found))
    }

    /// How far the connection to an address is, if there is one that the core knows.
    pub(crate) fn phase_of(&self, address: SocketAddr) -> Option<Phase> {
        let mut known = self.live.values().filter(|found| found.phase != Phase::Unwanted);
        known.find(|found| found.address == address).map(|found| found.phase)
    }

    /// How many are in a phase.
    pub(crate) fn count(&self, phase: Phase) -> usize {
        self.live.values().filter(|found| found.phase == phase).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_is_at_most_the_nominal_delay_and_its_jitter() {
        assert_eq!(longest_backoff(0), Duration::ZERO);
        assert_eq!(longest_backoff(1), Duration::from_millis(1_200));
        assert_eq!(longest_backoff(2), Duration::from_millis(1_920));
        assert_eq!(longest_backoff(1_000), Duration::from_secs(144));
    }
}
