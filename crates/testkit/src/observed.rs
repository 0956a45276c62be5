//! Observable state: every change wakes the waiters, every wait has a time limit.

use std::time::Duration;

use tokio::sync::watch;

/// The default time limit of a wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A wait timed out.
#[derive(Clone, Debug, thiserror::Error)]
#[error("waited {limit:?} for {what}; seen instead: {seen}")]
pub struct TimedOut {
    limit: Duration,
    what: String,
    seen: String,
}

impl TimedOut {
    /// The same after a longer wait, of which this was the last part.
    pub(crate) fn after(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }
}

/// A value with change notification.
#[derive(Debug)]
pub(crate) struct Observed<T>(watch::Sender<T>);

impl<T> Observed<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(watch::Sender::new(value))
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.0.borrow())
    }

    pub(crate) fn update<R>(&self, update: impl FnOnce(&mut T) -> R) -> R {
        let mut result = None;
        self.0.send_modify(|value| result = Some(update(value)));
        // `send_modify` calls its closure exactly once.
        result.expect("the closure ran")
    }

    /// Waits until `find` returns something. It runs under the lock, so it must not touch this value.
    pub(crate) async fn wait<R>(
        &self,
        limit: Duration,
        what: impl Into<String>,
        mut find: impl FnMut(&T) -> Option<R>,
        describe: impl FnOnce(&T) -> String,
    ) -> Result<R, TimedOut> {
        let mut receiver = self.0.subscribe();
        let mut found = None;
        let search = receiver.wait_for(|value| {
            found = find(value);
            found.is_some()
        });
        // The sender lives in `self`, so the wait ends only by success or timeout.
        let _ = tokio::time::timeout(limit, search).await;
        found.ok_or_else(|| TimedOut { limit, what: what.into(), seen: self.read(describe) })
    }

    /// Waits until `condition` holds, without a time limit.
    pub(crate) async fn until(&self, condition: impl FnMut(&T) -> bool) {
        // Fails only when the sender is dropped, and `self` holds it.
        let _ = self.0.subscribe().wait_for(condition).await;
    }
}
