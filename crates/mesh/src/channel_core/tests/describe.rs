//! The human-readable description of a channel.

use proxyless_balancer::api::{CallCounts, CallTicket, Code, ConnectivityState, PolicyView};
use proxyless_xds::resource::{Cluster, LrsServer, ResourceType};

use super::world::{Backend, World};
use crate::channel_core::TreeView;
use crate::policies::fixtures::{aggregate_cluster, assignment, drop_category, eds_cluster, locality};

fn world() -> World {
    let mut world = World::with_routes(&[("/one/", "c"), ("/", "c")]);
    world.set_backend(1, Backend::Refuses);
    world.set_cluster("c", eds_cluster());
    world.set_endpoints(
        "c",
        assignment(vec![vec![locality("near", 3, [1])], vec![locality("far", 1, [2, 3])]]),
    );
    world
}

fn describe(world: &World) -> TreeView {
    world.core.describe(world.now)
}

/// The first policy of this name.
fn find<'a>(tree: &'a TreeView, policy: &str) -> &'a PolicyView {
    let mut found = None;
    let root = tree.root.as_ref().expect("a tree");
    root.walk(&mut |node| {
        if node.policy == policy && found.is_none() {
            found = Some(node);
        }
    });
    found.unwrap_or_else(|| panic!("no {policy} in\n{tree}"))
}

#[test]
fn an_idle_channel_shows_nothing_and_a_started_one_that_it_connects() {
    let mut world = World::new();
    assert_eq!(describe(&world).state, ConnectivityState::Idle);
    world.input(crate::channel_core::ChannelInput::ExitIdle);
    let tree = describe(&world);
    assert_eq!((tree.state, tree.root, tree.routes.len()), (ConnectivityState::Connecting, None, 0));
}

#[test]
fn routes_clusters_priorities_localities_and_endpoints_are_shown() {
    let world = world();
    let tree = describe(&world);
    assert_eq!(tree.state, ConnectivityState::Ready);
    let routes: Vec<_> =
        tree.routes.iter().map(|r| (r.matches.as_str(), r.clusters[0].cluster.as_str())).collect();
    assert_eq!(routes, [("path /one/*", "c"), ("any path", "c")]);

    assert_eq!(find(&tree, "xds_cluster_manager_experimental").children[0].name, "c");
    let cluster_impl = find(&tree, "xds_cluster_impl_experimental");
    assert_eq!(cluster_impl.config["maxConcurrentRequests"], 1024);
    let priority = find(&tree, "priority_experimental");
    let [near, far] = &priority.children[..] else { panic!("{tree}") };
    assert_eq!(priority.config["priorities"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (near.role.as_deref(), near.node.state),
        (Some("standby"), ConnectivityState::TransientFailure)
    );
    assert_eq!((far.role.as_deref(), far.node.state), (Some("serving"), ConnectivityState::Ready));

    let localities = &find(&tree, "weighted_target_experimental").children;
    assert_eq!((localities.len(), localities[0].weight), (1, Some(3)));
    let dead = &find(&tree, "round_robin").endpoints[0];
    assert_eq!((dead.state, dead.connected), (ConnectivityState::TransientFailure, None));
    assert!(dead.error.as_ref().is_some_and(|error| error.contains(&dead.addresses[0].to_string())));
    assert_eq!((near.name.as_str(), far.name.as_str()), ("priority 0", "priority 1"));
    assert_eq!(localities[0].name, "near");
    // The error stands beside the endpoint, and the levels above give it as the reason in short.
    assert_eq!(tree.to_string().matches("error: connection refused").count(), 1, "{tree}");
    assert!(near.node.error.is_none(), "{tree}");
    assert_eq!(
        near.node.changed.as_ref().map(|changed| changed.reason.as_str()),
        Some("connection refused"),
        "{tree}"
    );
    let why = priority.changed.as_ref().map(|changed| changed.reason.as_str());
    assert_eq!(why, Some("failed over from priority 0"), "{tree}");
}

#[test]
fn a_priority_that_was_not_needed_is_shown_as_such() {
    let mut world = world();
    world.set_backend(1, Backend::Accepts);
    world.advance(std::time::Duration::from_secs(2));
    let tree = describe(&world);
    let roles: Vec<_> =
        find(&tree, "priority_experimental").children.iter().map(|c| c.role.clone()).collect();
    assert_eq!(roles, [Some("serving".to_owned()), Some("deactivated".to_owned())]);
}

#[test]
fn calls_and_requests_in_flight_are_counted() {
    let mut world = world();
    let (_cluster, pick) = world.hold("/s/m");
    let address = pick.target.address;
    let (_again, other) = world.hold("/s/m");
    let tree = describe(&world);
    assert_eq!(find(&tree, "xds_cluster_impl_experimental").counters["requests_in_flight"], 2);
    CallTicket::start(pick).finish(Code::Ok);
    CallTicket::start(other).unsent();
    let tree = describe(&world);
    assert_eq!(tree.calls, CallCounts::new(1, 0));
    assert_eq!(find(&tree, "xds_cluster_impl_experimental").counters["requests_in_flight"], 0);
    let mut counted = Vec::new();
    tree.root.as_ref().expect("a tree").walk(&mut |node| counted.extend(&node.endpoints));
    let counted: Vec<_> = counted.into_iter().filter(|endpoint| endpoint.calls.ended() > 0).collect();
    assert_eq!(counted.len(), 1);
    assert_eq!(counted[0].addresses, [address]);
}

#[test]
fn a27_57_reported_load_is_shown_by_locality_and_drops_by_category() {
    let mut world = World::with_routes(&[("/", "c")]);
    world.set_cluster("c", Cluster { lrs_server: Some(LrsServer::SelfServer), ..eds_cluster() });
    let mut endpoints = assignment(vec![vec![locality("near", 1, [1])]]);
    world.set_endpoints("c", endpoints.clone());
    let (_cluster, pick) = world.hold("/s/m");
    CallTicket::start(pick).finish(Code::Ok);
    let (_cluster, pick) = world.hold("/s/m");
    CallTicket::start(pick).finish(Code::Unavailable);
    let (_cluster, pick) = world.hold("/s/m");
    let _running = CallTicket::start(pick);
    let text = describe(&world).to_string();
    assert!(text.contains("load near: issued 3, succeeded 1, failed 1, in progress 1"), "{text}");
    endpoints.drops = vec![drop_category("everything", 1_000_000)];
    world.set_endpoints("c", endpoints);
    world.rpc("/s/m");
    let text = describe(&world).to_string();
    let dropped = world.loads[0].view().categories["everything"];
    assert!(dropped > 0 && text.contains(&format!("dropped everything: requests {dropped}")), "{text}");
}

#[test]
fn calls_on_connections_that_are_gone_stay_counted() {
    let mut world = world();
    let (cluster, pick) = world.hold("/s/m");
    let (_again, running) = world.hold("/s/m");
    let running = CallTicket::start(running);
    CallTicket::start(pick).finish(Code::Unavailable);
    drop(cluster);
    world.set_endpoints("c", assignment(vec![vec![locality("far", 1, [4])]]));
    world.advance(std::time::Duration::from_secs(60));
    assert_eq!(world.core.subchannels().len(), 1);
    assert_eq!(describe(&world).calls, CallCounts::new(0, 1));
    // One that outlives its connection counts when it ends.
    running.finish(Code::Ok);
    assert_eq!(describe(&world).calls, CallCounts::new(1, 1));
}

#[test]
fn what_is_missing_is_named() {
    let mut world = World::with_routes(&[("/", "c")]);
    world.set_cluster("c", aggregate_cluster(&["gone", "there"]));
    world.set_cluster("there", eds_cluster());
    world.remove(ResourceType::Cluster, "gone");
    world.set_endpoints("there", assignment(vec![vec![locality("l", 1, [1])]]));
    let text = describe(&world).to_string();
    assert!(text.contains("gone"), "{text}");

    world.remove(ResourceType::Cluster, "c");
    let tree = describe(&world);
    let cds = find(&tree, "cds_experimental");
    assert_eq!(cds.state, ConnectivityState::TransientFailure);
    assert!(cds.error.as_ref().is_some_and(|error| error.contains("Cluster c")), "{tree}");

    world.remove(ResourceType::Listener, "service");
    let tree = describe(&world);
    assert!(tree.error.as_ref().is_some_and(|error| error.contains("service")), "{tree}");
}

#[test]
fn looking_changes_nothing() {
    let world = world();
    let before = (world.core.next_deadline(), world.core.stats());
    let first = describe(&world);
    assert_eq!(describe(&world), first);
    assert_eq!((world.core.next_deadline(), world.core.stats()), before);
    let text = serde_json::to_string(&first).expect("JSON");
    assert_eq!(serde_json::from_str::<TreeView>(&text).expect("JSON"), first);
}
