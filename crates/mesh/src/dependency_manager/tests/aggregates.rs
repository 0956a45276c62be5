//! Aggregate clusters, with their list inline (gRFC A37) or as a resource (A99).

use super::*;
use ResourceType::{AggregateClusterConfig as List, Cluster as Cds, ClusterLoadAssignment as Eds};

/// `top` above these leaves, all of them answered; their ports count from 1.
fn serving(leaves: &[&str]) -> Bed {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate("top", leaves);
    for (leaf, port) in leaves.iter().zip(1..) {
        bed.leaf(leaf, port);
    }
    bed
}

/// The same with the list in the ClusterConfig `list`.
fn serving_by_resource(leaves: &[&str]) -> Bed {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate_resource("top", "list");
    bed.cluster_config("list", leaves);
    for (leaf, port) in leaves.iter().zip(1..) {
        bed.leaf(leaf, port);
    }
    bed
}

#[test]
fn a37_08_children_are_watched_and_flattened() {
    let mut bed = Bed::routed(&["a"]);
    bed.aggregate("a", &["b", "c"]);
    assert!(bed.is_watched(Cds, "b") && bed.is_watched(Cds, "c"));
    bed.aggregate("c", &["d", "e"]);
    for (leaf, port) in [("b", 1), ("d", 2), ("e", 3)] {
        bed.leaf(leaf, port);
    }
    let clusters = bed.clusters();
    assert_eq!(clusters["a"], "leaves b d e", "A37-10");
    assert_eq!(clusters.into_keys().collect::<Vec<_>>(), ["a", "b", "d", "e"]);
}

#[test]
fn a37_11_lower_leaves_are_not_waited_for() {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate("top", &["a", "b", "c"]);
    bed.eds_cluster("a");
    bed.eds_cluster("b");
    assert!(bed.config.is_none());
    bed.endpoints("a", &[1]);
    let clusters = bed.clusters();
    assert_eq!(clusters["top"], "leaves a b c");
    assert_eq!((&*clusters["a"], &*clusters["b"], &*clusters["c"]), ("known 1", "pending", "pending"));
    bed.endpoints("b", &[2]);
    assert_eq!(bed.cluster("b"), "known 2");
    bed.aggregate("c", &["d", "b"]);
    assert_eq!((bed.cluster("top"), bed.cluster("d")), ("leaves a b d".into(), "pending".into()));
}

#[test]
fn a37_11_higher_leaves_are_waited_for() {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate("top", &["a", "b"]);
    bed.leaf("b", 2);
    bed.eds_cluster("a");
    assert!(bed.config.is_none());
    bed.gone(Eds, "a");
    assert_eq!((bed.cluster("top"), bed.cluster("a")), ("leaves a b".into(), "missing".into()), "A37-40");
}

#[test]
fn a37_11_leaf_without_endpoints_does_not_start_the_aggregate() {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate("top", &["a", "b"]);
    bed.eds_cluster("a");
    bed.endpoints("a", &[]);
    assert!(bed.config.is_none());
    let endpoints = vec![endpoint(9, EndpointHealth::Draining)];
    let locality = LocalityEndpoints { locality: Arc::default(), weight: 1, endpoints };
    let draining = ClusterLoadAssignment { priorities: vec![vec![locality]], drops: Vec::new() };
    bed.give("a", Resource::ClusterLoadAssignment(Arc::new(draining)));
    assert!(bed.config.is_none());
    bed.leaf("b", 2);
    assert_eq!(bed.cluster("top"), "leaves a b");
}

#[test]
fn a37_11_pending_stand_in_keeps_its_pointer() {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate("top", &["a", "later"]);
    bed.leaf("a", 1);
    let before = bed.config();
    bed.endpoints("a", &[2]);
    let after = bed.config();
    let (Ok(before), Ok(after)) = (&before.clusters["later"], &after.clusters["later"]) else { panic!() };
    assert!(before.is_pending() && Arc::ptr_eq(before, after));
}

#[test]
fn a37_13_leaf_used_twice_is_watched_once_and_updated_in_both_places() {
    let mut bed = Bed::routed(&["top", "other", "x"]);
    bed.aggregate("top", &["x"]);
    bed.aggregate("other", &["x"]);
    bed.leaf("x", 1);
    assert_eq!(bed.log.iter().filter(|line| *line == "watch Cluster x").count(), 1);
    assert_eq!((bed.cluster("top"), bed.cluster("other")), ("leaves x".into(), "leaves x".into()));
    bed.endpoints("x", &[2]);
    assert_eq!(bed.cluster("x"), "known 2", "A37-14");
}

#[test]
fn a37_18_too_deep_a_tree_fails_its_root_only() {
    let mut bed = Bed::routed(&["agg1", "plain"]);
    bed.leaf("plain", 1);
    for i in 1..=15 {
        bed.aggregate(&format!("agg{i}"), &[&format!("agg{}", i + 1)]);
    }
    assert!(bed.config.is_none());
    bed.aggregate("agg16", &["leaf"]);
    assert!(bed.cluster("agg1").contains("agg16 -> leaf"));
    assert_eq!(bed.cluster("plain"), "known 1");
    assert!(!bed.is_watched(Cds, "leaf"));
    bed.aggregate("agg15", &["leaf"]);
    bed.leaf("leaf", 2);
    assert_eq!(bed.cluster("agg1"), "leaves leaf", "A37-17");
}

#[test]
fn a74_missing_child_is_skipped_and_comes_back() {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate("top", &["a", "b"]);
    bed.leaf("b", 2);
    bed.gone(Cds, "a");
    assert_eq!(bed.cluster("top"), "leaves b");
    assert!(bed.note("top").expect("a note").starts_with("Cluster a: does not exist"));
    assert!(bed.cluster("a").starts_with("error"), "A74: referenced by an aggregate, so it has an entry");
    bed.eds_cluster("a");
    assert_eq!(bed.cluster("top"), "leaves b", "the old leaf serves until the new one has its data");
    bed.endpoints("a", &[1]);
    assert_eq!((bed.cluster("top"), bed.note("top")), ("leaves a b".into(), None));
}

#[test]
fn a74_aggregate_without_any_leaf_fails() {
    let mut bed = Bed::routed(&["top", "plain"]);
    bed.leaf("plain", 1);
    bed.aggregate("top", &["a"]);
    bed.gone(Cds, "a");
    let top = bed.cluster("top");
    assert!(
        top.starts_with("error aggregate cluster top") && top.contains("Cluster a: does not exist"),
        "{top}"
    );
    assert_eq!(bed.cluster("plain"), "known 1");
}

#[test]
fn a37_21_ambient_error_of_an_aggregate_is_noted() {
    let mut bed = serving_by_resource(&["a"]);
    bed.ambient(Cds, "top", Some("down"));
    bed.ambient(List, "list", Some("down"));
    let note = bed.note("top").expect("a note");
    assert!(note.contains("Cluster top: ") && note.contains("ClusterConfig list: "), "{note}");
    assert_eq!(bed.cluster("top"), "leaves a");
}

#[test]
fn a37_10_new_order_takes_effect_at_once() {
    let mut bed = serving(&["a", "b"]);
    bed.aggregate("top", &["b", "a"]);
    assert_eq!(bed.cluster("top"), "leaves b a");
}

#[test]
fn a37_08_dropped_child_is_unwatched() {
    let mut bed = serving(&["a", "b"]);
    bed.aggregate("top", &["a"]);
    assert_eq!(bed.cluster("top"), "leaves a");
    assert!(!bed.is_watched(Cds, "b") && !bed.is_watched(Eds, "b"));
    assert!(!bed.clusters().contains_key("b"));
}

#[test]
fn not_yet_loaded_leaf_on_top_waits_while_the_old_ones_serve() {
    let mut bed = serving(&["a", "b"]);
    bed.aggregate("top", &["new", "a", "b"]);
    assert_eq!(bed.cluster("top"), "leaves a b");
    bed.endpoints("b", &[7]);
    assert_eq!(bed.cluster("b"), "known 7", "the old leaves still follow their endpoints");
    bed.eds_cluster("new");
    assert_eq!(bed.cluster("top"), "leaves a b");
    bed.endpoints("new", &[9]);
    assert_eq!(bed.cluster("top"), "leaves new a b");
}

#[test]
fn not_yet_loaded_leaf_at_the_end_is_taken_at_once() {
    let mut bed = serving(&["a"]);
    bed.aggregate("top", &["a", "new"]);
    assert_eq!((bed.cluster("top"), bed.cluster("new")), ("leaves a new".into(), "pending".into()));
}

#[test]
fn not_yet_loaded_leaf_does_not_replace_one_that_may_serve() {
    let mut bed = serving(&["a", "b"]);
    bed.aggregate("top", &["a", "new"]);
    assert_eq!(bed.cluster("top"), "leaves a b");
    assert!(bed.is_watched(Cds, "b") && bed.is_watched(Eds, "b"));
    bed.gone(Cds, "new");
    assert_eq!(bed.cluster("top"), "leaves a");
    assert!(!bed.is_watched(Cds, "b"));
}

#[test]
fn waiting_aggregate_does_not_hold_up_other_routes() {
    let mut bed = serving(&["a"]);
    bed.aggregate("top", &["new", "a"]);
    bed.routes(&["top", "plain"]);
    bed.leaf("plain", 5);
    assert_eq!((bed.cluster("plain"), bed.cluster("top")), ("known 5".into(), "leaves a".into()));
}

#[test]
fn leaf_with_moved_endpoints_keeps_the_old_ones_until_then() {
    let mut bed = serving(&["a", "b"]);
    bed.give("b", cluster(ClusterKind::Eds { service_name: Some("moved".into()) }));
    assert_eq!((bed.cluster("top"), bed.cluster("b")), ("leaves a b".into(), "known 2".into()));
    bed.endpoints("moved", &[5]);
    assert_eq!(bed.cluster("b"), "known 5");
}

#[test]
fn child_turns_aggregate_and_back() {
    let mut bed = serving(&["a", "b"]);
    bed.aggregate("a", &["x"]);
    assert_eq!((bed.cluster("top"), bed.cluster("a")), ("leaves a b".into(), "known 1".into()));
    bed.leaf("x", 8);
    assert_eq!(bed.cluster("top"), "leaves x b");
    assert!(!bed.is_watched(Eds, "a"));
    bed.eds_cluster("a");
    assert_eq!(bed.cluster("top"), "leaves x b");
    bed.endpoints("a", &[9]);
    assert_eq!((bed.cluster("top"), bed.cluster("a")), ("leaves a b".into(), "known 9".into()));
    assert!(!bed.is_watched(Cds, "x"));
}

#[test]
fn root_turns_leaf_and_back() {
    let mut bed = serving(&["a"]);
    bed.eds_cluster("top");
    assert_eq!(bed.cluster("top"), "leaves a");
    bed.endpoints("top", &[4]);
    assert_eq!(bed.cluster("top"), "known 4");
    bed.aggregate("top", &["a"]);
    assert_eq!(bed.cluster("top"), "known 4");
    bed.leaf("a", 5);
    assert_eq!((bed.cluster("top"), bed.cluster("a")), ("leaves a".into(), "known 5".into()));
}

#[test]
fn a99_09_list_resource_is_asked_for() {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate_resource("top", "list");
    assert_eq!(bed.log.last().map(String::as_str), Some("watch ClusterConfig list"));
    bed.cluster_config("list", &["a", "b"]);
    bed.leaf("a", 1);
    assert_eq!(
        (bed.cluster("top"), bed.cluster("b")),
        ("leaves a b".into(), "pending".into()),
        "A99-10, A99-11"
    );
}

#[test]
fn a99_12_list_changes_without_cds() {
    let mut bed = serving_by_resource(&["a", "b"]);
    bed.cluster_config("list", &["b", "a"]);
    assert_eq!(bed.cluster("top"), "leaves b a");
    bed.cluster_config("list", &["a"]);
    assert_eq!(bed.cluster("top"), "leaves a");
    assert!(!bed.is_watched(Cds, "b"));
}

#[test]
fn a99_20_list_named_twice_is_watched_once() {
    let mut bed = Bed::routed(&["one", "two"]);
    bed.aggregate_resource("one", "list");
    bed.aggregate_resource("two", "list");
    bed.cluster_config("list", &["a"]);
    bed.leaf("a", 1);
    assert_eq!((bed.cluster("one"), bed.cluster("two")), ("leaves a".into(), "leaves a".into()));
    assert_eq!(bed.log.iter().filter(|line| *line == "watch ClusterConfig list").count(), 1);
}

#[test]
fn a99_21_unreferenced_list_is_unwatched() {
    let mut bed = serving_by_resource(&["a"]);
    bed.aggregate("top", &["a"]);
    assert!(!bed.is_watched(List, "list"));
    assert_eq!(bed.cluster("top"), "leaves a");
}

#[test]
fn a99_22_missing_list_fails_that_aggregate_and_may_come_late() {
    let mut bed = Bed::routed(&["top", "plain"]);
    bed.leaf("plain", 1);
    bed.aggregate_resource("top", "list");
    assert!(bed.config.is_none());
    bed.gone(List, "list");
    let top = bed.cluster("top");
    assert!(top.starts_with("error aggregate cluster top: ClusterConfig list: does not exist"), "{top}");
    assert_eq!(bed.cluster("plain"), "known 1");
    bed.cluster_config("list", &["a"]);
    bed.leaf("a", 2);
    assert_eq!(bed.cluster("top"), "leaves a");
}

#[test]
fn a99_23_last_good_list_survives_errors() {
    let mut bed = serving_by_resource(&["a"]);
    let nacked = ResourceErrorKind::Invalid { version: "2".into(), why: "no clusters".into() };
    let lost = ResourceErrorKind::Transient("stream reset".into());
    for kind in [nacked, lost] {
        bed.event(List, "list", WatchEvent::Ambient(Some(error(List, "list", kind))));
        assert_eq!(bed.cluster("top"), "leaves a");
    }
}

#[test]
fn a99_26_old_leaves_serve_while_a_renamed_list_loads() {
    let mut bed = serving_by_resource(&["a"]);
    bed.aggregate_resource("top", "renamed");
    assert_eq!(bed.cluster("top"), "leaves a");
    assert!(bed.is_watched(List, "list") && bed.is_watched(List, "renamed") && bed.is_watched(Eds, "a"));
    bed.cluster_config("renamed", &["b"]);
    assert_eq!(bed.cluster("top"), "leaves a");
    bed.leaf("b", 2);
    assert_eq!(bed.cluster("top"), "leaves b");
    assert!(!bed.is_watched(List, "list") && !bed.is_watched(Cds, "a"));
}

#[test]
fn a99_26_old_leaves_serve_while_a_renamed_list_cannot_be_asked_for() {
    let mut bed = serving_by_resource(&["a"]);
    bed.aggregate_resource("top", "renamed");
    bed.unreachable(List, "renamed");
    assert_eq!(bed.cluster("top"), "leaves a");
    assert!(bed.is_watched(List, "list") && bed.is_watched(List, "renamed") && bed.is_watched(Eds, "a"));
    bed.cluster_config("renamed", &["b", "a"]);
    bed.unreachable(Cds, "b");
    assert_eq!(bed.cluster("top"), "leaves a", "nothing is known of the new first leaf");
    bed.eds_cluster("b");
    bed.unreachable(Eds, "b");
    assert_eq!(bed.cluster("top"), "leaves a", "nor of its endpoints");
    bed.endpoints("b", &[2]);
    assert_eq!(bed.cluster("top"), "leaves b a");
    bed.aggregate_resource("top", "missing");
    bed.unreachable(List, "missing");
    bed.gone(List, "missing");
    assert!(bed.cluster("top").starts_with("error"), "that is a statement about the list");
}

#[test]
fn a57_leaves_that_cannot_be_asked_for_at_first_are_passed_over() {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate("top", &["a", "b"]);
    bed.unreachable(Cds, "a");
    bed.leaf("b", 2);
    assert_eq!(bed.cluster("top"), "leaves b");
    bed.leaf("a", 1);
    assert_eq!(bed.cluster("top"), "leaves a b");
}

#[test]
fn a37_49_an_aggregate_starts_with_a_leaf_that_drops_everything() {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate("top", &["a", "b"]);
    bed.eds_cluster("a");
    let drops = vec![DropCategory { category: "all".into(), per_million: 1_000_000 }];
    let assignment = ClusterLoadAssignment { priorities: Vec::new(), drops };
    bed.give("a", Resource::ClusterLoadAssignment(Arc::new(assignment)));
    assert_eq!(bed.cluster("top"), "leaves a b", "b is not needed");
}

#[test]
fn a99_26_inline_to_resource_and_back_without_a_gap() {
    let mut bed = serving(&["a"]);
    bed.aggregate_resource("top", "list");
    assert_eq!(bed.cluster("top"), "leaves a");
    bed.cluster_config("list", &["a", "b"]);
    assert_eq!(bed.cluster("top"), "leaves a b");
    bed.leaf("b", 2);
    bed.aggregate("top", &["b", "a"]);
    assert_eq!(bed.cluster("top"), "leaves b a");
    assert_eq!(
        bed.log.iter().filter(|line| *line == "watch Cluster a").count(),
        1,
        "never dropped on the way"
    );
}

#[test]
fn a99_26_nested_list_that_loads_keeps_its_old_leaves() {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate("top", &["a", "nested"]);
    bed.aggregate_resource("nested", "list");
    bed.cluster_config("list", &["b"]);
    bed.leaf("a", 1);
    bed.leaf("b", 2);
    bed.aggregate_resource("nested", "renamed");
    assert_eq!((bed.cluster("top"), bed.cluster("b")), ("leaves a b".into(), "known 2".into()));
    bed.cluster_config("renamed", &["b", "c"]);
    assert_eq!(bed.cluster("top"), "leaves a b c");
}

#[test]
fn not_yet_loaded_leaf_does_not_move_above_one_that_may_serve() {
    let mut bed = serving(&["a", "b"]);
    bed.aggregate("top", &["a", "b", "later"]);
    assert_eq!(bed.cluster("top"), "leaves a b later");
    bed.aggregate("top", &["a", "later", "b"]);
    assert_eq!(bed.cluster("top"), "leaves a b later");
    bed.leaf("later", 3);
    assert_eq!(bed.cluster("top"), "leaves a later b");
}

#[test]
fn leaf_deleted_while_the_new_list_loads_goes_on() {
    let mut bed = serving(&["a", "b"]);
    bed.aggregate("top", &["new", "a", "b"]);
    bed.gone(Cds, "b");
    assert_eq!((bed.cluster("top"), bed.cluster("b")), ("leaves a b".into(), "known 2".into()));
    bed.leaf("new", 3);
    assert_eq!(bed.cluster("top"), "leaves new a");
    assert!(bed.cluster("b").starts_with("error"));
}

#[test]
fn a99_21_list_replaced_by_an_equal_one_does_not_come_back() {
    let mut bed = Bed::routed(&["top"]);
    bed.aggregate("top", &["nested"]);
    bed.aggregate_resource("nested", "list");
    bed.cluster_config("list", &["a"]);
    bed.leaf("a", 1);
    bed.aggregate_resource("nested", "renamed");
    let before = bed.config();
    bed.cluster_config("renamed", &["a"]);
    assert!(Arc::ptr_eq(&before, &bed.config()), "nothing changed for the channel");
    assert!(!bed.is_watched(List, "list"));
    bed.routes(&["new"]);
    assert!(bed.is_watched(List, "renamed") && !bed.is_watched(List, "list"));
}
