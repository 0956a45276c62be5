//! The choice of a priority (A56) as a pure function of what is known of the children.

use crate::api::ConnectivityState;

/// What the choice needs to know of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildView {
    /// No child was made for it yet.
    Absent,
    /// Its child exists.
    Present {
        /// What the child last reported; CONNECTING if it has not.
        state: ConnectivityState,
        /// Whether the child is still given time to connect.
        failover_pending: bool,
        /// Whether its picker was in use when the last update came, and no READY child has been chosen since.
        carried_over: bool,
    },
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// There are no priorities: fail.
    Nothing,
    /// Make the child of this priority, update it, and choose again.
    Create(usize),
    /// This priority it is.
    Use {
        /// The chosen priority.
        priority: usize,
        /// The priority whose state and picker to publish: the chosen one, unless it is still connecting and the one
        /// that served before the update can go on.
        serving: usize,
        /// The lowest priority that the choice looked at: children down to it are needed.
        reached: usize,
        /// Whether children below `reached` are no longer needed.
        deactivate_lower: bool,
    },
}

/// Chooses among the priorities, the most preferred first. Same views, same choice.
#[must_use]
pub fn choose(priorities: &[ChildView]) -> Choice {
    for (priority, view) in priorities.iter().enumerate() {
        match *view {
            // A56: children are created lazily, when the choice gets to them.
            ChildView::Absent => return Choice::Create(priority),
            // A56: the first child that is READY or IDLE serves, and those below it are deactivated.
            ChildView::Present { state: ConnectivityState::Ready | ConnectivityState::Idle, .. } => {
                return Choice::Use {
                    priority,
                    serving: priority,
                    reached: priority,
                    deactivate_lower: true,
                };
            }
            // A56: a child whose failover timer runs is waited for; nothing below it is created or deactivated.
            ChildView::Present { failover_pending: true, .. } => {
                let serving = carried_over_below(priorities, priority).unwrap_or(priority);
                return Choice::Use { priority, serving, reached: priority, deactivate_lower: false };
            }
            ChildView::Present { .. } => {}
        }
    }
    let Some(last) = priorities.len().checked_sub(1) else { return Choice::Nothing };
    // A56: if none is usable, the first that still tries is waited for; if none tries, the last one's failure is ours.
    let connecting =
        |view: &ChildView| matches!(view, ChildView::Present { state: ConnectivityState::Connecting, .. });
    let priority = priorities.iter().position(connecting).unwrap_or(last);
    Choice::Use { priority, serving: priority, reached: last, deactivate_lower: false }
}

/// The READY child that served before an update put something above it. It goes on until what is above it is READY,
/// failed or timed out, so that an update alone makes no RPC wait. A56 itself would queue here.
fn carried_over_below(priorities: &[ChildView], chosen: usize) -> Option<usize> {
    let carried = |view: &ChildView| {
        matches!(view, ChildView::Present { state: ConnectivityState::Ready, carried_over: true, .. })
    };
    priorities.iter().skip(chosen + 1).position(carried).map(|below| chosen + 1 + below)
}
