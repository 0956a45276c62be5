//! The resources that a resource makes the manager watch next.

use super::super::next_resources;
use super::*;

/// Gives a resource that is foreseen to need these, as text, and compares with what the manager watches then.
fn give_and_compare(bed: &mut Bed, name: &str, resource: Resource, expected: &[&str]) {
    let foreseen = next_resources(TARGET, &name.into(), &resource);
    let texts: Vec<_> = foreseen.iter().map(|(of, name)| format!("{} {name}", of.name())).collect();
    assert_eq!(texts, expected, "after {name}");
    let before: BTreeSet<Key> = bed.watches.keys().cloned().collect();
    bed.give(name, resource);
    assert!(foreseen.iter().all(|key| bed.watches.contains_key(key)), "{name}: {:?}", bed.watches);
    let mut new = bed.watches.keys().filter(|key| !before.contains(key));
    assert!(new.all(|key| foreseen.contains(key)), "{name}: {:?}", bed.watches);
}

#[test]
fn each_resource_foretells_the_watches_that_follow_it() {
    let mut bed = Bed::new();
    let host = |domain: &str, clusters: &[&str]| route_config(&[domain], clusters);
    let eds = |service: Option<&str>| cluster(ClusterKind::Eds { service_name: service.map(Into::into) });
    let dns = || cluster(ClusterKind::LogicalDns { host: "host".into(), port: 1 });
    let eds_of = "ClusterLoadAssignment";
    for (name, resource, expected) in [
        (TARGET, listener(RouteSource::Rds("routes".into())), vec!["RouteConfiguration routes".to_owned()]),
        (
            "routes",
            Resource::RouteConfiguration(host(TARGET, &["a", "b", "c", "d", "e"])),
            ["a", "b", "c", "d", "e"].map(|name| format!("Cluster {name}")).to_vec(),
        ),
        ("a", eds(None), vec![format!("{eds_of} a")]),
        ("b", eds(Some("service")), vec![format!("{eds_of} service")]),
        ("c", dns(), vec![]),
        (
            "d",
            cluster(ClusterKind::Aggregate(list(&["a", "x"]))),
            vec!["Cluster a".into(), "Cluster x".into()],
        ),
        (
            "e",
            cluster(ClusterKind::AggregateResource { name: "list".into() }),
            vec!["ClusterConfig list".into()],
        ),
        ("list", Resource::AggregateClusterConfig(list(&["y"])), vec!["Cluster y".into()]),
        ("a", assignment(&[1]), vec![]),
    ] {
        give_and_compare(&mut bed, name, resource, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn inline_routes_foretell_the_clusters_of_the_own_virtual_host() {
    let mut bed = Bed::new();
    let routes = |domain: &str| listener(RouteSource::Inline(route_config(&[domain], &["a"])));
    give_and_compare(&mut bed, TARGET, routes(TARGET), &["Cluster a"]);
    assert!(next_resources(TARGET, &TARGET.into(), &routes("other.example")).is_empty());
}
