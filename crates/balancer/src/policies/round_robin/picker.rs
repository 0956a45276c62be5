//! The picker of `round_robin` with READY children.

use std::sync::Arc;

use super::position::Position;
use crate::api::{PickArgs, PickResult, Picker};

/// Picks the children in turn.
pub(super) struct RoundRobinPicker {
    children: Vec<Arc<dyn Picker>>,
    /// Shared with earlier and later pickers, so that a new picker continues where the old one was.
    position: Arc<Position>,
}

impl RoundRobinPicker {
    /// Creates a picker over these children, at least one of which is needed to complete a pick.
    pub(super) fn new(children: Vec<Arc<dyn Picker>>, position: Arc<Position>) -> Arc<Self> {
        Arc::new(Self { children, position })
    }

    /// Whether it has the same children in the same order.
    pub(super) fn has_children(&self, children: &[Arc<dyn Picker>]) -> bool {
        self.children.len() == children.len()
            && self.children.iter().zip(children).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

impl Picker for RoundRobinPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        let turn = self.position.next();
        let at = turn.checked_rem(self.children.len() as u64).and_then(|at| usize::try_from(at).ok());
        let child = at.and_then(|at| self.children.get(at));
        child.map_or(PickResult::Queue, |child| child.pick(args))
    }
}
