//! The picker of `round_robin` with READY children.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::api::{Padded, PickArgs, PickResult, Picker};

/// Gives each child its turn.
pub(super) struct RoundRobinPicker {
    children: Vec<Arc<dyn Picker>>,
    /// Shared with the pickers before and after, so that a new picker goes on where the old one was.
    position: Arc<Position>,
}

/// Whose turn it is. Every pick writes it, so nothing else is on its cache line.
pub(super) struct Position(Padded<AtomicUsize>);

impl Position {
    pub(super) fn starting_at(turn: usize) -> Arc<Self> {
        Arc::new(Self(Padded(AtomicUsize::new(turn))))
    }

    fn next(&self) -> usize {
        // Relaxed: the number orders nothing, it only has to be different for each pick.
        self.0.0.fetch_add(1, Ordering::Relaxed)
    }
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
        let child = turn.checked_rem(self.children.len()).and_then(|at| self.children.get(at));
        child.map_or(PickResult::Queue, |child| child.pick(args))
    }
}
