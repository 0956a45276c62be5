//! Loom models of the connection requests that pickers send to the policy.

use proxyless_balancer::api::{HandleId, Releases, SignalQueue};
use proxyless_balancer::testing::NoWake;
use proxyless_sans_io::sync::atomic::AtomicUsize;
use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::thread;

use super::super::host_state::HostState;
use super::super::picker::Row;
use super::*;

fn row(port: u16) -> Arc<Row> {
    let address = SocketAddr::from(([10, 0, 0, 1], port));
    Arc::new(Row {
        address,
        addresses: Arc::new([address]),
        usable: true,
        shared: Arc::<HostState>::default(),
    })
}

/// Numbers moments. Relaxed: it orders nothing for the others.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicUsize>);

impl Clock {
    fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// No request of a pick is lost: when the policy has acted on all signals, it has acted on each request after the pick
/// sent it.
fn no_request_is_lost(hosts: [Arc<Row>; 2]) {
    let clock = Clock::default();
    let queue = SignalQueue::new(Arc::new(NoWake));
    let signal = queue.signal(HandleId(1), Releases::new());
    let (sender, receiver) = channel();
    let requests = Arc::new(ConnectRequests { raiser: signal.raiser(), queue: sender });
    let control = Control { signal, queue: receiver, requests: Arc::clone(&requests) };
    // Where the policy acted, and when.
    let mut acted = Vec::new();
    let act = |acted: &mut Vec<_>| {
        while queue.next().is_some() {
            for address in control.take_requests() {
                // As `Hosts::connect` does: then it looks at the state.
                let host = hosts.iter().find(|host| host.address == address).unwrap();
                host.shared.take_request();
                acted.push((address, clock.next()));
            }
        }
    };
    let picks = hosts.clone().map(|host| {
        let (requests, clock) = (Arc::clone(&requests), clock.clone());
        thread::spawn(move || {
            let requested = (host.address, clock.next());
            requests.send(&host);
            requested
        })
    });
    act(&mut acted);
    act(&mut acted);
    let requests = picks.map(|pick| pick.join().unwrap());
    act(&mut acted);
    for (address, at) in requests {
        assert!(acted.iter().any(|act| act.0 == address && act.1 > at), "a lost request: {acted:?}");
    }
}

#[test]
fn a75_55_requests_for_two_hosts_are_not_lost() {
    check(3, || no_request_is_lost([row(1), row(2)]));
}

#[test]
fn a75_55_requests_for_the_same_host_are_not_lost() {
    check(3, || {
        let host = row(1);
        no_request_is_lost([Arc::clone(&host), host]);
    });
}
