//! The picker of a connected `pick_first`.

use std::sync::Arc;

use crate::api::{Pick, PickArgs, PickResult, PickTarget, Picker, StripedTarget};

/// Returns the same target for every RPC.
pub(super) struct TargetPicker(StripedTarget);

impl TargetPicker {
    pub(super) fn new(target: &Arc<PickTarget>) -> Arc<Self> {
        Arc::new(Self(StripedTarget::new(target)))
    }
}

impl Picker for TargetPicker {
    fn pick(&self, _: &mut PickArgs<'_>) -> PickResult {
        PickResult::Complete(Pick::new(self.0.get()))
    }
}
