//! Clusters that are leaves, and subscriptions.

use super::*;
use ResourceType::{Cluster as Cds, ClusterLoadAssignment as Eds};

#[test]
fn a27_89_without_a_service_name_eds_is_asked_for_the_clusters_name() {
    let mut bed = Bed::routed(&["c"]);
    bed.eds_cluster("c");
    assert_eq!(bed.log.last().map(String::as_str), Some("watch ClusterLoadAssignment c"));
    bed.endpoints("c", &[7]);
    assert_eq!(bed.cluster("c"), "known 7");
}

#[test]
fn a27_88_service_name_is_the_name_of_the_eds_resource() {
    let mut bed = Bed::routed(&["a", "b"]);
    bed.give("a", cluster(ClusterKind::Eds { service_name: Some("shared".into()) }));
    bed.give("b", cluster(ClusterKind::Eds { service_name: Some("shared".into()) }));
    assert_eq!(bed.log.last().map(String::as_str), Some("watch ClusterLoadAssignment shared"));
    bed.endpoints("shared", &[7]);
    assert_eq!((bed.cluster("a"), bed.cluster("b")), ("known 7".into(), "known 7".into()));
}

#[test]
fn new_settings_of_a_cluster_change_its_entry_alone() {
    let mut bed = Bed::routed(&["above", "beside"]);
    bed.aggregate("above", &["below"]);
    bed.leaf("below", 1);
    bed.leaf("beside", 2);
    bed.ambient(Cds, "below", Some("down"));
    let before = bed.config();
    assert!(bed.note("below").is_some());
    bed.eds_cluster("below");
    let after = bed.config();
    let changed: Vec<_> = after.changed_since(&before).iter().map(ToString::to_string).collect();
    assert_eq!(changed, ["above", "below"]);
    assert!(Arc::ptr_eq(
        after.clusters["above"].as_ref().unwrap(),
        before.clusters["above"].as_ref().unwrap()
    ));
    assert_eq!((bed.cluster("below"), bed.note("below")), ("known 1".into(), None));
}

#[test]
fn a74_missing_cluster_fails_alone() {
    let mut bed = Bed::routed(&["good", "bad"]);
    bed.leaf("good", 1);
    assert!(bed.config.is_none(), "the other is not answered yet");
    bed.gone(Cds, "bad");
    assert_eq!(bed.cluster("good"), "known 1");
    assert_eq!(bed.cluster("bad"), "error Cluster bad: does not exist: deleted (server xds.test:1, node n1)");
    bed.leaf("bad", 2);
    assert_eq!(bed.cluster("bad"), "known 2", "it is still watched");
}

#[test]
fn a37_20_stream_error_before_any_data_fails_the_cluster() {
    let mut bed = Bed::routed(&["c"]);
    bed.ambient(Cds, "c", Some("down"));
    assert!(bed.cluster("c").starts_with("error Cluster c: management server unreachable: down"));
}

#[test]
fn a37_21_stream_error_after_data_is_only_noted() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    assert_eq!(bed.note("c"), None);
    bed.ambient(Cds, "c", Some("down"));
    bed.ambient(Eds, "c", Some("down"));
    assert_eq!(bed.cluster("c"), "known 1");
    let note = bed.note("c").expect("a note");
    assert!(note.contains("Cluster c: ") && note.contains("ClusterLoadAssignment c: "), "{note}");
    bed.eds_cluster("c");
    bed.endpoints("c", &[2]);
    assert_eq!(bed.note("c"), None);
}

#[test]
fn a37_36_eds_error_before_any_data_is_one_empty_priority() {
    let mut bed = Bed::routed(&["c"]);
    bed.eds_cluster("c");
    bed.ambient(Eds, "c", Some("down"));
    assert_eq!(bed.cluster("c"), "missing");
    assert!(bed.note("c").expect("a note").contains("unreachable: down"));
}

#[test]
fn a37_38_deleted_endpoints_are_missing_even_after_data() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    bed.gone(Eds, "c");
    assert_eq!(bed.cluster("c"), "missing");
    assert!(bed.note("c").expect("a note").starts_with("ClusterLoadAssignment c: does not exist"));
    bed.endpoints("c", &[2]);
    assert_eq!((bed.cluster("c"), bed.note("c")), ("known 2".into(), None));
}

#[test]
fn a37_39_endpoints_survive_other_errors() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    bed.ambient(Eds, "c", Some("down"));
    assert_eq!(bed.cluster("c"), "known 1");
}

#[test]
fn assignment_without_endpoints_is_noted() {
    let mut bed = Bed::routed(&["c"]);
    bed.eds_cluster("c");
    bed.endpoints("c", &[]);
    assert_eq!(bed.note("c").as_deref(), Some("ClusterLoadAssignment c: it has no localities"));
    let locality = LocalityEndpoints { locality: Arc::default(), weight: 1, endpoints: Vec::new() };
    let assignment = ClusterLoadAssignment { priorities: vec![vec![locality]], drops: Vec::new() };
    bed.give("c", Resource::ClusterLoadAssignment(Arc::new(assignment)));
    let note = bed.note("c").expect("a note");
    assert!(note.starts_with("ClusterLoadAssignment c: no endpoints in (no locality)"), "{note}");
}

#[test]
fn a74_unchanged_clusters_keep_their_pointer() {
    let mut bed = Bed::routed(&["a", "b"]);
    bed.leaf("a", 1);
    bed.leaf("b", 2);
    let before = bed.config();
    bed.endpoints("b", &[3]);
    let after = bed.config();
    let same = |name: &str| match (&before.clusters[name], &after.clusters[name]) {
        (Ok(before), Ok(after)) => Arc::ptr_eq(before, after),
        _ => false,
    };
    assert!(same("a") && !same("b"));
}

#[test]
fn a74_unchanged_resources_do_not_cause_an_update() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    let before = bed.config();
    let Ok(cluster) = &before.clusters["c"] else { panic!("{:?}", before.clusters) };
    let again = Resource::Cluster(Arc::clone(cluster.cluster().expect("a Cluster")));
    bed.config = None;
    bed.give("c", again);
    assert!(bed.config.is_none());
}

#[test]
fn events_of_ended_watches_are_ignored() {
    let mut bed = Bed::routed(&["old"]);
    bed.leaf("old", 1);
    let late = bed.watches[&(Cds, "old".into())];
    bed.routes(&["new"]);
    bed.leaf("new", 2);
    assert!(!bed.is_watched(Cds, "old"));
    bed.config = None;
    bed.manager.on_resource(late, WatchEvent::Changed(Ok(cluster(ClusterKind::Eds { service_name: None }))));
    bed.pump();
    assert!(bed.config.is_none());
}

#[test]
fn a74_subscription_keeps_a_cluster_that_no_route_names() {
    let mut bed = Bed::routed(&["old"]);
    bed.leaf("old", 1);
    let old: Arc<str> = "old".into();
    bed.manager.claim_cluster(&old);
    bed.manager.claim_cluster(&old);
    bed.routes(&["new"]);
    bed.leaf("new", 2);
    assert_eq!(bed.clusters().into_keys().collect::<Vec<_>>(), ["new", "old"]);
    bed.endpoints("old", &[3]);
    assert_eq!(bed.cluster("old"), "known 3");
    bed.manager.release_cluster(&old);
    bed.pump();
    assert!(bed.is_watched(Cds, "old"), "one subscription is left");
    bed.manager.release_cluster(&old);
    bed.pump();
    assert_eq!(bed.clusters().into_keys().collect::<Vec<_>>(), ["new"]);
    assert!(!bed.is_watched(Cds, "old") && !bed.is_watched(Eds, "old"));
    bed.manager.release_cluster(&old);
}

#[test]
fn a74_subscribed_cluster_holds_nothing_up() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    bed.manager.claim_cluster(&"dynamic".into());
    bed.pump();
    bed.routes(&["c", "c"]);
    assert_eq!(bed.config().virtual_host.routes, route_config(&[], &["c", "c"]).virtual_hosts[0].routes);
    bed.endpoints("c", &[2]);
    assert_eq!(bed.clusters().into_values().collect::<Vec<_>>(), ["known 2", "pending"]);
    bed.leaf("dynamic", 3);
    assert_eq!(bed.cluster("dynamic"), "known 3");
    // Its endpoints move: until they are there it goes on as before.
    bed.give("dynamic", cluster(ClusterKind::Eds { service_name: Some("moved".into()) }));
    bed.routes(&["d"]);
    bed.leaf("d", 4);
    assert_eq!((bed.cluster("d"), bed.cluster("dynamic")), ("known 4".into(), "known 3".into()));
    bed.endpoints("moved", &[5]);
    assert_eq!(bed.cluster("dynamic"), "known 5");
    assert!(!bed.is_watched(Eds, "dynamic"));
}

#[test]
fn a_batch_of_events_is_one_update() {
    let mut bed = Bed::routed(&["a", "b"]);
    bed.leaf("a", 1);
    bed.leaf("b", 1);
    for (name, port) in [("a", 2), ("b", 3)] {
        let watch = bed.watches[&(Eds, name.into())];
        bed.manager.on_resource(watch, WatchEvent::Changed(Ok(assignment(&[port]))));
    }
    assert!(bed.manager.resolve().is_some());
    assert!(bed.manager.resolve().is_none());
}

#[test]
fn a75_34_a_new_idle_timeout_is_an_update() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    for seconds in [5, 7] {
        let Resource::Cluster(eds) = cluster(ClusterKind::Eds { service_name: None }) else { panic!() };
        let idle_timeout = Duration::from_secs(seconds);
        bed.give("c", Resource::Cluster(Arc::new(Cluster { idle_timeout, ..(*eds).clone() })));
        let config = bed.config();
        assert_eq!(
            config.clusters["c"].as_ref().expect("known").cluster().expect("a Cluster").idle_timeout,
            idle_timeout
        );
        assert_eq!(bed.cluster("c"), "known 1");
    }
}
