//! Flow control: one request at a time, one unread response at a time, and commands served all the while.

use super::*;

#[test]
fn requests_go_one_at_a_time_and_subscriptions_are_joined() {
    let mut h = Harness::new(config());
    h.hold_sends = true;
    h.watch(1, EDS, "a");
    h.up();
    for (id, name) in [(2, "b"), (3, "c"), (4, "d")] {
        h.watch(id, EDS, name);
    }
    h.unwatch(4);
    assert_eq!(h.request().resource_names, ["a"]);
    h.send_done();
    assert_eq!(h.request().resource_names, ["a", "b", "c"]);
    h.send_done();
    assert!(h.take_requests().is_empty());
}

#[test]
fn every_response_gets_its_own_answer_in_order() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.hold_sends = true;
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.respond(EDS, "2", &[bad_assignment("e")]);
    h.watch(2, EDS, "f");
    h.respond(EDS, "3", &[assignment("e", 3)]);
    for _ in 0..3 {
        h.send_done();
    }
    assert!(h.unsent.is_empty(), "the new name rode along with an answer");
    let answers: Vec<_> = h
        .take_requests()
        .into_iter()
        .map(|r| (r.version_info, r.response_nonce, r.error_detail.is_some(), r.resource_names.len()))
        .collect();
    let expected = [("1", "n1", false, 1), ("1", "n2", true, 2), ("3", "n3", false, 2)];
    assert_eq!(answers, expected.map(|(v, n, nack, names)| (v.to_owned(), n.to_owned(), nack, names)));
}

#[test]
fn subscription_that_did_not_change_in_the_end_is_not_sent() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (CDS, "c")]);
    h.hold_sends = true;
    h.watch(3, CDS, "d");
    h.watch(4, EDS, "f");
    h.unwatch(4);
    h.send_done();
    assert_eq!(h.request().type_url, CDS.type_url());
}

#[test]
fn next_message_is_read_when_every_watcher_is_done() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (EDS, "e"), (EDS, "f")]);
    h.hold_tokens = true;
    assert_eq!(h.reads, 1);
    h.respond(EDS, "1", &[assignment("e", 1), assignment("f", 1)]);
    assert_eq!((h.reads, h.tokens.len()), (1, 3));
    assert_eq!(h.take_requests().len(), 1, "the ACK does not wait");
    h.release_token();
    h.release_token();
    h.input(Input::TokenReleased { token: ReadToken(999) });
    assert_eq!(h.reads, 1);
    // Follow-up watches are served while the response is held.
    h.watch(9, CDS, "c");
    assert_eq!(h.request().type_url, CDS.type_url());
    h.release_token();
    assert_eq!(h.reads, 2);
    // A response that tells nobody anything is done with at once.
    h.respond(EDS, "2", &[assignment("e", 1)]);
    assert_eq!((h.reads, h.tokens.len()), (3, 0));
}

#[test]
fn slow_watcher_is_not_waited_for() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (EDS, "f")]);
    h.hold_tokens = true;
    h.respond(EDS, "1", &[assignment("e", 1), assignment("f", 1)]);
    h.advance(Duration::from_millis(4999));
    assert_eq!((h.reads, h.core.is_slow(WATCHER)), (1, false));
    h.advance(Duration::from_millis(1));
    assert_eq!((h.reads, h.core.is_slow(WATCHER)), (2, true));
    assert_eq!(h.core.next_deadline(), None);
    h.told();
    // While it is slow, nothing waits for it: only the latest event of each watch is kept.
    for version in 2..9 {
        h.respond(EDS, &version.to_string(), &[assignment("e", version), bad_assignment("f")]);
    }
    h.respond(EDS, "9", &[assignment("f", 9)]);
    h.watch(3, EDS, "e");
    h.watch(4, EDS, "e");
    h.unwatch(4);
    assert_eq!((h.reads, h.tokens.len()), (10, 2));
    h.expect_told(&[]);
    h.release_token();
    h.input(Input::TokenReleased { token: ReadToken(999) });
    h.expect_told(&[]);
    h.release_token();
    h.expect_told(&["1: ok", "2: ok", "3: ok"]);
    assert!(!h.core.is_slow(WATCHER));
    // The events that it missed are not of the current response.
    h.respond(EDS, "10", &[]);
    assert_eq!((h.reads, h.tokens.len()), (11, 3));
    // It may become slow again.
    h.advance(Duration::from_secs(5));
    assert!(h.core.is_slow(WATCHER));
}

#[test]
fn slow_watcher_delays_no_other() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    let other = WatchKey { watcher: WatcherId(8), watch: WatchId(1) };
    h.input(Input::Watch { watch: other, resource_type: EDS, name: "e".into() });
    h.hold_tokens = true;
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.advance(Duration::from_secs(4));
    // The second watcher handles its event in time.
    let token = h.tokens.pop_back().expect("a token");
    h.input(Input::TokenReleased { token });
    h.advance(Duration::from_secs(1));
    assert_eq!((h.core.is_slow(WATCHER), h.core.is_slow(other.watcher)), (true, false));
    h.told();
    h.respond(EDS, "2", &[assignment("e", 2)]);
    h.expect_told(&["1: ok"]);
    assert_eq!(h.reads, 2, "the response waits for the watcher that keeps up");
    // Watches that have ended get nothing.
    h.input(Input::Leave { watcher: WATCHER });
    h.release_token();
    h.expect_told(&[]);
    assert!(!h.core.is_slow(WATCHER));
    assert_eq!(h.core.dump().len(), 1, "the other still watches it");
}

#[test]
fn watcher_that_never_runs_costs_no_more_than_its_resources() {
    // Also events that no response caused are tracked.
    let mut h = Harness::new(config());
    h.hold_tokens = true;
    h.watch(1, EDS, "e");
    for reason in 0..100 {
        h.input(Input::StreamDown { stream: h.stream, code: None, reason: format!("reason {reason}") });
        h.advance(Duration::from_secs(200));
    }
    assert_eq!(h.tokens.len(), 1, "the rest is kept");
    h.told();
    h.release_token();
    h.expect_told(&["1: err*reason 99"]);
}

#[test]
fn tokens_of_a_past_stream_hold_nothing_up() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.hold_tokens = true;
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.restart();
    assert_eq!(h.reads, 2);
    h.respond(EDS, "2", &[assignment("e", 2)]);
    h.release_token();
    assert_eq!(h.reads, 2, "the old stream's token does not release the new stream's message");
    h.release_token();
    assert_eq!(h.reads, 3);
}

#[test]
fn bad_messages_are_read_over() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.input(Input::Message { stream: h.stream, bytes: Bytes::from_static(b"\xff\xff\xff\xff") });
    assert_eq!(h.reads, 2);
    let mut unknown = response(EDS, "1", "n1", &[]);
    unknown.type_url = "type.googleapis.com/google.protobuf.StringValue".into();
    h.message(unknown);
    assert_eq!((h.reads, h.take_requests().len()), (3, 0));
    h.expect_told(&[]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.expect_told(&["1: ok"]);
}

#[test]
fn server_that_never_reads_is_not_read_from_for_ever() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.hold_sends = true;
    let mut sent = 0;
    while h.reads > sent && sent < 1000 {
        sent += 1;
        h.respond(EDS, &sent.to_string(), &[]);
    }
    assert!(sent < 100, "{sent} responses were read without an answer leaving");
    let reads = h.reads;
    h.send_done();
    assert_eq!(h.reads, reads + 1);
}

#[test]
fn many_watches_while_a_request_is_stuck_do_not_stop_reading() {
    let mut h = Harness::started(config(), &[(CDS, "c"), (EDS, "first")]);
    h.hold_sends = true;
    for id in 3..200 {
        h.watch(id, EDS, &format!("e{id}"));
    }
    let reads = h.reads;
    h.respond(CDS, "1", &[]);
    assert_eq!(h.reads, reads + 1, "subscription changes are one request, however many");
}

#[test]
fn long_nonces_of_a_server_that_never_reads_are_not_piled_up() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.hold_sends = true;
    let nonce = "n".repeat(400_000);
    let mut sent = 0;
    while h.reads > sent && sent < 50 {
        sent += 1;
        h.message(response(EDS, "1", &nonce, &[]));
    }
    // The first is on its way out; those behind it have more than a megabyte.
    assert_eq!(sent, 4);
    h.send_done();
    assert_eq!(h.reads, 5, "one has left");
}

#[test]
fn a_resource_can_be_requested_until_it_is_watched() {
    let mut h = Harness::started(config(), &[(CDS, "c")]);
    let names = |name: &str| -> Arc<str> { name.into() };
    assert_eq!(h.core.watched_name(h.key(1)), Some(&names("c")));
    assert!(!h.core.is_requestable(CDS, &names("c")));
    assert!(h.core.is_requestable(EDS, &names("c")));
    // A47: its authority is not in the bootstrap.
    let other = "xdstp://other/envoy.config.cluster.v3.Cluster/c";
    assert!(!h.core.is_requestable(CDS, &names(other)));
    h.unwatch(1);
    assert_eq!(h.core.watched_name(h.key(1)), None);
    assert!(h.core.is_requestable(CDS, &names("c")));
}
