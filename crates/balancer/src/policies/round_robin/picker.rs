//! The picker of `round_robin` with READY children.

use std::sync::Arc;

use super::position::Position;
use crate::api::{PickArgs, PickResult, Picker};
use crate::petiole::SpreadPicker;

/// Picks the children in turn.
pub(super) struct RoundRobinPicker {
    children: Vec<Arc<dyn Picker>>,
    /// Shared with earlier and later pickers, so that a new picker continues where the old one was. `None` until there
    /// have been several children.
    position: Option<Arc<Position>>,
}

impl RoundRobinPicker {
    /// Creates a picker over these children, at least one of which is needed to complete a pick.
    pub(super) fn new(children: Vec<Arc<dyn Picker>>, position: Option<Arc<Position>>) -> Arc<Self> {
        Arc::new(Self { children, position })
    }
}

impl SpreadPicker for RoundRobinPicker {
    fn children(&self) -> &[Arc<dyn Picker>] {
        &self.children
    }
}

impl Picker for RoundRobinPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        let turn = self.position.as_ref().map_or(0, |position| position.next());
        let at = turn.checked_rem(self.children.len() as u64).and_then(|at| usize::try_from(at).ok());
        let child = at.and_then(|at| self.children.get(at));
        child.map_or(PickResult::Queue, |child| child.pick(args))
    }
}
