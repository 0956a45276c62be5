//! The labels that say where traffic goes, as a number that picks can pass on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A backend service (A89) and a locality (A78), by its number in one channel's [`Meter`](super::Meter). The default has
/// neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaceId(u32);

/// The places of one channel. They are as many as the clusters and localities that the control plane has ever named.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    ids: BTreeMap<(Arc<str>, Arc<str>), PlaceId>,
    labels: Vec<(Arc<str>, Arc<str>)>,
}

impl Places {
    pub(super) fn intern(&self, service: &Arc<str>, locality: &Arc<str>) -> PlaceId {
        if service.is_empty() && locality.is_empty() {
            return PlaceId::default();
        }
        // The tables are consistent even if a holder panicked.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Arc::clone(service), Arc::clone(locality));
        if let Some(id) = known.ids.get(&key) {
            return *id;
        }
        known.labels.push(key.clone());
        // 0 is the place without labels. Beyond 2^32 places the last id is shared.
        let id = PlaceId(u32::try_from(known.labels.len()).unwrap_or(u32::MAX));
        known.ids.insert(key, id);
        id
    }

    /// The backend service and the locality.
    pub(super) fn labels(&self, PlaceId(id): PlaceId) -> (Arc<str>, Arc<str>) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = usize::try_from(id).ok().and_then(|id| known.labels.get(id.checked_sub(1)?));
        labels.cloned().unwrap_or_else(|| ("".into(), "".into()))
    }
}
