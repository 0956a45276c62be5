//! The search for a connection: a happy eyeballs pass over all addresses, then continuous attempts on all of them
//! (A61).

use std::sync::Arc;
use std::time::Duration;

use crate::api::{ConnectivityState, Cx, PickError, SubchannelEvent, SubchannelHandle, Timer, TreePathBuf};

/// A search over a list of subchannels.
pub(super) struct Attempt {
    candidates: Vec<Candidate>,
    /// The position of the first pass; past the end when the pass has reached all candidates.
    cursor: usize,
    timer: Option<Timer>,
    /// Whether every candidate has failed once.
    pass_failed: bool,
    /// Failures since then.
    failures: usize,
    last_error: Option<Arc<PickError>>,
}

/// One subchannel of the search.
pub(super) struct Candidate {
    pub(super) subchannel: SubchannelHandle,
    pub(super) state: ConnectivityState,
    failed: bool,
}

impl Candidate {
    pub(super) fn new(subchannel: SubchannelHandle, state: ConnectivityState) -> Self {
        Self { subchannel, state, failed: false }
    }
}

/// The result of a step.
#[must_use]
pub(super) enum Progress {
    /// Still searching; nothing to report to the parent.
    Searching,
    /// This subchannel is connected and has this health.
    Found { subchannel: SubchannelHandle, health: ConnectivityState, error: Option<Arc<PickError>> },
    /// All have failed, or, after that, as many failures have occurred as there are subchannels.
    Failed(Option<Arc<PickError>>),
}

impl Attempt {
    /// `last_error` is the error of a candidate that has failed already.
    pub(super) fn new(candidates: Vec<Candidate>, last_error: Option<Arc<PickError>>) -> Self {
        Self { candidates, cursor: 0, timer: None, pass_failed: false, failures: 0, last_error }
    }

    /// The subchannels of the search.
    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Returns the subchannels for the next search.
    pub(super) fn into_candidates(self) -> Vec<Candidate> {
        self.candidates
    }

    /// Starts or continues with the candidate at the cursor; the next one follows after `delay`.
    pub(super) fn step(&mut self, delay: Duration, cx: &mut dyn Cx) -> Progress {
        self.timer = None;
        let last = self.candidates.len().saturating_sub(1);
        while let Some(candidate) = self.candidates.get_mut(self.cursor) {
            match candidate.state {
                // A61: a candidate in backoff counts as tried.
                ConnectivityState::TransientFailure => {
                    candidate.failed = true;
                    self.cursor += 1;
                }
                // A61: a candidate that is CONNECTING already counts as requested.
                state => {
                    if state == ConnectivityState::Idle {
                        cx.connect(&candidate.subchannel);
                    }
                    // A61: the timer runs for all but the last.
                    if self.cursor < last {
                        self.timer = Some(cx.set_timer(TreePathBuf::default(), delay, 0));
                    }
                    return Progress::Searching;
                }
            }
        }
        self.end_pass(cx)
    }

    /// The connection attempt delay has passed.
    pub(super) fn on_timer(&mut self, delay: Duration, cx: &mut dyn Cx) -> Progress {
        // A61: the next address is tried in addition to those in progress.
        self.cursor += 1;
        self.step(delay, cx)
    }

    /// A subchannel changed its state.
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
            // A61: the first connected subchannel is selected, whether it was requested or not.
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
                // A61: after as many failures as subchannels, in any combination, requests re-resolution.
                self.failures += 1;
                if self.failures.is_multiple_of(size) { self.failed() } else { Progress::Searching }
            }
            ConnectivityState::TransientFailure => {
                // A candidate ahead of the pass was tried for another owner: it is still tried by this pass.
                candidate.failed |= at <= self.cursor;
                if at == self.cursor {
                    // A61: a failure before the timer fires advances at once.
                    self.cursor += 1;
                    self.step(delay, cx)
                } else {
                    self.end_pass(cx)
                }
            }
            ConnectivityState::Idle if self.pass_failed => {
                // A61: after the first pass, candidates are retried as soon as their backoff ends.
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
        // A61: from now on all candidates are tried continuously.
        for candidate in self.candidates.iter().filter(|c| c.state == ConnectivityState::Idle) {
            cx.connect(&candidate.subchannel);
        }
        self.failed()
    }

    fn failed(&self) -> Progress {
        Progress::Failed(self.last_error.clone())
    }
}
