//! The choice of a priority (A56) as a pure function of the children's states.

use crate::api::ConnectivityState;

/// The state of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityState {
    /// No child was created yet.
    Absent,
    /// The child exists.
    Present {
        /// The child's last state; CONNECTING if it has not published.
        state: ConnectivityState,
        /// Whether the failover timer is running.
        failover_pending: bool,
        /// Whether its picker was in use at the last update, and no READY child has been chosen since.
        carried_over: bool,
    },
}

/// The result of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityChoice {
    /// There are no priorities: fail.
    Nothing,
    /// Create the child of this priority, update it, and choose again.
    Create(usize),
    /// Use this priority.
    Use {
        /// The chosen priority.
        priority: usize,
        /// The priority whose state and picker to publish: the chosen one, unless it is still connecting and the one
        /// that served before the update can continue.
        serving: usize,
        /// The lowest priority that was considered: children down to it are needed.
        reached: usize,
        /// The treatment of children below `reached`.
        lower: Lower,
    },
}

/// The treatment of children that the choice did not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lower {
    /// They stay as they are.
    Kept,
    /// They are not needed.
    Deactivated,
}

/// Chooses a priority. Deterministic.
#[must_use]
pub fn choose(priorities: &[PriorityState]) -> PriorityChoice {
    for (priority, child) in priorities.iter().enumerate() {
        match *child {
            // A56: children are created lazily, when the choice reaches them.
            PriorityState::Absent => return PriorityChoice::Create(priority),
            // A56: the first child that is READY or IDLE serves, and those below it are deactivated.
            PriorityState::Present { state: ConnectivityState::Ready | ConnectivityState::Idle, .. } => {
                return PriorityChoice::Use {
                    priority,
                    serving: priority,
                    reached: priority,
                    lower: Lower::Deactivated,
                };
            }
            // A56: the choice waits for a child whose failover timer runs; nothing below it is created or deactivated.
            PriorityState::Present { failover_pending: true, .. } => {
                let serving = carried_over_below(priorities, priority).unwrap_or(priority);
                return PriorityChoice::Use { priority, serving, reached: priority, lower: Lower::Kept };
            }
            PriorityState::Present { .. } => {}
        }
    }
    let Some(last) = priorities.len().checked_sub(1) else { return PriorityChoice::Nothing };
    // A56: if none is usable, waits for the first that is connecting; if none is, uses the last one's failure.
    let connecting = |child: &PriorityState| {
        matches!(child, PriorityState::Present { state: ConnectivityState::Connecting, .. })
    };
    let priority = priorities.iter().position(connecting).unwrap_or(last);
    PriorityChoice::Use { priority, serving: priority, reached: last, lower: Lower::Kept }
}

/// The READY child that served before an update put another one above it. It serves until the one above is READY,
/// failed or timed out, so that an update alone queues no RPC. A56 itself would queue here.
fn carried_over_below(priorities: &[PriorityState], chosen: usize) -> Option<usize> {
    let carried = |child: &PriorityState| {
        matches!(child, PriorityState::Present { state: ConnectivityState::Ready, carried_over: true, .. })
    };
    priorities.iter().skip(chosen + 1).position(carried).map(|below| chosen + 1 + below)
}
