//! Responses: ACK, NACK, and the events for watchers.

use super::*;

#[test]
fn good_response_is_acked_with_its_version_and_nonce() {
    let mut h = Harness::started(config(), &[(RDS, "r")]);
    h.respond(RDS, "1", &[route("r")]);
    let ack = h.request();
    assert_eq!((ack.version_info.as_str(), ack.response_nonce.as_str()), ("1", "n1"));
    assert_eq!((ack.resource_names, ack.error_detail), (vec!["r".to_owned()], None));
    h.expect_told(&["1: ok"]);
}

#[test]
fn a40_08_nack_names_every_bad_resource_and_keeps_the_version() {
    let mut h = Harness::started(config(), &[(CDS, "a"), (CDS, "b")]);
    h.respond(CDS, "1", &[cluster("a", ""), cluster("b", "")]);
    h.told();
    h.requests.clear();
    h.respond(CDS, "2", &[bad_cluster("a"), bad_cluster("b")]);
    let nack = h.request();
    assert_eq!((nack.version_info.as_str(), nack.response_nonce.as_str()), ("1", "n2"));
    let error = nack.error_detail.unwrap();
    assert_eq!(error.code, 3);
    assert!(error.message.contains("(a): ") && error.message.contains("(b): "), "{}", error.message);
    assert!(error.message.contains("eds_cluster_config"), "{}", error.message);
    h.expect_told(&["1: ambient Cluster a: rejected version \"2\"", "2: ambient Cluster b"]);
    // A subscription change after a NACK repeats version and nonce, without the error.
    h.watch(3, CDS, "c");
    let request = h.request();
    assert_eq!((request.version_info.as_str(), request.response_nonce.as_str()), ("1", "n2"));
    assert_eq!(request.error_detail, None);
}

#[test]
fn nack_of_the_first_response_has_no_version() {
    let mut h = Harness::started(config(), &[(CDS, "c")]);
    h.respond(CDS, "1", &[bad_cluster("c")]);
    assert_eq!(h.request().version_info, "");
    h.expect_told(&["1: err Cluster c: rejected version \"1\""]);
}

#[test]
fn a46_good_resource_beside_a_bad_one_is_used() {
    let mut h = Harness::started(config(), &[(CDS, "good"), (CDS, "bad")]);
    h.respond(CDS, "1", &[cluster("good", ""), bad_cluster("bad")]);
    assert!(h.request().error_detail.unwrap().message.contains("(bad)"));
    h.expect_told(&["2: err Cluster bad: rejected", "1: ok"]);
}

#[test]
fn a88_good_update_after_a_rejected_one_ends_the_error() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.respond(EDS, "2", &[bad_assignment("e")]);
    h.expect_told(&["1: ok", "1: ambient*rejected version \"2\""]);
    // The same bytes as before the rejected version: no change, but all is well again.
    h.respond(EDS, "3", &[assignment("e", 1)]);
    h.expect_told(&["1: fine"]);
    h.respond(EDS, "4", &[bad_assignment("e")]);
    h.respond(EDS, "5", &[assignment("e", 5)]);
    h.expect_told(&["1: ambient*rejected version \"4\"", "1: ok"]);
}

#[test]
fn unchanged_resource_is_acked_and_not_told() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.told();
    h.requests.clear();
    h.respond(EDS, "2", &[assignment("e", 1)]);
    assert_eq!(h.request().version_info, "2");
    h.expect_told(&[]);
    assert_eq!(*h.dump_of("e").version, *"2");
}

#[test]
fn bytes_of_an_older_version_are_a_change() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    for (version, port) in [("1", 1), ("2", 2), ("3", 1)] {
        h.respond(EDS, version, &[assignment("e", port)]);
        h.expect_told(&["1: ok"]);
        assert_eq!(h.dump_of("e").raw.unwrap().value, assignment("e", port).value);
    }
}

#[test]
fn resource_with_other_bytes_and_equal_content_is_not_told() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    let first = assignment("e", 1);
    h.respond(EDS, "1", std::slice::from_ref(&first));
    h.told();
    // A field that nobody knows: number 1000, varint 1.
    let value = [&first.value[..], &[0xc0, 0x3e, 0x01]].concat();
    let second = Any { value: value.clone().into(), ..first };
    h.respond(EDS, "2", &[second]);
    h.expect_told(&[]);
    assert_eq!(h.dump_of("e").raw.unwrap().value, value);
}

#[test]
fn resource_that_is_also_in_the_response_as_before_is_rejected() {
    let mut h = Harness::started(config(), &[(EDS, "a"), (EDS, "b")]);
    let known = [assignment("a", 1), assignment("b", 1)];
    h.respond(EDS, "1", &known);
    h.told();
    h.take_requests();
    let [a, b] = known;
    for (version, resources) in
        [("2", [a.clone(), assignment("a", 2), b.clone()]), ("3", [assignment("a", 2), b.clone(), a.clone()])]
    {
        h.respond(EDS, version, &resources);
        let why = h.request().error_detail.expect("a NACK").message;
        assert!(why.contains("(a): occurs twice in the response, with different content"), "{why}");
        assert!(h.told().iter().all(|told| !told.contains("ok")));
        assert_eq!((&*h.dump_of("a").version, &*h.dump_of("b").version), ("1", version));
    }
    h.respond(EDS, "4", &[b.clone(), a.clone(), wrapped("a", &a), b, a]);
    assert!(h.request().error_detail.is_some_and(|nack| nack.message.contains("(a): occurs twice")));
}

#[test]
fn a88_late_watcher_gets_resource_and_ambient_error_in_order() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.respond(EDS, "2", &[bad_assignment("e")]);
    h.told();
    h.watch(2, EDS, "e");
    h.expect_told(&["2: ok", "2: ambient*rejected version \"2\""]);
}

#[test]
fn a27_64_73_83_resource_that_was_not_asked_for_is_ignored() {
    let mut h = Harness::started(config(), &[(CDS, "c"), (EDS, "c")]);
    h.respond(CDS, "1", &[cluster("stranger", ""), cluster("c", "")]);
    h.respond(EDS, "1", &[assignment("stranger", 1)]);
    assert!(h.take_requests().iter().all(|r| r.error_detail.is_none() && r.resource_names == ["c"]));
    h.expect_told(&["1: ok"]);
    assert_eq!(h.core.dump().len(), 2);
    // A bad one is named all the same.
    h.respond(EDS, "2", &[bad_assignment("stranger")]);
    assert!(h.request().error_detail.unwrap().message.contains("(stranger)"));
}

#[test]
fn x_06_wrapped_resource_is_unwrapped() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    let inner = assignment("e", 1);
    h.respond(EDS, "1", &[wrapped("e", &inner)]);
    h.expect_told(&["1: ok"]);
    let raw = h.dump_of("e").raw.unwrap();
    assert_eq!((raw.type_url, raw.value), (inner.type_url().into(), inner.value.clone()));
    h.respond(EDS, "2", &[inner]);
    h.expect_told(&[]);
}

#[test]
fn x_07_resource_of_another_type_is_rejected() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.requests.clear();
    h.respond(EDS, "2", &[cluster("e", ""), Any::default()]);
    let message = h.request().error_detail.unwrap().message;
    assert!(message.contains("resource 0") && message.contains("resource 1"), "{message}");
    assert_eq!(*h.dump_of("e").version, *"1");
}

#[test]
fn same_resource_twice_is_used_and_a_differing_one_rejected() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1), assignment("e", 1)]);
    assert_eq!(h.request().error_detail, None);
    h.expect_told(&["1: ok"]);
    for twice in [[assignment("e", 1), assignment("e", 2)], [assignment("e", 3), assignment("e", 2)]] {
        h.advance(Duration::from_secs(1));
        h.respond(EDS, "2", &twice);
        assert!(h.request().error_detail.unwrap().message.contains("twice"));
    }
    h.expect_told(&["1: ambient*twice"]);
    assert_eq!(*h.dump_of("e").version, *"1");
}

#[test]
fn empty_version_and_nonce_do_no_harm() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.message(response(EDS, "", "", &[assignment("e", 2)]));
    h.expect_told(&["1: ok", "1: ok"]);
    h.respond(EDS, "3", &[assignment("e", 3)]);
    h.expect_told(&["1: ok"]);
    assert_eq!(h.take_requests().last().unwrap().version_info, "3");
}

#[test]
fn error_of_a_nack_is_capped_at_a_character() {
    let names: Vec<_> = (0..2000).map(|i| format!("{i}-{}", "\u{e9}\u{1f980}".repeat(30))).collect();
    let mut h = Harness::started(config(), &[(CDS, &names[0])]);
    for pad in ["", "x", "xx", "xxx"] {
        let mut resources: Vec<_> = names.iter().map(|name| bad_cluster(name)).collect();
        resources.insert(0, bad_cluster(&format!("first{pad}")));
        h.advance(Duration::from_secs(1));
        h.respond(CDS, "1", &resources);
        let message = h.request().error_detail.unwrap().message;
        assert!((8000..=8192).contains(&message.len()), "{}", message.len());
        assert!(message.contains("first") && message.contains(" ... (cut); and "), "{message}");
        assert!(message.ends_with(" more"), "{message}");
    }
}

#[test]
fn a40_whole_response_mode_uses_nothing_beside_a_bad_resource() {
    let mut config = config();
    config.nack_mode = NackMode::WholeResponse;
    let mut h = Harness::started(config, &[(EDS, "a"), (EDS, "b"), (EDS, "c")]);
    h.respond(EDS, "1", &[assignment("a", 1), assignment("b", 1), assignment("c", 1)]);
    h.told();
    h.respond(EDS, "2", &[assignment("a", 2), bad_assignment("b")]);
    h.expect_told(&["1: ambient*the whole response is rejected*(b)", "2: ambient*rejected"]);
    let status = |h: &Harness| ["a", "b", "c"].map(|name| (h.dump_of(name).status, h.dump_of(name).version));
    use ResourceStatus::{Acked, Nacked};
    let version = Arc::<str>::from;
    assert_eq!(status(&h), [(Nacked, version("1")), (Nacked, version("1")), (Acked, version("1"))]);
    h.respond(EDS, "3", &[assignment("b", 3), assignment("c", 3)]);
    assert_eq!(status(&h), [(Nacked, version("1")), (Acked, version("3")), (Acked, version("3"))]);
}

#[test]
fn a40_whole_response_mode_deletes_nothing_by_a_rejected_response() {
    let mut config = config();
    config.nack_mode = NackMode::WholeResponse;
    let mut h = Harness::started(config, &[(CDS, "a"), (CDS, "b")]);
    h.respond(CDS, "1", &[cluster("a", ""), cluster("b", "")]);
    h.told();
    h.respond(CDS, "2", &[bad_cluster("a")]);
    h.expect_told(&["1: ambient"]);
}

#[test]
fn updates_are_counted_by_type_also_those_without_a_name() {
    let mut h = Harness::started(config(), &[(CDS, "c"), (EDS, "e")]);
    h.respond(CDS, "1", &[cluster("c", ""), bad_cluster("c2"), garbage(CDS)]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.respond(EDS, "2", &[assignment("e", 1)]);
    let counts = h.core.update_counts();
    assert_eq!(counts[&CDS], UpdateCounts { valid: 1, invalid: 2 });
    assert_eq!(counts[&EDS], UpdateCounts { valid: 2, invalid: 0 });
}
