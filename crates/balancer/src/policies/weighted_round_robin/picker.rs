//! The picker of `weighted_round_robin_experimental` with READY children.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::scheduler::Scheduler;
use crate::api::{ChildIndex, PickArgs, PickResult, Picker};
use crate::petiole::SpreadPicker;
use crate::policies::round_robin::position::Position;

/// Picks the children by weight.
pub(super) struct WeightedPicker {
    children: Vec<Arc<dyn Picker>>,
    /// The endpoints of the children, in the same order.
    endpoints: Vec<ChildIndex>,
    /// Replaced when the weights change; picks in progress finish with the old one.
    scheduler: ArcSwap<Scheduler>,
    /// Shared with earlier and later pickers, so that a new picker continues where the old one was.
    position: Arc<Position>,
}

impl WeightedPicker {
    pub(super) fn new(
        children: Vec<Arc<dyn Picker>>,
        endpoints: Vec<ChildIndex>,
        scheduler: Scheduler,
        position: Arc<Position>,
    ) -> Arc<Self> {
        let scheduler = ArcSwap::from_pointee(scheduler);
        Arc::new(Self { children, endpoints, scheduler, position })
    }

    pub(super) fn endpoints(&self) -> &[ChildIndex] {
        &self.endpoints
    }

    /// Uses other weights from now on.
    pub(super) fn reschedule(&self, scheduler: Scheduler) {
        if **self.scheduler.load() != scheduler {
            self.scheduler.store(Arc::new(scheduler));
        }
    }
}

impl SpreadPicker for WeightedPicker {
    fn children(&self) -> &[Arc<dyn Picker>] {
        &self.children
    }
}

impl Picker for WeightedPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        let scheduler = self.scheduler.load();
        let at = scheduler.pick(self.children.len(), || self.position.next());
        let child = at.and_then(|at| self.children.get(at));
        child.map_or(PickResult::Queue, |child| child.pick(args))
    }
}
