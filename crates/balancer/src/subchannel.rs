//! The state machine of one subchannel, without owners: IDLE, CONNECTING, READY, TRANSIENT_FAILURE.
//!
//! IDLE –connect→ CONNECTING –ready→ READY –lost→ IDLE; CONNECTING –failed→ TRANSIENT_FAILURE –backoff ends→ IDLE.
//! A connection that is lost early does not reset the backoff, so that a server that closes connections right after its
//! SETTINGS is not flooded: from the second such loss on, READY –lost→ TRANSIENT_FAILURE. Inputs are connection
//! requests, the driver's answers and the end of the backoff. The [pool](crate::pool) has the owners, effects and
//! timers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{BackoffConfig, Rng, Time};

use crate::api::{CallCounts, ConnectionSlot, ConnectivityState, PickError};
use crate::targets;
use crate::tree::{AttemptId, ConnectionEvent};

/// A connection that lived this long counts as stable, as does one on which a call succeeded.
const SETTLED: Duration = Duration::from_secs(1);

/// A subchannel: the connection to one address.
pub(crate) struct SubchannelCore {
    address: SocketAddr,
    slot: Arc<ConnectionSlot>,
    backoff: Arc<BackoffConfig>,
    /// The number of attempts since the last stable connection.
    attempts: u32,
    phase: Phase,
    /// The counts of the slot when the connection became READY.
    at_ready: CallCounts,
}

/// The phase of a connection.
#[derive(Debug)]
pub(crate) enum Phase {
    Idle {
        /// Until when the number of attempts is kept although the connection has no owner.
        remember_until: Time,
    },
    Connecting {
        attempt: AttemptId,
        /// The earliest time of the next attempt: backoff counts from the start of an attempt.
        retry_at: Time,
    },
    Ready {
        attempt: AttemptId,
        since: Time,
        /// As in `Connecting`, in case the connection is lost early.
        retry_at: Time,
    },
    TransientFailure {
        retry_at: Time,
        error: Arc<PickError>,
    },
}

const IDLE: Phase = Phase::Idle { remember_until: Time::ZERO };

/// The effect of the driver's answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It belongs to an earlier attempt, or changes nothing.
    Ignored,
    /// A connection was established that is no longer needed.
    Unwanted,
    /// The state changed.
    Changed,
    /// The state changed, and a connection was lost.
    Lost,
}

impl SubchannelCore {
    pub(crate) fn new(address: SocketAddr, backoff: Arc<BackoffConfig>, slot: Arc<ConnectionSlot>) -> Self {
        Self { address, slot, backoff, attempts: 0, phase: IDLE, at_ready: CallCounts::default() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn slot(&self) -> &Arc<ConnectionSlot> {
        &self.slot
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(crate) fn state(&self) -> ConnectivityState {
        match self.phase {
            Phase::Idle { .. } => ConnectivityState::Idle,
            Phase::Connecting { .. } => ConnectivityState::Connecting,
            Phase::Ready { .. } => ConnectivityState::Ready,
            Phase::TransientFailure { .. } => ConnectivityState::TransientFailure,
        }
    }

    pub(crate) fn error(&self) -> Option<&Arc<PickError>> {
        match &self.phase {
            Phase::TransientFailure { error, .. } => Some(error),
            _ => None,
        }
    }

    /// The calls that ended since the connection became READY.
    pub(crate) fn calls_since_ready(&self) -> CallCounts {
        self.slot.calls().counts().since(&self.at_ready)
    }

    /// Starts an attempt if IDLE; returns its time limit: the backoff, but at least `at_least`.
    pub(crate) fn connect(
        &mut self,
        now: Time,
        attempt: AttemptId,
        at_least: Duration,
        rng: &mut Rng,
    ) -> Option<Duration> {
        if !matches!(self.phase, Phase::Idle { .. }) {
            return None;
        }
        let delay = self.backoff.delay_after(self.attempts, rng);
        self.attempts = self.attempts.saturating_add(1);
        self.enter(Phase::Connecting { attempt, retry_at: now + delay });
        Some(delay.max(at_least))
    }

    /// Handles the driver's answer to `attempt`.
    pub(crate) fn answer(&mut self, now: Time, attempt: AttemptId, event: ConnectionEvent) -> Effect {
        match event {
            ConnectionEvent::Ready(connection) => match self.phase {
                Phase::Connecting { attempt: current, retry_at } if current == attempt => {
                    self.at_ready = self.slot.calls().counts();
                    self.slot.store(Some(connection));
                    self.enter(Phase::Ready { attempt, since: now, retry_at });
                    Effect::Changed
                }
                Phase::Ready { attempt: current, .. } if current == attempt => Effect::Ignored,
                _ => Effect::Unwanted,
            },
            // For the streams of the connection.
            ConnectionEvent::Load(..) => Effect::Ignored,
            ConnectionEvent::Failed(why)
            | ConnectionEvent::GoAway(why)
            | ConnectionEvent::TooManyPings(why)
            | ConnectionEvent::Closed(why) => match self.phase {
                Phase::Connecting { attempt: current, retry_at } if current == attempt => {
                    let error = PickError::unavailable(format!("{}: {why}", uri(self.address)));
                    self.enter(Phase::TransientFailure { retry_at: retry_at.max(now), error });
                    Effect::Changed
                }
                Phase::Ready { attempt: current, since, retry_at } if current == attempt => {
                    tracing::debug!(target: targets::SUBCHANNEL, address = %self.address, why, "connection lost");
                    self.slot.store(None);
                    let next = self.after_loss(now, since, retry_at, &why);
                    self.enter(next);
                    Effect::Lost
                }
                _ => Effect::Ignored,
            },
        }
    }

    /// The phase after the loss of a READY connection. A stable connection resets the backoff, and may be
    /// re-established at once. So may the first unstable one: a server that is drained soon after it was connected to
    /// must not fail calls. Later ones wait for their backoff.
    fn after_loss(&mut self, now: Time, since: Time, retry_at: Time, why: &str) -> Phase {
        if now.since(since) >= SETTLED || self.calls_since_ready().succeeded > 0 {
            self.attempts = 0;
        }
        if self.attempts <= 1 || retry_at <= now {
            return Phase::Idle { remember_until: if self.attempts == 0 { Time::ZERO } else { retry_at } };
        }
        let address = uri(self.address);
        let error =
            PickError::unavailable(format!("{address}: the connection was lost soon after READY: {why}"));
        Phase::TransientFailure { retry_at, error }
    }

    /// Abandons an attempt that follows a failure, and returns until when that failure is remembered. The attempt
    /// itself does not count as a failure. `None` if there is no such attempt.
    pub(crate) fn give_up(&mut self) -> Option<(AttemptId, Time)> {
        match self.phase {
            Phase::Connecting { attempt, retry_at } if self.attempts > 1 => {
                self.attempts -= 1;
                self.enter(Phase::Idle { remember_until: retry_at });
                Some((attempt, retry_at))
            }
            _ => None,
        }
    }

    /// Ends the backoff; returns true if there was one.
    pub(crate) fn end_backoff(&mut self) -> bool {
        let waiting = matches!(self.phase, Phase::TransientFailure { .. });
        if waiting {
            self.enter(IDLE);
        }
        waiting
    }

    /// Forgets past failures: the next attempt is made at once, with the initial backoff. Returns true if the state
    /// changed.
    pub(crate) fn reset_backoff(&mut self, now: Time) -> bool {
        self.attempts = 0;
        if let Phase::Connecting { retry_at, .. } | Phase::Ready { retry_at, .. } = &mut self.phase {
            *retry_at = now;
        }
        self.end_backoff()
    }

    fn enter(&mut self, phase: Phase) {
        tracing::debug!(
            target: targets::SUBCHANNEL, address = %self.address, from = ?self.phase, to = ?phase, "subchannel"
        );
        self.phase = phase;
    }
}

/// An address in the form of gRPC's error messages.
fn uri(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) => format!("ipv4:{v4}"),
        SocketAddr::V6(v6) => format!("ipv6:{v6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_secs(20);

    fn core() -> (SubchannelCore, Rng) {
        let address = "127.0.0.1:443".parse().unwrap();
        (SubchannelCore::new(address, Arc::default(), Arc::default()), Rng::new(1))
    }

    fn failed() -> ConnectionEvent {
        ConnectionEvent::Failed("connection refused".into())
    }

    #[test]
    fn backoff_counts_from_the_beginning_of_the_attempt() {
        let (mut core, mut rng) = core();
        let timeout = core.connect(Time::ZERO, AttemptId(1), MIN, &mut rng).unwrap();
        assert_eq!(timeout, MIN);
        assert_eq!(core.answer(Time::ZERO, AttemptId(1), failed()), Effect::Changed);
        let &Phase::TransientFailure { retry_at, .. } = core.phase() else { panic!("{:?}", core.phase()) };
        let delay = retry_at.since_epoch().as_secs_f64();
        assert!((0.8..=1.2).contains(&delay), "{delay}");

        // An attempt that took longer than its backoff is followed by the next one at once.
        assert!(core.end_backoff());
        core.connect(Time::ZERO, AttemptId(2), MIN, &mut rng).unwrap();
        let late = Time::ZERO + MIN;
        core.answer(late, AttemptId(2), failed());
        assert!(matches!(core.phase(), Phase::TransientFailure { retry_at, .. } if *retry_at == late));
    }

    #[test]
    fn an_attempt_may_take_as_long_as_its_backoff() {
        let (mut core, mut rng) = core();
        let mut longest = Duration::ZERO;
        for attempt in 0..20 {
            longest = core.connect(Time::ZERO, AttemptId(attempt), MIN, &mut rng).unwrap();
            core.answer(Time::ZERO, AttemptId(attempt), failed());
            core.end_backoff();
        }
        assert!(longest >= Duration::from_secs(96), "{longest:?}");
    }

    fn ready() -> ConnectionEvent {
        ConnectionEvent::Ready(Arc::new(()))
    }

    /// Fails `count` attempts in a row, each at once, starting at `now`; returns the end of the last backoff.
    fn fail(core: &mut SubchannelCore, rng: &mut Rng, mut now: Time, count: u64) -> Time {
        for attempt in 0..count {
            core.connect(now, AttemptId(attempt), MIN, rng).unwrap();
            core.answer(now, AttemptId(attempt), failed());
            let &Phase::TransientFailure { retry_at, .. } = core.phase() else {
                panic!("{:?}", core.phase())
            };
            now = retry_at;
            core.end_backoff();
        }
        now
    }

    /// The backoff of the next failure.
    fn next_backoff(core: &mut SubchannelCore, rng: &mut Rng, now: Time) -> Duration {
        core.connect(now, AttemptId(1000), MIN, rng).unwrap();
        core.answer(now, AttemptId(1000), failed());
        let &Phase::TransientFailure { retry_at, .. } = core.phase() else { panic!("{:?}", core.phase()) };
        retry_at.since(now)
    }

    #[test]
    fn a_connection_that_lived_a_second_resets_the_backoff() {
        for end in [ConnectionEvent::GoAway("bye".into()), ConnectionEvent::Closed("reset".into())] {
            let (mut core, mut rng) = core();
            let now = fail(&mut core, &mut rng, Time::ZERO, 10);
            core.connect(now, AttemptId(10), MIN, &mut rng);
            core.answer(now, AttemptId(10), ready());
            assert!(core.slot().is_connected());
            let now = now + SETTLED;
            assert_eq!(core.answer(now, AttemptId(10), end), Effect::Lost);
            assert!(!core.slot().is_connected());
            assert_eq!(core.state(), ConnectivityState::Idle, "the next attempt may begin at once");
            assert!(next_backoff(&mut core, &mut rng, now) <= Duration::from_millis(1200));
        }
    }

    #[test]
    fn a_connection_that_served_a_call_resets_the_backoff() {
        let (mut core, mut rng) = core();
        let now = fail(&mut core, &mut rng, Time::ZERO, 10);
        core.connect(now, AttemptId(10), MIN, &mut rng);
        core.answer(now, AttemptId(10), ready());
        core.slot().calls().succeeded();
        core.answer(now, AttemptId(10), ConnectionEvent::GoAway("one request per connection".into()));
        assert_eq!(core.state(), ConnectivityState::Idle);
        assert!(next_backoff(&mut core, &mut rng, now) <= Duration::from_millis(1200));
    }

    #[test]
    fn a_connection_that_is_lost_at_once_keeps_the_backoff() {
        let (mut core, mut rng) = core();
        let now = fail(&mut core, &mut rng, Time::ZERO, 3);
        core.connect(now, AttemptId(10), MIN, &mut rng);
        core.answer(now, AttemptId(10), ready());
        core.slot().calls().failed();
        let lost = now + Duration::from_millis(999);
        assert_eq!(core.answer(lost, AttemptId(10), ConnectionEvent::Closed("reset".into())), Effect::Lost);
        let Phase::TransientFailure { retry_at, error } = core.phase() else { panic!("{:?}", core.phase()) };
        // 1.6^3 seconds, with jitter, from the start of the attempt.
        let delay = retry_at.since(now).as_secs_f64();
        assert!((0.8 * 4.096..=1.2 * 4.096).contains(&delay), "{delay}");
        assert_eq!(error.message, "ipv4:127.0.0.1:443: the connection was lost soon after READY: reset");
        assert!(!core.slot().is_connected());
    }

    #[test]
    fn a_server_that_hangs_up_at_once_gets_one_connection_per_backoff() {
        for end in [ConnectionEvent::GoAway("no".into()), ConnectionEvent::Closed("reset".into())] {
            let (mut core, mut rng) = core();
            let (mut now, mut connections) = (Time::ZERO, 0);
            while now < Time::ZERO + Duration::from_secs(60) {
                core.connect(now, AttemptId(connections), MIN, &mut rng).unwrap();
                core.answer(now, AttemptId(connections), ready());
                now = now + Duration::from_millis(1);
                core.answer(now, AttemptId(connections), end.clone());
                connections += 1;
                if let &Phase::TransientFailure { retry_at, .. } = core.phase() {
                    now = retry_at;
                    core.end_backoff();
                }
            }
            // The first loss is followed at once; then 1.6, 2.56, ... seconds pass.
            assert!((5..=10).contains(&connections), "{connections}");
        }
    }

    #[test]
    fn a_slow_handshake_counts_into_the_backoff() {
        let (mut core, mut rng) = core();
        let began = fail(&mut core, &mut rng, Time::ZERO, 2);
        core.connect(began, AttemptId(10), MIN, &mut rng);
        let late = began + MIN;
        core.answer(late, AttemptId(10), ready());
        core.answer(late, AttemptId(10), ConnectionEvent::Closed("reset".into()));
        assert_eq!(core.state(), ConnectivityState::Idle);
        // It is not reset.
        assert!(next_backoff(&mut core, &mut rng, late) > Duration::from_secs(2));
    }

    #[test]
    fn a_reset_of_the_backoff_while_ready_counts() {
        let (mut core, mut rng) = core();
        let now = fail(&mut core, &mut rng, Time::ZERO, 5);
        core.connect(now, AttemptId(10), MIN, &mut rng);
        core.answer(now, AttemptId(10), ready());
        assert!(!core.reset_backoff(now));
        core.answer(now, AttemptId(10), ConnectionEvent::Closed("reset".into()));
        assert_eq!(core.state(), ConnectivityState::Idle);
    }

    #[test]
    fn errors_name_the_address() {
        let (mut core, mut rng) = core();
        core.connect(Time::ZERO, AttemptId(1), MIN, &mut rng);
        core.answer(Time::ZERO, AttemptId(1), failed());
        assert_eq!(core.error().unwrap().message, "ipv4:127.0.0.1:443: connection refused");
        assert_eq!(uri("[::1]:80".parse().unwrap()), "ipv6:[::1]:80");
    }

    #[test]
    fn answers_of_other_attempts_change_nothing() {
        let (mut core, mut rng) = core();
        core.connect(Time::ZERO, AttemptId(2), MIN, &mut rng);
        assert_eq!(core.answer(Time::ZERO, AttemptId(1), failed()), Effect::Ignored);
        assert_eq!(
            core.answer(Time::ZERO, AttemptId(1), ConnectionEvent::Ready(Arc::new(()))),
            Effect::Unwanted
        );
        assert_eq!(core.state(), ConnectivityState::Connecting);
        assert!(!core.slot().is_connected());
    }
}
