use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_sans_io::Rng;

use super::{EjectionSettings, FailurePercentageEjection, OutlierDetectionConfig};
use crate::api::{
    CallAttributes, CallTicket, Code, ConnectivityState, Endpoints, PickArgs, PickResult, PolicyConfig,
};
use crate::policies::pick_first::PickFirstConfig;
use crate::policies::ring_hash::RingHashConfig;
use crate::policies::round_robin::RoundRobinConfig;
use crate::testing::{Bench, Picked, address, endpoint, endpoint_at, endpoints};

const SECOND: Duration = Duration::from_secs(1);

/// Sweeps every second; ejects every failing endpoint, for ten seconds, up to half of the endpoints.
fn detection() -> EjectionSettings {
    EjectionSettings {
        interval: SECOND,
        base_ejection_time: SECOND * 10,
        max_ejection_time: SECOND * 25,
        max_ejection_percent: 50,
        success_rate_ejection: None,
        failure_percentage_ejection: Some(FailurePercentageEjection {
            threshold: 0,
            enforcement_percentage: 100,
            minimum_hosts: 1,
            request_volume: 1,
        }),
    }
}

fn over(detection: EjectionSettings, child: Arc<dyn PolicyConfig>) -> Arc<OutlierDetectionConfig> {
    Arc::new(OutlierDetectionConfig { detection: Arc::new(detection), child })
}

fn round_robin(detection: EjectionSettings) -> Arc<OutlierDetectionConfig> {
    over(detection, Arc::new(RoundRobinConfig))
}

/// A round robin over connected endpoints.
fn bench(detection: EjectionSettings, endpoints: Endpoints) -> Bench {
    let mut bench = Bench::new();
    bench.update(round_robin(detection), endpoints);
    bench.ready_all();
    bench
}

fn start(bench: &mut Bench) -> CallTicket {
    let (headers, mut rng) = (HeaderMap::new(), Rng::new(1));
    let attributes = CallAttributes::default();
    let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
    match bench.tree().output().picker.pick(&mut args) {
        PickResult::Complete(pick) => CallTicket::start(pick),
        other => panic!("{other:?}"),
    }
}

/// Calls, of which those to `failing` fail; says where they went.
fn calls(bench: &mut Bench, count: usize, failing: &[SocketAddr]) -> BTreeSet<SocketAddr> {
    let call = |_| {
        let ticket = start(bench);
        let address = ticket.target().address;
        ticket.finish(if failing.contains(&address) { Code::Unavailable } else { Code::Ok });
        address
    };
    (0..count).map(call).collect()
}

fn set(numbers: impl IntoIterator<Item = u16>) -> BTreeSet<SocketAddr> {
    numbers.into_iter().map(address).collect()
}

#[test]
fn a50_an_endpoint_that_fails_is_ejected_at_the_sweep_and_keeps_its_connection() {
    let mut bench = bench(detection(), endpoints(1..=3));
    bench.take_effects();
    assert_eq!(calls(&mut bench, 30, &[address(2)]), set(1..=3));
    bench.advance(SECOND - Duration::from_nanos(1));
    assert_eq!(bench.picked(9), set(1..=3), "only the sweep ejects");
    bench.advance(Duration::from_nanos(1));
    assert_eq!(bench.picked(9), set([1, 3]));
    assert!(bench.take_effects().is_empty(), "A61: health alone changed");
    assert_eq!(bench.connected(), set(1..=3));
}

#[test]
fn a50_counts_are_those_of_the_last_interval() {
    let volume = |request_volume| {
        let mut detection = detection();
        detection.failure_percentage_ejection.as_mut().unwrap().request_volume = request_volume;
        detection
    };
    let mut bench = bench(volume(10), endpoints(1..=2));
    calls(&mut bench, 16, &[address(2)]);
    bench.advance(SECOND);
    calls(&mut bench, 16, &[address(2)]);
    bench.advance(SECOND);
    assert_eq!(bench.picked(4), set(1..=2), "8 calls in each interval are not 16");
    calls(&mut bench, 20, &[address(2)]);
    bench.advance(SECOND);
    assert_eq!(bench.picked(4), set([1]));
}

#[test]
fn a50_an_ejection_ends_at_the_sweep_after_its_time() {
    let mut bench = bench(detection(), endpoints(1..=2));
    calls(&mut bench, 2, &[address(2)]);
    bench.advance(SECOND);
    assert_eq!(bench.picked(4), set([1]));
    bench.advance(SECOND * 10);
    assert_eq!(bench.picked(4), set([1]), "the time must be over, not just reached");
    bench.advance(SECOND);
    assert_eq!(bench.picked(4), set(1..=2));
}

/// How many seconds after its ejection endpoint 2 is back.
fn ejection_time(bench: &mut Bench) -> u32 {
    calls(bench, 2, &[address(2)]);
    bench.advance(SECOND);
    assert_eq!(bench.picked(4), set([1]));
    (1..)
        .find(|_| {
            bench.advance(SECOND);
            bench.picked(4).len() == 2
        })
        .unwrap()
}

#[test]
fn a50_ejection_times_grow_up_to_the_maximum_and_shrink_in_service() {
    let mut bench = bench(detection(), endpoints(1..=2));
    assert_eq!(ejection_time(&mut bench), 11);
    assert_eq!(ejection_time(&mut bench), 21);
    assert_eq!(ejection_time(&mut bench), 26, "max_ejection_time");
    // Sweeps in service take the multiplier back, one each.
    bench.advance(SECOND * 2);
    assert_eq!(ejection_time(&mut bench), 21);
    bench.advance(SECOND * 20);
    assert_eq!(ejection_time(&mut bench), 11);
}

#[test]
fn a50_the_maximum_is_never_below_the_base() {
    let short = EjectionSettings { max_ejection_time: SECOND, ..detection() };
    let mut bench = bench(short, endpoints(1..=2));
    assert_eq!(ejection_time(&mut bench), 11);
    assert_eq!(ejection_time(&mut bench), 11);
}

#[test]
fn a50_max_ejection_percent_limits() {
    let mut bench = bench(EjectionSettings { max_ejection_percent: 25, ..detection() }, endpoints(1..=4));
    let all: Vec<_> = set(1..=4).into_iter().collect();
    for _ in 0..5 {
        calls(&mut bench, 40, &all);
        bench.advance(SECOND);
        assert_eq!(bench.picked(20).len(), 3);
    }
}

#[test]
fn a50_turned_off_all_return_at_once_and_calls_are_not_counted() {
    let mut bench = bench(detection(), endpoints(1..=2));
    calls(&mut bench, 2, &[address(2)]);
    bench.advance(SECOND);
    assert_eq!(bench.picked(4), set([1]));
    bench.update(round_robin(EjectionSettings::default()), endpoints(1..=2));
    assert_eq!(bench.picked(4), set(1..=2));
    assert_eq!(bench.tree().stats().timers, 0, "no sweeps");
    calls(&mut bench, 20, &[address(2)]);
    bench.update(round_robin(detection()), endpoints(1..=2));
    bench.advance(SECOND);
    assert_eq!(bench.picked(4), set(1..=2), "failures before detection was enabled do not count");
    assert_eq!(ejection_time(&mut bench), 11, "the multiplier was reset");
}

#[test]
fn a50_a_new_interval_counts_from_the_beginning_of_the_running_one() {
    let every = |seconds| EjectionSettings { interval: SECOND * seconds, ..detection() };
    let mut bench = bench(every(10), endpoints(1..=2));
    calls(&mut bench, 2, &[address(2)]);
    bench.advance(SECOND * 3);
    bench.update(round_robin(every(5)), endpoints(1..=2));
    bench.advance(SECOND * 2 - Duration::from_nanos(1));
    assert_eq!(bench.picked(4), set(1..=2));
    bench.advance(Duration::from_nanos(1));
    assert_eq!(bench.picked(4), set([1]));
    // Shorter than the elapsed time: at once.
    bench.advance(SECOND * 4);
    bench.update(round_robin(EjectionSettings { base_ejection_time: SECOND, ..every(2) }), endpoints(1..=2));
    bench.advance(Duration::ZERO);
    assert_eq!(bench.picked(4), set(1..=2));
}

#[test]
fn a50_other_changes_leave_the_interval_alone() {
    let mut bench = bench(detection(), endpoints(1..=2));
    calls(&mut bench, 2, &[address(2)]);
    bench.advance(SECOND / 2);
    bench.update(round_robin(EjectionSettings { max_ejection_percent: 60, ..detection() }), endpoints(1..=2));
    bench.advance(SECOND / 2);
    assert_eq!(bench.picked(4), set([1]));
}

#[test]
fn a50_an_endpoint_that_leaves_the_list_is_forgotten() {
    let mut bench = bench(detection(), endpoints(1..=3));
    calls(&mut bench, 3, &[address(3)]);
    bench.advance(SECOND);
    assert_eq!(bench.picked(6), set([1, 2]));
    bench.update(round_robin(detection()), endpoints(1..=2));
    bench.update(round_robin(detection()), endpoints(1..=3));
    bench.ready_all();
    assert_eq!(bench.picked(6), set(1..=3));
}

#[test]
fn a50_a_subchannel_made_while_its_endpoint_is_ejected_is_ejected_too() {
    let mut bench = bench(detection(), endpoints(1..=2));
    calls(&mut bench, 2, &[address(2)]);
    bench.advance(SECOND);
    bench.close(address(2));
    bench.ready(address(2));
    assert_eq!(bench.picked(4), set([1]), "a new connection does not heal it");
    bench.advance(SECOND * 11);
    assert_eq!(bench.picked(4), set(1..=2));
}

#[test]
fn a50_all_ejected_is_transient_failure() {
    let mut bench = bench(detection(), endpoints(1..=1));
    calls(&mut bench, 2, &[address(1)]);
    bench.advance(SECOND);
    assert_eq!(bench.state(), ConnectivityState::TransientFailure);
    let Picked::Fail(why) = bench.pick() else { panic!() };
    assert!(why.contains("ejected by outlier detection"), "{why}");
}

#[test]
fn a61_the_addresses_of_an_endpoint_share_count_and_ejection() {
    // Round robin connects to one address of each endpoint; after a reconnect to the other one.
    let both = || {
        let two = endpoint_at(&[address(2), address(3)]);
        Endpoints::of([endpoint(1), two])
    };
    let volume = |request_volume| {
        let mut detection = detection();
        detection.failure_percentage_ejection.as_mut().unwrap().request_volume = request_volume;
        detection
    };
    let mut bench = bench(volume(4), both());
    calls(&mut bench, 4, &[address(2), address(3)]);
    bench.close(address(2));
    bench.fail(address(2));
    bench.ready(address(3));
    assert_eq!(calls(&mut bench, 4, &[address(2), address(3)]), set([1, 3]));
    bench.advance(SECOND);
    assert_eq!(bench.picked(4), set([1]), "two failures on each address are four of the endpoint");
}

#[test]
fn a61_the_order_of_addresses_makes_no_other_endpoint_and_another_set_does() {
    let list = |numbers: &[u16]| {
        let addresses: Vec<_> = numbers.iter().map(|&n| address(n)).collect();
        Endpoints::of([endpoint(1), endpoint_at(&addresses)])
    };
    let mut bench = bench(detection(), list(&[2, 3]));
    calls(&mut bench, 2, &[address(2)]);
    bench.advance(SECOND);
    assert_eq!(bench.picked(4), set([1]));
    bench.update(round_robin(detection()), list(&[3, 2]));
    assert_eq!(bench.picked(4), set([1]), "still ejected");
    bench.update(round_robin(detection()), list(&[2]));
    bench.ready_all();
    assert_eq!(bench.picked(4), set(1..=2), "another endpoint");
}

#[test]
fn a61_pick_first_on_its_own_ignores_ejection() {
    let mut bench = Bench::new();
    bench.update(over(detection(), Arc::new(PickFirstConfig::default())), endpoints(1..=1));
    bench.ready_all();
    calls(&mut bench, 2, &[address(1)]);
    bench.advance(SECOND);
    assert_eq!(bench.picks(1), [address(1)]);
}

#[test]
fn a_call_given_up_after_sending_is_a_failure_and_one_never_sent_is_nothing() {
    let mut bench = bench(detection(), endpoints(1..=2));
    start(&mut bench).unsent();
    start(&mut bench).unsent();
    bench.advance(SECOND);
    assert_eq!(bench.picked(4), set(1..=2));
    let dropped = start(&mut bench);
    let gone = dropped.target().address;
    drop(dropped);
    bench.advance(SECOND);
    assert_eq!(bench.picked(4).len(), 1);
    assert!(!bench.picked(4).contains(&gone));
}

#[test]
fn nothing_is_left_after_shutdown() {
    let mut bench = bench(detection(), endpoints(1..=3));
    calls(&mut bench, 3, &[address(3)]);
    bench.advance(SECOND);
    bench.update(round_robin(detection()), endpoints(2..=2));
    assert_eq!(bench.tree().stats().owners, 1);
    bench.shutdown();
    assert_eq!(bench.tree().stats(), Default::default());
}

#[test]
fn a50_details_have_the_reason_end_and_count_of_ejections() {
    let mut bench = bench(detection(), endpoints(1..=3));
    let seen = |bench: &mut Bench| {
        let now = bench.now();
        bench.tree().describe(now).expect("a tree").to_string()
    };
    let text = seen(&mut bench);
    assert!(
        text.contains("ejections=0 endpoints_ejected=0") && text.contains("sweep: next in 1.0 s"),
        "{text}"
    );
    calls(&mut bench, 30, &[address(2)]);
    bench.advance(SECOND);
    bench.advance(SECOND / 2);
    let text = seen(&mut bench);
    assert!(text.contains("ejections=1 endpoints_ejected=1"), "{text}");
    let fields = "for 0.5 s, ends in 9.5 s, calls 10, failed 10, times in a row 1";
    let line = format!("ejected {}: {fields}", address(2));
    assert!(text.contains(&line), "{text}");
    assert!(text.contains("sweep: next in 0.5 s"), "{text}");
    let endpoint = format!("{} TRANSIENT_FAILURE", address(2));
    let shown = text.lines().find(|line| line.contains(&endpoint)).expect("the endpoint");
    assert!(shown.contains("ejected by outlier detection"), "{shown}");
    bench.advance(SECOND * 11);
    let text = seen(&mut bench);
    assert!(text.contains("ejections=1 endpoints_ejected=0") && !text.contains("calls 10"), "{text}");
}

#[test]
fn a50_an_ejection_and_its_end_are_events() {
    let mut bench = bench(detection(), endpoints(1..=3));
    calls(&mut bench, 30, &[address(2)]);
    bench.advance(SECOND);
    let events = |bench: &mut Bench| -> Vec<String> {
        bench.tree().take_events().map(|event| event.to_string()).collect()
    };
    let ejected = format!("{}: ejected for 10 s: 10 of 10 RPCs failed", address(2));
    assert_eq!(events(&mut bench), [ejected]);
    bench.advance(SECOND * 11);
    assert_eq!(events(&mut bench), [format!("{}: back in service after its ejection", address(2))]);
}

#[test]
fn a50_detection_that_is_turned_on_later_finds_the_connections_that_there_are() {
    let mut bench = bench(EjectionSettings::default(), endpoints(1..=5));
    bench.take_effects();
    bench.update(round_robin(detection()), endpoints(1..=5));
    assert!(bench.take_effects().is_empty(), "nobody connects or closes");
    assert_eq!(bench.state(), ConnectivityState::Ready);
    calls(&mut bench, 100, &[address(1)]);
    bench.advance(SECOND);
    assert_eq!(bench.picked(20), set(2..=5));
    assert_eq!(bench.tree().stats().owners, 5);
}

#[test]
fn a50_rpcs_go_on_to_fail_when_detection_is_turned_on_during_a_failure() {
    let mut bench = Bench::new();
    bench.update(round_robin(EjectionSettings::default()), endpoints(1..=2));
    bench.fail_all();
    bench.advance(SECOND * 2);
    assert_eq!(bench.connecting().len(), 2, "the next attempts run");
    assert_eq!(bench.state(), ConnectivityState::TransientFailure);
    bench.take_published();
    bench.update(round_robin(detection()), endpoints(1..=2));
    assert_eq!(bench.state(), ConnectivityState::TransientFailure);
    assert!(bench.take_states().iter().all(|state| *state == ConnectivityState::TransientFailure));
    assert!(matches!(bench.pick(), Picked::Fail(_)), "{:?}", bench.pick());
    // The new child takes over when it is connected, and is the one that is watched.
    bench.ready_all();
    assert_eq!(bench.state(), ConnectivityState::Ready);
    calls(&mut bench, 100, &[address(1)]);
    bench.advance(SECOND);
    assert_eq!(bench.picked(20), set(2..=2));
}

#[test]
fn a42_a_lazy_child_gets_picks_when_detection_is_turned_on() {
    let ring = |detection| over(detection, Arc::new(RingHashConfig::default()));
    let mut bench = Bench::new();
    bench.update(ring(EjectionSettings::default()), endpoints(1..=1));
    bench.pick();
    bench.ready(address(1));
    bench.take_effects();
    // The child is made again and IDLE. Only a pick makes it leave that state, so the old one must not take them all.
    bench.update(ring(detection()), endpoints(1..=1));
    assert_eq!(bench.pick(), Picked::Queue);
    assert_eq!(bench.pick(), Picked::Target(address(1)));
    assert_eq!(bench.take_effects(), [], "over the same connection");
}
