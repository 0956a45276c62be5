//! The picker of xds_cluster_manager: finds the child's picker by the cluster id of the RPC.

use std::sync::{Arc, LazyLock};

use proxyless_balancer::api::{ClusterId, PickArgs, PickError, PickResult, Picker};
use proxyless_sans_io::Chunks;

/// Passes each pick to the picker of the cluster that the route chose.
pub(super) struct ClusterPicker {
    by_id: PickersById,
}

/// A31: an RPC whose cluster was removed fails instead of waiting.
static UNKNOWN: LazyLock<Arc<PickError>> =
    LazyLock::new(|| PickError::unavailable("the cluster that the route chose is no longer configured"));

impl ClusterPicker {
    pub(super) fn new(by_id: PickersById) -> Arc<Self> {
        Arc::new(Self { by_id })
    }
}

/// The pickers by cluster id. A copy shares most of its memory.
#[derive(Clone, Default)]
pub(super) struct PickersById(Chunks<Option<Arc<dyn Picker>>>);

impl PickersById {
    /// Replaces the picker of a cluster that has one.
    pub(super) fn set(&mut self, ClusterId(id): ClusterId, picker: Arc<dyn Picker>) {
        self.0.set(id as usize, Some(picker));
    }
}

impl FromIterator<(ClusterId, Arc<dyn Picker>)> for PickersById {
    fn from_iter<I: IntoIterator<Item = (ClusterId, Arc<dyn Picker>)>>(pickers: I) -> Self {
        let mut by_id = Vec::new();
        for (ClusterId(id), picker) in pickers {
            let id = id as usize;
            if by_id.len() <= id {
                by_id.resize_with(id + 1, || None);
            }
            if let Some(place) = by_id.get_mut(id) {
                *place = Some(picker);
            }
        }
        Self(by_id.into_iter().collect())
    }
}

impl Picker for ClusterPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        match self.by_id.0.get(args.attributes.cluster.0 as usize) {
            Some(Some(picker)) => picker.pick(args),
            _ => PickResult::Fail(Arc::clone(&UNKNOWN)),
        }
    }
}
