//! A call that has a target and waits for a stream of its connection.

use std::fmt;

use super::TargetRef;

/// A call between its pick and its stream. Some trackers count it until it is dropped.
pub struct WaitingCall(TargetRef);

impl WaitingCall {
    /// The call starts to wait.
    #[must_use]
    pub fn start(target: &TargetRef) -> Self {
        target.trackers.iter().for_each(|tracker| tracker.waiting());
        Self(target.clone())
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.0.trackers.iter().for_each(|tracker| tracker.waited());
    }
}

impl fmt::Debug for WaitingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitingCall").field(&self.0).finish()
    }
}
