//! The picker of xds_cluster_manager: finds the child's picker by the cluster id of the RPC.

use std::sync::Arc;

use proxyless_balancer::api::{ClusterId, PickArgs, PickError, PickResult, Picker};

/// Passes each pick to the picker of the cluster that the route chose.
pub(super) struct ClusterPicker {
    by_id: Box<[Option<Arc<dyn Picker>>]>,
    unknown: Arc<PickError>,
}

impl ClusterPicker {
    pub(super) fn new(pickers: impl Iterator<Item = (ClusterId, Arc<dyn Picker>)>) -> Arc<Self> {
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
        // A31: an RPC whose cluster was removed fails instead of waiting.
        let unknown = PickError::unavailable("the cluster that the route chose is no longer configured");
        Arc::new(Self { by_id: by_id.into(), unknown })
    }
}

impl Picker for ClusterPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        match self.by_id.get(args.attributes.cluster.0 as usize) {
            Some(Some(picker)) => picker.pick(args),
            _ => PickResult::Fail(Arc::clone(&self.unknown)),
        }
    }
}
