//! Registration of load stores by the policies of a channel.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proxyless_xds::lrs::LoadStore;

/// The registrations of one channel, passed on to its xDS client (A27-41). Clones share the registry.
///
/// Policies write and the channel core reads, all in the one task that runs the channel; the lock only makes the
/// registry `Send`.
#[derive(Clone, Default)]
pub struct LoadRegistry(Arc<Mutex<VecDeque<LoadChange>>>);

/// A change of registrations.
#[derive(Debug)]
pub enum LoadChange {
    /// Report the load counted in this store.
    Register(Arc<LoadStore>),
    /// No more load is counted in this store.
    Unregister(Arc<LoadStore>),
}

impl LoadRegistry {
    /// The next change that has not been passed on.
    pub fn next_change(&self) -> Option<LoadChange> {
        self.lock().pop_front()
    }

    /// Registers a store until the registration is dropped.
    pub(super) fn register(&self, store: LoadStore) -> LoadRegistration {
        let store = Arc::new(store);
        self.lock().push_back(LoadChange::Register(Arc::clone(&store)));
        LoadRegistration { store, registry: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<LoadChange>> {
        // The queue is consistent whenever the lock is free, even if a holder panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for LoadRegistry {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for LoadRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoadRegistry")
    }
}

/// A store whose load is reported.
pub(super) struct LoadRegistration {
    store: Arc<LoadStore>,
    registry: LoadRegistry,
}

impl Deref for LoadRegistration {
    type Target = Arc<LoadStore>;

    fn deref(&self) -> &Arc<LoadStore> {
        &self.store
    }
}

impl Drop for LoadRegistration {
    fn drop(&mut self) {
        self.registry.lock().push_back(LoadChange::Unregister(Arc::clone(&self.store)));
    }
}
