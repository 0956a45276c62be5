//! The number of children in each state.

use crate::api::ConnectivityState;

/// The number of children in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateCounts {
    pub(crate) idle: usize,
    pub(crate) connecting: usize,
    pub(crate) ready: usize,
    pub(crate) transient_failure: usize,
}

impl StateCounts {
    /// The state of a policy whose children always connect: READY if any is, else CONNECTING if any is (or is IDLE,
    /// which precedes it), else TRANSIENT_FAILURE.
    pub(crate) fn aggregate(&self) -> ConnectivityState {
        if self.ready > 0 {
            ConnectivityState::Ready
        } else if self.connecting + self.idle > 0 {
            ConnectivityState::Connecting
        } else {
            ConnectivityState::TransientFailure
        }
    }

    pub(super) fn of(&mut self, state: ConnectivityState) -> &mut usize {
        match state {
            ConnectivityState::Idle => &mut self.idle,
            ConnectivityState::Connecting => &mut self.connecting,
            ConnectivityState::Ready => &mut self.ready,
            ConnectivityState::TransientFailure => &mut self.transient_failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregate_is_ready_then_connecting_then_transient_failure() {
        let counts = |idle, connecting, ready, transient_failure| {
            StateCounts { idle, connecting, ready, transient_failure }.aggregate()
        };
        assert_eq!(counts(1, 1, 1, 1), ConnectivityState::Ready);
        assert_eq!(counts(0, 1, 0, 1), ConnectivityState::Connecting);
        assert_eq!(counts(1, 0, 0, 1), ConnectivityState::Connecting);
        assert_eq!(counts(0, 0, 0, 1), ConnectivityState::TransientFailure);
        assert_eq!(counts(0, 0, 0, 0), ConnectivityState::TransientFailure);
    }
}
