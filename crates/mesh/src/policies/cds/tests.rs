use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_balancer::api::{
    CallAttributes, CallTicket, Code, ConnectivityState, Endpoints, OverrideHost, PickArgs, PickResult,
    Update,
};
use proxyless_balancer::testing::{Bench, Picked, address};
use proxyless_sans_io::{Interner, Rng};
use proxyless_xds::resource::{
    CircuitBreakers, Cluster, ClusterKind, ClusterLoadAssignment, EjectionSettings, EndpointHealth,
    FailurePercentageEjection, LbPolicy, LocalityEndpoints, OverrideHostStatus,
};

use super::priority_names::PriorityNames;
use super::{CdsConfig, CdsSettings};
use crate::policies::fixtures::{
    aggregate, assignment, cluster, config_of_results, drop_category, eds_cluster, leaf, leaf_with_note,
    locality, settings, xds_config,
};
use crate::policies::override_host::Sessions;
use crate::xds_config::{ClusterConfig, ClusterSlice, ClusterState, EndpointsState, XdsConfig};

fn known(assignment: ClusterLoadAssignment) -> EndpointsState {
    EndpointsState::Known(Arc::new(assignment))
}

/// An EDS leaf with one priority for each list of endpoint numbers; the localities are named after their priority.
fn eds_leaf(name: &str, priorities: &[&[u16]]) -> Arc<ClusterConfig> {
    let localities = priorities
        .iter()
        .enumerate()
        .map(|(priority, numbers)| vec![locality(&format!("{name}-{priority}"), 1, numbers.iter().copied())]);
    leaf(name, eds_cluster(), known(assignment(localities.collect())))
}

struct Cds {
    bench: Bench,
    settings: Arc<CdsSettings>,
}

impl Cds {
    fn new() -> Self {
        Self::with_settings(settings())
    }

    fn with_settings(settings: CdsSettings) -> Self {
        Self { bench: Bench::new(), settings: Arc::new(settings) }
    }

    fn update(&mut self, clusters: impl IntoIterator<Item = Arc<ClusterConfig>>) {
        self.update_config(xds_config(clusters));
    }

    fn update_config(&mut self, xds: Arc<XdsConfig>) {
        let config =
            CdsConfig { cluster: "root".into(), lb_policy: None, settings: Arc::clone(&self.settings) };
        let slice = Arc::new(ClusterSlice::new(&xds, &config.cluster));
        let update = Update { shared: Some(slice), ..Update::new(Arc::new(config), Endpoints::none()) };
        self.bench.try_update(&update).expect("a good configuration");
    }
}

/// The names of the policies from the root down to the endpoints, along the first children.
fn policies(bench: &mut Bench) -> Vec<String> {
    let now = bench.now();
    let root = bench.tree().describe(now).expect("a policy");
    let down = std::iter::successors(Some(&root), |node| node.children.first().map(|child| &child.node));
    down.map(|node| node.policy.clone()).collect()
}

/// A75-06.
const OF_A_LEAF: [&str; 8] = [
    "cds_experimental",
    "outlier_detection_experimental",
    "xds_cluster_impl_experimental",
    "xds_override_host_experimental",
    "priority_experimental",
    "xds_wrr_locality_experimental",
    "weighted_target_experimental",
    "round_robin",
];

#[test]
fn a75_03_a75_04_a75_05_a75_06_the_policies_of_a_leaf_are_in_this_order() {
    let mut cds = Cds::new();
    cds.update([eds_leaf("root", &[&[1]])]);
    assert_eq!(policies(&mut cds.bench), OF_A_LEAF);
}

#[test]
fn a75_07_the_policies_of_an_aggregate_are_in_this_order() {
    let mut cds = Cds::new();
    cds.update([aggregate("root", &["a"]), eds_leaf("a", &[&[1]])]);
    let [root, below @ ..] = &policies(&mut cds.bench)[..] else { panic!() };
    assert_eq!(root, "cds_experimental");
    assert_eq!(below[0], "priority_experimental");
    assert_eq!(below[1..], OF_A_LEAF);
}

#[test]
fn a75_06_a_leaf_serves_from_its_first_priority() {
    let mut cds = Cds::new();
    cds.update([eds_leaf("root", &[&[1, 2], &[3]])]);
    assert_eq!(cds.bench.pick(), Picked::Queue);
    assert_eq!(cds.bench.connecting(), [address(1), address(2)]);
    cds.bench.ready_all();
    assert_eq!(cds.bench.picked(20), [address(1), address(2)].into());
}

#[test]
fn a27_43_the_field_cluster_names_the_cluster() {
    for (name, n) in [("one", 1), ("two", 2)] {
        let config = CdsConfig { cluster: name.into(), lb_policy: None, settings: Arc::new(settings()) };
        let xds = xds_config([eds_leaf("one", &[&[1]]), eds_leaf("two", &[&[2]])]);
        let slice = Arc::new(ClusterSlice::new(&xds, &config.cluster));
        let update = Update { shared: Some(slice), ..Update::new(Arc::new(config), Endpoints::none()) };
        let mut bench = Bench::new();
        bench.try_update(&update).expect("a good configuration");
        assert_eq!(bench.connecting(), [address(n)]);
    }
}

#[test]
fn a74_an_unchanged_leaf_is_not_touched() {
    let mut cds = Cds::new();
    let root = eds_leaf("root", &[&[1]]);
    cds.update([Arc::clone(&root)]);
    cds.bench.ready_all();
    cds.bench.take_published();
    cds.bench.take_effects();
    cds.update([root, eds_leaf("other", &[&[9]])]);
    assert!(cds.bench.take_published().is_empty());
    assert!(cds.bench.take_effects().is_empty());
}

#[test]
fn a74_a_cluster_in_error_fails_with_its_text_and_recovers() {
    let mut cds = Cds::new();
    cds.update([eds_leaf("root", &[&[1]])]);
    cds.bench.ready_all();
    let error: BTreeMap<Arc<str>, _> = [("root".into(), Err("Cluster root: does not exist".into()))].into();
    cds.update_config(config_of_results(error));
    assert_eq!(cds.bench.state(), ConnectivityState::TransientFailure);
    assert_eq!(cds.bench.pick(), Picked::Fail("Cluster root: does not exist".into()));
    cds.update([eds_leaf("root", &[&[1]])]);
    assert_eq!(cds.bench.pick(), Picked::Target(address(1)), "the pool still had the connection");
}

#[test]
fn a_cluster_that_is_not_in_the_configuration_fails() {
    let mut cds = Cds::new();
    let config = CdsConfig { cluster: "root".into(), lb_policy: None, settings: Arc::clone(&cds.settings) };
    let slice = Arc::new(ClusterSlice::new(&xds_config([]), "root"));
    let update = Update { shared: Some(slice), ..Update::new(Arc::new(config), Endpoints::none()) };
    assert!(cds.bench.try_update(&update).is_err());
    assert_eq!(cds.bench.pick(), Picked::Fail("the configuration has no cluster root".into()));
}

#[test]
fn a37_38_no_priorities_still_drop() {
    let mut cds = Cds::new();
    let all = ClusterLoadAssignment { priorities: Vec::new(), drops: vec![drop_category("all", 1_000_000)] };
    cds.update([leaf("root", eds_cluster(), known(all))]);
    assert!(matches!(cds.bench.pick(), Picked::Drop(why) if why.contains("all")));
    cds.update([leaf("root", eds_cluster(), known(ClusterLoadAssignment::default()))]);
    assert!(matches!(cds.bench.pick(), Picked::Fail(_)));
}

#[test]
fn a74_missing_endpoints_fail_with_the_resolution_note() {
    let mut cds = Cds::new();
    let note = "EDS root: does not exist";
    cds.update([leaf_with_note("root", eds_cluster(), EndpointsState::Missing, Some(note))]);
    assert_eq!(cds.bench.state(), ConnectivityState::TransientFailure);
    let Picked::Fail(why) = cds.bench.pick() else { panic!() };
    assert!(why.contains(note), "{why}");
}

#[test]
fn pending_endpoints_queue_and_keep_the_previous_child() {
    let mut cds = Cds::new();
    let pending = || Arc::new(ClusterConfig::pending("root".into()));
    cds.update([pending()]);
    assert_eq!((cds.bench.state(), cds.bench.pick()), (ConnectivityState::Connecting, Picked::Queue));
    cds.update([eds_leaf("root", &[&[1]])]);
    cds.bench.ready_all();
    cds.update([pending()]);
    assert_eq!(cds.bench.pick(), Picked::Target(address(1)));
}

#[test]
fn a75_01_a75_02_a75_07_an_aggregate_fails_over_between_leaves_in_order() {
    let mut cds = Cds::new();
    let clusters = || [aggregate("root", &["b", "a"]), eds_leaf("a", &[&[1]]), eds_leaf("b", &[&[2], &[3]])];
    cds.update(clusters());
    assert_eq!(cds.bench.connecting(), [address(2)], "the list's order counts, not the name's");
    cds.bench.fail(address(2));
    assert_eq!(cds.bench.connecting(), [address(3)], "the leaf's own priorities come first");
    cds.bench.fail(address(3));
    assert_eq!(cds.bench.connecting(), [address(1)]);
    cds.bench.ready(address(1));
    assert_eq!(cds.bench.pick(), Picked::Target(address(1)));
}

#[test]
fn a99_12_reordered_leaves_keep_their_connections() {
    let mut cds = Cds::new();
    let (a, b) = (eds_leaf("a", &[&[1]]), eds_leaf("b", &[&[2]]));
    cds.update([aggregate("root", &["a", "b"]), Arc::clone(&a), Arc::clone(&b)]);
    cds.bench.fail(address(1));
    cds.bench.ready(address(2));
    cds.bench.take_effects();
    cds.update([aggregate("root", &["b", "a"]), a, b]);
    assert_eq!(cds.bench.pick(), Picked::Target(address(2)));
    assert!(cds.bench.take_effects().is_empty());
}

/// The same cluster with another policy.
fn with_policy(config: &ClusterConfig, policy: LbPolicy) -> Arc<ClusterConfig> {
    let mut config = config.clone();
    let (ClusterState::Leaf { cluster, .. } | ClusterState::Aggregate { cluster, .. }) = &mut config.state
    else {
        panic!("{config:?}")
    };
    *cluster = Arc::new(Cluster { lb_policy: Some(policy), ..(**cluster).clone() });
    Arc::new(config)
}

#[test]
fn a75_10_a75_11_each_leaf_uses_its_own_policy() {
    let mut cds = Cds::new();
    let pick_first = LbPolicy::PickFirst { shuffle_address_list: false };
    let ring_hash = LbPolicy::RingHash { min_ring_size: 64, max_ring_size: 1024, request_hash_header: None };
    cds.update([
        with_policy(&aggregate("root", &["a", "b"]), ring_hash),
        with_policy(&eds_leaf("a", &[&[1, 2]]), pick_first),
        eds_leaf("b", &[&[3, 4]]),
    ]);
    // ring_hash would connect to nobody.
    assert_eq!(cds.bench.connecting(), [address(1)], "pick_first begins with one");
    cds.bench.fail(address(1));
    cds.bench.fail(address(2));
    assert_eq!(cds.bench.connecting(), [address(3), address(4)], "round_robin with all");
}

#[test]
fn a75_14_the_gate_gives_leaves_the_policy_of_their_aggregate() {
    let mut cds = Cds::with_settings(CdsSettings { aggregate_backward_compat: true, ..settings() });
    let policy = LbPolicy::PickFirst { shuffle_address_list: false };
    cds.update([with_policy(&aggregate("root", &["a"]), policy), eds_leaf("a", &[&[1, 2]])]);
    assert_eq!(cds.bench.connecting(), [address(1)]);
}

#[test]
fn a42_a_policy_without_localities_gets_all_endpoints_of_a_priority() {
    let mut cds = Cds::new();
    let flat = Cluster { lb_policy: Some(LbPolicy::RoundRobin), ..eds_cluster() };
    let endpoints = assignment(vec![vec![locality("x", 99, [1]), locality("y", 1, [2])]]);
    cds.update([leaf("root", flat, known(endpoints))]);
    cds.bench.ready_all();
    let picks = cds.bench.picks(1000);
    assert_eq!(picks.iter().filter(|&&picked| picked == address(1)).count(), 500);
}

#[test]
fn a42_one_ring_spans_the_localities_of_a_priority() {
    let mut cds = Cds::new();
    let policy = LbPolicy::RingHash { min_ring_size: 64, max_ring_size: 1024, request_hash_header: None };
    let ring = Cluster { lb_policy: Some(policy), ..eds_cluster() };
    let endpoints = assignment(vec![vec![locality("x", 1, [1]), locality("y", 1, [2])]]);
    cds.update([leaf("root", ring, known(endpoints))]);
    assert_eq!(cds.bench.state(), ConnectivityState::Idle, "nothing is connected before it is picked");
    let mut rng = Rng::new(1);
    let mut picked = BTreeSet::new();
    for _ in 0..100 {
        let attributes = CallAttributes { hash: rng.next_u64(), ..CallAttributes::default() };
        if cds.bench.pick_with(attributes.clone()) == Picked::Queue {
            cds.bench.ready_all();
        }
        let Picked::Target(first) = cds.bench.pick_with(attributes.clone()) else { panic!() };
        assert_eq!(
            cds.bench.pick_with(attributes),
            Picked::Target(first),
            "the same hash, the same endpoint"
        );
        picked.insert(first);
    }
    assert_eq!(picked, [address(1), address(2)].into());
}

#[test]
fn a37_59_a37_60_a37_61_only_dns_leaves_are_resolved_again() {
    let dns = cluster(ClusterKind::LogicalDns { host: "h".into(), port: 80 });
    for (cluster, expected) in [(eds_cluster(), false), (dns, true)] {
        let mut cds = Cds::new();
        let endpoints = known(assignment(vec![vec![locality("", 1, [1])]]));
        cds.update([aggregate("root", &["leaf"]), leaf("leaf", cluster.clone(), endpoints)]);
        cds.bench.fail(address(1));
        assert_eq!(cds.bench.take_reresolutions() > 0, expected, "{:?}", cluster.kind);
    }
}

#[test]
fn a56_the_failover_timeout_is_the_configured_one() {
    let mut cds = Cds::with_settings(CdsSettings { failover_timeout: Duration::from_secs(3), ..settings() });
    cds.update([eds_leaf("root", &[&[1], &[2]])]);
    cds.bench.advance(Duration::from_millis(2999));
    assert_eq!(cds.bench.connecting(), [address(1)]);
    cds.bench.advance(Duration::from_millis(1));
    assert_eq!(cds.bench.connecting(), [address(1), address(2)]);
}

#[test]
fn a37_27_localities_that_move_between_priorities_keep_their_connections() {
    let mut cds = Cds::new();
    let (a, b) = (|| locality("a", 1, [1]), || locality("b", 1, [2]));
    let root = |priorities| leaf("root", eds_cluster(), known(assignment(priorities)));
    cds.update([root(vec![vec![a()], vec![b()]])]);
    cds.bench.ready(address(1));
    cds.bench.take_effects();
    cds.update([root(vec![vec![b()], vec![a()]])]);
    assert_eq!(
        cds.bench.pick(),
        Picked::Target(address(1)),
        "the old first serves until the new first is READY"
    );
    assert_eq!(cds.bench.connecting(), [address(2)]);
    cds.bench.ready(address(2));
    assert_eq!(cds.bench.pick(), Picked::Target(address(2)));
    assert_eq!(cds.bench.connected(), [address(1), address(2)].into());
}

fn names(state: &mut PriorityNames, priorities: &[&[&str]]) -> Vec<String> {
    let make = |names: &&[&str]| -> Vec<LocalityEndpoints> {
        names.iter().map(|name| locality(name, 1, [])).collect()
    };
    let priorities: Vec<_> = priorities.iter().map(make).collect();
    state
        .update(&priorities, &Interner::default())
        .iter()
        .map(|name| name.strip_prefix("priority-child-").expect("prefix").into())
        .collect()
}

#[test]
fn a37_27_names_stay_with_their_localities() {
    let mut state = PriorityNames::default();
    assert_eq!(names(&mut state, &[&["a", "b"], &["c"]]), ["0", "1"]);
    assert_eq!(names(&mut state, &[&["c"], &["b", "a"]]), ["1", "0"], "exchanged");
    assert_eq!(names(&mut state, &[&["c"], &["x"], &["a"]]), ["1", "2", "0"], "inserted");
    assert_eq!(names(&mut state, &[&["c", "a"], &["x"]]), ["1", "2"], "joined: the first one's name stays");
    assert_eq!(
        names(&mut state, &[&["c"], &["a"], &["x"]]),
        ["1", "3", "2"],
        "split: the first part keeps the name"
    );
    assert_eq!(names(&mut state, &[&["new"]]), ["4"], "never used again");
}

#[test]
fn a37_27_an_empty_priority_keeps_its_name() {
    let mut state = PriorityNames::default();
    assert_eq!(names(&mut state, &[&[]]), ["0"]);
    assert_eq!(names(&mut state, &[&[]]), ["0"]);
    assert_eq!(names(&mut state, &[&["a"], &[]]), ["1", "0"]);
}

/// An EDS cluster that ejects every failing endpoint, once a second, up to half of its endpoints.
fn detecting(minimum_hosts: u32) -> Cluster {
    let failure_percentage_ejection = FailurePercentageEjection {
        threshold: 0,
        enforcement_percentage: 100,
        minimum_hosts,
        request_volume: 1,
    };
    let detection = EjectionSettings {
        interval: Duration::from_secs(1),
        base_ejection_time: Duration::from_secs(30),
        max_ejection_time: Duration::from_secs(300),
        max_ejection_percent: 50,
        success_rate_ejection: None,
        failure_percentage_ejection: Some(failure_percentage_ejection),
    };
    Cluster { outlier_detection: Some(detection.into()), ..eds_cluster() }
}

fn two_priorities(cluster: Cluster) -> Arc<ClusterConfig> {
    let priorities = vec![vec![locality("a", 1, [1, 2])], vec![locality("b", 1, [3])]];
    leaf("root", cluster, known(assignment(priorities)))
}

/// A call with a cookie; says where it went.
fn call(bench: &mut Bench, cookie: &[u16], code: Code) -> Option<SocketAddr> {
    let cookie_addresses = cookie.iter().map(|&n| address(n)).collect();
    let session = OverrideHost::new(cookie_addresses, bench.now());
    let attributes = CallAttributes { override_host: Some(session), ..CallAttributes::default() };
    let (headers, mut rng) = (HeaderMap::new(), Rng::new(1));
    let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
    match bench.tree().output().picker.pick(&mut args) {
        PickResult::Complete(pick) => {
            let address = pick.target.address;
            CallTicket::start(pick).finish(code);
            Some(address)
        }
        _ => None,
    }
}

#[test]
fn a75_03_a75_06_a75_08_outliers_are_judged_over_all_priorities_together() {
    let mut cds = Cds::new();
    cds.update([two_priorities(detecting(3))]);
    cds.bench.ready_all();
    // Sessions bring traffic to the second priority, so that all three endpoints have some.
    assert_eq!(cds.bench.pick_session(&[address(3)]).0, Picked::Queue);
    cds.bench.ready(address(3));
    call(&mut cds.bench, &[1], Code::Ok);
    call(&mut cds.bench, &[2], Code::Unavailable);
    cds.bench.advance(Duration::from_secs(1));
    assert_eq!(
        cds.bench.picked(10),
        [address(1), address(2)].into(),
        "only two of three endpoints had calls"
    );
    call(&mut cds.bench, &[1], Code::Ok);
    call(&mut cds.bench, &[2], Code::Unavailable);
    call(&mut cds.bench, &[3], Code::Ok);
    cds.bench.advance(Duration::from_secs(1));
    assert_eq!(cds.bench.picked(10), [address(1)].into());
    assert_eq!(call(&mut cds.bench, &[2], Code::Ok), Some(address(2)), "sessions outlive ejections");
}

#[test]
fn a50_detection_comes_from_the_cluster_and_can_be_turned_off() {
    let mut cds = Cds::new();
    cds.update([two_priorities(detecting(1))]);
    cds.bench.ready_all();
    call(&mut cds.bench, &[2], Code::Internal);
    cds.bench.advance(Duration::from_secs(1));
    assert_eq!(cds.bench.picked(10), [address(1)].into());
    cds.bench.take_effects();
    cds.update([two_priorities(eds_cluster())]);
    assert_eq!(cds.bench.picked(10), [address(1), address(2)].into());
    assert!(cds.bench.take_effects().is_empty());
}

#[test]
fn a75_04_a75_05_a75_06_limits_come_before_sessions() {
    let mut cds = Cds::new();
    let one = CircuitBreakers { max_requests: 1, ..CircuitBreakers::default() };
    cds.update([two_priorities(Cluster { circuit_breakers: one, ..eds_cluster() })]);
    cds.bench.ready_all();
    let headers = HeaderMap::new();
    let mut rng = Rng::new(1);
    let session = OverrideHost::new(Arc::new([address(2)]), cds.bench.now());
    let attributes = CallAttributes { override_host: Some(session), ..CallAttributes::default() };
    let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
    let picker = Arc::clone(&cds.bench.tree().output().picker);
    let held = picker.pick(&mut args);
    assert!(matches!(held, PickResult::Complete(_)), "{held:?}");
    assert!(matches!(cds.bench.pick_session(&[address(2)]).0, Picked::Drop(_)));
}

#[test]
fn a75_09_a75_18_sessions_are_kept_over_all_priorities() {
    let mut cds = Cds::new();
    cds.update([two_priorities(eds_cluster())]);
    cds.bench.ready_all();
    assert_eq!(call(&mut cds.bench, &[2], Code::Ok), Some(address(2)));
    let moved = vec![vec![locality("a", 1, [1])], vec![locality("b", 1, [2, 3])]];
    cds.update([leaf("root", eds_cluster(), known(assignment(moved)))]);
    cds.bench.advance(Duration::from_secs(60));
    assert_eq!(call(&mut cds.bench, &[2], Code::Ok), Some(address(2)));
    assert_eq!(cds.bench.picked(10), [address(1)].into());
}

#[test]
fn a55_a75_34_override_host_status_and_idle_timeout_come_from_the_cluster() {
    let mut cds = Cds::new();
    let cluster = || Cluster {
        override_host_status: OverrideHostStatus { unknown: false, healthy: false, draining: true },
        idle_timeout: Duration::from_secs(20),
        ..eds_cluster()
    };
    let mut drained = locality("a", 1, [1, 2]);
    drained.endpoints[1].health = EndpointHealth::Draining;
    cds.update([leaf("root", cluster(), known(assignment(vec![vec![drained]])))]);
    cds.bench.ready_all();
    assert_eq!(cds.bench.connected(), [address(1)].into());
    assert_eq!(cds.bench.pick_session(&[address(2)]).0, Picked::Queue);
    cds.bench.ready(address(2));
    assert_eq!(cds.bench.pick_session(&[address(2)]).0, Picked::Target(address(2)));
    assert_eq!(cds.bench.picked(10), [address(1)].into());
    cds.bench.advance(Duration::from_secs(20));
    assert_eq!(cds.bench.tree().stats().owners, 1, "unused for idle_timeout");
}

#[test]
fn a50_a56_enabling_detection_keeps_the_serving_priority() {
    let mut cds = Cds::new();
    cds.update([two_priorities(eds_cluster())]);
    // Nobody answers in the first priority.
    cds.bench.advance(Duration::from_secs(10));
    cds.bench.ready(address(3));
    cds.update([two_priorities(detecting(5))]);
    assert_eq!(cds.bench.picks(1), [address(3)]);
    assert_eq!(cds.bench.state(), ConnectivityState::Ready);
    // From here on the subchannels are followed.
    cds.bench.advance(Duration::from_secs(10));
    assert_eq!(cds.bench.picks(1), [address(3)]);
    assert_eq!(cds.bench.tree().stats().owners, 3);
}

#[test]
fn a55_a56_toggling_sessions_and_detection_together_keeps_the_serving_priority() {
    let mut cds = Cds::with_settings(CdsSettings { sessions: Sessions::Unused, ..settings() });
    cds.update([two_priorities(eds_cluster())]);
    cds.bench.advance(Duration::from_secs(10));
    cds.bench.ready(address(3));
    for (sessions, cluster) in [
        (Sessions::Used, detecting(5)),
        (Sessions::Unused, eds_cluster()),
        (Sessions::Used, eds_cluster()),
        (Sessions::Unused, detecting(5)),
    ] {
        cds.settings = Arc::new(CdsSettings { sessions, ..CdsSettings::clone(&cds.settings) });
        cds.update([two_priorities(cluster)]);
        assert_eq!(cds.bench.picks(1), [address(3)], "{sessions:?}");
        assert_eq!(cds.bench.state(), ConnectivityState::Ready);
    }
}
