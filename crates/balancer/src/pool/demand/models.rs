//! Loom models of calls that begin to wait while the tree looks.

use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::sync::Notify;
use proxyless_sans_io::sync::loom::thread;

use super::*;

/// The task of the tree: sleeps until it is woken.
struct Bell(Notify);

impl Wake for Bell {
    fn wake(&self) {
        self.0.notify();
    }
}

/// A call that waits is never overlooked: the tree sees it when it looks, or is woken.
#[test]
fn a_call_that_waits_is_seen() {
    check(3, || {
        let bell = Arc::new(Bell(Notify::new()));
        let mut demands = Demands::new(Arc::clone(&bell) as Arc<dyn Wake>);
        let demand = demands.demand(SubchannelId(7));
        let calls = {
            let demand = Arc::clone(&demand);
            thread::spawn(move || {
                demand.set_queued(1);
                demand.set_queued(2);
            })
        };
        if !demand.watch() {
            // (If the tree is never woken, loom finds that all threads wait.)
            while demands.next().is_none() {
                bell.0.wait();
            }
            assert!(demand.watch(), "woken without a waiting call");
        }
        calls.join().unwrap();
        assert!(demand.watch());
    });
}
