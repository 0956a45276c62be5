//! The picker of `round_robin` with READY children.

use std::sync::Arc;

use super::position::Position;
use crate::api::{PickArgs, PickResult, Picker};

/// Gives each child its turn.
pub(super) struct RoundRobinPicker {
    children: Vec<Arc<dyn Picker>>,
    /// Shared with the pickers before and after, so that a new picker goes on where the old one was.
    position: Arc<Position>,
}

impl RoundRobinPicker {
    /// A picker over these children, of which there must be one at least to complete a pick.
    pub(super) fn new(children: Vec<Arc<dyn Picker>>, position: Arc<Position>) -> Arc<Self> {
        Arc::new(Self { children, position })
    }

    /// Whether it is over the same children in the same order.
    pub(super) fn is_over(&self, children: &[Arc<dyn Picker>]) -> bool {
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
