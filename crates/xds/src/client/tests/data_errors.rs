//! Deletion (X-11, gRFC A53) and data errors (gRFC A88).

use super::*;

pub(super) const FAIL: ServerFeatures = ServerFeatures {
    ignore_resource_deletion: false,
    fail_on_data_errors: true,
    resource_timer_is_transient_error: false,
    trusted_xds_server: false,
};
pub(super) const IGNORE: ServerFeatures =
    ServerFeatures { ignore_resource_deletion: true, fail_on_data_errors: false, ..FAIL };

/// Clusters `a` and `b`, both in use.
fn two_clusters(config: XdsCoreConfig) -> Harness {
    let mut h = Harness::started(config, &[(CDS, "a"), (CDS, "b")]);
    h.respond(CDS, "1", &[cluster("a", ""), cluster("b", "")]);
    h.expect_told(&["1: ok", "2: ok"]);
    h.requests.clear();
    h
}

pub(super) fn reported(name: &str, code: i32) -> DiscoveryResponse {
    let status =
        envoy_types::pb::google::rpc::Status { code, message: "no such thing".into(), ..Default::default() };
    let name = messages::ResourceName { name: name.into() };
    let error = ReportedError { resource_name: Some(name), error_detail: Some(status) };
    DiscoveryResponse { resource_errors: vec![error], ..response(EDS, "9", "n9", &[]) }
}

#[test]
fn x_11_cluster_that_leaves_the_response_is_dropped_and_may_return() {
    let mut h = two_clusters(config());
    h.respond(CDS, "2", &[cluster("b", "")]);
    assert_eq!(h.request().error_detail, None);
    h.expect_told(&["1: err Cluster a: does not exist: deleted by the server: version \"2\""]);
    assert_eq!(h.core.next_deadline(), None, "no timer for a deleted resource");
    h.watch(3, CDS, "a");
    h.expect_told(&["3: err*deleted"]);
    h.respond(CDS, "3", &[cluster("b", "")]);
    h.expect_told(&[]);
    h.respond(CDS, "4", &[cluster("a", ""), cluster("b", "")]);
    h.expect_told(&["1: ok", "3: ok"]);
}

#[test]
fn x_11_rds_and_eds_are_not_deleted_by_absence() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (RDS, "r")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.respond(RDS, "1", &[route("r")]);
    h.told();
    h.respond(EDS, "2", &[]);
    h.respond(RDS, "2", &[]);
    h.expect_told(&[]);
}

#[test]
fn x_11_bad_resource_with_a_name_is_not_deleted() {
    let mut h = two_clusters(config());
    h.respond(CDS, "2", &[bad_cluster("a"), cluster("b", "")]);
    h.expect_told(&["1: ambient*rejected"]);
}

#[test]
fn x_11_resource_without_a_readable_name_stops_deletion() {
    let mut h = two_clusters(config());
    h.respond(CDS, "2", &[garbage(CDS)]);
    assert!(h.request().error_detail.is_some());
    h.expect_told(&[]);
}

#[test]
fn a53_ignored_deletion_keeps_the_resource() {
    let mut h = two_clusters(config_with(IGNORE, Gates::default()));
    h.respond(CDS, "2", &[cluster("b", "")]);
    h.expect_told(&["1: ambient*deleted*\"2\""]);
    h.respond(CDS, "3", &[cluster("b", "")]);
    h.expect_told(&[]);
    h.respond(CDS, "4", &[cluster("a", ""), cluster("b", "")]);
    h.expect_told(&["1: fine"]);
}

#[test]
fn a88_deletion_keeps_the_resource_by_default() {
    let mut h = two_clusters(config_with(ServerFeatures::default(), data_errors_gate()));
    h.respond(CDS, "2", &[cluster("b", "")]);
    h.expect_told(&["1: ambient*deleted"]);
    let dump = h.dump_of("a");
    assert_eq!(dump.status, ResourceStatus::DoesNotExist);
    assert!(dump.raw.is_some());
}

#[test]
fn a88_fail_on_data_errors_drops_deleted_and_rejected_resources() {
    let mut h = two_clusters(config_with(FAIL, data_errors_gate()));
    h.respond(CDS, "2", &[bad_cluster("b")]);
    h.expect_told(&["2: err*rejected", "1: err*deleted"]);
    let dump = h.dump_of("b");
    assert_eq!((dump.status, dump.raw, dump.version), (ResourceStatus::Nacked, None, "".into()));
    // The bytes that were dropped are news when they come back.
    h.respond(CDS, "3", &[cluster("a", ""), cluster("b", "")]);
    h.expect_told(&["1: ok", "2: ok"]);
}

#[test]
fn a88_fail_on_data_errors_means_nothing_without_the_gate() {
    let mut h = two_clusters(config_with(FAIL, Gates::default()));
    h.respond(CDS, "2", &[bad_cluster("a"), cluster("b", "")]);
    h.expect_told(&["1: ambient*rejected"]);
}

#[test]
fn a88_reported_error_ends_the_wait() {
    let mut h = Harness::started(config_with(ServerFeatures::default(), data_errors_gate()), &[(EDS, "e")]);
    h.message(reported("e", 5));
    h.expect_told(&["1: err*status NOT_FOUND: no such thing"]);
    assert_eq!(h.core.next_deadline(), None);
    assert_eq!(h.request().error_detail, None, "a reported error does not make the response invalid");
    let dump = h.dump_of("e");
    assert_eq!(dump.status, ResourceStatus::ReceivedError);
    assert!(dump.error.unwrap().reason.contains("no such thing"));
    h.respond(EDS, "10", &[assignment("e", 1)]);
    h.expect_told(&["1: ok"]);
}

#[test]
fn a88_reported_error_is_ambient_unless_it_must_fail() {
    for (features, code, told) in
        [(IGNORE, 5, "1: ambient"), (FAIL, 5, "1: err"), (FAIL, 7, "1: err"), (FAIL, 14, "1: ambient")]
    {
        let mut h = Harness::started(config_with(features, data_errors_gate()), &[(EDS, "e")]);
        h.respond(EDS, "1", &[assignment("e", 1)]);
        h.message(reported("e", code));
        h.expect_told(&["1: ok", told]);
    }
}

#[test]
fn a88_reported_error_without_name_or_status_is_rejected() {
    let mut h = Harness::started(config_with(ServerFeatures::default(), data_errors_gate()), &[(EDS, "e")]);
    for bad in [reported("", 5), reported("e", 0)] {
        h.advance(Duration::from_secs(1));
        h.message(bad);
        assert!(h.request().error_detail.unwrap().message.contains("resource_errors[0]"));
    }
    h.expect_told(&[]);
}

#[test]
fn a88_reported_errors_are_ignored_without_the_gate() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.message(reported("e", 5));
    h.expect_told(&[]);
    assert_eq!(h.request().error_detail, None);
}
