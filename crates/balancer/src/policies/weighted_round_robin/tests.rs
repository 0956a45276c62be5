//! Rules of gRFC A58, in a real tree.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_sans_io::Rng;

use super::WeightedRoundRobinConfig;
use crate::api::ConnectivityState::{Connecting, Ready, TransientFailure};
use crate::api::{
    BackendMetrics, CallAttributes, CallTicket, Code, Endpoint, Endpoints, PickArgs, PickResult,
};
use crate::testing::{Bench, address, endpoint, endpoints};
use crate::tree::{AttemptId, ConnectionEvent, LoadEvent, LoadStreamId, SubchannelId, TreeEffect};
use proxyless_sans_io::values::EndpointExtras;

fn quick() -> WeightedRoundRobinConfig {
    WeightedRoundRobinConfig { blackout_period: Duration::ZERO, ..Default::default() }
}

fn oob(seconds: u64) -> WeightedRoundRobinConfig {
    let oob_reporting_period = Duration::from_secs(seconds);
    WeightedRoundRobinConfig { enable_oob_load_report: true, oob_reporting_period, ..quick() }
}

fn bench(config: WeightedRoundRobinConfig, numbers: impl IntoIterator<Item = u16>) -> Bench {
    let mut bench = Bench::new();
    bench.update(Arc::new(config), endpoints(numbers));
    bench.ready_all();
    bench
}

fn load(utilization: f64) -> BackendMetrics {
    BackendMetrics { rps: 100.0, application_utilization: utilization, ..Default::default() }
}

/// Starts a call.
fn start(bench: &mut Bench) -> CallTicket {
    let (headers, mut rng) = (HeaderMap::new(), Rng::new(1));
    let attributes = CallAttributes::default();
    let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
    match bench.tree().output().picker.pick(&mut args) {
        PickResult::Complete(pick) => CallTicket::start(pick),
        other => panic!("not complete: {other:?}"),
    }
}

/// Makes a call to each endpoint, which reports its load with it if a tracker wants that.
fn report(bench: &mut Bench, loads: &[(u16, f64)]) {
    let mut left: BTreeMap<_, _> = loads.iter().map(|&(n, load)| (address(n), load)).collect();
    for _ in 0..1_000 {
        let ticket = start(bench);
        let metrics = left.remove(&ticket.target().address).filter(|_| ticket.wants_metrics()).map(load);
        ticket.finish_with(Code::Ok, metrics);
        if left.is_empty() {
            return;
        }
    }
    panic!("not all endpoints were picked: {left:?}");
}

fn seconds(bench: &mut Bench, seconds: u64) {
    bench.advance(Duration::from_secs(seconds));
}

/// The number of picks of a hundred that go to the `n`th endpoint.
fn share(bench: &mut Bench, n: u16) -> usize {
    bench.picks(100).into_iter().filter(|&picked| picked == address(n)).count()
}

#[test]
fn a58_07_a58_16_it_connects_and_aggregates_as_round_robin_does() {
    let mut bench = Bench::new();
    bench.update(Arc::new(quick()), endpoints(1..=2));
    assert_eq!((bench.connecting().len(), bench.state()), (2, Connecting));
    bench.fail_all();
    assert_eq!(bench.state(), TransientFailure);
    seconds(&mut bench, 3);
    bench.ready(address(1));
    assert_eq!(bench.state(), Ready);
    seconds(&mut bench, 2);
    bench.close(address(1));
    assert!(bench.connecting().contains(&address(1)), "it reconnects without an RPC");
}

#[test]
fn a58_09_a58_10_weights_of_calls_are_used_from_the_next_update_period_on() {
    let mut bench = bench(quick(), 1..=2);
    report(&mut bench, &[(1, 0.8), (2, 0.2)]);
    assert_eq!(share(&mut bench, 2), 50);
    bench.take_published();
    seconds(&mut bench, 1);
    assert_eq!(bench.take_published(), [], "the scheduler is replaced in place");
    assert_eq!(share(&mut bench, 2), 80);
    report(&mut bench, &[(1, 0.2), (2, 0.8)]);
    seconds(&mut bench, 1);
    assert_eq!(share(&mut bench, 2), 20);
}

#[test]
fn a58_05_update_periods_below_100_ms_count_as_100_ms() {
    let mut bench =
        bench(WeightedRoundRobinConfig { weight_update_period: Duration::ZERO, ..quick() }, 1..=2);
    report(&mut bench, &[(1, 0.8), (2, 0.2)]);
    bench.advance(Duration::from_millis(99));
    assert_eq!(share(&mut bench, 2), 50);
    bench.advance(Duration::from_millis(1));
    assert_eq!(share(&mut bench, 2), 80);
}

#[test]
fn a58_03_weights_are_not_used_during_the_blackout_period() {
    let mut bench = bench(WeightedRoundRobinConfig::default(), 1..=2);
    for _ in 0..10 {
        report(&mut bench, &[(1, 0.8), (2, 0.2)]);
        seconds(&mut bench, 1);
        assert_eq!(share(&mut bench, 2), 50);
    }
    seconds(&mut bench, 1);
    assert_eq!(share(&mut bench, 2), 80);
}

#[test]
fn a58_04_weights_expire_and_the_blackout_period_applies_again() {
    let mut bench = bench(
        WeightedRoundRobinConfig {
            blackout_period: Duration::from_secs(2),
            weight_expiration_period: Duration::from_secs(5),
            ..Default::default()
        },
        1..=2,
    );
    for _ in 0..4 {
        report(&mut bench, &[(1, 0.8), (2, 0.2)]);
        seconds(&mut bench, 1);
    }
    assert_eq!(share(&mut bench, 2), 80);
    seconds(&mut bench, 4);
    assert_eq!(share(&mut bench, 2), 80);
    seconds(&mut bench, 1);
    assert_eq!(share(&mut bench, 2), 50, "expired");
    report(&mut bench, &[(1, 0.8), (2, 0.2)]);
    seconds(&mut bench, 2);
    assert_eq!(share(&mut bench, 2), 50, "in the blackout period again");
    seconds(&mut bench, 1);
    assert_eq!(share(&mut bench, 2), 80);
}

#[test]
fn a58_21_a_reconnected_endpoint_has_a_blackout_period() {
    let config = WeightedRoundRobinConfig { blackout_period: Duration::from_secs(3), ..Default::default() };
    let mut bench = bench(config, 1..=3);
    let loads = [(1, 0.8), (2, 0.2), (3, 0.2)];
    for _ in 0..5 {
        report(&mut bench, &loads);
        seconds(&mut bench, 1);
    }
    // Weights 125, 500 and 500.
    assert!((10..=12).contains(&share(&mut bench, 1)));
    bench.close(address(1));
    bench.ready(address(1));
    seconds(&mut bench, 1);
    let picked = share(&mut bench, 1);
    assert!((32..=34).contains(&picked), "the mean while it has no weight: {picked}");
    for _ in 0..5 {
        report(&mut bench, &loads);
        seconds(&mut bench, 1);
    }
    assert!((10..=12).contains(&share(&mut bench, 1)));
}

#[test]
fn a58_04_a_report_that_waited_for_an_endpoint_to_return_is_not_new() {
    let config = WeightedRoundRobinConfig { weight_expiration_period: Duration::from_secs(60), ..quick() };
    let mut bench = bench(config, 1..=2);
    report(&mut bench, &[(1, 0.8), (2, 0.2)]);
    seconds(&mut bench, 1);
    assert_eq!(share(&mut bench, 2), 80);
    let calls: Vec<_> = (0..4).map(|_| start(&mut bench)).collect();
    bench.close(address(1));
    bench.close(address(2));
    // The calls outlive the READY state of their connections, as after a GOAWAY.
    for call in calls {
        let utilization = if call.target().address == address(1) { 0.8 } else { 0.2 };
        call.finish_with(Code::Ok, Some(load(utilization)));
    }
    seconds(&mut bench, 100);
    bench.ready_all();
    assert_eq!(share(&mut bench, 2), 50, "the weights have expired");
}

#[test]
fn a58_08_duplicate_addresses_count_once() {
    let mut bench = Bench::new();
    let list = Endpoints::of([endpoint(1), endpoint(1), endpoint(2)]);
    bench.update(Arc::new(quick()), list);
    bench.ready_all();
    assert_eq!(share(&mut bench, 1), 50);
}

#[test]
fn weights_outlive_updates_that_keep_the_endpoint() {
    let mut bench = bench(quick(), 1..=2);
    report(&mut bench, &[(1, 0.8), (2, 0.2)]);
    seconds(&mut bench, 1);
    let named = |n| Endpoint { extras: EndpointExtras::named("h"), ..endpoint(n) };
    bench.update(Arc::new(quick()), Endpoints::of([named(2), named(1)]));
    assert_eq!(share(&mut bench, 2), 80);
}

#[test]
fn a58_13_a58_23_with_out_of_band_reports_calls_are_not_asked() {
    let mut bench = bench(oob(1), 1..=2);
    report(&mut bench, &[(1, 0.8), (2, 0.2)]);
    seconds(&mut bench, 1);
    assert_eq!(share(&mut bench, 2), 50);
    bench.update(Arc::new(quick()), endpoints(1..=2));
    report(&mut bench, &[(1, 0.8), (2, 0.2)]);
    seconds(&mut bench, 1);
    assert_eq!(share(&mut bench, 2), 80);
}

/// The streams opened since the last call, with their intervals in seconds, and the number of those closed.
fn streams(bench: &mut Bench) -> (Vec<(SubchannelId, AttemptId, LoadStreamId, u64)>, usize) {
    let (mut opened, mut closed) = (Vec::new(), 0);
    for effect in bench.take_effects() {
        match effect {
            TreeEffect::OpenLoadStream { subchannel, attempt, stream, interval } => {
                opened.push((subchannel, attempt, stream, interval.as_secs()));
            }
            TreeEffect::CloseLoadStream { .. } => closed += 1,
            _ => {}
        }
    }
    (opened, closed)
}

fn tell(bench: &mut Bench, stream: &(SubchannelId, AttemptId, LoadStreamId, u64), event: LoadEvent) {
    let (now, event) = (bench.now(), ConnectionEvent::Load(stream.2, event));
    bench.tree().on_connections(now, [(stream.0, stream.1, event)]);
}

#[test]
fn a58_24_weights_come_from_streams_on_the_connections() {
    let mut bench = bench(oob(3), 1..=2);
    let (opened, _) = streams(&mut bench);
    assert_eq!(opened.iter().map(|stream| stream.3).collect::<Vec<_>>(), [3, 3]);
    for (stream, utilization) in opened.iter().zip([0.8, 0.2]) {
        tell(&mut bench, stream, LoadEvent::Report(Arc::new(load(utilization))));
    }
    seconds(&mut bench, 1);
    assert_eq!(share(&mut bench, 2), 80);
}

#[test]
fn a58_14_streams_follow_the_configuration_and_connections_stay() {
    let mut bench = bench(quick(), 1..=2);
    assert_eq!(streams(&mut bench).0, []);
    bench.update(Arc::new(oob(3)), endpoints(1..=2));
    assert_eq!(streams(&mut bench).0.len(), 2);
    bench.update(Arc::new(oob(3)), endpoints(1..=2));
    assert_eq!(streams(&mut bench), (vec![], 0));
    bench.update(Arc::new(oob(5)), endpoints(1..=2));
    let (opened, closed) = streams(&mut bench);
    assert_eq!((opened.len(), opened[0].3, closed), (2, 5, 2));
    bench.update(Arc::new(quick()), endpoints(1..=2));
    let (opened, closed) = streams(&mut bench);
    assert_eq!((opened.len(), closed), (0, 2));
    assert_eq!(bench.connected().len(), 2);
}

#[test]
fn streams_end_with_the_tree() {
    let mut bench = bench(oob(3), 1..=2);
    assert_eq!(streams(&mut bench).0.len(), 2);
    bench.shutdown();
    assert_eq!(streams(&mut bench), (vec![], 2));
    assert_eq!(bench.tree().next_deadline(), None);
}

#[test]
fn a51_13_a_server_without_the_service_is_an_event_of_the_channel() {
    let mut bench = bench(oob(3), [1]);
    let (opened, _) = streams(&mut bench);
    tell(&mut bench, &opened[0], LoadEvent::Ended { code: Code::Unimplemented, reason: String::new() });
    let events: Vec<_> = bench.tree().take_events().map(|event| event.to_string()).collect();
    assert_eq!(events.len(), 1);
    assert!(events[0].starts_with("10.0.0.1:80: no out-of-band load reports"), "{events:?}");
    seconds(&mut bench, 1_000);
    assert_eq!(streams(&mut bench), (vec![], 0));
}

#[test]
fn the_tree_view_shows_the_weights() {
    let mut bench = bench(quick(), 1..=2);
    report(&mut bench, &[(1, 0.8), (2, 0.2)]);
    seconds(&mut bench, 2);
    let now = bench.now();
    let view = bench.tree().describe(now).unwrap();
    let lines: Vec<_> = view.details.iter().map(ToString::to_string).collect();
    assert_eq!(view.details.len(), 2);
    assert!(lines[0].contains("10.0.0.1:80") && lines[0].contains("125"), "{lines:?}");
}

#[test]
fn without_endpoints_no_timer_runs() {
    let mut bench = bench(quick(), 1..=2);
    assert_eq!(bench.tree().stats().timers, 1);
    bench.update(Arc::new(quick()), Endpoints::none());
    seconds(&mut bench, 2);
    assert_eq!(bench.tree().stats().timers, 0);
}
