//! The subchannels that a layer creates for its child.

use std::sync::Arc;

use proxyless_sans_io::SmallMap;

use super::{HandleId, Releases, SubchannelHandle};

/// The subchannels that a policy created for its child: the policy keeps its own handle of each, with a payload, and
/// learns when the child drops its handle.
pub struct Lent<T> {
    releases: Arc<Releases>,
    lent: SmallMap<HandleId, (SubchannelHandle, T)>,
}

impl<T> Default for Lent<T> {
    fn default() -> Self {
        Self { releases: Releases::new(), lent: SmallMap::new() }
    }
}

impl<T> Lent<T> {
    /// Keeps `own` and returns the child's handle, with the same id, so that events need no translation.
    pub fn lend(&mut self, own: SubchannelHandle, with: T) -> SubchannelHandle {
        let child = SubchannelHandle::new(own.id(), Arc::clone(own.target()), Arc::clone(&self.releases));
        self.lent.insert(own.id(), (own, with));
        child
    }

    /// Takes the subchannels that the child has dropped since the last call. Must be called after every call of the
    /// child.
    pub fn take_returned(&mut self) -> Vec<(SubchannelHandle, T)> {
        self.releases.drain().into_iter().filter_map(|id| self.lent.remove(&id)).collect()
    }

    /// A subchannel that the child holds.
    #[must_use]
    pub fn get(&self, id: HandleId) -> Option<&(SubchannelHandle, T)> {
        self.lent.get(&id)
    }

    /// A subchannel that the child holds.
    pub fn get_mut(&mut self, id: HandleId) -> Option<&mut (SubchannelHandle, T)> {
        self.lent.get_mut(&id)
    }

    /// All subchannels that the child holds, in creation order.
    pub fn iter(&self) -> impl Iterator<Item = &(SubchannelHandle, T)> {
        self.lent.values()
    }
}
