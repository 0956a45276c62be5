//! Loom models of claims that are dropped while the core claims.

use proxyless_sans_io::sync::loom::sync::Notify;
use proxyless_sans_io::sync::loom::thread;
use proxyless_sans_io::sync::{Step, check};

use super::*;

struct Bell(Notify);

impl Wake for Bell {
    fn wake(&self) {
        self.0.notify();
    }
}

/// The core is woken when the last claim of a cluster goes, and then finds that it has.
#[test]
fn a31_the_release_of_a_cluster_is_found() {
    check(3, || {
        let bell = Arc::new(Bell(Notify::new()));
        let mut clusters = ClusterClaims::new(Arc::clone(&bell) as Arc<dyn Wake>);
        let claim = clusters.claim(&"a".into(), |_| ());
        let rpcs = [Arc::clone(&claim), claim].map(|claim| thread::spawn(move || drop(claim)));
        let mut released = clusters.take_released();
        while released.is_empty() {
            bell.0.wait();
            released = clusters.take_released();
        }
        assert_eq!(released, ["a".into()]);
        rpcs.into_iter().for_each(|rpc| rpc.join().unwrap());
        assert!(clusters.take_released().is_empty() && clusters.iter().next().is_none());
    });
}

/// A cluster that is claimed again while its last claim goes stays, with its id, until that claim goes too.
#[test]
fn a31_a_cluster_is_not_released_while_it_is_claimed_again() {
    check(3, || {
        let mut clusters = ClusterClaims::new(Arc::new(Bell(Notify::new())));
        let claim = clusters.claim(&"a".into(), |_| ());
        // Loom does not know that a drop and a claim meet.
        let step = Arc::new(Step::default());
        let rpc = {
            let step = Arc::clone(&step);
            thread::spawn(move || {
                step.take();
                drop(claim);
            })
        };
        step.take();
        let again = clusters.claim(&"a".into(), |_| ());
        let released = clusters.take_released();
        rpc.join().unwrap();
        assert!(released.is_empty() && clusters.take_released().is_empty());
        assert_eq!(clusters.iter().collect::<Vec<_>>(), [(again.id(), again.name())]);
        drop(again);
        assert_eq!(clusters.take_released(), ["a".into()]);
    });
}
