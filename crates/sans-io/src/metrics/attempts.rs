//! Attempts that have ended, in all of their series at once: they are recorded for every RPC.

use std::fmt;
use std::sync::Arc;

use super::BoundSeries;

/// An attempt that has ended (A66).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct EndedAttempt {
    /// Its duration.
    pub seconds: f64,
    /// The bytes of its messages that were sent.
    pub sent: u64,
    /// The bytes of its messages that were received.
    pub received: u64,
    /// The duration of its call, if that has ended with it.
    pub call_seconds: Option<f64>,
}

impl EndedAttempt {
    /// An attempt whose call goes on.
    #[must_use]
    pub fn new(seconds: f64, sent: u64, received: u64) -> Self {
        Self { seconds, sent, received, call_seconds: None }
    }

    /// The last attempt of a call.
    #[must_use]
    pub fn with_call(self, seconds: f64) -> Self {
        Self { call_seconds: Some(seconds), ..self }
    }
}

/// The series that the attempts of a method with one status at one place add to. Recording runs on the data path.
pub trait AttemptSeries: Send + Sync {
    /// Adds the duration and the sizes of the attempt, and the duration of its call if there is one.
    fn record(&self, attempt: &EndedAttempt);

    /// Adds several attempts, from a recorder that does this at less cost than one by one.
    fn record_all(&self, attempts: &[EndedAttempt]) {
        attempts.iter().for_each(|attempt| self.record(attempt));
    }
}

/// The series of all recorders for the attempts with one set of labels; usually of one.
#[derive(Clone, Default)]
pub struct BoundAttempts {
    /// Not in a list: usually it is the only one.
    first: Option<Arc<dyn AttemptSeries>>,
    more: Vec<Arc<dyn AttemptSeries>>,
}

impl BoundAttempts {
    /// Records an attempt in each of them.
    #[inline]
    pub fn record(&self, attempt: &EndedAttempt) {
        if let Some(first) = &self.first {
            first.record(attempt);
        }
        if !self.more.is_empty() {
            self.more.iter().for_each(|series| series.record(attempt));
        }
    }

    /// Adds the series of another recorder.
    pub(super) fn push(&mut self, series: Arc<dyn AttemptSeries>) {
        match &self.first {
            None => self.first = Some(series),
            Some(_) => self.more.push(series),
        }
    }
}

impl fmt::Debug for BoundAttempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoundAttempts({})", self.first.iter().count() + self.more.len())
    }
}

/// The series of a recorder that has no [`AttemptSeries`], or does not record all of the instruments.
pub(super) struct Separate {
    pub(super) durations: BoundSeries,
    pub(super) sent: BoundSeries,
    pub(super) received: BoundSeries,
    pub(super) calls: BoundSeries,
}

impl AttemptSeries for Separate {
    fn record(&self, attempt: &EndedAttempt) {
        self.durations.record(attempt.seconds);
        self.sent.record(attempt.sent as f64);
        self.received.record(attempt.received as f64);
        if let Some(seconds) = attempt.call_seconds {
            self.calls.record(seconds);
        }
    }
}
