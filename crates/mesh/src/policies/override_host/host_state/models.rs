//! Loom models of picks that wait for a state while the policy changes it.

use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::thread;

use super::*;

/// A pick that begins to wait sees the new state, or the policy learns that a pick waits.
#[test]
fn a_pick_that_waits_is_woken_or_sees_the_new_state() {
    check(4, || {
        let host = Arc::new(HostState::default());
        host.set_state(Some(ConnectivityState::Connecting));
        let pick = {
            let host = Arc::clone(&host);
            thread::spawn(move || {
                host.await_change();
                host.state()
            })
        };
        let woken = host.set_state(Some(ConnectivityState::Ready));
        let seen = pick.join().unwrap();
        assert!(woken || seen == Some(ConnectivityState::Ready), "a lost wake-up");
    });
}

/// A pick that learns of no failure by its number is woken by the state that follows it.
#[test]
fn a75_52_a_pick_that_waits_learns_of_the_failure_or_is_woken() {
    check(4, || {
        let host = Arc::new(HostState::default());
        host.set_state(Some(ConnectivityState::Connecting));
        let pick = {
            let host = Arc::clone(&host);
            thread::spawn(move || {
                host.await_change();
                let state = host.state();
                (state, host.has_failed_since(0))
            })
        };
        host.failed(1);
        let mut woken = host.set_state(Some(ConnectivityState::TransientFailure));
        // The next attempt begins before the pick could see the end of the first.
        woken |= host.set_state(Some(ConnectivityState::Connecting));
        let (state, failed) = pick.join().unwrap();
        assert!(woken || failed, "saw {state:?} and nothing else");
    });
}
