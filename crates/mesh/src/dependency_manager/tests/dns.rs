//! LOGICAL_DNS clusters.

use super::*;

fn name(host: &str) -> DnsName {
    DnsName { host: host.into(), port: 443 }
}

impl Bed {
    fn dns_cluster(&mut self, cluster_name: &str, host: &str) {
        self.give(cluster_name, cluster(ClusterKind::LogicalDns { host: host.into(), port: 443 }));
    }

    fn resolved(&mut self, host: &str, ports: &[u16]) {
        let addresses = ports.iter().map(|&port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        self.manager.on_dns(&name(host), Ok(addresses));
        self.pump();
    }

    fn unresolved(&mut self, host: &str, why: &str) {
        self.manager.on_dns(&name(host), Err(why.into()));
        self.pump();
    }
}

#[test]
fn a37_26_dns_results_look_like_eds() {
    let mut bed = Bed::routed(&["c"]);
    bed.dns_cluster("c", "db.test");
    assert_eq!(bed.log.last().map(String::as_str), Some("dns db.test:443"), "A37-29, and no EDS");
    assert!(bed.config.is_none());
    bed.resolved("db.test", &[1, 2]);
    let config = bed.config();
    let Ok(cluster) = &config.clusters["c"] else { panic!("{:?}", config.clusters) };
    let ClusterState::Leaf { endpoints: EndpointsState::Known(known), resolution_note: None, .. } =
        &cluster.state
    else {
        panic!("{cluster:?}")
    };
    let [priority] = &known.priorities[..] else { panic!("A37-31: {known:?}") };
    let [locality] = &priority[..] else { panic!("A37-32: {known:?}") };
    let [endpoint] = &locality.endpoints[..] else { panic!("A61: {known:?}") };
    assert_eq!((&*locality.locality, locality.weight), (&Default::default(), 1));
    assert_eq!(endpoint.addresses.len(), 2);
    assert_eq!(endpoint.hostname().map(|name| &**name), Some("db.test:443"), "A81");
    assert!(known.drops.is_empty(), "A37-47");
}

#[test]
fn a37_30_only_addresses_are_taken_from_dns() {
    let mut bed = Bed::routed(&["c"]);
    bed.dns_cluster("c", "db.test");
    bed.resolved("db.test", &[1]);
    let of_cluster = |bed: &Bed| bed.config().clusters["c"].as_ref().expect("known").cluster().cloned();
    let before = of_cluster(&bed);
    bed.resolved("db.test", &[2]);
    assert_eq!(bed.cluster("c"), "known 2");
    assert!(Arc::ptr_eq(&before.unwrap(), &of_cluster(&bed).unwrap()), "policy and limits are those of CDS");
}

#[test]
fn a37_31_a37_32_a37_47_addresses_are_one_priority_of_one_unnamed_locality_without_drops() {
    let mut bed = Bed::routed(&["c"]);
    bed.dns_cluster("c", "db.test");
    for ports in [&[1, 2, 3][..], &[4]] {
        bed.resolved("db.test", ports);
        let config = bed.config();
        let children = &config.clusters["c"].as_ref().expect("known").state;
        let ClusterState::Leaf { endpoints: EndpointsState::Known(known), .. } = children else {
            panic!("{children:?}")
        };
        let [priority] = &known.priorities[..] else { panic!("{known:?}") };
        let [locality] = &priority[..] else { panic!("{known:?}") };
        let name = &locality.locality;
        assert_eq!((&*name.region, &*name.zone, &*name.sub_zone), ("", "", ""));
        let addresses = locality.endpoints.iter().flat_map(|endpoint| endpoint.addresses.iter());
        assert!(addresses.map(SocketAddr::port).eq(ports.iter().copied()), "{known:?}");
        assert!(known.drops.is_empty());
    }
}

#[test]
fn a37_37_dns_error_before_any_address_is_one_empty_priority() {
    let mut bed = Bed::routed(&["c"]);
    bed.dns_cluster("c", "db.test");
    bed.unresolved("db.test", "NXDOMAIN");
    assert_eq!(bed.cluster("c"), "missing");
    assert_eq!(bed.note("c").as_deref(), Some("DNS resolution of db.test:443 failed: NXDOMAIN"));
    bed.resolved("db.test", &[1]);
    assert_eq!((bed.cluster("c"), bed.note("c")), ("known 1".into(), None));
}

#[test]
fn a37_39_addresses_survive_a_dns_error() {
    let mut bed = Bed::routed(&["c"]);
    bed.dns_cluster("c", "db.test");
    bed.resolved("db.test", &[1]);
    bed.unresolved("db.test", "SERVFAIL");
    assert_eq!(bed.cluster("c"), "known 1");
    assert_eq!(bed.note("c").as_deref(), Some("DNS resolution of db.test:443 failed: SERVFAIL"));
    bed.resolved("db.test", &[]);
    assert!(bed.note("c").expect("a note").ends_with("no addresses found"));
    bed.resolved("db.test", &[1]);
    assert_eq!(bed.note("c"), None);
}

#[test]
fn a37_29_same_addresses_do_not_cause_an_update() {
    let mut bed = Bed::routed(&["c"]);
    bed.dns_cluster("c", "db.test");
    bed.resolved("db.test", &[1]);
    bed.config = None;
    bed.resolved("db.test", &[1]);
    assert!(bed.config.is_none());
}

#[test]
fn a37_29_a_different_order_of_addresses_does_not_cause_an_update() {
    let mut bed = Bed::routed(&["c"]);
    bed.dns_cluster("c", "db.test");
    bed.resolved("db.test", &[1, 2, 3]);
    bed.config = None;
    bed.resolved("db.test", &[3, 1, 2]);
    bed.resolved("db.test", &[3, 1, 2, 3]);
    assert!(bed.config.is_none());
    bed.resolved("db.test", &[3, 2]);
    assert!(bed.config.is_some());
}

#[test]
fn a37_34_reresolution_is_for_dns_names_only() {
    let mut bed = Bed::routed(&["eds"]);
    bed.leaf("eds", 1);
    bed.manager.request_reresolution();
    bed.pump();
    assert!(!bed.log.contains(&"resolve".to_owned()), "A37-28");
    bed.routes(&["eds", "dns"]);
    bed.dns_cluster("dns", "db.test");
    bed.manager.request_reresolution();
    bed.manager.request_reresolution();
    bed.pump();
    assert_eq!(bed.log.iter().filter(|line| *line == "resolve").count(), 1);
}

#[test]
fn a37_13_two_clusters_of_one_name_resolve_it_once() {
    let mut bed = Bed::routed(&["a", "b"]);
    bed.dns_cluster("a", "db.test");
    bed.dns_cluster("b", "db.test");
    bed.resolved("db.test", &[1]);
    assert_eq!((bed.cluster("a"), bed.cluster("b")), ("known 1".into(), "known 1".into()));
    bed.routes(&["a"]);
    assert_eq!(bed.dns.len(), 1);
    bed.dns_cluster("a", "other.test");
    assert_eq!(
        (bed.dns.len(), bed.cluster("a")),
        (2, "known 1".into()),
        "the old name serves until the new one does"
    );
    bed.resolved("other.test", &[2]);
    assert_eq!(bed.cluster("a"), "known 2");
    assert_eq!(bed.dns.iter().collect::<Vec<_>>(), [&name("other.test")]);
    bed.resolved("db.test", &[9]);
    assert_eq!(bed.cluster("a"), "known 2", "late results of stopped names count for nothing");
}

#[test]
fn a81_literal_addresses_are_bracketed() {
    assert_eq!(DnsName { host: "::1".into(), port: 80 }.to_string(), "[::1]:80");
    assert_eq!(DnsName { host: "[::1]".into(), port: 80 }.to_string(), "[::1]:80");
    assert_eq!(DnsName { host: "10.0.0.1".into(), port: 80 }.to_string(), "10.0.0.1:80");
}
