use std::cell::Cell;
use std::sync::Arc;

use proxyless_balancer::api::{
    CallAttributes, ClusterId, ConfigError, ConnectivityState, Cx, FailPicker, PickError, Picker, Policy,
    QueuePicker, TreeEvent, TreePath, Update,
};
use proxyless_balancer::policy_config;
use proxyless_balancer::testing::{Bench, Picked};

use super::{ClusterManagerConfig, ManagedCluster};

/// A child that publishes the state it is configured with; its picks fail with its name, or queue.
#[derive(Clone, Debug, PartialEq)]
struct Stub {
    name: &'static str,
    state: ConnectivityState,
}

struct StubPolicy;

thread_local! {
    static UPDATES: Cell<usize> = const { Cell::new(0) };
}

impl Policy for StubPolicy {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        UPDATES.set(UPDATES.get() + 1);
        let stub: &Stub = proxyless_balancer::api::config_of("stub", &update.config)?;
        let picker: Arc<dyn Picker> = match stub.state {
            Connecting => QueuePicker::new(),
            _ => FailPicker::new(PickError::unavailable(stub.name)),
        };
        cx.publish(stub.state, picker);
        Ok(())
    }
    fn on_event(&mut self, _: TreePath<'_>, _: TreeEvent<'_>, _: &mut dyn Cx) {}
    fn exit_idle(&mut self, _: &mut dyn Cx) {}
}

policy_config!(Stub, "stub", StubPolicy);

fn config(clusters: &[(u32, &'static str, ConnectivityState)]) -> Arc<ClusterManagerConfig> {
    let clusters = clusters.iter().map(|&(id, name, state)| ManagedCluster {
        id: ClusterId(id),
        name: name.into(),
        config: Arc::new(Stub { name, state }),
        slice: None,
    });
    Arc::new(ClusterManagerConfig { clusters: clusters.collect() })
}

fn pick(bench: &mut Bench, cluster: u32) -> Picked {
    bench.pick_with(CallAttributes { cluster: ClusterId(cluster), ..CallAttributes::default() })
}

fn update(bench: &mut Bench, clusters: &[(u32, &'static str, ConnectivityState)]) {
    bench.update(config(clusters), proxyless_balancer::api::Endpoints::none());
}

use ConnectivityState::{Connecting, Idle, Ready, TransientFailure};

#[test]
fn a31_the_routes_cluster_picks() {
    let mut bench = Bench::new();
    update(&mut bench, &[(0, "a", Ready), (3, "b", Ready), (1, "c", Connecting), (4, "d", Idle)]);
    assert_eq!(pick(&mut bench, 0), Picked::Fail("a".into()));
    assert_eq!(pick(&mut bench, 3), Picked::Fail("b".into()));
    assert_eq!(pick(&mut bench, 1), Picked::Queue);
    assert_eq!(pick(&mut bench, 4), Picked::Fail("d".into()), "A42: it may wait for a pick to connect");
}

#[test]
fn a31_an_unknown_cluster_fails_rather_than_queues() {
    let mut bench = Bench::new();
    update(&mut bench, &[(0, "a", Ready), (2, "b", Ready)]);
    for unknown in [1, 3, u32::MAX] {
        let Picked::Fail(why) = pick(&mut bench, unknown) else { panic!() };
        assert!(why.contains("no longer configured"), "{why}");
    }
}

#[test]
fn aggregates_ready_then_connecting_then_idle_then_failure() {
    let mut bench = Bench::new();
    for (clusters, expected) in [
        (&[(0, "a", TransientFailure), (1, "b", Ready), (2, "c", Connecting)][..], Ready),
        (&[(0, "a", TransientFailure), (1, "b", Idle), (2, "c", Connecting)], Connecting),
        (&[(0, "a", TransientFailure), (1, "b", Idle)], Idle),
        (&[(0, "a", TransientFailure)], TransientFailure),
        (&[], TransientFailure),
    ] {
        update(&mut bench, clusters);
        assert_eq!(bench.state(), expected, "{clusters:?}");
    }
}

#[test]
fn state_follows_children_that_change_theirs() {
    let mut bench = Bench::new();
    let states = [
        ([Connecting, Connecting], Connecting),
        ([Ready, Connecting], Ready),
        ([Ready, Ready], Ready),
        ([TransientFailure, Ready], Ready),
        ([TransientFailure, Idle], Idle),
        ([TransientFailure, TransientFailure], TransientFailure),
        ([Connecting, TransientFailure], Connecting),
    ];
    for ([a, b], expected) in states {
        update(&mut bench, &[(0, "a", a), (1, "b", b)]);
        assert_eq!(bench.state(), expected);
    }
    assert_eq!(pick(&mut bench, 0), Picked::Queue);
    assert_eq!(pick(&mut bench, 1), Picked::Fail("b".into()));
}

#[test]
fn a115_a_removed_cluster_goes_at_once() {
    let mut bench = Bench::new();
    update(&mut bench, &[(0, "a", Ready), (1, "b", Ready)]);
    update(&mut bench, &[(1, "b", Ready)]);
    assert!(matches!(pick(&mut bench, 0), Picked::Fail(why) if why.contains("no longer configured")));
    assert_eq!(pick(&mut bench, 1), Picked::Fail("b".into()));
}

#[test]
fn an_update_without_news_publishes_nothing() {
    let mut bench = Bench::new();
    update(&mut bench, &[(0, "a", Ready), (1, "b", Ready)]);
    assert_eq!(bench.take_published().len(), 1);
    update(&mut bench, &[(0, "a", Ready), (1, "b", Ready)]);
    assert!(bench.take_published().is_empty());
    update(&mut bench, &[(0, "a", Ready), (1, "other", Ready)]);
    assert_eq!(bench.take_published().len(), 1, "the same id for another cluster is news");
    assert_eq!(pick(&mut bench, 1), Picked::Fail("other".into()));
}

#[test]
fn an_update_of_one_cluster_among_a_thousand_visits_one() {
    let mut bench = Bench::new();
    let names: Vec<&'static str> = (0..1000).map(|n| &*Box::leak(format!("c{n}").into_boxed_str())).collect();
    let mut config = ClusterManagerConfig::clone(&config(
        &(0..).zip(&names).map(|(id, &name)| (id, name, Ready)).collect::<Vec<_>>(),
    ));
    bench.update(Arc::new(config.clone()), proxyless_balancer::api::Endpoints::none());
    assert_eq!(UPDATES.get(), 1000);
    let other = Arc::new(Stub { name: "other", state: Ready });
    config.clusters.set(7, ManagedCluster { config: other, ..config.clusters.get(7).unwrap().clone() });
    bench.update(Arc::new(config), proxyless_balancer::api::Endpoints::none());
    assert_eq!(UPDATES.get(), 1001);
    assert_eq!(pick(&mut bench, 7), Picked::Fail("other".into()));
    assert_eq!(pick(&mut bench, 8), Picked::Fail("c8".into()));
}
