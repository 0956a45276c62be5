//! The search for a connection: the happy eyeballs pass over all addresses, then trying all of them at all times (A61).

use std::sync::Arc;
use std::time::Duration;

use crate::api::{ConnectivityState, Cx, PickError, RouteBuf, Subchannel, SubchannelEvent, Timer};

/// A search over a list of subchannels.
pub(super) struct Attempt {
    candidates: Vec<Candidate>,
    /// The candidate that the first pass has come to; past the end when it has come to all.
    cursor: usize,
    timer: Option<Timer>,
    /// Whether each candidate has failed once.
    pass_failed: bool,
    /// Failures since then.
    failures: usize,
    last_error: Option<Arc<PickError>>,
}

/// One subchannel of the search.
pub(super) struct Candidate {
    pub(super) subchannel: Subchannel,
    pub(super) state: ConnectivityState,
    failed: bool,
}

impl Candidate {
    pub(super) fn new(subchannel: Subchannel, state: ConnectivityState) -> Self {
        Self { subchannel, state, failed: false }
    }
}

/// What came of a step.
#[must_use]
pub(super) enum Progress {
    /// Nothing to tell the parent.
    Searching,
    /// This one is connected, in this health.
    Found { subchannel: Subchannel, health: ConnectivityState, error: Option<Arc<PickError>> },
    /// All have failed, or, after that, as many failures came as there are subchannels.
    Failed(Option<Arc<PickError>>),
}

impl Attempt {
    pub(super) fn new(candidates: Vec<Candidate>) -> Self {
        Self { candidates, cursor: 0, timer: None, pass_failed: false, failures: 0, last_error: None }
    }

    /// The subchannels that it looks at.
    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The subchannels, for the next search.
    pub(super) fn into_candidates(self) -> Vec<Candidate> {
        self.candidates
    }

    /// Begins, or goes on, with the candidate at the cursor; the next one's turn comes after `delay`.
    pub(super) fn step(&mut self, delay: Duration, cx: &mut dyn Cx) -> Progress {
        self.timer = None;
        let last = self.candidates.len().saturating_sub(1);
        while let Some(candidate) = self.candidates.get_mut(self.cursor) {
            match candidate.state {
                // A61: one in backoff counts as tried.
                ConnectivityState::TransientFailure => {
                    candidate.failed = true;
                    self.cursor += 1;
                }
                // A61: one that is CONNECTING already is treated as if it had been asked.
                state => {
                    if state == ConnectivityState::Idle {
                        cx.connect(&candidate.subchannel);
                    }
                    // A61: the timer runs for all but the last.
                    if self.cursor < last {
                        self.timer = Some(cx.set_timer(RouteBuf::default(), delay, 0));
                    }
                    return Progress::Searching;
                }
            }
        }
        self.end_pass(cx)
    }

    /// The connection attempt delay is over.
    pub(super) fn on_timer(&mut self, delay: Duration, cx: &mut dyn Cx) -> Progress {
        // A61: the next address is tried beside those that are still being tried.
        self.cursor += 1;
        self.step(delay, cx)
    }

    /// A subchannel changed.
    pub(super) fn on_subchannel(
        &mut self,
        event: &SubchannelEvent,
        delay: Duration,
        cx: &mut dyn Cx,
    ) -> Progress {
        let Some(at) = self.candidates.iter().position(|c| c.subchannel.id() == event.subchannel) else {
            return Progress::Searching;
        };
        if event.state == ConnectivityState::Ready {
            // A61: the first one that is connected wins, asked for or not.
            let subchannel = self.candidates.swap_remove(at).subchannel;
            return Progress::Found { subchannel, health: event.health, error: event.error.clone() };
        }
        if event.error.is_some() {
            self.last_error.clone_from(&event.error);
        }
        let size = self.candidates.len();
        let Some(candidate) = self.candidates.get_mut(at) else { return Progress::Searching };
        if std::mem::replace(&mut candidate.state, event.state) == event.state {
            return Progress::Searching;
        }
        match event.state {
            ConnectivityState::TransientFailure if self.pass_failed => {
                // A61: after as many failures as subchannels, whichever they were of, resolve again.
                self.failures += 1;
                if self.failures.is_multiple_of(size) { self.failed() } else { Progress::Searching }
            }
            ConnectivityState::TransientFailure => {
                // One that the pass has not come to was tried for somebody else: it still gets its turn.
                candidate.failed |= at <= self.cursor;
                if at == self.cursor {
                    // A61: a failure before the timer fires moves on at once.
                    self.cursor += 1;
                    self.step(delay, cx)
                } else {
                    self.end_pass(cx)
                }
            }
            ConnectivityState::Idle if self.pass_failed => {
                // A61: after the first pass, whatever leaves its backoff is tried again.
                cx.connect(&candidate.subchannel);
                Progress::Searching
            }
            _ => Progress::Searching,
        }
    }

    /// Ends the first pass if every candidate has failed.
    fn end_pass(&mut self, cx: &mut dyn Cx) -> Progress {
        if self.cursor < self.candidates.len() || !self.candidates.iter().all(|candidate| candidate.failed) {
            return Progress::Searching;
        }
        self.pass_failed = true;
        // A61: from now on all are tried at all times.
        for candidate in self.candidates.iter().filter(|c| c.state == ConnectivityState::Idle) {
            cx.connect(&candidate.subchannel);
        }
        self.failed()
    }

    fn failed(&self) -> Progress {
        Progress::Failed(self.last_error.clone())
    }
}
