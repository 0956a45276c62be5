//! The places of a cluster's endpoints, for metrics (gRFCs A78, A89, A94).

use std::sync::Arc;

use proxyless_balancer::api::{Locality, SubchannelSpec};
use proxyless_sans_io::SmallMap;
use proxyless_sans_io::metrics::{Meter, PlaceId};

/// The places by locality: a thousand endpoints have few of them.
#[derive(Default)]
pub(super) struct Places {
    cluster: Arc<str>,
    known: SmallMap<Locality, PlaceId>,
}

impl Places {
    /// Applies a configuration.
    pub(super) fn configure(&mut self, cluster: &Arc<str>) {
        if self.cluster != *cluster {
            *self = Self { cluster: Arc::clone(cluster), known: SmallMap::new() };
        }
    }

    /// The place of a new subchannel. A94: its locality is that of the endpoint.
    pub(super) fn of(&mut self, spec: &SubchannelSpec, meter: &Meter) -> PlaceId {
        if !meter.is_enabled() {
            return PlaceId::default();
        }
        let Some(locality) = spec.endpoint.locality.as_deref() else {
            return meter.place(&self.cluster, None);
        };
        if let Some(place) = self.known.get(locality) {
            return *place;
        }
        let place = meter.place(&self.cluster, Some(locality));
        self.known.insert(locality.clone(), place);
        place
    }
}
