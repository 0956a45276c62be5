//! [`ClusterClaim`]: keeps a cluster alive while a route table or an RPC may still use it (gRFC A31).

use std::fmt;
use std::sync::Arc;

use proxyless_balancer::api::{ClusterId, Wake};
use proxyless_sans_io::sync::mpsc::Sender;

/// A claim on a cluster, shared by the route tables and RPCs that name it.
///
/// When the last `Arc` goes, its id is sent to the channel core, which then takes the cluster out of the policy tree
/// and out of the configuration: the second step of A31's removal.
pub struct ClusterClaim {
    id: ClusterId,
    name: Arc<str>,
    released: Sender<ClusterId>,
    wake: Arc<dyn Wake>,
}

impl ClusterClaim {
    /// A claim on the cluster `name`, known to the channel core as `id`.
    #[must_use]
    pub fn new(id: ClusterId, name: Arc<str>, released: Sender<ClusterId>, wake: Arc<dyn Wake>) -> Self {
        Self { id, name, released, wake }
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
        // The receiver is gone only when the channel core is: nothing is left to remove then.
        if self.released.send(self.id).is_ok() {
            self.wake.wake();
        }
    }
}

impl fmt::Debug for ClusterClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClaim").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proxyless_sans_io::sync::mpsc::channel;

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
        let (sender, released) = channel();
        let wake = Arc::new(Count::default());
        let table =
            Arc::new(ClusterClaim::new(ClusterId(7), "c".into(), sender, Arc::clone(&wake) as Arc<dyn Wake>));
        let rpc = Arc::clone(&table);
        drop(table);
        assert!(released.try_recv().is_err(), "an RPC still holds it");
        drop(rpc);
        assert_eq!(released.try_recv(), Ok(ClusterId(7)));
        assert!(released.try_recv().is_err());
        assert_eq!(wake.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a31_release_after_the_core_is_gone_is_harmless() {
        let (sender, released) = channel();
        let wake = Arc::new(Count::default());
        let held = ClusterClaim::new(ClusterId(1), "c".into(), sender, Arc::clone(&wake) as Arc<dyn Wake>);
        drop(released);
        drop(held);
        assert_eq!(wake.0.load(Ordering::Relaxed), 0);
    }
}
