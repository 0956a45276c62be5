use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use proxyless_balancer::api::{
    CallAttributes, CallTicket, Code, ConnectivityState, Endpoint, Endpoints, Pick, PickArgs, PickPurpose,
    PickResult, Picker,
};
use proxyless_balancer::policies::round_robin::RoundRobinConfig;
use proxyless_balancer::testing::{Bench, Picked, address, endpoints};
use proxyless_sans_io::Rng;
use proxyless_sans_io::metrics::PlaceId;
use proxyless_sans_io::values::EndpointExtras;
use proxyless_xds::resource::DropCategory;

use super::picker::{ClusterImplPicker, Rules};
use super::{CircuitRegistry, ClusterImplConfig};
use crate::policies::fixtures::drop_category;

fn config(circuits: &CircuitRegistry) -> ClusterImplConfig {
    ClusterImplConfig {
        cluster: "c".into(),
        eds_service_name: None,
        max_requests: 1024,
        max_connections_per_subchannel: None,
        drops: Vec::new(),
        circuits: circuits.clone(),
        load_reporting: None,
        child: Arc::new(RoundRobinConfig),
    }
}

fn ready(config: ClusterImplConfig) -> Bench {
    let mut bench = Bench::new();
    bench.update(Arc::new(config), endpoints([1]));
    bench.ready_all();
    bench
}

fn pick(bench: &mut Bench, attributes: CallAttributes) -> PickResult {
    let (headers, mut rng) = (HeaderMap::new(), Rng::new(1));
    let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
    bench.tree().output().picker.pick(&mut args)
}

#[track_caller]
fn complete(bench: &mut Bench) -> Pick {
    match pick(bench, CallAttributes::default()) {
        PickResult::Complete(pick) => pick,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a27_106_drops_the_stated_share_of_each_category() {
    let drops = vec![drop_category("throttle", 200_000), drop_category("lb", 500_000)];
    let mut bench = ready(ClusterImplConfig { drops, ..config(&CircuitRegistry::default()) });
    let mut dropped = [0; 2];
    for _ in 0..20_000 {
        match bench.pick() {
            Picked::Drop(why) if why.contains("throttle") => dropped[0] += 1,
            Picked::Drop(why) if why.contains("lb") => dropped[1] += 1,
            Picked::Target(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!((3_800..4_200).contains(&dropped[0]), "{dropped:?}");
    // Half of those that the first category left.
    assert!((7_700..8_300).contains(&dropped[1]), "{dropped:?}");
}

#[test]
fn a37_49_drops_come_before_the_child_even_if_it_is_not_ready() {
    let all = |category| vec![drop_category(category, 1_000_000)];
    let mut bench = Bench::new();
    bench.update(
        Arc::new(ClusterImplConfig { drops: all("everything"), ..config(&CircuitRegistry::default()) }),
        Endpoints::none(),
    );
    assert_eq!(bench.pick(), Picked::Drop("drop: category \"everything\" of cluster c".into()));
    assert_eq!(bench.state(), ConnectivityState::Ready, "a cluster that drops all needs no failover");
}

#[test]
fn a37_49_drops_come_before_circuit_breaking() {
    let circuits = CircuitRegistry::default();
    let drops = vec![drop_category("everything", 1_000_000)];
    let mut bench = ready(ClusterImplConfig { drops, max_requests: 0, ..config(&circuits) });
    assert!(matches!(bench.pick(), Picked::Drop(why) if why.contains("everything")));
}

#[test]
fn x_13_the_limit_is_exact_and_a_drop() {
    let circuits = CircuitRegistry::default();
    let mut bench = ready(ClusterImplConfig { max_requests: 2, ..config(&circuits) });
    let (first, second) = (complete(&mut bench), complete(&mut bench));
    assert_eq!(bench.pick(), Picked::Drop("circuit breaker: max_requests 2 of cluster c reached".into()));
    assert_eq!(circuits.in_flight("c", None), 2);
    // A pick that comes to nothing gives its place back, a call when it ends.
    drop(first);
    let third = CallTicket::start(complete(&mut bench));
    assert!(matches!(bench.pick(), Picked::Drop(_)));
    third.finish(Code::Ok);
    drop(second);
    assert_eq!(circuits.in_flight("c", None), 0);
}

#[test]
fn a32_an_explanation_takes_no_permit_and_respects_the_limit() {
    let circuits = CircuitRegistry::default();
    let mut bench = ready(ClusterImplConfig { max_requests: 1, ..config(&circuits) });
    let explained = || CallAttributes { purpose: PickPurpose::Explanation, ..CallAttributes::default() };
    let PickResult::Complete(shown) = pick(&mut bench, explained()) else { panic!("no target") };
    assert_eq!((shown.permit.is_none(), circuits.in_flight("c", None)), (true, 0));
    let _call = complete(&mut bench);
    assert!(matches!(pick(&mut bench, explained()), PickResult::Drop(_)));
}

#[test]
fn a32_the_error_says_that_the_limit_is_the_default() {
    let circuits = CircuitRegistry::default();
    let mut bench = ready(config(&circuits));
    let _held: Vec<_> = (0..1024).map(|_| complete(&mut bench)).collect();
    let why =
        "circuit breaker: max_requests 1024 of cluster c reached (the default where the Cluster sets none)";
    assert_eq!(bench.pick(), Picked::Drop(why.into()));
}

#[test]
fn a32_queued_and_failed_picks_take_no_place() {
    let circuits = CircuitRegistry::default();
    let mut bench = Bench::new();
    bench.update(Arc::new(config(&circuits)), endpoints([1]));
    assert_eq!(bench.pick(), Picked::Queue);
    assert_eq!(circuits.in_flight("c", None), 0);
    bench.fail_all();
    assert!(matches!(bench.pick(), Picked::Fail(_)));
    assert_eq!(circuits.in_flight("c", None), 0);
}

#[test]
fn a32_picks_that_wait_at_the_same_time_are_not_dropped() {
    let circuits = CircuitRegistry::default();
    for max_requests in [1, 2] {
        let mut bench = Bench::new();
        bench.update(Arc::new(ClusterImplConfig { max_requests, ..config(&circuits) }), endpoints([1]));
        let picker = Arc::clone(&bench.tree().output().picker);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let picker = &picker;
                scope.spawn(move || {
                    let (headers, mut rng) = (HeaderMap::new(), Rng::new(seed));
                    for _ in 0..50_000 {
                        let attributes = CallAttributes::default();
                        let mut args =
                            PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
                        let result = picker.pick(&mut args);
                        assert!(matches!(result, PickResult::Queue), "limit {max_requests}: {result:?}");
                    }
                });
            }
        });
    }
}

/// A child in whose pick another thread's pick begins and ends, as if this one had been preempted there.
struct Preempted(OnceLock<Box<dyn Fn() -> PickResult + Send + Sync>>, AtomicBool);

impl Picker for Preempted {
    fn pick(&self, _: &mut PickArgs<'_>) -> PickResult {
        if !self.1.swap(true, Ordering::Relaxed)
            && let Some(other) = self.0.get()
        {
            let result = other();
            assert!(matches!(result, PickResult::Queue), "{result:?}");
        }
        PickResult::Queue
    }
}

#[test]
fn a32_a_pick_that_waits_holds_no_place_while_it_is_picked_for() {
    let circuits = CircuitRegistry::default();
    let config = ClusterImplConfig { max_requests: 1, ..config(&circuits) };
    let circuit = circuits.circuit(&"c".into(), None);
    let child = Arc::new(Preempted(OnceLock::new(), AtomicBool::new(false)));
    let picker = Arc::new(ClusterImplPicker {
        rules: Arc::new(Rules::new(&config, circuit, None, PlaceId::default())),
        authorities: Arc::default(),
        child: Arc::clone(&child) as Arc<_>,
    });
    let ask = |picker: &Arc<ClusterImplPicker>| {
        let (headers, mut rng) = (HeaderMap::new(), Rng::new(1));
        let attributes = CallAttributes::default();
        picker.pick(&mut PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng })
    };
    let other = Arc::clone(&picker);
    assert!(child.0.set(Box::new(move || ask(&other))).is_ok());
    assert!(matches!(ask(&picker), PickResult::Queue));
}

#[test]
fn a37_55_counters_are_by_cluster_and_eds_service_name() {
    let circuits = CircuitRegistry::default();
    let mut plain = ready(config(&circuits));
    let mut named = ready(ClusterImplConfig { eds_service_name: Some("e".into()), ..config(&circuits) });
    let _held = (complete(&mut plain), complete(&mut named), complete(&mut named));
    assert_eq!(circuits.in_flight("c", None), 1);
    assert_eq!(circuits.in_flight("c", Some("e")), 2);
}

#[test]
fn a37_56_a37_57_instances_and_channels_share_a_counter() {
    let circuits = CircuitRegistry::default();
    let limited = || ClusterImplConfig { max_requests: 1, ..config(&circuits) };
    let (mut one, mut other) = (ready(limited()), ready(limited()));
    let held = complete(&mut one);
    assert!(matches!(other.pick(), Picked::Drop(_)));
    // The counter outlives the policy that made it as long as a call holds a place.
    drop(one);
    assert!(matches!(other.pick(), Picked::Drop(_)));
    drop(held);
    assert!(matches!(other.pick(), Picked::Target(_)));
    drop(other);
    assert!(circuits.is_empty(), "unused counters go");
}

#[test]
fn a32_a_lower_limit_counts_rpcs_already_in_flight() {
    let circuits = CircuitRegistry::default();
    let mut bench = ready(config(&circuits));
    let held = [complete(&mut bench), complete(&mut bench), complete(&mut bench)];
    bench.take_effects();
    bench.update(Arc::new(ClusterImplConfig { max_requests: 2, ..config(&circuits) }), endpoints([1]));
    assert!(bench.take_effects().is_empty());
    let [first, second, third] = held;
    drop(first);
    assert!(matches!(bench.pick(), Picked::Drop(_)), "two are left");
    drop(second);
    assert!(matches!(bench.pick(), Picked::Target(_)));
    drop(third);
}

#[test]
fn a32_concurrent_picks_never_overshoot() {
    let circuits = CircuitRegistry::default();
    let circuit = circuits.circuit(&"c".into(), None);
    let most = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    if let Some(permit) = circuit.enter(3) {
                        most.fetch_max(circuits.in_flight("c", None), Ordering::Relaxed);
                        drop(permit);
                    }
                }
            });
        }
    });
    assert!(most.into_inner() <= 3);
    assert_eq!(circuits.in_flight("c", None), 0);
}

#[test]
fn a32_places_that_other_threads_or_channels_had_can_all_be_used() {
    let circuits = CircuitRegistry::default();
    let circuit = || circuits.circuit(&"c".into(), None);
    let kept = circuit();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let permits: Vec<_> = (0..30).map_while(|_| kept.enter(100)).collect();
                drop(permits);
            });
        }
    });
    assert_eq!(circuits.in_flight("c", None), 0);
    let other = circuit();
    let mut permits: Vec<_> = (0..100).map(|_| other.enter(100).expect("a place")).collect();
    assert!(other.enter(100).is_none() && kept.enter(100).is_none());
    permits.truncate(50);
    assert!(other.enter(49).is_none(), "a lower limit applies to RPCs in flight, not to spare permits");
    drop((kept, other));
    assert_eq!(circuits.in_flight("c", None), 50);
    assert!(circuit().enter(51).is_some(), "a new picker goes on counting");
    drop(permits);
    assert!(circuits.is_empty());
}

#[test]
fn a32_a_free_permit_is_found_under_contention() {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;
    for limit in [1, 2, 3, 8, 9, 20, 64] {
        let circuits = CircuitRegistry::default();
        let circuit = circuits.circuit(&"c".into(), None);
        // Threads reserve permits here first, so that their sum never exceeds the limit.
        let (allowed, refused) = (AtomicU32::new(limit), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (circuit, allowed, refused) = (&circuit, &allowed, &refused);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    for _ in 0..20_000 {
                        let wanted = 1 + rng.below(u64::from(limit)) as u32;
                        if allowed.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(wanted)).is_ok() {
                            let permits: Vec<_> = (0..wanted).map_while(|_| circuit.enter(limit)).collect();
                            refused.fetch_add(wanted - permits.len() as u32, SeqCst);
                            drop(permits);
                            allowed.fetch_add(wanted, SeqCst);
                        }
                    }
                });
            }
        });
        assert_eq!(refused.into_inner(), 0, "limit {limit}");
        assert_eq!(circuits.in_flight("c", None), 0);
    }
}

#[test]
fn new_drops_take_effect_without_touching_connections() {
    let circuits = CircuitRegistry::default();
    let mut bench = ready(config(&circuits));
    bench.take_effects();
    let drops: Vec<DropCategory> = vec![drop_category("x", 1_000_000)];
    bench.update(Arc::new(ClusterImplConfig { drops, ..config(&circuits) }), endpoints([1]));
    assert!(matches!(bench.pick(), Picked::Drop(_)));
    bench.update(Arc::new(config(&circuits)), endpoints([1]));
    assert_eq!(bench.pick(), Picked::Target(address(1)));
    assert!(bench.take_effects().is_empty());
}

fn with_hostname(hostname: &str) -> Endpoints {
    Endpoints::of([Endpoint { extras: EndpointExtras::named(hostname), ..Endpoint::new(address(1)) }])
}

fn authority(bench: &mut Bench, auto_host_rewrite: bool) -> Option<String> {
    match pick(bench, CallAttributes { auto_host_rewrite, ..CallAttributes::default() }) {
        PickResult::Complete(pick) => pick.authority.map(|value| value.to_str().expect("ASCII").to_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a81_authority_is_rewritten_only_where_the_route_says_so() {
    let mut bench = Bench::new();
    bench.update(Arc::new(config(&CircuitRegistry::default())), with_hostname("backend.example:443"));
    bench.ready_all();
    assert_eq!(authority(&mut bench, true).as_deref(), Some("backend.example:443"));
    assert_eq!(authority(&mut bench, false), None);
}

#[test]
fn a81_a_changed_hostname_takes_effect_on_the_live_connection() {
    let circuits = CircuitRegistry::default();
    let mut bench = Bench::new();
    bench.update(Arc::new(config(&circuits)), with_hostname("old"));
    bench.ready_all();
    bench.take_effects();
    bench.update(Arc::new(config(&circuits)), with_hostname("new"));
    assert_eq!(authority(&mut bench, true).as_deref(), Some("new"));
    assert!(bench.take_effects().is_empty());
}

#[test]
fn a81_empty_or_impossible_hostnames_change_nothing() {
    for hostname in ["", "line\nbreak"] {
        let mut bench = Bench::new();
        bench.update(Arc::new(config(&CircuitRegistry::default())), with_hostname(hostname));
        bench.ready_all();
        assert_eq!(authority(&mut bench, true), None, "{hostname:?}");
    }
}

#[test]
fn a105_02_a_changed_limit_keeps_the_subchannels() {
    let circuits = CircuitRegistry::default();
    let limited = |max_connections_per_subchannel| {
        Arc::new(ClusterImplConfig { max_connections_per_subchannel, ..config(&circuits) })
    };
    let mut bench = ready(config(&circuits));
    let target = complete(&mut bench).target;
    bench.take_effects();
    bench.take_published();
    bench.update(limited(Some(2)), endpoints([1]));
    bench.set_queued(address(1), 1);
    assert_eq!(bench.connecting(), [address(1)], "a second connection");
    bench.ready(address(1));
    assert_eq!(bench.take_published(), [], "picks are the same");
    assert!(std::ptr::eq(&*complete(&mut bench).target, &*target));
    // With a third one allowed it is attempted at once, because a call still waits.
    bench.update(limited(Some(3)), endpoints([1]));
    assert_eq!(bench.connecting(), [address(1)]);
    bench.ready(address(1));
    // Unset again: nothing is closed.
    bench.take_effects();
    bench.update(limited(None), endpoints([1]));
    assert_eq!(bench.take_effects(), []);
    let subchannels = bench.tree().subchannels();
    assert_eq!((subchannels[0].connections.len(), subchannels[0].max_connections), (3, 1));
}
