//! The life of streams: the contents, times, versions and nonces of requests.

use proxyless_sans_io::values::Code;

use super::*;

#[test]
fn a27_35_stream_opens_with_the_first_watch_and_not_before() {
    let mut h = Harness::new(config());
    h.input(Input::Tick);
    assert_eq!(h.opened, 0);
    h.watch(1, LDS, "svc");
    h.watch(2, CDS, "c");
    assert_eq!((h.opened, h.requests.len(), h.reads), (1, 0, 0));
    h.up();
    let requests = h.take_requests();
    let types: Vec<_> = requests.iter().map(|r| r.type_url.as_str()).collect();
    assert_eq!(types, [LDS.type_url(), CDS.type_url()]);
    assert_eq!(requests[0].resource_names, ["svc"]);
    assert!(requests.iter().all(|r| r.version_info.is_empty() && r.response_nonce.is_empty()));
    assert_eq!(h.reads, 1);
}

#[test]
fn a27_61_node_is_in_the_first_request_of_each_stream_only() {
    let mut h = Harness::new(config());
    h.watch(1, LDS, "svc");
    h.watch(2, CDS, "c");
    for _ in 0..2 {
        h.up();
        h.watch(3, EDS, "e");
        let nodes: Vec<_> = h.take_requests().into_iter().map(|r| r.node).collect();
        assert_eq!(nodes, [Some(h.core.config.node.clone()), None, None]);
        h.respond(CDS, "1", &[cluster("c", "")]);
        h.unwatch(3);
        h.down();
        h.advance(Duration::from_secs(2));
        h.requests.clear();
    }
    let node = envoy_core::Node::decode(h.core.config.node.clone()).unwrap();
    assert_eq!(node.id, "node-1");
}

#[test]
fn one_subscription_however_many_watchers() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.watch(2, EDS, "e");
    assert!(h.take_requests().is_empty());
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.expect_told(&["1: ok", "2: ok"]);
    h.requests.clear();
    h.unwatch(1);
    assert!(h.take_requests().is_empty());
    h.watch(3, EDS, "f");
    assert_eq!(h.request().resource_names, ["e", "f"]);
}

#[test]
fn stream_closes_with_the_last_watch_and_opens_with_the_next() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (CDS, "c")]);
    h.unwatch(1);
    assert_eq!(h.closed, 0);
    h.requests.clear();
    h.unwatch(2);
    assert_eq!((h.closed, h.opened, h.core.next_deadline()), (1, 1, None));
    assert!(h.take_requests().is_empty(), "no request on a stream that closes");
    h.watch(3, EDS, "e");
    assert_eq!(h.opened, 2);
    h.unwatch(3);
    assert_eq!(h.closed, 2);
}

#[test]
fn a57_versions_survive_streams_and_nonces_do_not() {
    let mut h = Harness::started(config(), &[(CDS, "c"), (EDS, "e")]);
    h.respond(CDS, "7", &[cluster("c", "")]);
    h.respond(EDS, "8", &[assignment("e", 1)]);
    h.restart();
    let requests: Vec<_> =
        h.take_requests().into_iter().map(|r| (r.version_info, r.response_nonce, r.resource_names)).collect();
    assert_eq!(
        requests,
        [("7".into(), String::new(), vec!["c".to_owned()]), ("8".into(), String::new(), vec!["e".into()])]
    );
}

#[test]
fn version_is_not_claimed_when_nothing_of_the_type_is_held() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.unwatch(1);
    h.requests.clear();
    h.watch(2, EDS, "e");
    h.up();
    assert_eq!(h.request().version_info, "", "a server that trusts the version would send nothing");
    // Nor when the last one went between streams.
    h.respond(EDS, "2", &[assignment("e", 2)]);
    h.watch(3, CDS, "c");
    h.down();
    h.unwatch(2);
    h.watch(4, EDS, "f");
    h.advance(Duration::from_secs(2));
    h.requests.clear();
    h.up();
    let eds = h.take_requests().into_iter().find(|request| request.type_url == EDS.type_url()).unwrap();
    assert_eq!((eds.version_info.as_str(), eds.resource_names), ("", vec!["f".to_owned()]));
}

#[test]
fn version_is_not_claimed_when_one_resource_was_let_go_between_streams() {
    let mut h = Harness::started(config(), &[(CDS, "a"), (CDS, "b")]);
    h.respond(CDS, "1", &[cluster("a", ""), cluster("b", "")]);
    h.down();
    // Another channel of the same client stops and starts again: its resources are no longer cached.
    h.unwatch(2);
    h.watch(3, CDS, "c");
    h.advance(Duration::from_secs(2));
    h.requests.clear();
    h.up();
    let cds = h.request();
    assert_eq!((cds.version_info.as_str(), cds.resource_names), ("", vec!["a".to_owned(), "c".to_owned()]));
}

#[test]
fn x_08_type_is_acked_after_its_last_unsubscribe() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (CDS, "c")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.requests.clear();
    h.unwatch(1);
    let unsubscribed = h.request();
    assert!(unsubscribed.resource_names.is_empty());
    assert_eq!((unsubscribed.version_info.as_str(), unsubscribed.response_nonce.as_str()), ("1", "n1"));
    h.respond(EDS, "2", &[assignment("e", 2)]);
    let ack = h.request();
    assert_eq!((ack.version_info.as_str(), ack.response_nonce.as_str()), ("2", "n2"));
    h.watch(3, EDS, "f");
    assert_eq!(h.request().response_nonce, "n2");
}

#[test]
fn empty_first_request_is_never_sent() {
    let mut h = Harness::new(config());
    h.hold_sends = true;
    h.watch(1, LDS, "svc");
    h.up();
    h.watch(2, CDS, "c");
    h.unwatch(2);
    h.send_done();
    assert_eq!(h.take_requests().len(), 1, "a CDS request without names would ask for all clusters");
    // Nor is a response of a type that was never asked for answered.
    h.respond(CDS, "1", &[cluster("c", "")]);
    assert!(h.take_requests().is_empty());
    h.watch(3, CDS, "c");
    let first = h.request();
    assert_eq!((first.version_info.as_str(), first.response_nonce.as_str()), ("", ""));
}

#[test]
fn x_10_stream_without_a_response_is_told_to_every_watcher() {
    let mut h = Harness::started(config(), &[(EDS, "cached"), (EDS, "missing")]);
    h.respond(EDS, "1", &[assignment("cached", 1)]);
    h.restart();
    h.expect_told(&["1: ok"]);
    h.down();
    h.expect_told(&[
        "1: ambient ClusterLoadAssignment cached: *unreachable*connection refused*xds.test:1*node-1",
        "2: err ClusterLoadAssignment missing: *unreachable*connection refused",
    ]);
    // A late watcher is told at once.
    h.watch(3, CDS, "late");
    h.expect_told(&["3: err Cluster late: *unreachable"]);
    // An identical response changes nothing.
    h.advance(Duration::from_secs(2));
    assert_eq!(h.opened, 3);
    h.down();
    h.expect_told(&[]);
    // The first response ends it, for resources that it does not have, too.
    h.advance(Duration::from_secs(4));
    h.up();
    h.respond(CDS, "2", &[]);
    h.expect_told(&["1: fine"]);
    h.restart();
    h.down();
    h.expect_told(&["3: err*unreachable", "1: ambient*unreachable", "2: err*unreachable"]);
}

#[test]
fn x_10_stream_that_ended_after_a_response_is_normal() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[]);
    h.down();
    h.expect_told(&[]);
    // Nor is it told to a watcher that comes during the pause.
    h.watch(2, EDS, "f");
    h.expect_told(&[]);
    h.advance(Duration::from_secs(2));
    assert_eq!(h.opened, 2);
}

#[test]
fn x_10_next_stream_follows_at_once_after_ten_seconds_and_after_a_pause_before() {
    for (lived, at_once) in [(9_999, false), (10_000, true)] {
        let mut h = Harness::started(config(), &[(EDS, "e")]);
        h.respond(EDS, "1", &[assignment("e", 1)]);
        h.advance(Duration::from_millis(lived));
        h.down();
        assert_eq!(h.opened, if at_once { 2 } else { 1 }, "lived {lived} ms");
        assert_eq!(h.core.next_deadline().is_none(), at_once);
    }
}

#[test]
fn a57_a_server_that_ends_each_stream_after_a_response_is_not_stormed() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    let end = h.now + Duration::from_secs(100);
    while h.now < end {
        h.respond(EDS, "1", &[assignment("e", 1)]);
        h.down();
        let retry = h.core.next_deadline().expect("a pause before the next stream");
        let delay = retry.since(h.now).as_secs_f64();
        assert!((0.8..=1.2).contains(&delay), "{delay}: a response resets the backoff");
        h.advance(retry.since(h.now));
        h.up();
    }
    assert!((80..=126).contains(&h.opened), "{} streams in 100 s", h.opened);
    h.expect_told(&["1: ok"]);
}

#[test]
fn a_server_without_ads_is_not_called_unreachable() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    let stream = h.stream;
    h.input(Input::StreamDown { stream, code: Some(Code::Unimplemented), reason: "UNIMPLEMENTED".into() });
    h.expect_told(&["1: err*the management server has no ADS service*right port*UNIMPLEMENTED*xds.test:1"]);
    h.advance(Duration::from_secs(2));
    let stream = h.stream;
    h.input(Input::StreamDown { stream, code: Some(Code::Unavailable), reason: "UNAVAILABLE".into() });
    h.expect_told(&["1: err*unreachable*UNAVAILABLE"]);
}

#[test]
fn a57_backoff_grows_and_restarts_after_a_response() {
    let mut h = Harness::new(config());
    h.watch(1, EDS, "e");
    let mut base = 1.0;
    for attempt in 1..15 {
        assert_eq!(h.opened, attempt);
        h.down();
        let delay = h.core.next_deadline().unwrap().since(h.now);
        assert!((base * 0.8..=base * 1.2).contains(&delay.as_secs_f64()), "{delay:?} around {base}");
        h.advance(delay);
        base = f64::min(base * 1.6, 120.0);
    }
    h.up();
    h.respond(EDS, "1", &[]);
    h.down();
    assert!(h.core.next_deadline().unwrap().since(h.now) <= Duration::from_millis(1200));
}

#[test]
fn garbage_does_not_reset_the_backoff() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.input(Input::Message { stream: h.stream, bytes: Bytes::from_static(b"\xff\xff") });
    h.down();
    assert_eq!(h.opened, 1);
    h.expect_told(&["1: err*unreachable"]);
}

#[test]
fn watches_are_served_during_backoff() {
    let mut h = Harness::new(config());
    h.watch(1, EDS, "e");
    h.down();
    h.watch(2, CDS, "c");
    h.unwatch(1);
    assert_eq!(h.opened, 1, "a watch does not cut the backoff short");
    h.advance(Duration::from_secs(2));
    h.up();
    let request = h.request();
    assert_eq!((request.type_url.as_str(), request.resource_names), (CDS.type_url(), vec!["c".to_owned()]));
    h.unwatch(2);
    h.watch(3, CDS, "c");
    h.down();
    h.unwatch(3);
    assert_eq!(h.core.next_deadline(), None, "nobody watches, nothing is tried");
}

#[test]
fn inputs_about_past_streams_are_ignored() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    let old = h.stream;
    h.respond(EDS, "1", &[]);
    h.down();
    h.advance(Duration::from_secs(2));
    h.requests.clear();
    h.input(Input::StreamUp { stream: old });
    h.input(Input::SendDone { stream: old });
    let late = response(EDS, "2", "n2", &[assignment("e", 1)]).encode_to_vec().into();
    h.input(Input::Message { stream: old, bytes: late });
    h.input(Input::StreamDown { stream: old, code: None, reason: "late".into() });
    assert!(h.take_requests().is_empty());
    h.expect_told(&[]);
    assert_eq!((h.opened, h.core.next_deadline()), (2, None));
}

#[test]
fn unwatch_of_an_unknown_id_and_reuse_of_an_id_do_no_harm() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.unwatch(99);
    h.watch(2, EDS, "f");
    h.watch(2, EDS, "g");
    assert_eq!(h.take_requests().last().unwrap().resource_names, ["e", "g"]);
}
