//! Selects a child's picker by weight.

use std::sync::Arc;

use crate::api::{PickArgs, PickResult, Picker};

/// A picker and its weight.
#[derive(Clone)]
pub(super) struct Share {
    pub(super) weight: u32,
    pub(super) picker: Arc<dyn Picker>,
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.weight == other.weight
            && std::ptr::addr_eq(Arc::as_ptr(&self.picker), Arc::as_ptr(&other.picker))
    }
}

/// Distributes picks to pickers by weight.
pub(super) struct WeightedPicker {
    /// The cumulative weight up to and including each picker.
    ends: Box<[u64]>,
    pickers: Box<[Arc<dyn Picker>]>,
    total: u64,
}

impl WeightedPicker {
    /// A picker for these shares; a single one is returned as it is.
    pub(super) fn over(shares: &[Share]) -> Arc<dyn Picker> {
        if let [only] = shares {
            return Arc::clone(&only.picker);
        }
        let mut total = 0;
        let ends = shares
            .iter()
            .map(|share| {
                total += u64::from(share.weight);
                total
            })
            .collect();
        Arc::new(Self {
            ends,
            pickers: shares.iter().map(|share| Arc::clone(&share.picker)).collect(),
            total,
        })
    }
}

impl Picker for WeightedPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        let key = args.rng.below(self.total);
        let drawn = self.ends.partition_point(|&end| end <= key);
        // `key` is below the last end, so there always is a picker; without shares there is nothing to pick.
        self.pickers.get(drawn).map_or(PickResult::Queue, |picker| picker.pick(args))
    }
}
