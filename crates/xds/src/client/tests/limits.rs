//! What a server sends costs memory in proportion, whatever it is.

use super::*;

fn detail(h: &mut Harness) -> String {
    h.request().error_detail.expect("a NACK").message
}

#[test]
fn of_very_many_bad_resources_the_first_are_named_and_all_are_counted() {
    let mut h = Harness::started(config(), &[(CDS, "c0"), (CDS, "c999")]);
    let bad: Vec<_> = (0..1000).map(|i| bad_cluster(&format!("c{i}"))).collect();
    h.respond(CDS, "1", &bad);
    h.expect_told(&["1: err*rejected version", "2: err*rejected version"]);
    let detail = detail(&mut h);
    assert!(detail.contains("resource 49 (c49)") && !detail.contains("c50"), "{detail}");
    assert!(detail.ends_with("; and 950 more"), "{detail}");
    assert_eq!(h.core.update_counts()[&CDS], UpdateCounts { valid: 0, invalid: 1000 });
}

#[test]
fn response_with_too_many_resources_is_rejected_and_changes_nothing() {
    let mut config = config();
    config.limits.resources_per_response = 3;
    let mut h = Harness::started(config, &[(CDS, "a"), (CDS, "d")]);
    h.respond(CDS, "1", &["a", "b", "c"].map(|name| cluster(name, "")));
    h.expect_told(&["1: ok"]);
    assert!(h.request().error_detail.is_none(), "three are not too many");
    // Neither is "d" used nor "a" deleted.
    h.message(response(CDS, "2", "n2", &["b", "c", "d", "e"].map(|name| cluster(name, ""))));
    h.expect_told(&[]);
    let request = h.request();
    assert_eq!((&*request.version_info, &*request.response_nonce), ("1", "n2"));
    assert_eq!(request.error_detail.expect("a NACK").message, "more than 3 resources, the limit");
    assert_eq!(h.core.update_counts()[&CDS].invalid, 1);
    // Errors of resources count as well.
    let mut errors = response(CDS, "3", "n3", &[cluster("a", "x")]);
    errors.resource_errors = vec![ReportedError::default(); 3];
    h.advance(Duration::from_secs(1));
    h.message(errors);
    assert!(detail(&mut h).contains("more than 3 resources"));
    // The wait for "d" says what came instead of it.
    h.advance(Duration::from_secs(15));
    h.expect_told(&["2: err*does not exist*more than 3 resources"]);
    h.respond(CDS, "4", &[cluster("a", ""), cluster("d", "")]);
    h.expect_told(&["2: ok"]);
}

#[test]
fn assignment_with_too_many_endpoints_is_rejected_by_its_name() {
    let mut config = config();
    // The locality counts, too.
    config.limits.endpoints_per_assignment = 1;
    let mut h = Harness::started(config, &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.expect_told(&["1: err*endpoints: more than 1 endpoints, the limit"]);
    let mut config = super::config();
    config.limits.endpoints_per_assignment = 2;
    let mut h = Harness::started(config, &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.expect_told(&["1: ok"]);
}

#[test]
fn a40_13_whole_response_mode_has_one_text_for_all_resources() {
    let mut config = config();
    config.nack_mode = NackMode::WholeResponse;
    let mut h = Harness::started(config, &[(EDS, "a"), (EDS, "b")]);
    let bad = (0..1000).map(|i| bad_assignment(&format!("bad{i}")));
    let all: Vec<_> = [assignment("a", 1), assignment("b", 1)].into_iter().chain(bad).collect();
    h.respond(EDS, "1", &all);
    let why = |(_, event)| match event {
        WatchEvent::Changed(Err(error)) => match &error.kind {
            ResourceErrorKind::Invalid { why, .. } => Arc::clone(why),
            other => panic!("{other}"),
        },
        other => panic!("{other:?}"),
    };
    let texts: Vec<Arc<str>> = std::mem::take(&mut h.events).into_iter().map(why).collect();
    assert!(texts.len() == 2 && Arc::ptr_eq(&texts[0], &texts[1]), "{texts:?}");
    assert!(texts[0].len() <= 8192 && texts[0].ends_with("; and 950 more"), "{}", texts[0]);
}

#[test]
fn long_version_is_held_once_and_shown_in_part() {
    let version = "v".repeat(1 << 20);
    let mut h = Harness::started(config(), &[(EDS, "a"), (EDS, "b"), (EDS, "c")]);
    h.respond(EDS, &version, &[assignment("a", 1), assignment("b", 1), bad_assignment("c")]);
    let told = h.told();
    assert!(told[2].contains("rejected version") && told[2].len() < 1000, "{}", told[2].len());
    let (a, b, c) = (h.dump_of("a"), h.dump_of("b"), h.dump_of("c"));
    assert_eq!(*a.version, *version, "CSDS has all of it");
    let error = c.error.expect("an error");
    assert!(Arc::ptr_eq(&a.version, &b.version) && Arc::ptr_eq(&a.version, &error.version));
    assert!(error.reason.len() < 1000, "{}", error.reason.len());
    // The same bytes under another version.
    h.respond(EDS, "2", &[assignment("a", 1), assignment("b", 1)]);
    assert_eq!((&*h.dump_of("a").version, &*h.dump_of("c").version), ("2", ""));
}

/// An aggregate of this many clusters.
fn aggregate(name: &str, children: usize) -> Any {
    use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
    let children = ClusterConfig { clusters: (0..children).map(|i| format!("c{i}")).collect() };
    let typed_config = envoy_types::pb::google::protobuf::Any {
        type_url: ClusterConfig::type_url(),
        value: children.encode_to_vec(),
    };
    let custom = cluster::CustomClusterType { name: String::new(), typed_config: Some(typed_config) };
    any(&Cluster {
        name: name.into(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::ClusterType(custom)),
        ..Default::default()
    })
}

#[test]
fn a37_aggregate_of_too_many_clusters_is_rejected_by_its_name() {
    let mut config = config();
    config.limits.elements_per_cluster = 3;
    let mut h = Harness::started(config, &[(CDS, "three"), (CDS, "four")]);
    h.respond(CDS, "1", &[aggregate("three", 3), aggregate("four", 4)]);
    h.expect_told(&["2: err*more than 3 elements, the limit", "1: ok"]);
    assert!(detail(&mut h).contains("resource 1 (four)"));
}

#[test]
fn a99_list_of_too_many_clusters_is_rejected_by_its_name() {
    use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
    let list = ResourceType::AggregateClusterConfig;
    let of =
        |children: usize| any(&ClusterConfig { clusters: (0..children).map(|i| format!("c{i}")).collect() });
    let mut config = config_with(
        ServerFeatures::default(),
        Gates { aggregate_cluster_resource: true, ..Gates::default() },
    );
    config.limits.clusters_per_aggregate = 3;
    let mut h = Harness::started(config, &[(list, "three"), (list, "four")]);
    h.respond(list, "1", &[wrapped("three", &of(3)), wrapped("four", &of(4)), of(4)]);
    h.expect_told(&["2: err*clusters: more than 3 clusters, the limit", "1: ok"]);
    let detail = detail(&mut h);
    assert!(detail.contains("resource 1 (four)") && detail.contains("resource 2: clusters"), "{detail}");
}

#[test]
fn long_cluster_is_rejected_by_its_name() {
    let mut config = config();
    let good = cluster("a", "");
    config.limits.cluster_bytes = good.value.len();
    let mut h = Harness::started(config, &[(CDS, "a"), (CDS, "b")]);
    h.respond(CDS, "1", &[good, cluster("b", "x")]);
    h.expect_told(&["1: ok", "2: err*bytes, more than the limit of"]);
    assert!(detail(&mut h).contains("resource 1 (b)"));
}

#[test]
fn many_rejected_versions_are_not_remembered_for_long() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    for i in 0..1000 {
        h.message(response(EDS, &format!("v{i}"), "n", &[bad_assignment("e")]));
    }
    assert_eq!(h.take_requests().len(), 1000, "each version is another");
    let remembered = h.core.servers[0].stream.as_ref().expect("a stream").nacked.len();
    assert!(remembered <= 64, "{remembered}");
    // The newest is.
    h.message(response(EDS, "v999", "n", &[bad_assignment("e")]));
    assert!(h.take_requests().is_empty());
}
