//! [`ClusterClaim`]: keeps a cluster alive while a route table or an RPC may still use it (gRFC A31).

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, Weak};

use proxyless_balancer::api::{ClusterId, LazyStriped, Wake};
use proxyless_sans_io::sync::Mutex;

/// The clusters whose last claims have gone, until the channel core takes them. Locked for a push by the last claim of a
/// cluster, and for a swap by the core.
#[derive(Default)]
pub struct ReleasedClusters(Mutex<Vec<ClusterId>>);

impl ReleasedClusters {
    /// Takes the clusters released since the last call, in order.
    pub fn take(&self) -> Vec<ClusterId> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A claim on a cluster, shared by the route tables and RPCs that name it.
///
/// When the last `Arc` goes, its id is sent to the channel core, which then takes the cluster out of the policy tree
/// and out of the configuration: the second step of A31's removal.
pub struct ClusterClaim {
    id: ClusterId,
    name: Arc<str>,
    released: Weak<ReleasedClusters>,
    wake: Arc<dyn Wake>,
}

impl ClusterClaim {
    /// A claim on the cluster `name`, known to the channel core as `id`.
    #[must_use]
    pub fn new(id: ClusterId, name: Arc<str>, released: &Arc<ReleasedClusters>, wake: Arc<dyn Wake>) -> Self {
        Self { id, name, released: Arc::downgrade(released), wake }
    }

    /// The id by which the data path finds the cluster's picker.
    #[must_use]
    pub fn id(&self) -> ClusterId {
        self.id
    }

    /// The cluster's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl Drop for ClusterClaim {
    fn drop(&mut self) {
        // The list is gone only when the channel core is: nothing is left to remove then.
        if let Some(released) = self.released.upgrade() {
            released.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
            self.wake.wake();
        }
    }
}

impl fmt::Debug for ClusterClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClaim").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// The claim of a route table, with a reference count per stripe: each RPC holds a claim, and threads that write the
/// same cache line wait for each other.
pub struct TableClaim {
    claim: Arc<ClusterClaim>,
    stripes: LazyStriped<Arc<ClaimStripe>>,
}

/// The claim of an RPC.
#[derive(Clone)]
pub struct RpcClaim(Arc<ClaimStripe>);

/// The claims of one stripe: one cache line from the counts in front of it to its end.
struct ClaimStripe {
    claim: Arc<ClusterClaim>,
    /// A copy, because responses hold it.
    name: Arc<str>,
    _rest: [u64; 3],
}

impl TableClaim {
    /// Shares a claim among RPCs.
    #[must_use]
    pub fn new(claim: &Arc<ClusterClaim>) -> Self {
        Self { claim: Arc::clone(claim), stripes: LazyStriped::default() }
    }

    /// The claim of an RPC that starts on this thread.
    #[must_use]
    pub fn hold(&self) -> RpcClaim {
        let claim = &self.claim;
        RpcClaim(Arc::clone(self.stripes.own_or(|_| {
            Arc::new(ClaimStripe { claim: Arc::clone(claim), name: (**claim.name()).into(), _rest: [0; 3] })
        })))
    }
}

impl RpcClaim {
    /// The cluster's name, in an allocation that other threads do not hold. It is not a claim.
    #[must_use]
    pub fn own_name(&self) -> &Arc<str> {
        &self.0.name
    }
}

impl Deref for TableClaim {
    type Target = ClusterClaim;

    fn deref(&self) -> &ClusterClaim {
        &self.claim
    }
}

impl Deref for RpcClaim {
    type Target = ClusterClaim;

    fn deref(&self) -> &ClusterClaim {
        &self.0.claim
    }
}

impl fmt::Debug for TableClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Debug for RpcClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a31_last_reference_reports_the_release_once() {
        let released = Arc::new(ReleasedClusters::default());
        let wake = Arc::new(Count::default());
        let claim = Arc::new(ClusterClaim::new(
            ClusterId(7),
            "c".into(),
            &released,
            Arc::clone(&wake) as Arc<dyn Wake>,
        ));
        let (table, known) = (TableClaim::new(&claim), Arc::downgrade(&claim));
        drop(claim);
        let rpc = table.hold();
        drop(table);
        assert!(released.take().is_empty(), "an RPC still holds it");
        assert!(known.upgrade().is_some(), "another table can take it over");
        drop(rpc);
        assert_eq!(released.take(), [ClusterId(7)]);
        assert!(released.take().is_empty());
        assert_eq!(wake.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a31_release_after_the_core_is_gone_is_harmless() {
        let released = Arc::new(ReleasedClusters::default());
        let wake = Arc::new(Count::default());
        let held = ClusterClaim::new(ClusterId(1), "c".into(), &released, Arc::clone(&wake) as Arc<dyn Wake>);
        drop(released);
        drop(held);
        assert_eq!(wake.0.load(Ordering::Relaxed), 0);
    }
}
