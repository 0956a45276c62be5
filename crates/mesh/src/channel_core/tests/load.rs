//! The counters of load reports, and the clusters that they belong to.

use std::sync::Arc;

use proxyless_balancer::api::{CallTicket, Code};
use proxyless_balancer::testing::address;
use proxyless_xds::lrs::{LoadStore, Totals};
use proxyless_xds::resource::{
    CircuitBreakers, Cluster, ClusterKind, ClusterLoadAssignment, LbPolicy, ListedMetrics, Locality,
    LrsServer, MetricSelection, ResourceType,
};

use super::world::{Rpc, World};
use crate::channel_core::ChannelInput;
use crate::policies::fixtures::{
    aggregate_cluster, assignment, cluster, drop_category, eds_cluster, locality,
};

fn reporting(cluster: Cluster) -> Cluster {
    Cluster { lrs_server: Some(LrsServer::SelfServer), ..cluster }
}

fn named(service_name: &str) -> Cluster {
    reporting(cluster(ClusterKind::Eds { service_name: Some(service_name.into()) }))
}

/// A channel with the cluster `c` that has one endpoint in the locality `l`.
fn world(cluster: Cluster) -> World {
    let mut world = World::with_routes(&[("/", "c")]);
    let endpoints = match &cluster.kind {
        ClusterKind::Eds { service_name: Some(name) } => Arc::clone(name),
        _ => "c".into(),
    };
    world.set_cluster("c", cluster);
    world.set_endpoints(&endpoints, assignment(vec![vec![locality("l", 1, [1])]]));
    world
}

fn start(world: &mut World, path: &str) -> CallTicket {
    CallTicket::start(world.hold(path).1)
}

fn run(world: &mut World, path: &str, code: Code) {
    start(world, path).finish(code);
}

/// Issued, succeeded, failed, in progress.
fn counts(view: &Totals) -> [u64; 4] {
    [view.issued, view.succeeded, view.failed, view.in_progress()]
}

/// The counts of the only store and its only locality, with the locality's region.
#[track_caller]
fn only(store: &LoadStore) -> (String, [u64; 4]) {
    let view = store.view();
    assert_eq!(view.localities.len(), 1, "{view:?}");
    view.localities.iter().map(|(of, view)| (of.region.clone(), counts(view))).next().expect("one")
}

#[test]
fn a27_47_a37_51_without_an_lrs_server_nothing_is_counted() {
    let mut world = world(eds_cluster());
    run(&mut world, "/s/m", Code::Ok);
    assert!(world.loads.is_empty());
}

#[test]
fn a27_57_a27_93_calls_are_counted_by_locality() {
    let mut world = world(named("e"));
    world.set_endpoints("e", assignment(vec![vec![locality("a", 1, [1]), locality("b", 1, [2])]]));
    let store = Arc::clone(&world.loads[0]);
    assert_eq!((&**store.cluster(), store.eds_service_name().map(|name| &**name)), ("c", Some("e")));
    let mut to = [0; 2];
    for _ in 0..40 {
        let ticket = start(&mut world, "/s/m");
        to[usize::from(ticket.target().address == address(2))] += 1;
        ticket.finish(Code::Ok);
    }
    assert!(to[0] > 0 && to[1] > 0);
    let running = start(&mut world, "/s/m");
    let at = usize::from(running.target().address == address(2));
    let view = store.view();
    for (place, region) in ["a", "b"].into_iter().enumerate() {
        let seen = view.localities[&Locality { region: region.into(), ..Default::default() }];
        let running = u64::from(place == at);
        assert_eq!((seen.issued, seen.succeeded), (to[place] + running, to[place]), "{region}");
        assert_eq!((seen.failed, seen.in_progress()), (0, running), "{region}");
    }
}

#[test]
fn any_status_but_ok_is_an_error_and_so_is_giving_up() {
    let mut world = world(reporting(eds_cluster()));
    run(&mut world, "/s/m", Code::Ok);
    run(&mut world, "/s/m", Code::NotFound);
    drop(start(&mut world, "/s/m"));
    start(&mut world, "/s/m").unsent();
    let _running = start(&mut world, "/s/m");
    assert_eq!(only(&world.loads[0]).1, [4, 1, 2, 1]);
}

#[test]
fn a37_53_a37_32_a_dns_leaf_has_no_service_name_and_an_empty_locality() {
    let mut world = World::with_routes(&[("/", "d")]);
    world.set_cluster("d", reporting(cluster(ClusterKind::LogicalDns { host: "host".into(), port: 80 })));
    world.answer_dns("host", Ok(&[1]));
    run(&mut world, "/s/m", Code::Ok);
    let store = &world.loads[0];
    assert_eq!((&**store.cluster(), store.eds_service_name()), ("d", None));
    assert_eq!(store.view().localities.keys().collect::<Vec<_>>(), [&Locality::default()]);
}

#[test]
fn a42_policies_that_take_all_localities_at_once_are_counted_by_locality_too() {
    let ring = LbPolicy::RingHash { min_ring_size: 1, max_ring_size: 1024, request_hash_header: None };
    let mut world = world(Cluster { lb_policy: Some(ring), ..reporting(eds_cluster()) });
    run(&mut world, "/s/m", Code::Ok);
    assert_eq!(only(&world.loads[0]), ("l".into(), [1, 1, 0, 0]));
    // The endpoint moves to another locality, and keeps its connection.
    world.take_connects();
    world.set_endpoints("c", assignment(vec![vec![locality("m", 1, [1])]]));
    run(&mut world, "/s/m", Code::Ok);
    assert!(world.take_connects().is_empty());
    let of = |region: &str| {
        let view = world.loads[0].view();
        view.localities[&Locality { region: region.into(), ..Default::default() }].succeeded
    };
    assert_eq!((of("l"), of("m")), (1, 1));
}

#[test]
fn a37_07_each_leaf_reports_for_itself() {
    let mut world = World::with_routes(&[("/", "top")]);
    world.set_cluster("top", reporting(aggregate_cluster(&["quiet", "loud"])));
    world.set_cluster("quiet", eds_cluster());
    world.set_cluster("loud", reporting(eds_cluster()));
    world.set_endpoints("quiet", assignment(vec![vec![locality("l", 1, [1])]]));
    world.set_endpoints("loud", assignment(vec![vec![locality("l", 1, [2])]]));
    run(&mut world, "/s/m", Code::Ok);
    assert!(world.loads.is_empty(), "the leaf in use does not report, whatever the aggregate says");
    world.kill(1);
    run(&mut world, "/s/m", Code::Ok);
    assert_eq!(world.loads.iter().map(|store| &**store.cluster()).collect::<Vec<_>>(), ["loud"]);
    assert_eq!(only(&world.loads[0]).1, [1, 1, 0, 0]);
}

#[test]
fn x_13_a27_106_drops_are_counted_by_category_and_circuit_drops_without() {
    let limit = CircuitBreakers { max_requests: 1, ..CircuitBreakers::default() };
    let mut world = world(Cluster { circuit_breakers: limit, ..reporting(eds_cluster()) });
    let held = world.hold("/s/m");
    assert!(matches!(world.rpc("/s/m"), Rpc::Dropped(_)));
    drop(held);
    let all = ClusterLoadAssignment {
        drops: vec![drop_category("everything", 1_000_000)],
        ..assignment(vec![vec![locality("l", 1, [1])]])
    };
    world.set_endpoints("c", all);
    // The world itself makes a pick for each new snapshot.
    let before = world.loads[0].view().categories["everything"];
    assert!(matches!(world.rpc("/s/m"), Rpc::Dropped(_)));
    assert!(matches!(world.rpc("/s/m"), Rpc::Dropped(_)));
    assert_eq!(world.loads.len(), 1, "new drop categories do not need a new store");
    let view = world.loads[0].view();
    assert_eq!(view.uncategorized, 1);
    assert_eq!(view.categories, [("everything".into(), before + 2)].into());
    assert_eq!(only(&world.loads[0]).1, [0; 4]);
}

#[test]
fn a37_51_a_change_of_the_lrs_server_takes_effect_on_live_connections() {
    let mut world = world(eds_cluster());
    let before = start(&mut world, "/s/m");
    world.take_connects();
    world.set_cluster("c", reporting(eds_cluster()));
    let first = Arc::clone(&world.loads[0]);
    let during = start(&mut world, "/s/m");
    before.finish(Code::Ok);
    assert_eq!(only(&first).1, [1, 0, 0, 1], "a call that started before is nobody's");
    world.set_cluster("c", eds_cluster());
    assert!(world.loads.is_empty());
    run(&mut world, "/s/m", Code::Ok);
    during.finish(Code::Ok);
    assert_eq!(only(&first).1, [1, 1, 0, 0], "a call is counted to its end where it started");
    assert!(world.take_connects().is_empty());
}

#[test]
fn another_service_name_or_selection_is_another_store() {
    let mut world = world(named("e"));
    let running = start(&mut world, "/s/m");
    let old = Arc::clone(&world.loads[0]);
    world.set_cluster("c", named("f"));
    world.set_endpoints("f", assignment(vec![vec![locality("l", 1, [1])]]));
    run(&mut world, "/s/m", Code::Ok);
    running.finish(Code::Internal);
    let [new] = &world.loads[..] else { panic!() };
    assert_eq!(new.eds_service_name().map(|name| &**name), Some("f"));
    assert_eq!((only(&old).1, only(new).1), ([1, 0, 1, 0], [1, 1, 0, 0]));
    // A85: and so is another selection of metrics.
    let new = Arc::clone(new);
    let listed = MetricSelection::Listed(Arc::new(ListedMetrics { all_named: true, ..Default::default() }));
    world.set_cluster("c", Cluster { lrs_report_endpoint_metrics: listed, ..named("f") });
    assert_eq!(world.loads.len(), 1);
    assert!(!Arc::ptr_eq(&world.loads[0], &new));
}

#[test]
fn a64_a85_backend_metrics_are_wanted_only_where_they_are_reported() {
    let mut silent = world(eds_cluster());
    assert!(!start(&mut silent, "/s/m").wants_metrics());
    let mut all = world(reporting(eds_cluster()));
    assert!(start(&mut all, "/s/m").wants_metrics());
    let none = MetricSelection::Listed(Arc::default());
    let mut none = world(Cluster { lrs_report_endpoint_metrics: none, ..reporting(eds_cluster()) });
    assert!(!start(&mut none, "/s/m").wants_metrics());
}

#[test]
fn a_cluster_that_goes_takes_its_registration_along() {
    let mut world = world(reporting(eds_cluster()));
    run(&mut world, "/s/m", Code::Ok);
    let first = Arc::clone(&world.loads[0]);
    world.remove(ResourceType::Cluster, "c");
    assert!(world.loads.is_empty());
    world.set_cluster("c", reporting(eds_cluster()));
    run(&mut world, "/s/m", Code::Ok);
    assert_eq!((only(&first).1, only(&world.loads[0]).1), ([1, 1, 0, 0], [1, 1, 0, 0]));
    world.input(ChannelInput::Shutdown);
    assert!(world.loads.is_empty());
}

#[test]
fn a27_57_counters_of_a_locality_go_with_its_last_subchannel() {
    let mut world = world(named("e"));
    for n in 0..20 {
        run(&mut world, "/s/m", Code::Ok);
        let zone = format!("l{n}");
        world.set_endpoints("e", assignment(vec![vec![locality(&zone, 1, [1])]]));
    }
    let running = start(&mut world, "/s/m");
    world.set_endpoints("e", assignment(vec![vec![locality("last", 1, [1])]]));
    let store = Arc::clone(&world.loads[0]);
    let held = |store: &LoadStore| {
        // Stores without users are dropped as soon as they have been reported.
        let regions = store.view().localities.into_keys().filter(|locality| {
            // The store and this test.
            Arc::strong_count(&store.locality(&Arc::new(locality.clone()))) > 2
        });
        regions.map(|locality| locality.region).collect::<Vec<_>>()
    };
    assert_eq!(held(&store), ["l19", "last"], "an RPC that runs holds its counters");
    let issued: u64 = store.view().localities.values().map(|view| view.issued).sum();
    assert_eq!(issued, 21, "nothing is lost before it is reported");
    running.finish(Code::Ok);
    assert_eq!(held(&store), ["last"]);
}
