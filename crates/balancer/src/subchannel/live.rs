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
    /// Present if there were ever several.
    more: Option<Box<More>>,
}

#[derive(Default)]
struct More {
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
        self.oldest.iter().chain(self.more.iter().flat_map(|more| &more.newer))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Live> {
        self.oldest.iter_mut().chain(self.more.iter_mut().flat_map(|more| &mut more.newer))
    }

    /// Adds the newest connection. `total` are the calls of the subchannel.
    pub(super) fn push(&mut self, mut live: Live, total: CallCounts) {
        live.uncounted_before = self.uncounted(total);
        match self.oldest {
            None => self.oldest = Some(live),
            Some(_) => self.more.get_or_insert_default().newer.push(live),
        }
    }

    pub(super) fn remove(&mut self, position: usize) -> Option<Live> {
        let Some(More { newer, counted_by_lost }) = self.more.as_deref_mut() else {
            return if position == 0 { self.oldest.take() } else { None };
        };
        let lost = match position.checked_sub(1) {
            None => {
                let next = (!newer.is_empty()).then(|| newer.remove(0));
                std::mem::replace(&mut self.oldest, next)
            }
            Some(at) => (at < newer.len()).then(|| newer.remove(at)),
        };
        if newer.is_empty() {
            *newer = Vec::new();
        }
        if let Some(calls) = lost.as_ref().and_then(|lost| lost.calls.as_ref()) {
            *counted_by_lost += calls.counts();
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
        let counted_by_lost =
            self.more.as_ref().map_or_else(CallCounts::default, |more| more.counted_by_lost);
        total.since(&counters.fold(counted_by_lost, |sum, calls| sum + calls.counts()))
    }

    /// Marks the connections that have become stable; returns the number of failures that they take back. `total` are
    /// the calls of the subchannel.
    pub(super) fn judge(&mut self, now: Time, total: CallCounts) -> u32 {
        let is_stable =
            |live: &Live| now.since(live.since) >= SETTLED || self.calls_of(live, total).succeeded > 0;
        let stable: Vec<_> =
            self.iter().filter(|live| !live.stable && is_stable(live)).map(|live| live.attempt).collect();
        let mut forgiven = 0;
        for live in self.iter_mut() {
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
        for live in self.iter_mut() {
            live.failures_before = live.failures_before.saturating_sub(failures);
        }
    }

    /// The backoff is reset: early losses do not count.
    pub(super) fn forgive(&mut self, now: Time) {
        for live in self.iter_mut() {
            (live.retry_at, live.charge, live.failures_before) = (now, 0, 0);
        }
    }
}
