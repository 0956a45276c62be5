//! The picker of a connected `pick_first`.

use std::sync::Arc;

use crate::api::{Pick, PickArgs, PickResult, PickTarget, Picker, STRIPES, own_stripe};

/// Returns the same target for every RPC.
pub(super) struct TargetPicker {
    /// One copy per stripe: RPCs change reference counts, which different cores should not share.
    targets: [Arc<PickTarget>; STRIPES],
}

impl TargetPicker {
    pub(super) fn new(target: &PickTarget) -> Arc<Self> {
        Arc::new(Self { targets: std::array::from_fn(|_| Arc::new(target.clone())) })
    }
}

impl Picker for TargetPicker {
    #[allow(clippy::indexing_slicing, reason = "an index below STRIPES by construction")]
    fn pick(&self, _: &mut PickArgs<'_>) -> PickResult {
        PickResult::Complete(Pick::new(Arc::clone(&self.targets[own_stripe() % STRIPES])))
    }
}
