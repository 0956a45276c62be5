//! The picker of `least_request_experimental` with READY children.

use std::sync::Arc;

use super::in_flight::InFlight;
use crate::api::{PickArgs, PickResult, Picker};
use crate::petiole::SpreadPicker;

/// Samples endpoints and picks the one with the fewest calls in flight.
pub(super) struct LeastRequestPicker {
    children: Vec<Arc<dyn Picker>>,
    /// The counters of the children, in the same order.
    in_flight: Vec<Arc<InFlight>>,
    samples: u32,
}

impl LeastRequestPicker {
    pub(super) fn new(
        children: Vec<Arc<dyn Picker>>,
        in_flight: Vec<Arc<InFlight>>,
        samples: u32,
    ) -> Arc<Self> {
        Arc::new(Self { children, in_flight, samples })
    }
}

impl SpreadPicker for LeastRequestPicker {
    fn children(&self) -> &[Arc<dyn Picker>] {
        &self.children
    }
}

impl Picker for LeastRequestPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        // A48-13: each sample is drawn from all READY endpoints, so one may be drawn twice; of equal ones the first
        // sample is used.
        let count = self.children.len() as u64;
        let samples = (0..self.samples).filter_map(|_| {
            let at = args.rng.below(count) as usize;
            self.in_flight.get(at).map(|in_flight| (in_flight.count(), at))
        });
        let least = samples.min_by_key(|&(count, _)| count);
        let child = least.and_then(|(_, at)| self.children.get(at));
        child.map_or(PickResult::Queue, |child| child.pick(args))
    }
}
