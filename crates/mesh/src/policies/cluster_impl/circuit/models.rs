//! Loom models of circuit breaking: RPCs that take and release permits concurrently.

use proxyless_balancer::api::use_stripe;
use proxyless_sans_io::sync::loom::thread;
use proxyless_sans_io::sync::{Step, check};

use super::*;

fn circuit(registry: &CircuitRegistry) -> Arc<Circuit> {
    Arc::new(registry.circuit(&"c".into(), None))
}

/// The number of RPCs that hold a permit. Relaxed: it is exact, and orders nothing for the others.
#[derive(Default)]
struct InUse(AtomicU32);

impl InUse {
    /// An RPC, if it gets a permit. The number in use never exceeds `max`.
    fn call(&self, circuit: &Circuit, max: u32) -> bool {
        let Some(permit) = circuit.enter(max) else { return false };
        assert!(self.0.fetch_add(1, Ordering::Relaxed) < max, "more than {max} in use");
        self.0.fetch_sub(1, Ordering::Relaxed);
        drop(permit);
        true
    }
}

/// Has both stripes keep a spare permit: two are taken, none is in use.
fn keep_spares(circuit: &Circuit) {
    let permits = [0, 1].map(|stripe| {
        use_stripe(stripe);
        circuit.enter(2)
    });
    drop(permits);
    assert_eq!(circuit.in_flight(), 0);
}

/// The limit is never exceeded, and when all have left, nothing is counted.
fn limit_holds(before: u32, max: u32, stripes: [usize; 2]) {
    check(2, move || {
        let registry = CircuitRegistry::default();
        let (circuit, in_use) = (circuit(&registry), Arc::new(InUse::default()));
        // Their creation would be too many interleavings; the comment in `find` says why it is safe.
        for stripe in [0, 1] {
            circuit.stripes.at_or(stripe, |stripe| Stripe::new(stripe, &circuit.permits));
        }
        if before > max {
            keep_spares(&circuit);
        }
        let calls = stripes.map(|stripe| {
            let (circuit, in_use) = (Arc::clone(&circuit), Arc::clone(&in_use));
            thread::spawn(move || {
                use_stripe(stripe);
                in_use.call(&circuit, max)
            })
        });
        use_stripe(0);
        let mut entered = vec![in_use.call(&circuit, max)];
        entered.extend(calls.into_iter().map(|call| call.join().unwrap()));
        assert!(entered.contains(&true), "A32: all are refused, although the first is alone");
        assert_eq!(circuit.in_flight(), 0);
    });
}

#[test]
fn a32_threads_at_once_never_exceed_the_limit() {
    limit_holds(0, 1, [0, 1]);
}

#[test]
fn a32_a_limit_that_fell_counts_spare_places() {
    limit_holds(2, 1, [0, 1]);
}

/// A permit that moves between stripes while an RPC looks for one is not overlooked.
#[test]
fn a32_no_rpc_is_refused_while_there_is_a_place() {
    check(3, || {
        let registry = CircuitRegistry::default();
        let circuit = circuit(&registry);
        keep_spares(&circuit);
        use_stripe(0);
        let first = circuit.enter(2);
        let moving = {
            let circuit = Arc::clone(&circuit);
            thread::spawn(move || {
                drop(first);
                use_stripe(1);
                circuit.enter(2).is_some()
            })
        };
        assert!(circuit.enter(2).is_some(), "refused with one in use of two");
        assert!(moving.join().unwrap(), "refused with one in use of two");
    });
}

/// A cluster has one counter, even if its last holder drops it while another requests it.
#[test]
fn a37_57_a_counter_that_goes_while_another_user_comes_is_one() {
    check(3, || {
        let registry = CircuitRegistry::default();
        // Loom does not know that the last drop of an `Arc` and an upgrade meet.
        let (old, step) = (circuit(&registry), Arc::new(Step::default()));
        let leaving = {
            let step = Arc::clone(&step);
            thread::spawn(move || {
                let permit = old.enter(1);
                assert!(permit.is_some());
                drop(old);
                step.take();
                drop(permit);
            })
        };
        step.take();
        let new = circuit(&registry);
        leaving.join().unwrap();
        assert_eq!(registry.len(), 1);
        let permit = new.enter(1);
        assert!(permit.is_some() && circuit(&registry).enter(1).is_none());
        assert_eq!(registry.in_flight("c", None), 1);
        drop((new, permit));
        assert!(registry.is_empty());
    });
}
