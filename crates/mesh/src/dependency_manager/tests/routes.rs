//! Listener, routes, virtual host.

use super::*;
use ResourceType::{
    Cluster as Cds, ClusterLoadAssignment as Eds, Listener as Lds, RouteConfiguration as Rds,
};

#[test]
fn a27_35_nothing_is_watched_before_the_start() {
    let mut manager = DependencyManager::new("l".into(), "l".into());
    manager.claim_cluster(&"c".into());
    assert_eq!(manager.poll_effect(), None);
    manager.start();
    let watched = manager.poll_effect();
    assert!(matches!(watched, Some(DependencyEffect::Watch { resource_type: Lds, .. })), "{watched:?}");
    manager.start();
    let watched = manager.poll_effect();
    assert!(matches!(watched, Some(DependencyEffect::Watch { resource_type: Cds, .. })), "{watched:?}");
    assert_eq!(manager.poll_effect(), None);
}

#[test]
fn a27_02_each_type_is_asked_for_by_names_found_before() {
    let mut bed = Bed::new();
    assert_eq!(bed.log, ["watch Listener server.example.com"], "A27-36, A27-63: the target's name as it is");
    bed.give(TARGET, listener(RouteSource::Rds("routes".into())));
    assert_eq!(bed.log[1..], ["watch RouteConfiguration routes"], "A27-37, A27-72");
    bed.give("routes", Resource::RouteConfiguration(route_config(&["*"], &["c"])));
    assert_eq!(bed.log[2..], ["watch Cluster c"], "A27-82");
    assert!(bed.config.is_none());
    bed.eds_cluster("c");
    assert_eq!(bed.log[3..], ["watch ClusterLoadAssignment c"], "A27-89");
    assert!(bed.config.is_none());
    bed.endpoints("c", &[1]);
    assert_eq!(bed.cluster("c"), "known 1");
    assert_eq!(bed.log.len(), 4);
}

#[test]
fn a27_38_inline_routes_need_no_rds() {
    let mut bed = Bed::routed(&["c"]);
    assert_eq!(bed.log[1..], ["watch Cluster c"]);
    bed.leaf("c", 1);
    assert_eq!(bed.config().virtual_host.name, "host");
    assert!(Arc::ptr_eq(&bed.config().virtual_host, &bed.config().route_config.virtual_hosts[0]));
}

#[test]
fn a27_38_rds_is_dropped_when_the_routes_become_inline() {
    let mut bed = Bed::new();
    bed.give(TARGET, listener(RouteSource::Rds("routes".into())));
    bed.give("routes", Resource::RouteConfiguration(route_config(&["*"], &["c"])));
    bed.leaf("c", 1);
    bed.routes(&["c"]);
    assert!(!bed.is_watched(Rds, "routes"));
}

#[test]
fn a74_listener_that_does_not_exist_drops_the_configuration() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    bed.config();
    bed.gone(Lds, TARGET);
    assert_eq!(
        bed.failure(),
        "Listener server.example.com: does not exist: deleted (server xds.test:1, node n1)"
    );
    assert_eq!(bed.watches.len(), 1, "only the Listener is still of interest: {:?}", bed.watches);
    bed.routes(&["c"]);
    bed.leaf("c", 2);
    assert_eq!(bed.cluster("c"), "known 2");
}

#[test]
fn a74_error_without_earlier_data_fails_the_channel() {
    let mut bed = Bed::new();
    bed.ambient(Lds, TARGET, Some("no route to host"));
    assert!(bed.failure().contains("unreachable: no route to host"));
    bed.give(TARGET, listener(RouteSource::Rds("routes".into())));
    assert!(bed.failure().contains("Listener"), "nothing new to say yet");
    bed.ambient(Rds, "routes", Some("no route to host"));
    assert!(bed.failure().starts_with("RouteConfiguration routes: "));
}

#[test]
fn a74_ambient_error_of_the_routes_is_only_noted() {
    let mut bed = Bed::new();
    bed.give(TARGET, listener(RouteSource::Rds("routes".into())));
    bed.give("routes", Resource::RouteConfiguration(route_config(&["*"], &["c"])));
    bed.leaf("c", 1);
    bed.ambient(Lds, TARGET, Some("stream lost"));
    bed.ambient(Rds, "routes", Some("stream lost"));
    assert_eq!(bed.cluster("c"), "known 1");
    let note = bed.note("c").expect("a note");
    assert!(
        note.contains("Listener server.example.com") && note.contains("RouteConfiguration routes"),
        "{note}"
    );
    bed.ambient(Lds, TARGET, None);
    bed.ambient(Rds, "routes", None);
    assert_eq!(bed.note("c"), None);
}

#[test]
fn a74_routes_that_do_not_exist_drop_the_configuration() {
    let mut bed = Bed::new();
    bed.give(TARGET, listener(RouteSource::Rds("routes".into())));
    bed.give("routes", Resource::RouteConfiguration(route_config(&["*"], &["c"])));
    bed.leaf("c", 1);
    bed.gone(Rds, "routes");
    assert!(bed.failure().starts_with("RouteConfiguration routes: does not exist"));
    assert!(bed.is_watched(Rds, "routes") && !bed.is_watched(Cds, "c") && !bed.is_watched(Eds, "c"));
}

#[test]
fn a27_66_socket_listener_fails_the_channel() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    bed.give(TARGET, Resource::Listener(Arc::new(Listener { kind: ListenerKind::Socket })));
    assert_eq!(bed.failure(), "Listener server.example.com: it is a socket listener, not an API listener");
}

#[test]
fn a27_76_no_virtual_host_fails_the_channel() {
    let mut bed = Bed::routed(&["c"]);
    bed.leaf("c", 1);
    bed.give(TARGET, listener(RouteSource::Inline(route_config(&["other"], &["c"]))));
    assert_eq!(
        bed.failure(),
        "Listener server.example.com: no virtual host for \"server.example.com\" (there are other)"
    );
    let many: Vec<String> = (0..13).map(|i| format!("d{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    bed.give(TARGET, listener(RouteSource::Inline(route_config(&many, &["c"]))));
    assert!(bed.failure().ends_with("(there are d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, and 3 more)"));
    bed.give(TARGET, listener(RouteSource::Rds("routes".into())));
    bed.give(
        "routes",
        Resource::RouteConfiguration(Arc::new(RouteConfiguration { virtual_hosts: Vec::new() })),
    );
    let failure = bed.failure();
    assert!(
        failure.starts_with("RouteConfiguration routes: no virtual host")
            && failure.ends_with("(there are none)"),
        "A27-74: {failure}"
    );
}

#[test]
fn a74_same_failure_is_told_once() {
    let mut bed = Bed::new();
    bed.gone(Lds, TARGET);
    bed.failure();
    bed.config = None;
    bed.gone(Lds, TARGET);
    assert!(bed.config.is_none());
}

#[test]
fn a28_clusters_of_every_route_are_watched_even_with_weight_zero() {
    let mut bed = Bed::new();
    let weighted = [("w", 1), ("zero", 0)].map(|(name, weight)| WeightedCluster {
        name: name.into(),
        weight,
        filter_overrides: FilterOverrides::default(),
    });
    let host = VirtualHost {
        name: "host".into(),
        domains: vec!["*".into()],
        routes: vec![
            route(None),
            route(Some(ClusterSpecifier::Cluster("one".into()))),
            route(Some(ClusterSpecifier::Weighted(weighted.into()))),
        ],
        retry_policy: None,
        filter_overrides: FilterOverrides::default(),
    };
    let routes = Arc::new(RouteConfiguration { virtual_hosts: vec![Arc::new(host)] });
    bed.give(TARGET, listener(RouteSource::Inline(routes)));
    assert_eq!(bed.log[1..], ["watch Cluster one", "watch Cluster w", "watch Cluster zero"]);
}

#[test]
fn a74_routes_without_clusters_are_a_configuration() {
    let mut bed = Bed::new();
    let host = VirtualHost {
        name: "host".into(),
        domains: vec!["*".into()],
        routes: vec![route(None)],
        retry_policy: None,
        filter_overrides: FilterOverrides::default(),
    };
    let routes = Arc::new(RouteConfiguration { virtual_hosts: vec![Arc::new(host)] });
    bed.give(TARGET, listener(RouteSource::Inline(routes)));
    assert!(bed.clusters().is_empty());
}
