//! Authorities with their own servers (gRFC A47).

use super::planes::Planes;
use super::*;

const C: &str = "envoy.config.cluster.v3.Cluster";

fn name(authority: &str, id: &str) -> String {
    format!("xdstp://{authority}/{C}/{id}")
}

#[test]
fn a47_16_18_each_resource_is_asked_for_at_the_servers_of_its_authority() {
    let mut p = Planes::new(&[0], &[("a", &[1]), ("b", &[2])]);
    p.watch(1, CDS, "plain");
    p.watch(2, CDS, &name("a", "x"));
    assert_eq!(p.open(), [0, 1], "A47-18: servers that nothing needs are not contacted");
    p.up(0);
    p.up(1);
    assert_eq!(p.names(0, CDS), ["plain"]);
    assert_eq!(p.names(1, CDS), [name("a", "x")]);
    assert!(p.requests.iter().all(|(_, request)| request.node.is_some()), "each server gets the node");
    p.unwatch(2);
    assert_eq!(p.open(), [0], "and left when nothing needs them any more");
}

#[test]
fn a47_08_authorities_share_the_stream_of_a_server() {
    let mut p = Planes::new(&[0], &[("a", &[0]), ("b", &[0])]);
    p.watch(1, CDS, "plain");
    p.watch(2, CDS, &name("a", "x"));
    p.up(0);
    p.watch(3, CDS, &name("b", "x"));
    assert_eq!(p.open(), [0]);
    assert_eq!(p.names(0, CDS), ["plain", &name("a", "x"), &name("b", "x")]);
    p.respond(
        0,
        CDS,
        "1",
        &[cluster("plain", "e"), cluster(&name("a", "x"), "e"), cluster(&name("b", "x"), "e")],
    );
    assert_eq!(p.told(), ["1: ok", "2: ok", "3: ok"]);
    p.unwatch(1);
    p.unwatch(2);
    assert_eq!(p.names(0, CDS), [name("b", "x")], "those of the others stay");
    p.unwatch(3);
    assert!(p.open().is_empty() && p.core.next_deadline().is_none());
}

#[test]
fn a47_20_server_decides_only_about_the_resources_of_its_authorities() {
    let mut p = Planes::new(&[0], &[("a", &[1])]);
    p.watch(1, CDS, "plain");
    p.watch(2, CDS, &name("a", "x"));
    p.up(0);
    p.up(1);
    p.respond(0, CDS, "1", &[cluster("plain", "e"), cluster(&name("a", "x"), "forged")]);
    assert_eq!(p.told(), ["1: ok"], "a resource of another authority is ignored");
    p.respond(1, CDS, "7", &[cluster("plain", "forged"), cluster(&name("a", "x"), "e")]);
    assert_eq!(p.told(), ["2: ok"], "nor is its absence a deletion");
    let (_, ack) = p.requests.last().unwrap();
    assert_eq!((&*ack.version_info, ack.error_detail.as_ref()), ("7", None), "versions are the server's own");
    p.respond(1, CDS, "8", &[]);
    assert!(p.told()[0].starts_with("2: err") && p.core.dump().len() == 2);
    // The same bytes from the wrong server do not bring it back.
    p.respond(0, CDS, "2", &[cluster("plain", "e"), cluster(&name("a", "x"), "e")]);
    assert!(p.told().is_empty());
}

#[test]
fn a47_20_outage_of_one_authority_is_not_that_of_another() {
    let mut p = Planes::new(&[0], &[("a", &[1])]);
    p.watch(1, CDS, "plain");
    p.watch(2, CDS, &name("a", "x"));
    p.up(0);
    p.respond(0, CDS, "1", &[cluster("plain", "e")]);
    p.told();
    p.down(1);
    let told = p.told();
    assert!(told.len() == 1 && told[0].starts_with("2: err") && told[0].contains("s1:1"), "{told:?}");
}

#[test]
fn a47_07_empty_authority_has_its_own_entry() {
    let mut p = Planes::new(&[0], &[("", &[1])]);
    p.watch(1, CDS, &format!("xdstp:/{C}/x"));
    p.up(1);
    assert_eq!((p.open(), p.names(1, CDS)), (vec![1], vec![&*name("", "x")]));
}

#[test]
fn a47_21_names_are_equal_in_any_order_of_parameters() {
    let mut p = Planes::new(&[0], &[("a", &[1])]);
    p.watch(1, CDS, &name("a", "x?b=2&a=1"));
    p.watch(2, CDS, &name("a", "x?a=1&b=2"));
    p.up(1);
    assert_eq!(p.names(1, CDS), [name("a", "x?a=1&b=2")]);
    p.respond(1, CDS, "1", &[cluster(&name("a", "x?b=2&a=1"), "e")]);
    assert_eq!(p.told(), ["1: ok", "2: ok"]);
    // CSDS lists the normalized name once.
    assert_eq!(p.core.dump().iter().map(|dump| &*dump.name).collect::<Vec<_>>(), [name("a", "x?a=1&b=2")]);
}

#[test]
fn a47_22_unknown_authority_or_type_fails_the_watch_alone() {
    let mut p = Planes::new(&[0], &[("a", &[1])]);
    p.watch(1, CDS, &name("nobody", "x"));
    p.watch(2, CDS, "xdstp://a/envoy.config.listener.v3.Listener/x");
    assert!(p.open().is_empty());
    let told = p.told();
    assert!(
        told[0].contains("authority \"nobody\" is not among") && told[1].contains("its type must be"),
        "{told:?}"
    );
    p.watch(3, CDS, "plain");
    p.unwatch(1);
    p.unwatch(2);
    assert_eq!(p.open(), [0], "the others go on");
}

#[test]
fn a47_22_resource_with_an_invalid_name_is_nacked() {
    let mut p = Planes::new(&[0], &[("a", &[0])]);
    p.watch(1, CDS, &name("a", "x"));
    p.up(0);
    p.respond(0, CDS, "1", &[cluster(&name("a", "x"), "e"), cluster("xdstp://a/T/x", "e")]);
    assert_eq!(p.told(), ["1: ok"]);
    let (_, nack) = p.requests.last().unwrap();
    assert!(nack.error_detail.as_ref().unwrap().message.contains("its type must be"), "{nack:?}");
}

#[test]
fn a47_23_cluster_with_a_new_style_name_must_name_its_endpoints() {
    let mut p = Planes::new(&[0], &[("a", &[0])]);
    p.watch(1, CDS, &name("a", "x"));
    p.up(0);
    p.respond(0, CDS, "1", &[cluster(&name("a", "x"), "")]);
    let told = p.told();
    assert!(told[0].starts_with("1: err") && told[0].contains("service_name"), "{told:?}");
}

#[test]
fn a47_24_load_is_reported_to_the_server_of_the_cluster() {
    let mut p = Planes::new(&[0], &[("a", &[1])]);
    let x: Arc<str> = name("a", "x").into();
    p.watch(1, CDS, &x);
    assert_eq!(p.core.load_server(&x), ServerId(1));
    assert_eq!(p.core.load_server(&"plain".into()), ServerId(0));
    p.up(1);
    p.respond(1, CDS, "1", &[cluster(&x, "e")]);
    assert_eq!((p.core.load_server(&x), p.moves), (ServerId(1), 1));
    p.respond(1, CDS, "2", &[cluster(&x, "f")]);
    assert_eq!(p.moves, 1, "nothing moves while the server stays");
}
