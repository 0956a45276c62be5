//! The brake on NACKs: servers that send a rejected version again at once must not make a loop.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Versions, nonces and whether they are NACKs, of the requests of a type since the last look.
fn answers(h: &mut Harness, resource_type: ResourceType) -> Vec<(String, String, bool)> {
    let of_type = |r: &DiscoveryRequest| r.type_url == resource_type.type_url();
    let requests = h.take_requests().into_iter().filter(of_type);
    requests.map(|r| (r.version_info, r.response_nonce, r.error_detail.is_some())).collect()
}

fn respond(h: &mut Harness, resource_type: ResourceType, version: &str, nonce: &str, resource: Any) {
    h.message(response(resource_type, version, nonce, &[resource]));
}

#[test]
fn server_that_sends_a_rejected_version_again_at_once_gets_one_nack_a_second() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (CDS, "c")]);
    let (mut nonce, mut nacks) = (0, 0);
    while h.now < Time::ZERO + 60 * SECOND {
        nonce += 1;
        respond(&mut h, EDS, "7", &format!("n{nonce}"), bad_assignment("e"));
        assert_eq!(h.reads, nonce + 1, "the next message is read while the NACK waits");
        if h.requests.is_empty() {
            h.advance(h.core.next_deadline().expect("the NACK is due").since(h.now));
        }
        let sent = answers(&mut h, EDS);
        assert_eq!(sent, [(String::new(), format!("n{nonce}"), true)], "every NACK has the newest nonce");
        nacks += 1;
        // The network is quick, but not infinitely so.
        h.advance(Duration::from_millis(1));
    }
    assert!((59..=62).contains(&nacks), "{nacks} NACKs in a minute");
    h.expect_told(&["1: err*rejected version", "2: err*does not exist"]);
}

#[test]
fn other_types_and_versions_are_answered_while_a_nack_waits() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (CDS, "c")]);
    respond(&mut h, EDS, "7", "n1", bad_assignment("e"));
    respond(&mut h, EDS, "7", "n2", bad_assignment("e"));
    assert_eq!(answers(&mut h, EDS).len(), 1);
    respond(&mut h, CDS, "1", "c1", cluster("c", ""));
    assert_eq!(answers(&mut h, CDS), [("1".into(), "c1".into(), false)]);
    respond(&mut h, CDS, "2", "c2", bad_cluster("c"));
    assert_eq!(answers(&mut h, CDS), [("1".into(), "c2".into(), true)]);
    // Another version of the same type: NACKed or ACKed at once. The NACK that waits is stale, and dropped.
    respond(&mut h, EDS, "8", "n3", bad_assignment("e"));
    assert_eq!(answers(&mut h, EDS), [(String::new(), "n3".into(), true)]);
    respond(&mut h, EDS, "8", "n4", bad_assignment("e"));
    respond(&mut h, EDS, "9", "n5", assignment("e", 1));
    assert_eq!(answers(&mut h, EDS), [("9".into(), "n5".into(), false)]);
    h.advance(5 * SECOND);
    assert!(h.take_requests().is_empty() && h.core.next_deadline().is_none());
}

#[test]
fn two_bad_versions_in_turn_are_braked_as_well() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    for nonce in 0..100 {
        let version = ["7", "8"][nonce % 2];
        respond(&mut h, EDS, version, &format!("n{nonce}"), bad_assignment("e"));
    }
    assert_eq!(answers(&mut h, EDS).len(), 2);
    h.advance(SECOND);
    assert_eq!(answers(&mut h, EDS), [(String::new(), "n99".into(), true)]);
}

#[test]
fn new_names_take_the_waiting_nack_along() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    respond(&mut h, EDS, "7", "n1", bad_assignment("e"));
    respond(&mut h, EDS, "7", "n2", bad_assignment("e"));
    h.requests.clear();
    h.watch(2, EDS, "f");
    let request = h.request();
    assert_eq!(request.resource_names, ["e", "f"]);
    assert_eq!((request.response_nonce.as_str(), request.error_detail.is_some()), ("n2", true));
    // The second counts from there.
    respond(&mut h, EDS, "7", "n3", bad_assignment("e"));
    h.advance(SECOND - Duration::from_millis(1));
    assert!(h.take_requests().is_empty());
    h.advance(Duration::from_millis(1));
    assert_eq!(h.request().response_nonce, "n3");
}

#[test]
fn names_that_wait_for_their_turn_take_a_new_nack_along() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (CDS, "c")]);
    respond(&mut h, EDS, "7", "n1", bad_assignment("e"));
    h.hold_sends = true;
    h.watch(3, CDS, "d");
    h.watch(4, EDS, "f");
    respond(&mut h, EDS, "7", "n2", bad_assignment("e"));
    h.requests.clear();
    h.send_done();
    let request = h.request();
    assert_eq!(request.resource_names, ["e", "f"]);
    assert_eq!((request.response_nonce.as_str(), request.error_detail.is_some()), ("n2", true));
    h.send_done();
    assert!(h.unsent.is_empty());
}

#[test]
fn the_brake_ends_with_the_stream() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    respond(&mut h, EDS, "7", "n1", bad_assignment("e"));
    respond(&mut h, EDS, "7", "n2", bad_assignment("e"));
    h.restart();
    let first = h.request();
    assert_eq!((first.response_nonce.as_str(), first.error_detail), ("", None));
    respond(&mut h, EDS, "7", "n1", bad_assignment("e"));
    assert_eq!(h.request().response_nonce, "n1");
}

#[test]
fn heartbeat_changes_nothing_and_is_acked() {
    let heartbeat = |name: &str| {
        any(&discovery::Resource { name: name.into(), version: "1".into(), ..Default::default() })
    };
    let mut h = Harness::started(config(), &[(CDS, "c"), (CDS, "missing")]);
    h.respond(CDS, "1", &[wrapped("c", &cluster("c", ""))]);
    h.told();
    h.requests.clear();
    let before = h.dump_of("c");
    h.advance(5 * SECOND);
    // One that is absent would be deleted; one that never came is still waited for.
    h.respond(CDS, "2", &[heartbeat("c"), heartbeat("missing"), heartbeat("stranger")]);
    let ack = h.request();
    assert_eq!((ack.version_info.as_str(), ack.error_detail), ("2", None));
    h.expect_told(&[]);
    assert_eq!(h.dump_of("c"), before);
    h.advance(10 * SECOND);
    h.expect_told(&["2: err*does not exist"]);
    // Beside the resource itself it says nothing.
    h.respond(CDS, "3", &[heartbeat("c"), cluster("c", "new"), heartbeat("c")]);
    h.expect_told(&["1: ok"]);
    assert_eq!(h.request().error_detail, None);
}

#[test]
fn x_06_resource_goes_by_the_name_of_its_wrapper() {
    let mut h = Harness::started(config(), &[(CDS, "alias"), (CDS, "c")]);
    h.respond(CDS, "1", &[wrapped("alias", &cluster("c", "one")), cluster("c", "two")]);
    assert_eq!(h.request().error_detail, None);
    h.expect_told(&["1: ok", "2: ok"]);
    h.respond(CDS, "2", &[wrapped("alias", &cluster("c", "one")), cluster("c", "two")]);
    h.expect_told(&[]);
    h.respond(CDS, "3", &[wrapped("alias", &cluster("c", "three")), cluster("c", "two")]);
    h.expect_told(&["1: ok"]);
}
