//! The errors of watchers while all servers of an authority are unreachable (gRFC A71).

use super::fallback::{retry, started};
use super::planes::Planes;
use super::*;

/// A core of which both servers have failed while `e` is cached; the first of them for another reason since.
fn all_away() -> Planes {
    let mut p = started();
    p.watch(2, CDS, "missing");
    p.down(0);
    retry(&mut p);
    p.down(0);
    p.down(1);
    let told = p.told();
    assert!(told[0].starts_with("2: err") && told[1].starts_with("1: ambient"), "{told:?}");
    p.advance(Duration::from_secs(2));
    p.down_for(0, "UNAVAILABLE: s0 is overloaded");
    p
}

#[test]
fn a71_12_watchers_learn_of_an_outage_when_all_servers_have_failed() {
    let mut p = Planes::new(&[0, 1], &[]);
    p.watch(1, EDS, "e");
    p.down(0);
    assert!(p.told().is_empty());
    p.down(1);
    let told = p.told();
    assert!(told.len() == 1 && told[0].starts_with("1: err") && told[0].contains("s0 is away"), "{told:?}");
    assert!(told[0].contains("s1 is away"), "{told:?}");
    // Both are tried again; the first that answers is used.
    p.advance(Duration::from_secs(2));
    assert_eq!(p.open(), [0, 1]);
    p.up(1);
    p.respond(1, EDS, "1", &[assignment("e", 2)]);
    assert_eq!((p.told(), p.port("e"), p.open()), (vec!["1: ok".to_owned()], 2, vec![0, 1]));
}

#[test]
fn a71_12_a88_new_watcher_of_a_cached_resource_gets_it_before_the_error_of_all_servers() {
    let mut p = all_away();
    p.told();
    p.watch(3, EDS, "e");
    let told = p.told();
    assert!(told.len() == 2 && told[0] == "3: ok" && told[1].starts_with("3: ambient"), "{told:?}");
}

#[test]
fn a71_12_new_reason_of_a_waiting_server_is_told() {
    let mut p = all_away();
    let told = p.told();
    assert!(told.len() == 2 && told[1].starts_with("1: ambient"), "{told:?}");
    assert!(
        told.iter().all(|text| text.contains("s0 is overloaded") && text.contains("s1 is away")),
        "{told:?}"
    );
}

#[test]
fn a71_12_watcher_is_told_once_that_all_servers_have_failed_before() {
    let of_b = |kind: &str, name: &str| format!("xdstp://b/envoy.config.{kind}/{name}");
    let assigned = of_b("endpoint.v3.ClusterLoadAssignment", "e");
    let mut p = Planes::new(&[0, 1], &[("b", &[0, 1])]);
    p.watch(1, EDS, &assigned);
    p.up(0);
    p.respond(0, EDS, "1", &[assignment(&assigned, 1)]);
    p.down(0);
    retry(&mut p);
    p.down(0);
    // The other authority falls back, and its server fails.
    p.watch(2, CDS, "plain");
    p.down(1);
    p.told();
    p.watch(3, CDS, &of_b("cluster.v3.Cluster", "c"));
    let told = p.told();
    let of_new = told.iter().filter(|text| text.starts_with("3: ")).count();
    assert!(of_new == 1 && told.iter().any(|text| text.starts_with("1: ambient")), "{told:?}");
}
