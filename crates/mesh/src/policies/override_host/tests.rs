use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{ActualHost, Endpoint, EndpointHealth, Endpoints, Group, OverrideHost};
use proxyless_balancer::policies::outlier_detection::{
    EjectionSettings, FailurePercentageEjection, OutlierDetectionConfig,
};
use proxyless_balancer::policies::priority::{Labels, PriorityChild, PriorityConfig};
use proxyless_balancer::policies::round_robin::RoundRobinConfig;
use proxyless_balancer::testing::{Bench, Picked, address, endpoint, endpoint_at};
use proxyless_balancer::tree::{Publication, TreeStats};
use proxyless_sans_io::values::EndpointExtras;
use proxyless_xds::resource::OverrideHostStatus;

use super::OverrideHostConfig;

const IDLE: Duration = Duration::from_secs(60);
const ALL: OverrideHostStatus = OverrideHostStatus { unknown: true, healthy: true, draining: true };

/// Sessions over priorities, with round robin in each.
struct Sessions {
    bench: Bench,
    config: OverrideHostConfig,
    endpoints: Endpoints,
}

impl Sessions {
    /// All of the first priority are connected.
    fn new(priorities: &[&[Endpoint]]) -> Self {
        let config = OverrideHostConfig {
            override_host_status: OverrideHostStatus::default(),
            idle_timeout: IDLE,
            sessions: super::Sessions::Used,
            child: Arc::new(RoundRobinConfig),
        };
        let mut sessions = Self { bench: Bench::new(), config, endpoints: Endpoints::none() };
        sessions.list(priorities);
        sessions.bench.ready_all();
        sessions
    }

    fn list(&mut self, priorities: &[&[Endpoint]]) {
        let names: Vec<Arc<str>> = (0..priorities.len()).map(|n| format!("p{n}").into()).collect();
        let groups = names.iter().zip(priorities).map(|(name, list)| {
            let endpoints = Endpoints::of(list.iter().cloned());
            Group { name: Arc::clone(name), weight: 1, locality: None, endpoints }
        });
        self.endpoints = Endpoints::Groups(groups.collect());
        let child = PriorityChild { config: Arc::new(RoundRobinConfig), ignore_reresolution_requests: false };
        self.config.child = Arc::new(PriorityConfig {
            children: names.iter().map(|name| (Arc::clone(name), child.clone())).collect(),
            priorities: names,
            failover_timeout: Duration::from_secs(10),
            cluster: "c".into(),
            labels: Labels::Names,
        });
        self.update();
    }

    fn update(&mut self) {
        self.bench.update(Arc::new(self.config.clone()), self.endpoints.clone());
    }

    /// A pick with a cookie of these numbers.
    fn pick(&mut self, cookie: &[u16]) -> Picked {
        self.ask(cookie).0
    }

    fn ask(&mut self, cookie: &[u16]) -> (Picked, Option<ActualHost>) {
        let cookie: Vec<_> = cookie.iter().map(|&n| address(n)).collect();
        self.bench.pick_session(&cookie)
    }

    fn bumps(&mut self) -> usize {
        let published = self.bench.take_published();
        published.iter().filter(|(published, _)| *published == Publication::Bump).count()
    }
}

fn to(n: u16) -> Picked {
    Picked::Target(address(n))
}

fn set(numbers: impl IntoIterator<Item = u16>) -> BTreeSet<SocketAddr> {
    numbers.into_iter().map(address).collect()
}

fn draining(n: u16) -> Endpoint {
    Endpoint { health: EndpointHealth::Draining, ..endpoint(n) }
}

fn endpoints(numbers: impl IntoIterator<Item = u16>) -> Vec<Endpoint> {
    numbers.into_iter().map(endpoint).collect()
}

#[test]
fn a75_43_without_a_session_the_child_is_asked() {
    let mut sessions = Sessions::new(&[&endpoints(1..=3)]);
    assert_eq!(sessions.bench.picked(9), set(1..=3));
}

#[test]
fn a75_47_a_session_goes_to_its_endpoint() {
    let mut sessions = Sessions::new(&[&endpoints(1..=3)]);
    for _ in 0..9 {
        assert_eq!(sessions.pick(&[2]), to(2));
    }
}

#[test]
fn a75_44_a75_47_the_first_ready_address_counts_in_the_order_of_the_cookie() {
    let mut sessions = Sessions::new(&[&endpoints(1..=3), &endpoints([4])]);
    assert_eq!(sessions.pick(&[3, 2]), to(3));
    assert_eq!(sessions.pick(&[4, 2, 3]), to(2), "4 has no subchannel");
    sessions.bench.close(address(1));
    assert_eq!(sessions.pick(&[1, 2]), to(2), "1 is CONNECTING");
    assert!(sessions.bench.take_effects().iter().all(|effect| !format!("{effect:?}").contains("10.0.0.4")));
}

#[test]
fn a75_45_unknown_addresses_are_passed_over() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2)]);
    assert_eq!(sessions.pick(&[9, 2]), to(2));
    let picked: BTreeSet<_> = (0..4).map(|_| format!("{:?}", sessions.pick(&[9]))).collect();
    assert_eq!(picked.len(), 2, "the child's round robin");
}

#[test]
fn a75_46_the_health_must_be_in_override_host_status() {
    let healthy = Endpoint { health: EndpointHealth::Healthy, ..endpoint(2) };
    let mut sessions = Sessions::new(&[&[endpoint(1), healthy]]);
    sessions.config.override_host_status =
        OverrideHostStatus { unknown: false, healthy: true, draining: false };
    sessions.update();
    for _ in 0..4 {
        assert_eq!(sessions.pick(&[2]), to(2));
        assert_eq!(sessions.pick(&[1, 2]), to(2));
    }
    let picked: BTreeSet<_> = (0..4).map(|_| format!("{:?}", sessions.pick(&[1]))).collect();
    assert_eq!(picked.len(), 2, "UNKNOWN is not in the set");
}

#[test]
fn a75_48_a61_the_filter_is_told_all_addresses_with_the_used_one_first() {
    let mut sessions = Sessions::new(&[&[endpoint(1), endpoint_at(&[address(2), address(3), address(4)])]]);
    let (picked, actual) = sessions.ask(&[3, 2]);
    assert_eq!(picked, to(2), "round robin has connected the first address only");
    let list: Vec<_> = actual.expect("an endpoint").address_list().collect();
    assert_eq!(list, [address(2), address(3), address(4)]);
    sessions.bench.close(address(2));
    sessions.bench.fail(address(2));
    sessions.bench.ready(address(3));
    let (picked, actual) = sessions.ask(&[2, 3, 4]);
    assert_eq!(picked, to(3));
    let list: Vec<_> = actual.expect("an endpoint").address_list().collect();
    assert_eq!(list, [address(3), address(2), address(4)]);
}

#[test]
fn a75_49_an_idle_entry_is_connected_and_the_pick_waits() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2), &endpoints(3..=4)]);
    // Session subchannels go IDLE when they lose their connection: nobody else connects them.
    assert_eq!(sessions.pick(&[3]), Picked::Queue);
    sessions.bench.ready(address(3));
    sessions.bench.close(address(3));
    assert!(sessions.bench.connecting().is_empty());
    sessions.bench.take_published();
    assert_eq!(sessions.pick(&[3, 4]), Picked::Queue);
    assert_eq!(sessions.bench.connecting(), [address(3)], "the IDLE one, not the one without subchannel");
    sessions.bench.take_published();
    sessions.pick(&[3]);
    sessions.bench.ready(address(3));
    assert_eq!(sessions.bumps(), 1, "waiting RPCs are woken");
    assert_eq!(sessions.pick(&[3, 4]), to(3));
}

#[test]
fn a75_50_a_connecting_entry_is_waited_for() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2), &endpoints([3])]);
    sessions.bench.close(address(2));
    assert_eq!(sessions.bench.connecting(), [address(2)]);
    assert_eq!(sessions.pick(&[2, 3]), Picked::Queue);
    assert_eq!(sessions.bench.connecting(), [address(2)], "nothing is made for 3");
    sessions.bench.take_published();
    sessions.bench.ready(address(2));
    assert!(!sessions.bench.take_published().is_empty());
    assert_eq!(sessions.pick(&[2, 3]), to(2));
}

#[test]
fn a75_51_a75_35_a_subchannel_is_made_for_the_first_entry_without_one() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2), &endpoints(3..=4)]);
    assert_eq!(sessions.pick(&[9, 4, 3]), Picked::Queue);
    assert_eq!(sessions.bench.connecting(), [address(4)]);
    sessions.bench.ready(address(4));
    assert_eq!(sessions.pick(&[9, 4, 3]), to(4));
    assert_eq!(sessions.bench.picked(4), set(1..=2), "others stay where they were");
}

#[test]
fn a75_52_an_entry_in_transient_failure_counts_for_nothing() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2), &endpoints([3])]);
    assert_eq!(sessions.pick(&[3]), Picked::Queue);
    sessions.bench.take_published();
    sessions.pick(&[3]);
    sessions.bench.fail(address(3));
    assert_eq!(sessions.bumps(), 1, "waiting RPCs are woken");
    let (picked, actual) = sessions.ask(&[3]);
    assert!(picked == to(1) || picked == to(2), "{picked:?}");
    assert_eq!(picked, Picked::Target(actual.expect("the child's endpoint").address));
    // After its backoff it is IDLE, and is tried again.
    sessions.bench.advance(Duration::from_secs(2));
    assert_eq!(sessions.pick(&[3]), Picked::Queue);
    assert_eq!(sessions.bench.connecting(), [address(3)]);
}

/// Longer than the backoff that goes with it: the attempt's end is followed by the next one at once.
const LONG_ATTEMPT: Duration = Duration::from_secs(20);

#[test]
fn a75_52_an_attempt_that_outlasts_its_backoff_releases_its_waiting_rpcs() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2), &endpoints([3])]);
    let rpc = |cookie: &[u16]| {
        OverrideHost::new(cookie.iter().map(|&n| address(n)).collect(), proxyless_sans_io::Time::ZERO)
    };
    let mut early = rpc(&[3]);
    assert_eq!(sessions.bench.pick_again(&mut early), Picked::Queue);
    sessions.bench.advance(LONG_ATTEMPT);
    sessions.bench.fail(address(3));
    // The backoff has ended: the host is IDLE before a woken RPC picks, and CONNECTING after the next session's pick.
    sessions.bench.advance(Duration::ZERO);
    let mut late = rpc(&[3]);
    assert_eq!(sessions.bench.pick_again(&mut late), Picked::Queue);
    assert_eq!(sessions.bench.connecting(), [address(3)]);
    let picked = sessions.bench.pick_again(&mut early);
    assert!(picked == to(1) || picked == to(2), "{picked:?}");
    assert_eq!(sessions.bench.pick_again(&mut late), Picked::Queue, "it has not waited for a whole attempt");
    sessions.bench.ready(address(3));
    assert_eq!(sessions.bench.pick_again(&mut early), to(3), "a host that is READY counts again");
    assert_eq!(sessions.bench.pick_again(&mut late), to(3));
}

#[test]
fn a75_52_each_address_of_the_cookie_gets_its_attempt() {
    let mut sessions = Sessions::new(&[&endpoints([1]), &endpoints(2..=3)]);
    let mut rpc = OverrideHost::new([2, 3].map(address).into(), proxyless_sans_io::Time::ZERO);
    for n in [2, 3] {
        assert_eq!(sessions.bench.pick_again(&mut rpc), Picked::Queue);
        assert_eq!(sessions.bench.connecting(), [address(n)]);
        sessions.bench.advance(LONG_ATTEMPT);
        sessions.bench.fail(address(n));
        sessions.bench.advance(Duration::ZERO);
    }
    assert_eq!(sessions.bench.pick_again(&mut rpc), to(1), "both have failed");
}

#[test]
fn a75_47_rpcs_waiting_for_the_child_are_woken_by_their_own_host() {
    let mut sessions = Sessions::new(&[&endpoints([1]), &endpoints([2])]);
    assert_eq!(sessions.pick(&[2]), Picked::Queue);
    sessions.bench.fail(address(2));
    sessions.bench.close(address(1));
    let mut rpc = OverrideHost::new([2].map(address).into(), proxyless_sans_io::Time::ZERO);
    assert_eq!(sessions.bench.pick_again(&mut rpc), Picked::Queue, "2 has failed, and the child connects");
    sessions.bench.take_published();
    sessions.bench.advance(Duration::from_secs(2));
    assert_eq!(sessions.bumps(), 1, "2 is IDLE");
    assert_eq!(sessions.bench.pick_again(&mut rpc), Picked::Queue);
    sessions.bench.ready(address(2));
    assert_eq!(sessions.bench.pick_again(&mut rpc), to(2));
}

#[test]
fn a75_53_the_filter_learns_where_the_child_sent_the_rpc() {
    let mut sessions = Sessions::new(&[&endpoints([1])]);
    for cookie in [&[][..], &[9]] {
        let (picked, actual) = sessions.ask(cookie);
        assert_eq!(picked, to(1));
        assert_eq!(actual, Some(ActualHost { address: address(1), addresses: Arc::new([address(1)]) }));
    }
}

#[test]
fn a75_54_other_outputs_of_the_child_are_passed_on() {
    let mut sessions = Sessions::new(&[&endpoints([1])]);
    sessions.bench.close(address(1));
    assert_eq!(sessions.ask(&[9]), (Picked::Queue, None));
    sessions.bench.fail(address(1));
    let (picked, actual) = sessions.ask(&[9]);
    assert!(matches!(picked, Picked::Fail(_)), "{picked:?}");
    assert_eq!(actual, None);
}

#[test]
fn a75_55_many_picks_make_one_request() {
    let mut sessions = Sessions::new(&[&endpoints([1]), &endpoints([2])]);
    sessions.bench.take_effects();
    for _ in 0..5 {
        assert_eq!(sessions.pick(&[2]), Picked::Queue);
    }
    assert_eq!(sessions.bench.take_effects().len(), 1, "one attempt to connect");
    assert_eq!(sessions.bench.tree().stats().owners, 2);
}

#[test]
fn a75_20_a55_draining_endpoints_serve_their_sessions_and_nothing_else() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2)]);
    sessions.config.override_host_status = ALL;
    sessions.update();
    assert_eq!(sessions.pick(&[2]), to(2));
    sessions.bench.take_effects();
    sessions.list(&[&[endpoint(1), draining(2)]]);
    assert_eq!(sessions.bench.picked(4), set([1]));
    assert_eq!(sessions.pick(&[2]), to(2));
    assert!(sessions.bench.take_effects().is_empty(), "the connection stays");
    // A55: until EDS does not list it any more.
    sessions.list(&[&[endpoint(1)]]);
    assert_eq!(sessions.pick(&[2]), to(1));
    assert_eq!(sessions.bench.tree().stats().owners, 1);
}

#[test]
fn a55_draining_endpoints_lose_their_sessions_unless_the_set_has_them() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2)]);
    assert_eq!(sessions.pick(&[2]), to(2));
    sessions.list(&[&[endpoint(1), draining(2)]]);
    assert_eq!(sessions.pick(&[2]), to(1));
    assert_eq!(sessions.bench.tree().stats().owners, 1);
}

#[test]
fn a75_18_a75_19_a75_41_an_endpoint_that_moves_to_a_lower_priority_keeps_its_sessions() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2)]);
    assert_eq!(sessions.pick(&[2]), to(2));
    sessions.bench.take_effects();
    sessions.list(&[&endpoints([1]), &endpoints([2])]);
    assert_eq!(sessions.pick(&[2]), to(2));
    assert_eq!(sessions.bench.picked(4), set([1]), "other traffic stays in the priority in use");
    sessions.bench.advance(Duration::from_secs(30));
    assert_eq!(sessions.bench.connected(), set(1..=2));
    assert!(sessions.bench.take_effects().is_empty());
    assert_eq!(sessions.pick(&[2]), to(2));
}

#[test]
fn a75_42_a75_37_subchannels_unused_by_sessions_are_dropped() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2)]);
    assert_eq!(sessions.bench.picked(4), set(1..=2), "RPCs without a session leave no trace");
    sessions.list(&[&endpoints([1]), &endpoints([2])]);
    assert_eq!(sessions.bench.tree().stats().owners, 1);
    sessions.bench.advance(Duration::from_secs(30));
    assert_eq!(sessions.bench.connected(), set([1]));
}

#[test]
fn a75_36_picks_of_the_child_for_a_session_count_as_use_too() {
    let mut sessions = Sessions::new(&[&endpoints([2])]);
    assert_eq!(sessions.pick(&[]), to(2));
    sessions.list(&[&endpoints([1]), &endpoints([2])]);
    sessions.bench.ready(address(1));
    assert_eq!(sessions.pick(&[2]), to(2));
}

#[test]
fn a75_22_a75_23_lower_priorities_are_known_but_not_connected() {
    let mut sessions = Sessions::new(&[&endpoints([1]), &endpoints([2]), &endpoints([3])]);
    sessions.bench.advance(Duration::from_secs(60));
    assert_eq!(sessions.bench.connected(), set([1]));
    assert_eq!(sessions.pick(&[3]), Picked::Queue);
    sessions.bench.ready(address(3));
    assert_eq!(sessions.bench.connected(), set([1, 3]), "only the one that a session needs");
}

/// A session on an endpoint of the second priority, used at time zero.
fn on_second_priority() -> Sessions {
    let mut sessions = Sessions::new(&[&endpoints([1]), &endpoints(2..=3)]);
    assert_eq!(sessions.pick(&[2]), Picked::Queue);
    sessions.bench.ready(address(2));
    assert_eq!(sessions.pick(&[2]), to(2));
    sessions
}

#[test]
fn a75_25_a75_38_a_subchannel_goes_idle_timeout_after_its_last_use() {
    let mut sessions = on_second_priority();
    sessions.bench.advance(IDLE - Duration::from_nanos(1));
    assert_eq!(sessions.bench.tree().stats().owners, 2);
    sessions.bench.advance(Duration::from_nanos(1));
    assert_eq!(sessions.bench.tree().stats().owners, 1);
    assert_eq!(sessions.bench.tree().stats().timers, 0, "nothing is left to sweep");
    // The next pick has it made again.
    assert_eq!(sessions.pick(&[2]), Picked::Queue);
}

#[test]
fn a75_52_an_attempt_abandoned_as_idle_releases_its_waiting_rpcs() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2), &endpoints([3])]);
    let mut rpc = OverrideHost::new([3].map(address).into(), proxyless_sans_io::Time::ZERO);
    assert_eq!(sessions.bench.pick_again(&mut rpc), Picked::Queue);
    assert_eq!(sessions.bench.connecting(), [address(3)]);
    // The host says nothing for longer than sessions are remembered.
    sessions.bench.advance(IDLE);
    let picked = sessions.bench.pick_again(&mut rpc);
    assert!(picked == to(1) || picked == to(2), "{picked:?}");
    assert_eq!(sessions.pick(&[3]), Picked::Queue, "a later RPC causes another attempt");
}

#[test]
fn a75_25_a_session_that_waits_for_its_idle_host_is_a_use_of_it() {
    let mut sessions = on_second_priority();
    sessions.bench.close(address(2));
    sessions.bench.advance(IDLE - Duration::from_secs(1));
    let mut rpc = OverrideHost::new([2].map(address).into(), sessions.bench.now());
    assert_eq!(sessions.bench.pick_again(&mut rpc), Picked::Queue);
    assert_eq!(sessions.bench.connecting(), [address(2)]);
    sessions.bench.advance(Duration::from_secs(2));
    assert_eq!(sessions.bench.pick_again(&mut rpc), Picked::Queue, "the attempt is not given up");
    sessions.bench.ready(address(2));
    assert_eq!(sessions.bench.pick_again(&mut rpc), to(2));
}

#[test]
fn a75_39_later_sweeps_follow_the_last_use() {
    let mut sessions = on_second_priority();
    sessions.bench.advance(Duration::from_secs(40));
    assert_eq!(sessions.pick(&[2]), to(2));
    sessions.bench.advance(Duration::from_secs(59));
    assert_eq!(sessions.bench.tree().stats().owners, 2, "used at 40 s, now it is 99 s");
    sessions.bench.advance(Duration::from_secs(1));
    assert_eq!(sessions.bench.tree().stats().owners, 1);
}

#[test]
fn a75_39_the_earliest_expiry_counts() {
    let mut sessions = on_second_priority();
    sessions.bench.advance(Duration::from_secs(20));
    assert_eq!(sessions.pick(&[3]), Picked::Queue);
    sessions.bench.ready(address(3));
    assert_eq!(sessions.bench.tree().stats().owners, 3);
    sessions.bench.advance(Duration::from_secs(40));
    assert_eq!(sessions.bench.tree().stats().owners, 2);
    sessions.bench.advance(Duration::from_secs(20));
    assert_eq!(sessions.bench.tree().stats().owners, 1);
}

#[test]
fn a75_40_five_seconds_at_least_between_sweeps() {
    let mut sessions = on_second_priority();
    sessions.config.idle_timeout = Duration::from_secs(1);
    sessions.update();
    sessions.bench.advance(Duration::from_secs(4));
    assert_eq!(sessions.bench.tree().stats().owners, 2);
    sessions.bench.advance(Duration::from_secs(1));
    assert_eq!(sessions.bench.tree().stats().owners, 1);
    sessions.bench.advance(Duration::from_secs(1));
    assert_eq!(sessions.pick(&[3]), Picked::Queue);
    sessions.bench.advance(Duration::from_millis(3999));
    assert_eq!(sessions.bench.tree().stats().owners, 2, "the sweep before was at 5 s");
    sessions.bench.advance(Duration::from_millis(1));
    assert_eq!(sessions.bench.tree().stats().owners, 1);
}

#[test]
fn a75_34_a_new_idle_timeout_takes_effect() {
    let mut sessions = on_second_priority();
    sessions.bench.advance(Duration::from_secs(10));
    sessions.config.idle_timeout = Duration::from_secs(15);
    sessions.update();
    sessions.bench.advance(Duration::from_secs(4));
    assert_eq!(sessions.bench.tree().stats().owners, 2);
    sessions.bench.advance(Duration::from_secs(1));
    assert_eq!(sessions.bench.tree().stats().owners, 1);
}

#[test]
fn a75_32_an_idle_timeout_of_zero_keeps_nothing_for_sessions() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2)]);
    sessions.config.idle_timeout = Duration::ZERO;
    sessions.update();
    assert_eq!(sessions.pick(&[2]), to(2));
    sessions.list(&[&endpoints([1]), &endpoints([2])]);
    assert_eq!(sessions.bench.tree().stats().owners, 1);
}

#[test]
fn a75_35_the_child_takes_over_subchannels_that_it_needs() {
    let mut sessions = on_second_priority();
    sessions.bench.take_effects();
    sessions.list(&[&endpoints(1..=2)]);
    assert_eq!(sessions.bench.picked(4), set(1..=2));
    assert!(sessions.bench.take_effects().is_empty(), "on the connection that was there");
    assert_eq!(sessions.bench.tree().stats().owners, 2, "the policy's own is gone");
    sessions.bench.advance(IDLE * 2);
    assert_eq!(sessions.bench.connected(), set(1..=2), "subchannels that the child holds do not expire");
}

#[test]
fn a75_18_an_update_keeps_the_subchannels_of_sessions() {
    let mut sessions = on_second_priority();
    sessions.bench.take_effects();
    sessions.list(&[&endpoints([1]), &endpoints([9]), &endpoints([2])]);
    assert_eq!(sessions.pick(&[2]), to(2));
    sessions.list(&[&endpoints([1]), &endpoints([9])]);
    assert_eq!(sessions.pick(&[2]), to(1), "gone from EDS, gone for sessions");
    assert_eq!(sessions.bench.tree().stats().owners, 1);
}

#[test]
fn an_irrelevant_state_wakes_no_waiter() {
    let mut sessions = on_second_priority();
    sessions.bench.close(address(2));
    sessions.bench.take_published();
    assert_eq!(sessions.pick(&[2]), Picked::Queue);
    assert_eq!(sessions.bumps(), 1, "the pick waited for another state than IDLE");
    sessions.bench.ready(address(2));
    assert_eq!(sessions.bumps(), 0, "it did not come back to wait again");
    let mut sessions = Sessions::new(&[&endpoints(1..=2)]);
    sessions.bench.close(address(2));
    sessions.bench.take_published();
    sessions.bench.ready(address(2));
    assert_eq!(sessions.bumps(), 0, "the new picker of round robin says it all");
}

#[test]
fn an_ejected_endpoint_still_serves_its_sessions() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2)]);
    let always = FailurePercentageEjection {
        threshold: 0,
        enforcement_percentage: 100,
        minimum_hosts: 1,
        request_volume: 1,
    };
    let detection = EjectionSettings {
        interval: Duration::from_secs(1),
        failure_percentage_ejection: Some(always),
        ..EjectionSettings::default()
    };
    let config =
        OutlierDetectionConfig { detection: detection.into(), child: Arc::new(sessions.config.clone()) };
    sessions.bench = Bench::new();
    sessions.bench.update(Arc::new(config), sessions.endpoints.clone());
    sessions.bench.ready_all();
    // A call to 2 fails.
    use proxyless_balancer::api::{CallAttributes, CallTicket, Code, PickArgs, PickResult};
    let session = OverrideHost::new(Arc::new([address(2)]), sessions.bench.now());
    let attributes = CallAttributes { override_host: Some(session), ..CallAttributes::default() };
    let (headers, mut rng) = (http::HeaderMap::new(), proxyless_sans_io::Rng::new(1));
    let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
    match sessions.bench.tree().output().picker.pick(&mut args) {
        PickResult::Complete(pick) => CallTicket::start(pick).finish(Code::Unavailable),
        other => panic!("{other:?}"),
    }
    sessions.bench.advance(Duration::from_secs(1));
    assert_eq!(sessions.bench.picked(4), set([1]), "2 is ejected");
    assert_eq!(sessions.pick(&[2]), to(2));
}

#[test]
fn nothing_is_left_after_shutdown() {
    let mut sessions = on_second_priority();
    sessions.bench.shutdown();
    assert_eq!(sessions.bench.tree().stats(), Default::default());
}

#[test]
fn a_subchannel_that_the_child_recreates_stays_its_own() {
    // A new host name makes pick_first renew its subchannel: for a moment there are two.
    let named = |name: &str| Endpoint { extras: EndpointExtras::named(name), ..endpoint(2) };
    let mut sessions = Sessions::new(&[&[endpoint(1), named("old")]]);
    assert_eq!(sessions.pick(&[2]), to(2));
    sessions.bench.take_effects();
    sessions.list(&[&[endpoint(1), named("new")]]);
    assert_eq!(sessions.bench.tree().stats().owners, 2);
    assert_eq!(sessions.pick(&[2]), to(2));
    assert!(sessions.bench.take_effects().is_empty());
    assert_eq!(sessions.bench.tree().stats().timers, 0, "nothing was taken over");
}

#[test]
fn a75_24_a75_25_people_see_which_sessions_are_kept_for_how_long() {
    let mut sessions = Sessions::new(&[&endpoints(1..=2)]);
    let seen = |sessions: &mut Sessions| {
        let now = sessions.bench.now();
        sessions.bench.tree().describe(now).expect("a tree").to_string()
    };
    let text = seen(&mut sessions);
    assert!(text.contains("overrideHostStatus=[UNKNOWN, HEALTHY] idleTimeout=60s"), "{text}");
    assert!(text.contains("kept_for_sessions=0") && !text.contains("session 10."), "{text}");
    assert_eq!(sessions.pick(&[2]), to(2));
    let used = format!("session {}: state READY, health UNKNOWN, last used 0.0 s ago\n", address(2));
    let text = seen(&mut sessions);
    assert!(text.contains(&used), "the child has it: {text}");

    // The child lets go of it: the session does not.
    sessions.list(&[&endpoints([1]), &endpoints([2])]);
    sessions.bench.advance(Duration::from_secs(20));
    let kept = "state READY, health UNKNOWN, last used 20.0 s ago, kept for 40.0 s";
    let kept = format!("session {}: {kept}", address(2));
    let text = seen(&mut sessions);
    assert!(text.contains("kept_for_sessions=1") && text.contains(&kept), "{text}");
    assert!(text.contains("sweep: next in 40.0 s"), "{text}");
    sessions.bench.advance(Duration::from_secs(40));
    let text = seen(&mut sessions);
    assert!(text.contains("kept_for_sessions=0") && !text.contains("sweep"), "{text}");
}

#[test]
fn a75_sessions_that_begin_and_end_to_be_used_cost_no_connection() {
    let mut sessions = Sessions::new(&[&[endpoint(1), endpoint(2), draining(3)]]);
    let mut change = |to| {
        sessions.bench.take_effects();
        sessions.config.sessions = to;
        sessions.update();
        sessions.bench.advance(IDLE * 3);
        assert!(sessions.bench.take_effects().is_empty());
        assert_eq!(sessions.bench.picked(9), set([1, 2]), "DRAINING endpoints stay hidden");
        let picked: BTreeSet<_> = (0..9).map(|_| format!("{:?}", sessions.pick(&[2]))).collect();
        picked.len()
    };
    assert_eq!(change(super::Sessions::Unused), 2, "nobody looks at cookies");
    assert_eq!(change(super::Sessions::Used), 1, "and now somebody does");
    sessions.bench.shutdown();
    assert_eq!(sessions.bench.tree().stats(), TreeStats::default());
}

#[test]
fn a55_a56_sessions_that_begin_and_end_to_be_used_forget_no_failover() {
    let mut sessions = Sessions::new(&[&endpoints([1]), &endpoints([2])]);
    sessions.bench.close(address(1));
    sessions.bench.advance(Duration::from_secs(10));
    sessions.bench.ready(address(2));
    assert_eq!(sessions.bench.picked(4), set([2]), "1 does not answer");
    for used in [super::Sessions::Unused, super::Sessions::Used, super::Sessions::Unused] {
        sessions.config.sessions = used;
        sessions.update();
        assert_eq!(sessions.bench.picked(4), set([2]), "{used:?}");
    }
    sessions.config.sessions = super::Sessions::Used;
    sessions.update();
    assert_eq!(sessions.pick(&[1]), Picked::Queue, "the state of earlier subchannels is known: 1 connects");
    assert_eq!(sessions.pick(&[2]), to(2));
    // Sessions keep a subchannel that the child drops, also if they were enabled after its creation.
    sessions.list(&[&endpoints([9]), &endpoints([1]), &endpoints([2])]);
    sessions.bench.ready(address(9));
    sessions.bench.advance(Duration::from_secs(30));
    assert_eq!(sessions.pick(&[2]), to(2));
    assert!(sessions.bench.connected().contains(&address(2)));
}
