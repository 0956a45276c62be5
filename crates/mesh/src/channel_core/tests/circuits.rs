//! Circuit breaking through a whole channel.

use proxyless_xds::resource::{CircuitBreakers, Cluster, ClusterKind, ClusterLoadAssignment};

use super::world::{Backend, Rpc, World};
use crate::policies::fixtures::{
    aggregate_cluster, assignment, cluster, drop_category, eds_cluster, locality,
};

#[test]
fn x_13_the_circuit_breaker_of_a_cluster_limits_its_rpcs() {
    let mut world = World::with_routes(&[("/", "c")]);
    world.set_cluster(
        "c",
        Cluster {
            circuit_breakers: CircuitBreakers { max_requests: 2, ..CircuitBreakers::default() },
            ..eds_cluster()
        },
    );
    world.set_endpoints("c", assignment(vec![vec![locality("l", 1, [1])]]));
    let held = [world.hold("/s/m"), world.hold("/s/m")];
    let Rpc::Dropped(why) = world.rpc("/s/m") else { panic!() };
    assert_eq!(why, "circuit breaker: max_requests 2 of cluster c reached");
    drop(held);
    assert!(world.rpc("/s/m") == 1);
    assert_eq!(world.circuits.in_flight("c", None), 0);
}

#[test]
fn a27_106_drops_of_eds_apply_to_rpcs() {
    let mut world = World::with_routes(&[("/", "c")]);
    world.set_cluster("c", eds_cluster());
    let half = ClusterLoadAssignment {
        drops: vec![drop_category("half", 500_000)],
        ..assignment(vec![vec![locality("l", 1, [1])]])
    };
    world.set_endpoints("c", half);
    let dropped =
        (0..2000).filter(|_| matches!(world.rpc("/s/m"), Rpc::Dropped(why) if why.contains("half"))).count();
    assert!((900..1100).contains(&dropped), "{dropped}");
}

#[test]
fn a37_47_a_dns_leaf_drops_nothing_even_if_its_sibling_drops() {
    let mut world = World::with_routes(&[("/", "aggregate")]);
    world.set_backend(1, Backend::Refuses);
    world.set_cluster("aggregate", aggregate_cluster(&["eds", "dns"]));
    world.set_cluster("eds", eds_cluster());
    let half = ClusterLoadAssignment {
        drops: vec![drop_category("half", 500_000)],
        ..assignment(vec![vec![locality("l", 1, [1])]])
    };
    world.set_endpoints("eds", half);
    world.set_cluster("dns", cluster(ClusterKind::LogicalDns { host: "h".into(), port: 80 }));
    world.answer_dns("h", Ok(&[2]));
    for _ in 0..100 {
        let rpc = world.rpc("/s/m");
        assert!(rpc == 2, "{rpc:?}");
    }
}
