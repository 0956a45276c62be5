//! The state machine of one connection, without owners: IDLE, CONNECTING, READY, TRANSIENT_FAILURE.
//!
//! IDLE –connect→ CONNECTING –ready→ READY –lost→ IDLE; CONNECTING –failed→ TRANSIENT_FAILURE –backoff over→ IDLE.
//! Inputs are the wish to connect, the answers of the driver and the end of the backoff. Owners, effects and timers are
//! the [pool](crate::pool)'s.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{BackoffConfig, Rng, Time};

use crate::api::{CallCounts, ConnectionSlot, ConnectivityState, PickError};
use crate::tree::ConnectionEvent;

/// The connection to one address.
pub(crate) struct SubchannelCore {
    address: SocketAddr,
    slot: Arc<ConnectionSlot>,
    backoff: Arc<BackoffConfig>,
    /// How many attempts there were since the last success.
    attempts: u32,
    phase: Phase,
    /// What the slot had counted when the connection became READY.
    at_ready: CallCounts,
}

/// Where the connection is in its life.
#[derive(Debug)]
pub(crate) enum Phase {
    Idle,
    Connecting {
        attempt: u64,
        /// Before this time no other attempt is made: backoff counts from the beginning of an attempt.
        retry_at: Time,
    },
    Ready {
        attempt: u64,
    },
    TransientFailure {
        retry_at: Time,
        error: Arc<PickError>,
    },
}

/// What an answer of the driver did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It belongs to an attempt that is over, or says nothing new.
    Ignored,
    /// A connection came that nobody waits for.
    Unwanted,
    /// The state changed.
    Changed,
    /// The state changed, and calls lost their connection.
    Lost,
}

impl SubchannelCore {
    pub(crate) fn new(address: SocketAddr, backoff: Arc<BackoffConfig>, slot: Arc<ConnectionSlot>) -> Self {
        Self { address, slot, backoff, attempts: 0, phase: Phase::Idle, at_ready: CallCounts::default() }
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
            Phase::Idle => ConnectivityState::Idle,
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

    /// Begins an attempt if IDLE; says how long it may take: the backoff, and never less than `at_least`.
    pub(crate) fn connect(
        &mut self,
        now: Time,
        attempt: u64,
        at_least: Duration,
        rng: &mut Rng,
    ) -> Option<Duration> {
        if !matches!(self.phase, Phase::Idle) {
            return None;
        }
        let delay = self.backoff.delay_after(self.attempts, rng);
        self.attempts = self.attempts.saturating_add(1);
        self.enter(Phase::Connecting { attempt, retry_at: now + delay });
        Some(delay.max(at_least))
    }

    /// Takes an answer of the driver to `attempt`.
    pub(crate) fn answer(&mut self, now: Time, attempt: u64, event: ConnectionEvent) -> Effect {
        match (&self.phase, event) {
            (&Phase::Connecting { attempt: current, .. }, ConnectionEvent::Ready(connection))
                if current == attempt =>
            {
                self.at_ready = self.slot.calls().counts();
                self.slot.store(Some(connection));
                self.attempts = 0;
                self.enter(Phase::Ready { attempt });
                Effect::Changed
            }
            (
                &Phase::Connecting { attempt: current, retry_at },
                ConnectionEvent::Failed(why) | ConnectionEvent::GoAway(why) | ConnectionEvent::Closed(why),
            ) if current == attempt => {
                let error = PickError::unavailable(format!("{}: {why}", uri(self.address)));
                self.enter(Phase::TransientFailure { retry_at: retry_at.max(now), error });
                Effect::Changed
            }
            (&Phase::Ready { attempt: current }, ConnectionEvent::Ready(_)) if current == attempt => {
                Effect::Ignored
            }
            (
                &Phase::Ready { attempt: current },
                ConnectionEvent::Failed(why) | ConnectionEvent::GoAway(why) | ConnectionEvent::Closed(why),
            ) if current == attempt => {
                tracing::debug!(target: "subchannel", address = %self.address, why, "connection lost");
                self.slot.store(None);
                self.enter(Phase::Idle);
                Effect::Lost
            }
            (_, ConnectionEvent::Ready(_)) => Effect::Unwanted,
            _ => Effect::Ignored,
        }
    }

    /// Ends the backoff; true if there was one.
    pub(crate) fn end_backoff(&mut self) -> bool {
        let waiting = matches!(self.phase, Phase::TransientFailure { .. });
        if waiting {
            self.enter(Phase::Idle);
        }
        waiting
    }

    /// Forgets past failures: the next attempt is made at once and backs off from the beginning. True if the state
    /// changed.
    pub(crate) fn reset_backoff(&mut self, now: Time) -> bool {
        self.attempts = 0;
        if let Phase::Connecting { retry_at, .. } = &mut self.phase {
            *retry_at = now;
        }
        self.end_backoff()
    }

    fn enter(&mut self, phase: Phase) {
        tracing::debug!(target: "subchannel", address = %self.address, from = ?self.phase, to = ?phase, "subchannel");
        self.phase = phase;
    }
}

/// An address as gRPC's error messages write it.
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
        let timeout = core.connect(Time::ZERO, 1, MIN, &mut rng).unwrap();
        assert_eq!(timeout, MIN);
        assert_eq!(core.answer(Time::ZERO, 1, failed()), Effect::Changed);
        let &Phase::TransientFailure { retry_at, .. } = core.phase() else { panic!("{:?}", core.phase()) };
        let delay = retry_at.since_epoch().as_secs_f64();
        assert!((0.8..=1.2).contains(&delay), "{delay}");

        // An attempt that lasted longer than its backoff is followed by the next one at once.
        assert!(core.end_backoff());
        core.connect(Time::ZERO, 2, MIN, &mut rng).unwrap();
        let late = Time::ZERO + MIN;
        core.answer(late, 2, failed());
        assert!(matches!(core.phase(), Phase::TransientFailure { retry_at, .. } if *retry_at == late));
    }

    #[test]
    fn an_attempt_may_take_as_long_as_its_backoff() {
        let (mut core, mut rng) = core();
        let mut longest = Duration::ZERO;
        for attempt in 0..20 {
            longest = core.connect(Time::ZERO, attempt, MIN, &mut rng).unwrap();
            core.answer(Time::ZERO, attempt, failed());
            core.end_backoff();
        }
        assert!(longest >= Duration::from_secs(96), "{longest:?}");
    }

    #[test]
    fn ready_resets_the_backoff() {
        let (mut core, mut rng) = core();
        for attempt in 0..10 {
            core.connect(Time::ZERO, attempt, MIN, &mut rng);
            core.answer(Time::ZERO, attempt, failed());
            core.end_backoff();
        }
        core.connect(Time::ZERO, 10, MIN, &mut rng);
        core.answer(Time::ZERO, 10, ConnectionEvent::Ready(Arc::new(())));
        assert!(core.slot().is_connected());
        assert_eq!(core.answer(Time::ZERO, 10, ConnectionEvent::GoAway("bye".into())), Effect::Lost);
        assert!(!core.slot().is_connected());
        core.connect(Time::ZERO, 11, MIN, &mut rng);
        core.answer(Time::ZERO, 11, failed());
        let &Phase::TransientFailure { retry_at, .. } = core.phase() else { panic!("{:?}", core.phase()) };
        assert!(retry_at.since_epoch() <= Duration::from_millis(1200));
    }

    #[test]
    fn errors_name_the_address() {
        let (mut core, mut rng) = core();
        core.connect(Time::ZERO, 1, MIN, &mut rng);
        core.answer(Time::ZERO, 1, failed());
        assert_eq!(core.error().unwrap().message, "ipv4:127.0.0.1:443: connection refused");
        assert_eq!(uri("[::1]:80".parse().unwrap()), "ipv6:[::1]:80");
    }

    #[test]
    fn answers_of_other_attempts_change_nothing() {
        let (mut core, mut rng) = core();
        core.connect(Time::ZERO, 2, MIN, &mut rng);
        assert_eq!(core.answer(Time::ZERO, 1, failed()), Effect::Ignored);
        assert_eq!(core.answer(Time::ZERO, 1, ConnectionEvent::Ready(Arc::new(()))), Effect::Unwanted);
        assert_eq!(core.state(), ConnectivityState::Connecting);
        assert!(!core.slot().is_connected());
    }
}
