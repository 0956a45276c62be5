//! The dump for CSDS (gRFC A40).

use super::*;

fn at(seconds: u64) -> Time {
    Time::from_epoch(Duration::from_secs(seconds))
}

#[test]
fn a40_41_43_requested_then_acked_with_version_time_and_content() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    let requested = h.dump_of("e");
    assert_eq!((requested.resource_type, requested.status), (EDS, ResourceStatus::Requested));
    assert_eq!(
        (&*requested.version, requested.updated, requested.raw, requested.error),
        ("", None, None, None)
    );
    h.advance(Duration::from_secs(3));
    let sent = assignment("e", 1);
    h.respond(EDS, "1", std::slice::from_ref(&sent));
    let acked = h.dump_of("e");
    assert_eq!((acked.status, &*acked.version, acked.updated), (ResourceStatus::Acked, "1", Some(at(3))));
    assert_eq!(acked.raw, Some(RawResource { type_url: sent.type_url().into(), value: sent.value }));
    assert_eq!(acked.error, None);
}

#[test]
fn a40_16_21_22_23_44_nacked_shows_the_last_good_and_the_error() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.advance(Duration::from_secs(5));
    h.respond(EDS, "2", &[bad_assignment("e")]);
    let dump = h.dump_of("e");
    assert_eq!((dump.status, &*dump.version, dump.updated), (ResourceStatus::Nacked, "1", Some(at(0))));
    assert_eq!(dump.raw.unwrap().value, assignment("e", 1).value);
    let error = dump.error.unwrap();
    assert_eq!((&*error.version, error.time), ("2", at(5)));
    assert!(error.reason.contains("priorit"), "{}", error.reason);
    h.respond(EDS, "3", &[assignment("e", 3)]);
    let dump = h.dump_of("e");
    assert_eq!((dump.status, &*dump.version, dump.error), (ResourceStatus::Acked, "3", None));
}

#[test]
fn a40_45_nacked_from_the_start_has_no_content() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[bad_assignment("e")]);
    let dump = h.dump_of("e");
    assert_eq!((dump.status, &*dump.version, dump.raw), (ResourceStatus::Nacked, "", None));
    assert_eq!(*dump.error.unwrap().version, *"1");
}

#[test]
fn a40_41_requested_shows_why_the_last_response_could_not_be_read() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (EDS, "cached"), (CDS, "c")]);
    h.respond(EDS, "1", &[assignment("cached", 1)]);
    h.advance(Duration::from_secs(2));
    h.respond(EDS, "2", &[garbage(EDS)]);
    let dump = h.dump_of("e");
    assert_eq!((dump.status, &*dump.version), (ResourceStatus::Requested, ""));
    let error = dump.error.expect("details of the last NACK");
    assert_eq!((&*error.version, error.time), ("2", at(2)));
    assert!(error.reason.contains("response, version \"2\", was rejected: resource 0"), "{}", error.reason);
    // Not those that are in use, nor other types.
    assert_eq!((h.dump_of("cached").status, h.dump_of("cached").error), (ResourceStatus::Acked, None));
    assert_eq!(h.dump_of("c").error, None);
    // A bad resource with a name does not affect others.
    h.respond(EDS, "3", &[bad_assignment("cached")]);
    assert_eq!(h.dump_of("e").error, None);
}

#[test]
fn a40_42_timer_and_deletion_show_as_does_not_exist() {
    let mut h = Harness::started(config(), &[(CDS, "c"), (EDS, "e")]);
    h.respond(CDS, "1", &[cluster("c", "")]);
    h.advance(Duration::from_secs(15));
    h.respond(CDS, "2", &[]);
    for (name, why) in [("c", "deleted"), ("e", "requested")] {
        let dump = h.dump_of(name);
        assert_eq!((dump.status, dump.raw), (ResourceStatus::DoesNotExist, None));
        assert!(dump.error.unwrap().reason.contains(why));
    }
}

#[test]
fn a40_09_response_that_does_not_decode_changes_nothing() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    let before = h.core.dump();
    h.input(Input::Message { stream: h.stream, bytes: Bytes::from_static(b"\x0a\xff") });
    assert_eq!(h.core.dump(), before);
}

#[test]
fn a40_14_to_20_the_table_under_a46() {
    let mut h = Harness::started(config(), &[(EDS, "a"), (EDS, "b"), (EDS, "c")]);
    let shown = |h: &Harness| {
        ["a", "b", "c"].map(|name| {
            let dump = h.dump_of(name);
            (dump.status, dump.version, dump.error.map(|error| error.version))
        })
    };
    use ResourceStatus::{Acked, Nacked};
    let acked = |version: &str| (Acked, version.into(), None);
    h.respond(EDS, "1", &[assignment("a", 1), assignment("b", 1), assignment("c", 1)]);
    assert_eq!(shown(&h), [acked("1"), acked("1"), acked("1")]);
    h.respond(EDS, "2", &[assignment("a", 2), bad_assignment("b")]);
    assert_eq!(shown(&h), [acked("2"), (Nacked, "1".into(), Some("2".into())), acked("1")]);
    h.respond(EDS, "3", &[assignment("b", 3), assignment("c", 3)]);
    assert_eq!(shown(&h), [acked("2"), acked("3"), acked("3")]);
}

#[test]
fn a40_35_resource_leaves_with_its_last_watch() {
    let mut h = Harness::started(config(), &[(EDS, "e"), (EDS, "e"), (EDS, "f")]);
    h.respond(EDS, "1", &[assignment("e", 1)]);
    h.unwatch(1);
    assert_eq!(h.core.dump().len(), 2);
    h.unwatch(2);
    assert_eq!(h.core.dump().len(), 1);
}

#[test]
fn a40_34_unknown_fields_are_shown() {
    let mut h = Harness::started(config(), &[(EDS, "e")]);
    let known = assignment("e", 1);
    let value: Bytes = [&known.value[..], &[0xc0, 0x3e, 0x01]].concat().into();
    h.respond(EDS, "1", &[Any { value: value.clone(), ..known }]);
    assert_eq!(h.dump_of("e").raw.unwrap().value, value);
}
