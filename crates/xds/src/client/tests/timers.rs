//! The timer that finds resources which do not exist (gRFC A57).

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn x_09_timer_starts_when_the_subscription_was_sent() {
    let mut h = Harness::new(config());
    h.hold_sends = true;
    h.watch(1, EDS, "e");
    h.advance(60 * SECOND);
    h.up();
    h.advance(60 * SECOND);
    assert_eq!(h.core.next_deadline(), None);
    h.send_done();
    assert_eq!(h.core.next_deadline(), Some(h.now + 15 * SECOND));
    h.advance(14 * SECOND);
    h.expect_told(&[]);
    h.advance(SECOND);
    h.expect_told(&[
        "1: err ClusterLoadAssignment e: does not exist: requested 15.0 s ago*server xds.test:1, node node-1",
    ]);
    assert_eq!(h.core.next_deadline(), None);
}

#[test]
fn x_09_each_resource_has_its_own_timer() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.advance(10 * SECOND);
    h.watch(2, EDS, "f");
    h.advance(5 * SECOND);
    h.expect_told(&["1: err*does not exist"]);
    h.advance(10 * SECOND);
    h.expect_told(&["2: err*does not exist"]);
}

#[test]
fn x_09_timer_ends_with_the_stream_and_starts_again_on_the_next() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[]);
    h.advance(14 * SECOND);
    h.down();
    assert_eq!(h.core.next_deadline(), None);
    h.advance(60 * SECOND);
    h.up();
    h.advance(14 * SECOND);
    h.expect_told(&[]);
    h.advance(SECOND);
    h.expect_told(&["1: err*does not exist*last ADS error 75.0 s ago: UNAVAILABLE: connection refused"]);
}

#[test]
fn x_09_cached_resource_has_no_timer_on_a_new_stream() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    assert_eq!(h.core.next_deadline(), None);
    h.restart();
    assert_eq!(h.core.next_deadline(), None);
}

#[test]
fn a57_rejected_resource_did_come() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[bad_assignment("e")]);
    assert_eq!(h.core.next_deadline(), None);
    h.expect_told(&["1: err*rejected version \"1\""]);
}

#[test]
fn a57_resource_that_could_not_be_read_is_not_said_to_be_missing_only() {
    let mut h = Harness::started(config(), &[(CDS, "c"), (EDS, "e")]);
    h.respond(CDS, "2", &[garbage(CDS)]);
    h.advance(15 * SECOND);
    h.expect_told(&[
        "1: err Cluster c: does not exist: requested 15.0 s ago and not received in a readable form: the last Cluster \
         response, version \"2\", was rejected: resource 0: does not decode*server xds.test:1",
        "2: err ClusterLoadAssignment e: does not exist: requested 15.0 s ago and not received (server",
    ]);
    // A good response puts an end to it.
    h.respond(CDS, "3", &[cluster("other", "")]);
    h.watch(3, CDS, "d");
    h.advance(15 * SECOND);
    h.expect_told(&["3: err Cluster d: does not exist: requested 15.0 s ago and not received (server"]);
}

#[test]
fn a57_resource_that_comes_after_the_timer_is_used() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.advance(20 * SECOND);
    h.watch(2, EDS, "e");
    h.expect_told(&["1: err*does not exist", "2: err*does not exist"]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.expect_told(&["1: ok", "2: ok"]);
}

#[test]
fn a57_resource_in_time_counts_even_at_the_last_moment() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.now = h.now + 15 * SECOND;
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.expect_told(&["1: ok"]);
}

#[test]
fn a57_absence_from_a_response_is_not_deletion_while_the_timer_runs() {
    let mut h = Harness::started(config(), &[(CDS, "old"), (CDS, "new")]);
    h.respond(CDS, "1", &[cluster("old", "")]);
    h.expect_told(&["1: ok"]);
    h.advance(15 * SECOND);
    h.expect_told(&["2: err Cluster new: does not exist"]);
}

#[test]
fn timer_goes_with_its_watch() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (CDS, "c")]);
    h.respond(CDS, "1", &[cluster("c", "")]);
    h.unwatch(1);
    assert_eq!(h.core.next_deadline(), None);
}

#[test]
fn a88_timer_can_mean_a_slow_server() {
    let features = ServerFeatures { resource_timer_is_transient_error: true, ..Default::default() };
    let mut h = Harness::started(config_with(features, data_errors_gate()), &[(EDS, "e")]);
    h.advance(29 * SECOND);
    h.expect_told(&[]);
    h.advance(SECOND);
    h.expect_told(&["1: err*no answer in time: requested 30.0 s ago"]);
    assert_eq!(h.dump_of("e").status, ResourceStatus::Timeout);
    // Without the gate the feature means nothing.
    let mut h = Harness::started(config_with(features, Gates::default()), &[(EDS, "e")]);
    h.advance(15 * SECOND);
    assert_eq!(h.dump_of("e").status, ResourceStatus::DoesNotExist);
}
