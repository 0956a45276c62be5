//! The state machine of one subchannel, without owners: its connections, and at most one attempt.
//!
//! IDLE –connect→ CONNECTING –ready→ READY –lost→ IDLE; CONNECTING –failed→ TRANSIENT_FAILURE –backoff ends→ IDLE.
//! A connection that is lost early does not reset the backoff, so that a server that closes connections right after its
//! SETTINGS is not flooded: from the second such loss on, READY –lost→ TRANSIENT_FAILURE. A READY subchannel may attempt
//! further connections (gRFC A105), under the same backoff: if its last connection is lost meanwhile, it is CONNECTING or
//! in TRANSIENT_FAILURE. Inputs are connection requests, the driver's answers and the end of the backoff. The
//! [pool](crate::pool) has the owners, effects and timers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{BackoffConfig, Rng, Time};

use self::live::{Live, LiveConnections};
use crate::address::CompactAddress;
use crate::api::{CallCounter, CallCounts, ConnectionSlot, ConnectivityState, LiveConnection, PickError};
use crate::targets;
use crate::tree::{AttemptId, ConnectionEvent, ConnectionNode};

mod live;

/// A subchannel: the connections to one address.
pub(crate) struct SubchannelCore {
    address: CompactAddress,
    slot: Arc<ConnectionSlot>,
    backoff: Arc<BackoffConfig>,
    /// The number of attempts that failed, or whose connection was lost early, since the last stable connection.
    failures: u32,
    live: LiveConnections,
    attempt: Attempt,
}

/// The attempt to connect.
#[derive(Debug)]
pub(crate) enum Attempt {
    None {
        /// Until when the number of failures is kept although the subchannel has no owner.
        remember_until: Time,
    },
    Connecting {
        attempt: AttemptId,
        /// The earliest time of the next attempt: backoff counts from the start of an attempt.
        retry_at: Time,
        /// What a failure counts: nothing, if the backoff was reset meanwhile.
        charge: u32,
        /// The counter of its calls, if there were other connections when it began.
        calls: Option<Arc<CallCounter>>,
        /// The backoff that an early loss of another connection has caused meanwhile.
        after: Option<Box<(Time, Arc<PickError>)>>,
    },
    Backoff {
        retry_at: Time,
        error: Arc<PickError>,
    },
}

const NONE: Attempt = Attempt::None { remember_until: Time::ZERO };

/// The effect of the driver's answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It belongs to an earlier attempt, or changes nothing.
    Ignored,
    /// A connection was established that is no longer needed.
    Unwanted,
    /// An attempt ended.
    Changed,
    /// A connection was lost.
    Lost,
}

/// An attempt to be made.
#[derive(Debug)]
pub(crate) struct Started {
    /// Its time limit.
    pub(crate) timeout: Duration,
    /// The counter of the calls on its connection, if there are other connections.
    pub(crate) calls: Option<Arc<CallCounter>>,
}

impl SubchannelCore {
    pub(crate) fn new(address: SocketAddr, backoff: Arc<BackoffConfig>, slot: Arc<ConnectionSlot>) -> Self {
        let address = address.into();
        Self { address, slot, backoff, failures: 0, live: LiveConnections::default(), attempt: NONE }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address.get()
    }

    pub(crate) fn slot(&self) -> &Arc<ConnectionSlot> {
        &self.slot
    }

    pub(crate) fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// A105-14: the first of these that applies.
    pub(crate) fn state(&self) -> ConnectivityState {
        match self.attempt {
            _ if self.is_ready() => ConnectivityState::Ready,
            Attempt::Connecting { .. } => ConnectivityState::Connecting,
            Attempt::Backoff { .. } => ConnectivityState::TransientFailure,
            Attempt::None { .. } => ConnectivityState::Idle,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.live.oldest().is_some()
    }

    pub(crate) fn error(&self) -> Option<&Arc<PickError>> {
        match &self.attempt {
            Attempt::Backoff { error, .. } if !self.is_ready() => Some(error),
            _ => None,
        }
    }

    /// The end of the backoff, if it is in one.
    pub(crate) fn backoff_until(&self) -> Option<Time> {
        match self.attempt {
            Attempt::Backoff { retry_at, .. } => Some(retry_at),
            _ => None,
        }
    }

    /// The attempts that made its connections, the oldest first.
    pub(crate) fn connections(&self) -> impl Iterator<Item = AttemptId> {
        self.live.iter().map(|live| live.attempt)
    }

    /// Describes its connections, the oldest first.
    pub(crate) fn describe(&self) -> Vec<ConnectionNode> {
        let node = |live: &Live| ConnectionNode { attempt: live.attempt, calls: self.calls_of(live) };
        self.live.iter().map(node).collect()
    }

    /// The calls that ended on a connection.
    fn calls_of(&self, live: &Live) -> CallCounts {
        self.live.calls_of(live, self.slot.calls().counts())
    }

    /// Starts an attempt if IDLE.
    pub(crate) fn connect(
        &mut self,
        now: Time,
        attempt: AttemptId,
        at_least: Duration,
        rng: &mut Rng,
    ) -> Option<Started> {
        let idle = self.state() == ConnectivityState::Idle;
        idle.then(|| self.start(now, attempt, at_least, rng))
    }

    /// Whether a READY subchannel may attempt another connection. A105-09, A105-11: one attempt at a time, and not
    /// during its backoff.
    pub(crate) fn can_scale(&self, max_connections: u32) -> bool {
        let room = self.live.iter().count() < usize::try_from(max_connections).unwrap_or(usize::MAX);
        self.is_ready() && room && matches!(self.attempt, Attempt::None { .. })
    }

    /// Starts an attempt, whose time limit is the backoff, but at least `at_least`.
    pub(crate) fn start(
        &mut self,
        now: Time,
        attempt: AttemptId,
        at_least: Duration,
        rng: &mut Rng,
    ) -> Started {
        self.judge(now);
        let delay = self.backoff.delay_after(self.failures, rng);
        let calls = self.is_ready().then(Arc::<CallCounter>::default);
        let started = Started { timeout: delay.max(at_least), calls: calls.clone() };
        self.enter(Attempt::Connecting { attempt, retry_at: now + delay, charge: 1, calls, after: None });
        started
    }

    /// Handles the driver's answer to `attempt`.
    pub(crate) fn answer(&mut self, now: Time, attempt: AttemptId, event: ConnectionEvent) -> Effect {
        match event {
            ConnectionEvent::Ready(connection) => self.on_ready(now, attempt, connection),
            // For the streams of the connection.
            ConnectionEvent::Load(..) => Effect::Ignored,
            ConnectionEvent::Failed(why) => self.on_end(now, attempt, &why),
            ConnectionEvent::GoAway(why)
            | ConnectionEvent::TooManyPings(why)
            | ConnectionEvent::Closed(why) => self.on_end(now, attempt, &why.text),
        }
    }

    fn on_end(&mut self, now: Time, attempt: AttemptId, why: &str) -> Effect {
        match self.attempt {
            Attempt::Connecting { attempt: current, retry_at, charge, ref after, .. }
                if current == attempt =>
            {
                let after = after.as_ref().map_or(now, |after| after.0);
                self.failures = self.failures.saturating_add(charge);
                let error = PickError::unavailable(format!("{}: {why}", uri(self.address())));
                self.enter(Attempt::Backoff { retry_at: retry_at.max(after).max(now), error });
                Effect::Changed
            }
            _ => self.on_lost(now, attempt, why),
        }
    }

    fn on_ready(&mut self, now: Time, attempt: AttemptId, connection: LiveConnection) -> Effect {
        match &mut self.attempt {
            Attempt::Connecting { attempt: current, retry_at, charge, calls, after }
                if *current == attempt =>
            {
                let (retry_at, charge, calls) = (*retry_at, *charge, calls.take());
                let after = after.take().filter(|after| after.0 > now);
                let live = Live::new(attempt, now, retry_at, (charge, self.failures), calls);
                self.live.push(live, self.slot.calls().counts());
                self.slot.add(connection);
                self.enter(after.map_or(NONE, |after| {
                    let (retry_at, error) = *after;
                    Attempt::Backoff { retry_at, error }
                }));
                Effect::Changed
            }
            _ if self.live.iter().any(|live| live.attempt == attempt) => Effect::Ignored,
            _ => Effect::Unwanted,
        }
    }

    fn on_lost(&mut self, now: Time, attempt: AttemptId, why: &str) -> Effect {
        let Some(position) = self.live.iter().position(|live| live.attempt == attempt) else {
            return Effect::Ignored;
        };
        tracing::debug!(target: targets::SUBCHANNEL, address = %self.address(), why, "connection lost");
        self.judge(now);
        self.slot.remove(position);
        if let Some(lost) = self.live.remove(position) {
            self.after_loss(now, &lost, why);
        }
        Effect::Lost
    }

    /// The attempt after the loss of a connection, unless there is one. A stable connection resets the backoff, and may
    /// be re-established at once. So may the first unstable one: a server that is drained soon after it was connected
    /// to must not fail calls. Later ones wait for their backoff.
    fn after_loss(&mut self, now: Time, lost: &Live, why: &str) {
        if !lost.stable {
            self.failures = self.failures.saturating_add(lost.charge);
        }
        let retry_at = lost.retry_at;
        let at_once = lost.stable || self.failures <= 1 || retry_at <= now;
        let backoff = (!at_once).then(|| {
            let address = uri(self.address());
            PickError::unavailable(format!("{address}: the connection was lost soon after READY: {why}"))
        });
        match (&mut self.attempt, backoff) {
            (Attempt::None { .. }, Some(error)) => self.enter(Attempt::Backoff { retry_at, error }),
            (Attempt::None { .. }, None) => {
                let remember_until = if self.failures == 0 { Time::ZERO } else { retry_at };
                self.enter(Attempt::None { remember_until });
            }
            // A105-15, A105-16: another attempt in flight or in its backoff decides the state; the next one waits for
            // both backoffs.
            (Attempt::Connecting { after, .. }, Some(error)) => {
                let until = after.as_ref().map_or(retry_at, |after| after.0.max(retry_at));
                *after = Some(Box::new((until, error)));
            }
            (Attempt::Backoff { retry_at: until, .. }, Some(_)) => *until = retry_at.max(*until),
            (Attempt::Connecting { .. } | Attempt::Backoff { .. }, None) => {}
        }
    }

    /// Resets the backoff of the attempts before connections that have become stable since the last call.
    fn judge(&mut self, now: Time) {
        let total = self.slot.calls().counts();
        self.failures = self.failures.saturating_sub(self.live.judge(now, total));
    }

    /// Abandons an attempt that follows a failure, and returns until when that failure is remembered. The attempt
    /// itself does not count as a failure. `None` if there is no such attempt.
    pub(crate) fn give_up(&mut self) -> Option<(AttemptId, Time)> {
        match self.attempt {
            Attempt::Connecting { attempt, retry_at, .. } if self.failures > 0 && !self.is_ready() => {
                self.enter(Attempt::None { remember_until: retry_at });
                Some((attempt, retry_at))
            }
            _ => None,
        }
    }

    /// Abandons the attempt of a READY subchannel, and returns it.
    pub(crate) fn give_up_scaling(&mut self) -> Option<AttemptId> {
        match self.attempt {
            Attempt::Connecting { attempt, .. } if self.is_ready() => {
                self.enter(NONE);
                Some(attempt)
            }
            _ => None,
        }
    }

    /// Ends the backoff; returns true if there was one.
    pub(crate) fn end_backoff(&mut self) -> bool {
        let waiting = matches!(self.attempt, Attempt::Backoff { .. });
        if waiting {
            self.enter(NONE);
        }
        waiting
    }

    /// Forgets past failures: the next attempt is made at once, with the initial backoff. Returns true if there was a
    /// backoff.
    pub(crate) fn reset_backoff(&mut self, now: Time) -> bool {
        self.failures = 0;
        self.live.forgive(now);
        if let Attempt::Connecting { retry_at, charge, after, .. } = &mut self.attempt {
            (*retry_at, *charge, *after) = (now, 0, None);
        }
        self.end_backoff()
    }

    fn enter(&mut self, attempt: Attempt) {
        tracing::debug!(
            target: targets::SUBCHANNEL, address = %self.address(), connections = self.live.iter().count(),
            from = ?self.attempt, to = ?attempt, "subchannel"
        );
        self.attempt = attempt;
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
mod scaling_tests;
#[cfg(test)]
mod tests;
