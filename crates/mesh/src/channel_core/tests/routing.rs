//! Changes of routes while RPCs hold clusters.

use proxyless_balancer::api::PickResult;
use proxyless_balancer::testing::address;
use proxyless_xds::resource::ResourceType;

use super::world::{Rpc, World};
use crate::policies::fixtures::{assignment, eds_cluster, locality};

fn two_clusters() -> World {
    let mut world = World::with_routes(&[("/", "old")]);
    world.set_cluster("old", eds_cluster());
    world.set_endpoints("old", assignment(vec![vec![locality("l", 1, [1])]]));
    assert!(world.rpc("/s/m") == 1);
    world
}

fn load_new(world: &mut World) {
    world.set_cluster("new", eds_cluster());
    world.set_endpoints("new", assignment(vec![vec![locality("l", 1, [2])]]));
}

#[test]
fn a74_a_route_switch_waits_for_the_new_cluster() {
    let mut world = two_clusters();
    world.set_routes(&[("/", "new")]);
    assert!(world.rpc("/s/m") == 1, "the new cluster has not come");
    world.set_cluster("new", eds_cluster());
    assert!(world.rpc("/s/m") == 1, "its endpoints have not come");
    world.set_endpoints("new", assignment(vec![vec![locality("l", 1, [2])]]));
    assert!(world.rpc("/s/m") == 2);
}

#[test]
fn a31_a_cluster_without_routes_lives_while_an_rpc_holds_it() {
    let mut world = two_clusters();
    let (cluster, pick) = world.hold("/s/m");
    drop(pick);
    world.set_routes(&[("/", "new")]);
    load_new(&mut world);
    assert!(world.rpc("/s/m") == 2);
    // A retry of the RPC picks on its own cluster, whose endpoints are still kept up to date.
    world.set_endpoints("old", assignment(vec![vec![locality("l", 1, [3])]]));
    let PickResult::Complete(pick) = world.pick_on(&cluster) else { panic!() };
    assert_eq!(pick.target.address, address(3));
    assert_eq!(world.watched(ResourceType::Cluster), ["new", "old"]);
    drop((cluster, pick));
    world.run();
    assert_eq!(world.watched(ResourceType::Cluster), ["new"]);
    assert_eq!(world.watched(ResourceType::ClusterLoadAssignment), ["new"]);
    assert!(world.rpc("/s/m") == 2);
}

#[test]
fn a31_a_removed_cluster_closes_its_connections_in_the_end() {
    let mut world = two_clusters();
    world.set_routes(&[("/", "new")]);
    load_new(&mut world);
    world.advance(std::time::Duration::from_secs(60));
    assert_eq!(world.take_closes(), [address(1)]);
    assert_eq!(world.connected(), 1);
}

#[test]
fn a31_a_cluster_that_comes_back_while_held_is_the_same_one() {
    let mut world = two_clusters();
    let (held, _pick) = world.hold("/s/m");
    world.set_routes(&[("/", "new")]);
    load_new(&mut world);
    world.take_connects();
    world.set_routes(&[("/old", "old"), ("/", "new")]);
    assert!(world.rpc("/old") == 1);
    let (again, _pick) = world.hold("/old");
    assert_eq!(held.id(), again.id());
    assert!(world.take_connects().is_empty());
}

#[test]
fn a31_numbers_of_removed_clusters_do_not_mix_up_their_successors() {
    let mut world = two_clusters();
    for round in 0..20u16 {
        let name = format!("c{round}");
        world.set_routes(&[("/", &name)]);
        world.set_cluster(&name, eds_cluster());
        world.set_endpoints(&name, assignment(vec![vec![locality("l", 1, [100 + round])]]));
        assert!(world.rpc("/s/m") == 100 + round);
        let (cluster, _pick) = world.hold("/s/m");
        assert!(cluster.id().0 < 3, "ids stay small");
    }
    assert_eq!(world.watched(ResourceType::Cluster).len(), 1);
}

#[test]
fn a74_random_route_switches_never_tear() {
    let mut world = two_clusters();
    let mut rng = proxyless_sans_io::Rng::new(7);
    let mut held = Vec::new();
    for _ in 0..300 {
        let pick = rng.below(6) as u16;
        let name = format!("c{pick}");
        match rng.below(5) {
            // The world checks each snapshot: every cluster that a route names has a picker.
            0 => world.set_routes(&[("/x", &format!("c{}", rng.below(6))), ("/", &name)]),
            1 => world.set_cluster(&name, eds_cluster()),
            2 => world.set_endpoints(&name, assignment(vec![vec![locality("l", 1, [200 + pick])]])),
            3 => {
                if matches!(world.rpc("/x"), Rpc::To(_)) {
                    held.push(world.hold("/x"));
                }
            }
            _ => {
                held.clear();
                world.run();
            }
        }
    }
    drop(held);
    world.set_routes(&[("/", "old")]);
    world.run();
    assert_eq!(world.watched(ResourceType::Cluster), ["old"]);
}
