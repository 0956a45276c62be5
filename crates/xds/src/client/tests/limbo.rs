//! Resources that are unsubscribed and wanted again: whether the server has noticed.

use super::*;

#[test]
fn resource_wanted_again_before_its_unsubscription_was_sent_is_still_there() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (EDS, "f")]);
    h.respond(EDS, "1", &[assignment("e", 1), assignment("f", 1)]);
    h.requests.clear();
    h.told();
    h.hold_sends = true;
    h.watch(3, EDS, "g");
    h.unwatch(1);
    assert!(h.core.dump().iter().all(|dump| &*dump.name != "e"), "nobody watches it now");
    // What comes meanwhile counts: the server believes that we have it.
    h.respond(EDS, "2", &[assignment("e", 2)]);
    h.watch(4, EDS, "e");
    h.expect_told(&["4: ok"]);
    assert_eq!(*h.dump_of("e").version, *"2");
    h.send_done();
    let names: Vec<_> = h.take_requests().into_iter().map(|r| r.resource_names).collect();
    assert!(names.iter().all(|names| *names == ["e", "f", "g"]), "{names:?}");
}

/// Resources `a` and `b`, both in use; then `a` is unsubscribed.
fn let_go(resource_type: ResourceType, resource: impl Fn(&str) -> Any) -> Harness {
    let mut h = Harness::started(config(), &[(resource_type, "a"), (resource_type, "b")]);
    h.respond(resource_type, "1", &[resource("a"), resource("b")]);
    h.told();
    h.requests.clear();
    h.unwatch(1);
    assert_eq!(h.request().resource_names, ["b"]);
    assert!(h.core.dump().iter().all(|dump| &*dump.name != "a"), "nobody watches it now");
    h
}

#[test]
fn resource_wanted_again_after_its_unsubscription_was_crossed_is_still_there() {
    let mut h = let_go(EDS, |name| assignment(name, 1));
    h.watch(3, EDS, "a");
    h.expect_told(&["3: ok"]);
    assert_eq!(h.request().resource_names, ["a", "b"]);
    // The response was on its way when the requests left, so the server ignores them.
    h.respond(EDS, "2", &[assignment("b", 2)]);
    h.expect_told(&["2: ok"]);
    // It sees no change in the ACK, and does not send the resource again.
    assert_eq!(h.request().resource_names, ["a", "b"]);
    h.advance(Duration::from_secs(60));
    h.expect_told(&[]);
    assert_eq!(h.dump_of("a").status, ResourceStatus::Acked);
}

#[test]
fn x_09_resource_wanted_again_soon_is_used_until_its_timer_ends() {
    for comes in [true, false] {
        let mut h = let_go(EDS, |name| assignment(name, 1));
        h.watch(3, EDS, "a");
        h.expect_told(&["3: ok"]);
        assert_eq!(h.request().resource_names, ["a", "b"]);
        if comes {
            h.respond(EDS, "2", &[assignment("a", 1)]);
        }
        h.advance(Duration::from_millis(14_999));
        // A response that comes so late has not crossed the unsubscription.
        h.respond(EDS, "3", &[assignment("b", 2)]);
        h.expect_told(&["2: ok"]);
        h.advance(Duration::from_millis(1));
        if comes {
            h.expect_told(&[]);
        } else {
            h.expect_told(&["3: err ClusterLoadAssignment a: does not exist: requested 15.0 s ago"]);
            assert_eq!(h.dump_of("a").status, ResourceStatus::DoesNotExist);
        }
    }
}

#[test]
fn x_09_resource_wanted_again_after_its_unsubscription_was_read_is_a_new_one() {
    let mut h = let_go(EDS, |name| assignment(name, 1));
    h.advance(Duration::from_secs(2));
    h.watch(3, EDS, "a");
    h.expect_told(&[]);
    assert_eq!(h.request().resource_names, ["a", "b"]);
    assert_eq!(h.dump_of("a").status, ResourceStatus::Requested);
    h.advance(Duration::from_secs(15));
    h.expect_told(&["3: err ClusterLoadAssignment a: does not exist"]);
    h.respond(EDS, "2", &[assignment("a", 1)]);
    h.expect_told(&["3: ok"]);
}

#[test]
fn x_09_later_requests_and_responses_do_not_make_an_unsubscription_doubtful_again() {
    let mut h = let_go(EDS, |name| assignment(name, 1));
    h.advance(Duration::from_secs(2));
    h.watch(3, EDS, "c");
    h.watch(4, EDS, "a");
    h.expect_told(&[]);
    let mut h = let_go(EDS, |name| assignment(name, 1));
    h.advance(Duration::from_secs(2));
    h.hold_sends = true;
    h.respond(EDS, "2", &[assignment("b", 2)]);
    h.watch(3, EDS, "a");
    h.expect_told(&["2: ok"]);
}

#[test]
fn time_in_which_the_client_does_not_read_does_not_count() {
    let mut h = Harness::started(config(), &[(EDS, "a"), (EDS, "b")]);
    h.hold_tokens = true;
    h.respond(EDS, "1", &[assignment("a", 1), assignment("b", 1)]);
    h.unwatch(1);
    h.told();
    h.advance(Duration::from_secs(4));
    // The unread response crosses both requests.
    h.watch(3, EDS, "a");
    h.release_token();
    h.release_token();
    h.expect_told(&["3: ok"]);
    h.advance(Duration::from_secs(1));
    h.respond(EDS, "2", &[assignment("b", 1)]);
    h.release_token();
    h.advance(Duration::from_secs(60));
    h.expect_told(&[]);
    assert_eq!(h.dump_of("a").status, ResourceStatus::Acked);
}

#[test]
fn a88_timer_of_a_slow_server_takes_no_resource_away() {
    let features = ServerFeatures { resource_timer_is_transient_error: true, ..Default::default() };
    let config = config_with(features, data_errors_gate());
    let mut h = Harness::started(config, &[(EDS, "a"), (EDS, "b")]);
    h.respond(EDS, "1", &[assignment("a", 1), assignment("b", 1)]);
    h.unwatch(1);
    h.watch(3, EDS, "a");
    h.told();
    h.advance(Duration::from_secs(30));
    h.expect_told(&["3: ambient*no answer in time"]);
    assert!(h.dump_of("a").raw.is_some());
}

#[test]
fn resource_that_comes_after_its_unsubscription_was_sent_counts() {
    // The response was on its way when the request left, so the server ignores the request.
    let mut h = let_go(EDS, |name| assignment(name, 1));
    h.respond(EDS, "2", &[assignment("a", 2), assignment("b", 1)]);
    h.expect_told(&[]);
    assert_eq!(h.request().resource_names, ["b"], "the ACK repeats the unsubscription");
    h.watch(3, EDS, "a");
    h.expect_told(&["3: ok"]);
    assert_eq!(*h.dump_of("a").version, *"2");
    // Wanted and let go before a request could say so changes nothing.
    h.hold_sends = true;
    h.unwatch(3);
    h.watch(4, EDS, "a");
    h.unwatch(4);
    h.watch(5, EDS, "a");
    h.expect_told(&["4: ok", "5: ok"]);
}

#[test]
fn resource_that_first_comes_after_its_unsubscription_was_sent_counts() {
    let mut h = Harness::started(config(), &[(EDS, "a"), (EDS, "b")]);
    h.unwatch(1);
    h.respond(EDS, "1", &[assignment("a", 1)]);
    h.watch(3, EDS, "a");
    h.expect_told(&["3: ok"]);
    // What was wrong with a resource is not remembered so: it is asked for again.
    let mut h = Harness::started(config(), &[(EDS, "a"), (EDS, "b")]);
    h.respond(EDS, "1", &[bad_assignment("a")]);
    h.told();
    h.unwatch(1);
    h.watch(3, EDS, "a");
    h.expect_told(&[]);
    assert_eq!(h.dump_of("a").status, ResourceStatus::Requested);
}

#[test]
fn unwatched_resource_is_evicted_eventually() {
    let mut h = let_go(EDS, |name| assignment(name, 1));
    h.advance(Duration::from_secs(30));
    h.watch(3, EDS, "a");
    h.expect_told(&[]);
    assert_eq!(h.dump_of("a").status, ResourceStatus::Requested);
    h.unwatch(3);
    h.advance(Duration::from_secs(30));
    h.input(Input::Tick);
    assert_eq!(h.core.cache.names(EDS, |_| true).count(), 1);
    // Or with the stream.
    let mut h = let_go(EDS, |name| assignment(name, 1));
    h.restart();
    assert_eq!(h.core.cache.names(EDS, |_| true).count(), 1);
}

#[test]
fn resource_stays_while_answers_that_repeat_its_unsubscription_are_unsent() {
    let mut h = let_go(EDS, |name| assignment(name, 1));
    h.hold_sends = true;
    h.respond(EDS, "2", &[assignment("a", 1), assignment("b", 1)]);
    h.respond(EDS, "3", &[assignment("a", 1), assignment("b", 1)]);
    h.advance(Duration::from_secs(31));
    h.watch(3, EDS, "a");
    h.expect_told(&["3: ok"]);
    // Once they are sent, the time runs.
    h.unwatch(3);
    h.hold_sends = false;
    h.send_done();
    h.advance(Duration::from_secs(61));
    h.input(Input::Tick);
    assert_eq!(h.core.cache.names(EDS, |_| true).count(), 1);
}

#[test]
fn cluster_that_leaves_the_response_after_its_unsubscription_is_forgotten() {
    let mut h = let_go(CDS, |name| cluster(name, ""));
    h.respond(CDS, "2", &[cluster("b", "")]);
    h.watch(3, CDS, "a");
    h.expect_told(&[]);
    assert_eq!(h.dump_of("a").status, ResourceStatus::Requested);
}

#[test]
fn cluster_that_was_wanted_again_is_not_deleted_by_an_older_response() {
    for comes in [true, false] {
        let mut h = let_go(CDS, |name| cluster(name, ""));
        h.watch(3, CDS, "a");
        h.respond(CDS, "2", &[cluster("b", "")]);
        h.expect_told(&["3: ok"]);
        if comes {
            h.respond(CDS, "3", &[cluster("a", ""), cluster("b", "")]);
        }
        h.advance(Duration::from_secs(15));
        // If the server does not send it in time, the cluster does not exist.
        if comes {
            h.expect_told(&[])
        } else {
            h.expect_told(&["3: err Cluster a: does not exist"])
        }
        assert_eq!(h.core.next_deadline(), None);
    }
}
