//! Loom models of the connection requests that pickers send to the policy.

use proxyless_balancer::api::{HandleId, Releases, SignalQueue, Wake};
use proxyless_sans_io::sync::atomic::AtomicUsize;
use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::thread;

use super::super::live::Live;
use super::super::picker::Row;
use super::*;

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

fn row(port: u16) -> Arc<Row> {
    let address = SocketAddr::from(([10, 0, 0, 1], port));
    Arc::new(Row { address, addresses: Arc::new([address]), usable: true, live: Arc::<Live>::default() })
}

/// Numbers moments. Relaxed: it orders nothing for the others.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicUsize>);

impl Clock {
    fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// No wish of a pick is lost: when the policy has acted on all signals, it has acted for each wish after the pick made
/// it.
fn no_wish_is_lost(hosts: [Arc<Row>; 2]) {
    let clock = Clock::default();
    let queue = SignalQueue::new(Arc::new(NoWake));
    let signal = queue.signal(HandleId(1), Releases::new());
    let (sender, receiver) = channel();
    let wishes = Arc::new(Wishes { raiser: signal.raiser(), queue: sender });
    let control = Control { signal, queue: receiver, wishes: Arc::clone(&wishes) };
    // Where the policy acted, and when.
    let mut acted = Vec::new();
    let act = |acted: &mut Vec<_>| {
        while queue.next().is_some() {
            for address in control.take_wishes() {
                // As `Hosts::connect` does: then it looks at the state.
                let host = hosts.iter().find(|host| host.address == address).unwrap();
                host.live.take_wish();
                acted.push((address, clock.next()));
            }
        }
    };
    let picks = hosts.clone().map(|host| {
        let (wishes, clock) = (Arc::clone(&wishes), clock.clone());
        thread::spawn(move || {
            let wished = (host.address, clock.next());
            wishes.send(&host);
            wished
        })
    });
    act(&mut acted);
    act(&mut acted);
    let wishes = picks.map(|pick| pick.join().unwrap());
    act(&mut acted);
    for (address, at) in wishes {
        assert!(acted.iter().any(|act| act.0 == address && act.1 > at), "a lost wish: {acted:?}");
    }
}

#[test]
fn a75_55_wishes_for_two_hosts_are_not_lost() {
    check(3, || no_wish_is_lost([row(1), row(2)]));
}

#[test]
fn a75_55_wishes_for_the_same_host_are_not_lost() {
    check(3, || {
        let host = row(1);
        no_wish_is_lost([Arc::clone(&host), host]);
    });
}
