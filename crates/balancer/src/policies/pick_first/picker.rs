//! The picker of a connected `pick_first`.

use std::sync::Arc;

use crate::api::{Pick, PickArgs, PickResult, PickTarget, Picker, Striped};

/// Returns the same target for every RPC.
pub(super) struct TargetPicker {
    /// One copy per stripe: RPCs change reference counts, which different cores should not share.
    targets: Striped<Arc<PickTarget>>,
}

impl TargetPicker {
    pub(super) fn new(target: &PickTarget) -> Arc<Self> {
        Arc::new(Self { targets: Striped::from_fn(|_| Arc::new(target.clone())) })
    }
}

impl Picker for TargetPicker {
    fn pick(&self, _: &mut PickArgs<'_>) -> PickResult {
        PickResult::Complete(Pick::new(Arc::clone(self.targets.own())))
    }
}
