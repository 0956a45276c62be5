//! Switches of routes: nothing is published in halves (gRFC A74, trap 10 in docs/design-decisions.md).

use super::*;
use ResourceType::{Cluster as Cds, ClusterLoadAssignment as Eds, RouteConfiguration as Rds};

/// The cluster of the only route in use.
fn routed_to(bed: &Bed) -> String {
    match &bed.config().virtual_host.routes[0].action.as_ref().expect("a forwarding route").cluster {
        ClusterSpecifier::Cluster(name) => name.to_string(),
        ClusterSpecifier::Weighted(weighted) => format!("{weighted:?}"),
    }
}

#[test]
fn a74_switch_waits_for_cluster_and_endpoints() {
    let mut bed = Bed::routed(&["old"]);
    bed.leaf("old", 1);
    bed.routes(&["new"]);
    assert_eq!(routed_to(&bed), "old");
    bed.eds_cluster("new");
    assert_eq!(routed_to(&bed), "old");
    assert!(bed.is_watched(Cds, "old") && bed.is_watched(Eds, "old"), "resources in use stay watched");
    bed.endpoints("new", &[2]);
    assert_eq!(routed_to(&bed), "new");
    assert_eq!(bed.clusters().into_values().collect::<Vec<_>>(), ["known 2"]);
    assert!(!bed.is_watched(Cds, "old") && !bed.is_watched(Eds, "old"));
}

#[test]
fn a74_switch_happens_when_the_new_cluster_turns_out_missing() {
    let mut bed = Bed::routed(&["old"]);
    bed.leaf("old", 1);
    bed.routes(&["new"]);
    bed.gone(Cds, "new");
    assert_eq!(routed_to(&bed), "new");
    assert!(bed.cluster("new").starts_with("error"));
}

#[test]
fn a74_old_clusters_follow_their_endpoints_while_a_switch_waits() {
    let mut bed = Bed::routed(&["old"]);
    bed.leaf("old", 1);
    bed.routes(&["new"]);
    bed.endpoints("old", &[5]);
    assert_eq!((routed_to(&bed), bed.cluster("old")), ("old".into(), "known 5".into()));
}

#[test]
fn a71_old_cluster_deleted_while_a_switch_waits_goes_on() {
    let mut bed = Bed::routed(&["old"]);
    bed.leaf("old", 1);
    bed.routes(&["new"]);
    bed.gone(Cds, "old");
    assert_eq!((routed_to(&bed), bed.cluster("old")), ("old".into(), "known 1".into()));
    bed.leaf("new", 2);
    assert_eq!(routed_to(&bed), "new");
}

#[test]
fn a74_switch_taken_back_leaves_nothing_behind() {
    let mut bed = Bed::routed(&["old"]);
    bed.leaf("old", 1);
    bed.routes(&["new"]);
    bed.eds_cluster("new");
    bed.routes(&["old"]);
    assert_eq!(routed_to(&bed), "old");
    assert!(!bed.is_watched(Cds, "new") && !bed.is_watched(Eds, "new"));
}

#[test]
fn a74_other_route_configuration_is_waited_for() {
    let mut bed = Bed::new();
    bed.give(TARGET, listener(RouteSource::Rds("r1".into())));
    bed.give("r1", Resource::RouteConfiguration(route_config(&["*"], &["c"])));
    bed.leaf("c", 1);
    bed.give(TARGET, listener(RouteSource::Rds("r2".into())));
    assert!(bed.is_watched(Rds, "r1") && bed.is_watched(Rds, "r2"));
    bed.endpoints("c", &[2]);
    assert_eq!((routed_to(&bed), bed.cluster("c")), ("c".into(), "known 2".into()));
    bed.give("r2", Resource::RouteConfiguration(route_config(&["*"], &["c"])));
    assert!(!bed.is_watched(Rds, "r1"));
    assert_eq!(bed.cluster("c"), "known 2", "the cluster was watched all the time");
}

#[test]
fn a74_other_route_configuration_that_is_missing_fails_the_channel() {
    let mut bed = Bed::new();
    bed.give(TARGET, listener(RouteSource::Rds("r1".into())));
    bed.give("r1", Resource::RouteConfiguration(route_config(&["*"], &["c"])));
    bed.leaf("c", 1);
    bed.give(TARGET, listener(RouteSource::Rds("r2".into())));
    bed.gone(Rds, "r2");
    assert!(bed.failure().starts_with("RouteConfiguration r2: does not exist"));
}

#[test]
fn a27_88_moved_endpoints_are_waited_for() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    bed.give("c", cluster(ClusterKind::Eds { service_name: Some("moved".into()) }));
    assert_eq!(bed.cluster("c"), "known 1");
    assert!(bed.is_watched(Eds, "c") && bed.is_watched(Eds, "moved"));
    bed.endpoints("moved", &[2]);
    assert_eq!(bed.cluster("c"), "known 2");
    assert!(!bed.is_watched(Eds, "c"));
}

#[test]
fn a74_other_route_configuration_that_cannot_be_asked_for_is_waited_for() {
    let mut bed = Bed::new();
    bed.give(TARGET, listener(RouteSource::Rds("r1".into())));
    bed.give("r1", Resource::RouteConfiguration(route_config(&["*"], &["c"])));
    bed.leaf("c", 1);
    bed.give(TARGET, listener(RouteSource::Rds("r2".into())));
    bed.unreachable(Rds, "r2");
    assert_eq!((routed_to(&bed), bed.cluster("c")), ("c".into(), "known 1".into()));
    assert!(bed.is_watched(Rds, "r1") && bed.is_watched(Rds, "r2"));
    bed.endpoints("c", &[2]);
    assert_eq!(bed.cluster("c"), "known 2", "the old routes follow their endpoints");
    bed.gone(Rds, "r2");
    assert!(bed.failure().starts_with("RouteConfiguration r2: does not exist"));
}

#[test]
fn a74_cluster_of_new_routes_that_cannot_be_asked_for_is_waited_for() {
    let mut bed = Bed::routed(&["old"]);
    bed.leaf("old", 1);
    bed.routes(&["new"]);
    bed.unreachable(Cds, "new");
    assert_eq!(routed_to(&bed), "old");
    bed.eds_cluster("new");
    bed.unreachable(Eds, "new");
    assert_eq!(routed_to(&bed), "old");
    bed.endpoints("new", &[2]);
    assert_eq!((routed_to(&bed), bed.cluster("new")), ("new".into(), "known 2".into()));
}

#[test]
fn a74_cluster_of_old_and_new_routes_that_cannot_be_asked_for_is_waited_for() {
    let mut bed = Bed::routed(&["old", "both"]);
    bed.leaf("old", 1);
    bed.gone(Cds, "both");
    assert_eq!(bed.cluster("old"), "known 1");
    bed.eds_cluster("both");
    bed.routes(&["both"]);
    bed.unreachable(Eds, "both");
    assert_eq!(bed.cluster("old"), "known 1", "the old routes serve, although not this cluster of theirs");
    bed.endpoints("both", &[2]);
    assert_eq!(bed.clusters().into_values().collect::<Vec<_>>(), ["known 2"]);
}

#[test]
fn a74_cluster_of_new_routes_that_does_not_exist_is_not_waited_for() {
    for known_before in [true, false] {
        let mut bed = Bed::routed(&["old"]);
        bed.leaf("old", 1);
        bed.routes(&["new"]);
        if known_before {
            bed.gone(Cds, "new");
            // An unreachable server does not revoke its earlier resources.
            bed.unreachable(Cds, "new");
        } else {
            bed.unreachable(Cds, "new");
            bed.gone(Cds, "new");
        }
        assert_eq!(routed_to(&bed), "new");
        assert!(bed.cluster("new").starts_with("error"));
    }
}

#[test]
fn a57_without_anything_that_serves_an_unreachable_server_is_an_error() {
    let mut bed = Bed::routed(&["a", "b"]);
    bed.unreachable(Cds, "a");
    bed.unreachable(Cds, "b");
    assert!(bed.cluster("a").starts_with("error") && bed.cluster("b").starts_with("error"));
    // The first leaf with data serves first.
    bed.leaf("b", 2);
    assert!(bed.cluster("a").starts_with("error"));
    assert_eq!(bed.cluster("b"), "known 2");
    bed.leaf("a", 1);
    assert_eq!(bed.cluster("a"), "known 1");
}

#[test]
fn a27_88_moved_endpoints_that_cannot_be_asked_for_are_waited_for() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    bed.give("c", cluster(ClusterKind::Eds { service_name: Some("moved".into()) }));
    bed.unreachable(Eds, "moved");
    assert_eq!(bed.cluster("c"), "known 1");
    bed.endpoints("c", &[5]);
    assert_eq!(bed.cluster("c"), "known 1", "endpoints under the old name are not those of the cluster");
    bed.gone(Eds, "moved");
    assert_eq!(bed.cluster("c"), "missing");
    bed.endpoints("moved", &[2]);
    assert_eq!(bed.cluster("c"), "known 2");
}
