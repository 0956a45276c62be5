//! The picker of a connected `pick_first`.

use std::sync::Arc;

use crate::api::{Pick, PickArgs, PickResult, PickTarget, Picker};

/// Gives every RPC the same target.
pub(super) struct TargetPicker(Arc<PickTarget>);

impl TargetPicker {
    pub(super) fn new(target: &Arc<PickTarget>) -> Arc<Self> {
        Arc::new(Self(Arc::clone(target)))
    }
}

impl Picker for TargetPicker {
    fn pick(&self, _: &mut PickArgs<'_>) -> PickResult {
        PickResult::Complete(Pick::new(Arc::clone(&self.0)))
    }
}
