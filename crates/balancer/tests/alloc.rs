//! Picks allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_balancer::api::{
    BackendMetrics, CallAttributes, CallTicket, Code, Endpoints, Group, PickArgs, PickResult, PolicyConfig,
};
use proxyless_balancer::policies::least_request::LeastRequestConfig;
use proxyless_balancer::policies::pick_first::PickFirstConfig;
use proxyless_balancer::policies::priority::{PriorityChild, PriorityConfig};
use proxyless_balancer::policies::random_subsetting::RandomSubsettingConfig;
use proxyless_balancer::policies::ring_hash::RingHashConfig;
use proxyless_balancer::policies::round_robin::RoundRobinConfig;
use proxyless_balancer::policies::weighted_round_robin::WeightedRoundRobinConfig;
use proxyless_balancer::policies::weighted_target::{Target, WeightedTargetConfig};
use proxyless_balancer::testing::{Bench, endpoints};
use proxyless_sans_io::Rng;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of_picks(config: Arc<dyn PolicyConfig>) -> usize {
    let mut bench = Bench::new();
    bench.update(config, endpoints(1..=100));
    bench.ready_all();
    allocations_on(&mut bench)
}

/// Allocations of a thousand picks, of which some at least complete.
fn allocations_on(bench: &mut Bench) -> usize {
    let picker = Arc::clone(&bench.tree().output().picker);
    let headers = HeaderMap::new();
    let mut rng = Rng::new(1);
    let mut pick = || {
        let attributes = CallAttributes { hash: rng.next_u64(), ..CallAttributes::default() };
        let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
        let pick = match picker.pick(&mut args) {
            PickResult::Complete(pick) => pick,
            PickResult::Queue => return false,
            other => panic!("not ready: {other:?}"),
        };
        let ticket = CallTicket::start(pick);
        assert!(ticket.target().slot.load().is_some());
        ticket.finish(Code::Ok);
        true
    };
    // The first read of a slot initialises thread-local state; the first pick of an IDLE child sends a signal.
    assert!((0..100).filter(|_| pick()).count() > 0, "nothing is READY");
    let before = ALLOCATIONS.with(Cell::get);
    (0..1_000).for_each(|_| {
        pick();
    });
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.with(Cell::get);
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 1);
}

#[test]
fn pick_first_picks_without_allocation() {
    assert_eq!(allocations_of_picks(Arc::new(PickFirstConfig::default())), 0);
}

#[test]
fn round_robin_picks_without_allocation() {
    assert_eq!(allocations_of_picks(Arc::new(RoundRobinConfig)), 0);
}

#[test]
fn least_request_picks_without_allocation() {
    assert_eq!(allocations_of_picks(Arc::new(LeastRequestConfig::default())), 0);
}

#[test]
fn weighted_round_robin_picks_without_allocation() {
    assert_eq!(allocations_of_picks(Arc::new(WeightedRoundRobinConfig::default())), 0);
}

#[test]
fn weighted_round_robin_with_weights_picks_without_allocation() {
    let mut bench = Bench::new();
    let config = WeightedRoundRobinConfig { blackout_period: Duration::ZERO, ..Default::default() };
    bench.update(Arc::new(config), endpoints(1..=10));
    bench.ready_all();
    let (headers, mut rng) = (HeaderMap::new(), Rng::new(1));
    for load in 1..=100 {
        let attributes = CallAttributes::default();
        let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
        let PickResult::Complete(pick) = bench.tree().output().picker.pick(&mut args) else {
            panic!("not ready")
        };
        let metrics =
            BackendMetrics { rps: 1.0, cpu_utilization: f64::from(load), ..BackendMetrics::default() };
        CallTicket::start(pick).finish_with(Code::Ok, Some(metrics));
    }
    bench.advance(Duration::from_secs(1));
    assert_eq!(allocations_on(&mut bench), 0);
}

#[test]
fn a_random_subset_is_picked_from_without_allocation() {
    let child = Arc::new(RoundRobinConfig);
    assert_eq!(allocations_of_picks(Arc::new(RandomSubsettingConfig { subset_size: 10, child })), 0);
}

#[test]
fn ring_hash_picks_without_allocation() {
    let mut bench = Bench::new();
    bench.update(Arc::new(RingHashConfig::default()), endpoints(1..=5));
    let mut rng = Rng::new(2);
    while bench.connected().len() < 5 {
        bench.pick_with(CallAttributes { hash: rng.next_u64(), ..CallAttributes::default() });
        bench.ready_all();
    }
    assert_eq!(allocations_on(&mut bench), 0);
}

#[test]
fn localities_of_which_one_is_idle_pick_without_allocation() {
    let target = |weight| Target { weight, config: Arc::new(RingHashConfig::default()) };
    let targets = [(Arc::from("a"), target(1)), (Arc::from("b"), target(2))].into();
    let group = |name: &str, endpoints| Group { name: name.into(), weight: 1, locality: None, endpoints };
    let localities = Endpoints::Groups([group("a", endpoints(1..=1)), group("b", endpoints(2..=2))].into());
    let mut bench = Bench::new();
    bench.update(Arc::new(WeightedTargetConfig { targets }), localities);
    bench.pick();
    bench.ready_all();
    assert_eq!(bench.connected().len(), 1);
    assert_eq!(allocations_on(&mut bench), 0);
}

#[test]
fn localities_below_priorities_pick_without_allocation() {
    let target = |weight| Target { weight, config: Arc::new(RoundRobinConfig) };
    let targets = [(Arc::from("a"), target(1)), (Arc::from("b"), target(2))].into();
    let child = PriorityChild {
        config: Arc::new(WeightedTargetConfig { targets }),
        ignore_reresolution_requests: true,
    };
    let group = |name: &str, endpoints| Group { name: name.into(), weight: 1, locality: None, endpoints };
    let localities = Endpoints::Groups([group("a", endpoints(1..=5)), group("b", endpoints(6..=9))].into());
    let mut bench = Bench::new();
    let config = Arc::new(PriorityConfig::new([(Arc::from("p0"), child)]));
    bench.update(config, Endpoints::Groups([group("p0", localities)].into()));
    bench.ready_all();
    assert_eq!(allocations_on(&mut bench), 0);
}
