//! One cluster that load is reported of: its stores, and what of it waits to be reported.

use std::sync::Arc;

use proxyless_sans_io::Time;

use super::LoadStore;
use super::report::ClusterLoad;

/// All users of a cluster together.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Since when load comes together for the next report.
    pub(super) since: Time,
    stores: Vec<Registered>,
    /// Load that is in no store any more: what stores that are gone have left, and reports that could not be sent.
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

    /// Counts this store too; once, however often it is said.
    pub(super) fn register(&mut self, store: Arc<LoadStore>) {
        match self.stores.iter_mut().find(|registered| Arc::ptr_eq(&registered.store, &store)) {
            Some(registered) => registered.retired = false,
            None => self.stores.push(Registered { store, retired: false }),
        }
    }

    /// The store goes when its numbers are final.
    pub(super) fn retire(&mut self, store: &Arc<LoadStore>) {
        for registered in self.stores.iter_mut().filter(|found| Arc::ptr_eq(&found.store, store)) {
            registered.retired = true;
        }
    }

    /// Lets go of retired stores that nobody counts in any more; what they have counted is kept.
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

    /// Whether there is nothing to report now nor later.
    pub(super) fn is_done(&self) -> bool {
        self.stores.is_empty() && self.left.is_zero()
    }

    /// All that is new, and the time since when.
    pub(super) fn take(&mut self, now: Time) -> (ClusterLoad, Time) {
        let mut load = std::mem::take(&mut self.left);
        self.stores.iter().for_each(|registered| load += registered.store.take());
        (load, std::mem::replace(&mut self.since, now))
    }

    /// Forgets what is new: the server does not ask for this cluster.
    pub(super) fn discard(&mut self, now: Time) {
        self.left = ClusterLoad::default();
        self.stores.iter().for_each(|registered| registered.store.discard());
        self.since = now;
    }

    /// Takes back what was taken `since` then and did not get out.
    pub(super) fn restore(&mut self, load: ClusterLoad, since: Time) {
        self.left += load.into_unsent();
        self.since = since;
    }
}
