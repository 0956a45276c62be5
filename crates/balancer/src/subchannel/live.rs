//! The live connections of a subchannel, in order of age, and the calls on each.

use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::Time;

use crate::api::{CallCounter, CallCounts};
use crate::tree::AttemptId;

/// A connection that lived this long counts as stable, as does one on which a call succeeded.
pub(super) const SETTLED: Duration = Duration::from_secs(1);

/// A live connection.
pub(super) struct Live {
    pub(super) attempt: AttemptId,
    since: Time,
    /// The earliest time of the next attempt, if the connection is lost early.
    pub(super) retry_at: Time,
    /// What an early loss counts: nothing, if the backoff was reset meanwhile.
    pub(super) charge: u32,
    /// Whether it has reset the backoff.
    pub(super) stable: bool,
    /// The number of failures before it, which it takes back when it is stable.
    failures_before: u32,
    /// Its own counter, unless it was made while there was no other: then its calls are those of the subchannel that
    /// no other connection counts.
    calls: Option<Arc<CallCounter>>,
    /// The calls of the subchannel that no other connection counted, when this one was made.
    uncounted_before: CallCounts,
}

impl Live {
    pub(super) fn new(
        attempt: AttemptId,
        since: Time,
        retry_at: Time,
        (charge, failures_before): (u32, u32),
        calls: Option<Arc<CallCounter>>,
    ) -> Self {
        let uncounted_before = CallCounts::default();
        Self { attempt, since, retry_at, charge, stable: false, failures_before, calls, uncounted_before }
    }
}

/// The live connections. Usually there is one at most.
#[derive(Default)]
pub(super) struct LiveConnections {
    oldest: Option<Live>,
    newer: Vec<Live>,
    /// The calls that lost connections counted themselves.
    counted_by_lost: CallCounts,
}

impl LiveConnections {
    pub(super) fn oldest(&self) -> Option<&Live> {
        self.oldest.as_ref()
    }

    /// A105-06: the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Live> {
        self.oldest.iter().chain(&self.newer)
    }

    /// Adds the newest connection. `total` are the calls of the subchannel.
    pub(super) fn push(&mut self, mut live: Live, total: CallCounts) {
        live.uncounted_before = self.uncounted(total);
        match self.oldest {
            None => self.oldest = Some(live),
            Some(_) => self.newer.push(live),
        }
    }

    pub(super) fn remove(&mut self, position: usize) -> Option<Live> {
        let lost = match position.checked_sub(1) {
            None => {
                let next = (!self.newer.is_empty()).then(|| self.newer.remove(0));
                std::mem::replace(&mut self.oldest, next)
            }
            Some(at) => (at < self.newer.len()).then(|| self.newer.remove(at)),
        };
        if self.newer.is_empty() {
            self.newer = Vec::new();
        }
        if let Some(calls) = lost.as_ref().and_then(|lost| lost.calls.as_ref()) {
            self.counted_by_lost += calls.counts();
        }
        lost
    }

    /// The calls that ended on a connection. `total` are those of the subchannel.
    pub(super) fn calls_of(&self, live: &Live, total: CallCounts) -> CallCounts {
        match &live.calls {
            Some(calls) => calls.counts(),
            None => self.uncounted(total).since(&live.uncounted_before),
        }
    }

    /// The calls of the subchannel that no connection counts itself.
    fn uncounted(&self, total: CallCounts) -> CallCounts {
        let counters = self.iter().filter_map(|live| live.calls.as_ref());
        total.since(&counters.fold(self.counted_by_lost, |sum, calls| sum + calls.counts()))
    }

    /// Marks the connections that have become stable; returns the number of failures that they take back. `total` are
    /// the calls of the subchannel.
    pub(super) fn judge(&mut self, now: Time, total: CallCounts) -> u32 {
        let is_stable =
            |live: &Live| now.since(live.since) >= SETTLED || self.calls_of(live, total).succeeded > 0;
        let stable: Vec<_> =
            self.iter().filter(|live| !live.stable && is_stable(live)).map(|live| live.attempt).collect();
        let mut forgiven = 0;
        for live in self.oldest.iter_mut().chain(&mut self.newer) {
            if stable.contains(&live.attempt) {
                live.stable = true;
                forgiven = forgiven.max(live.failures_before);
            }
        }
        self.forget(forgiven);
        forgiven
    }

    /// So many failures are taken back: the others cannot do so again.
    fn forget(&mut self, failures: u32) {
        for live in self.oldest.iter_mut().chain(&mut self.newer) {
            live.failures_before = live.failures_before.saturating_sub(failures);
        }
    }

    /// The backoff is reset: early losses do not count.
    pub(super) fn forgive(&mut self, now: Time) {
        for live in self.oldest.iter_mut().chain(&mut self.newer) {
            (live.retry_at, live.charge, live.failures_before) = (now, 0, 0);
        }
    }
}
