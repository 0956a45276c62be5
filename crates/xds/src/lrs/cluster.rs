//! The load of one cluster: its stores, and unreported load that no store holds.

use std::sync::Arc;

use proxyless_sans_io::Time;

use super::LoadStore;
use super::report::ClusterLoad;

/// All users of a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The start of the interval of the next report.
    pub(super) since: Time,
    stores: Vec<Registered>,
    /// Unreported load that no store holds: that of dropped stores and of reports that could not be sent.
    left: ClusterLoad,
}

#[derive(Debug)]
struct Registered {
    store: Arc<LoadStore>,
    retired: bool,
}

impl Cluster {
    pub(super) fn new(since: Time) -> Self {
        Self { since, stores: Vec::new(), left: ClusterLoad::default() }
    }

    /// Adds a store; adding it again has no effect.
    pub(super) fn register(&mut self, store: Arc<LoadStore>) {
        match self.stores.iter_mut().find(|registered| Arc::ptr_eq(&registered.store, &store)) {
            Some(registered) => registered.retired = false,
            None => self.stores.push(Registered { store, retired: false }),
        }
    }

    /// Marks a store for removal once its counters are final.
    pub(super) fn retire(&mut self, store: &Arc<LoadStore>) {
        for registered in self.stores.iter_mut().filter(|found| Arc::ptr_eq(&found.store, store)) {
            registered.retired = true;
        }
    }

    /// Forgets a store, and what it has counted. Returns whether no other is left.
    pub(super) fn withdraw(&mut self, store: &Arc<LoadStore>) -> bool {
        self.stores.retain(|registered| {
            let is_other = !Arc::ptr_eq(&registered.store, store);
            if !is_other {
                // It may have counted for longer than the next server's interval.
                registered.store.discard();
            }
            is_other
        });
        self.stores.is_empty()
    }

    /// Drops retired stores that are no longer used, keeping the load they counted.
    pub(super) fn sweep(&mut self) {
        let left = &mut self.left;
        self.stores.retain_mut(|registered| {
            let gone = registered.retired && LoadStore::is_final(&mut registered.store);
            if gone {
                *left += registered.store.take();
            }
            !gone
        });
    }

    /// Whether a store gets new calls.
    pub(super) fn is_used(&self) -> bool {
        self.stores.iter().any(|registered| !registered.retired)
    }

    /// Whether there is nothing to report now or later.
    pub(super) fn is_done(&self) -> bool {
        self.stores.is_empty() && self.left.is_zero()
    }

    /// Takes the new load and the start of its interval.
    pub(super) fn take(&mut self, now: Time) -> (ClusterLoad, Time) {
        let mut load = std::mem::take(&mut self.left);
        self.stores.iter().for_each(|registered| load += registered.store.take());
        (load, std::mem::replace(&mut self.since, now))
    }

    /// Discards the new load: the server does not request this cluster.
    pub(super) fn discard(&mut self, now: Time) {
        self.left = ClusterLoad::default();
        self.stores.iter().for_each(|registered| registered.store.discard());
        self.since = now;
    }

    /// Returns load that was taken at `since` and could not be sent.
    pub(super) fn restore(&mut self, load: ClusterLoad, since: Time) {
        self.left += load.into_unsent();
        self.since = since;
    }
}
