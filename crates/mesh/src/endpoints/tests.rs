//! Tests of the endpoint table.

use std::net::SocketAddr;

use proxyless_balancer::api::EndpointHealth;

use super::*;
use crate::policies::fixtures::{assignment, lb_endpoint, locality};
use crate::security::SecurityRegistry;

fn names(n: usize) -> Vec<Arc<str>> {
    (0..n).map(|i| format!("p{i}").into()).collect()
}

/// The security of a cluster without TLS settings.
fn plaintext() -> ClusterSecurity {
    SecurityRegistry::default().of_cluster(None)
}

/// The endpoints of an assignment without TLS settings and proxies.
fn update(table: &mut EndpointTable, assignment: &ClusterLoadAssignment, grouping: Grouping) -> Endpoints {
    let shared = Interner::default();
    let settings = EndpointSettings { security: &plaintext(), http_connect: false, names: &shared };
    table.update(assignment, &names(assignment.priorities.len()), grouping, settings)
}

fn build(table: &mut EndpointTable, assignment: &ClusterLoadAssignment) -> Endpoints {
    update(table, assignment, Grouping::Localities)
}

#[test]
fn groups_by_priority_then_locality() {
    let mut table = EndpointTable::default();
    let built = build(
        &mut table,
        &assignment(vec![vec![locality("a", 3, [1, 2]), locality("b", 1, [3])], vec![locality("c", 1, [4])]]),
    );
    let [first, second] = built.groups() else { panic!("{built:?}") };
    assert_eq!((&*first.name, &*second.name), ("p0", "p1"));
    let [a, b] = first.endpoints.groups() else { panic!("{first:?}") };
    assert_eq!((a.weight, b.weight), (3, 1));
    assert_eq!(a.locality.as_ref().map(|locality| locality.region.as_str()), Some("a"));
    assert_eq!(a.endpoints.list().len(), 2);
    assert_ne!(a.name, b.name);
}

#[test]
fn a52_15_a_locality_in_two_priorities_has_a_weight_in_each() {
    let mut table = EndpointTable::default();
    for _ in 0..2 {
        let priorities = vec![vec![locality("a", 3, [1])], vec![locality("a", 5, [2])]];
        let built = build(&mut table, &assignment(priorities));
        let weights: Vec<_> = built
            .groups()
            .iter()
            .flat_map(|p| p.endpoints.groups())
            .map(|locality| locality.weight)
            .collect();
        assert_eq!(weights, [3, 5]);
    }
}

#[test]
fn one_changed_endpoint_renews_only_its_locality() {
    let mut table = EndpointTable::default();
    let before = build(&mut table, &assignment(vec![vec![locality("a", 1, [1, 2]), locality("b", 1, [3])]]));
    let after = build(&mut table, &assignment(vec![vec![locality("a", 1, [1, 9]), locality("b", 1, [3])]]));
    let (before, after) = (before.groups()[0].endpoints.groups(), after.groups()[0].endpoints.groups());
    assert!(!before[0].endpoints.ptr_eq(&after[0].endpoints));
    assert!(before[1].endpoints.ptr_eq(&after[1].endpoints));
}

#[test]
fn endpoints_that_did_not_change_stay_the_same_in_memory() {
    let mut table = EndpointTable::default();
    let flat = |table: &mut EndpointTable, numbers: &[u16]| {
        let built = build(table, &assignment(vec![vec![locality("a", 1, numbers.iter().copied())]]));
        built.groups()[0].endpoints.groups()[0].endpoints.list().to_vec()
    };
    let first: Vec<u16> = (1..=20).collect();
    let before = flat(&mut table, &first);
    // One moved, one gone, one new, and a run of new ones that is longer than the search window.
    let second: Vec<u16> = [1, 2, 99, 4, 5, 7, 8, 98].into_iter().chain(9..=12).chain(90..=97).collect();
    let after = flat(&mut table, &second);
    for (number, endpoint) in second.iter().zip(&after) {
        assert_eq!(endpoint.addresses, lb_endpoint(*number).addresses);
        let kept = before.iter().any(|before| Arc::ptr_eq(before, endpoint));
        assert_eq!(kept, *number <= 20, "{number}");
    }
}

#[test]
fn an_equal_assignment_is_the_same_in_memory() {
    let mut table = EndpointTable::default();
    let make = || assignment(vec![vec![locality("a", 1, [1])], vec![]]);
    let before = build(&mut table, &make());
    assert!(before.ptr_eq(&build(&mut table, &make())));
}

#[test]
fn an_empty_priority_differs_from_a_flat_list() {
    let mut table = EndpointTable::default();
    let flat = assignment(vec![vec![locality("a", 1, [1])]]);
    update(&mut table, &flat, Grouping::Flat);
    let built = build(&mut table, &assignment(vec![vec![], vec![locality("b", 1, [2])]]));
    let mut found = Vec::new();
    built.flatten(&mut |endpoint| found.push(endpoint.addresses[0]));
    assert_eq!(found, [lb_endpoint(2).addresses[0]]);
}

#[test]
fn a37_27_a_locality_that_moves_keeps_its_slice() {
    let mut table = EndpointTable::default();
    let before =
        build(&mut table, &assignment(vec![vec![locality("a", 1, [1])], vec![locality("b", 1, [2])]]));
    let after =
        build(&mut table, &assignment(vec![vec![locality("b", 7, [2])], vec![locality("a", 1, [1])]]));
    let list =
        |endpoints: &Endpoints, priority: usize| endpoints.groups()[priority].endpoints.groups()[0].clone();
    assert!(list(&before, 1).endpoints.ptr_eq(&list(&after, 0).endpoints));
    assert!(before.groups()[0].endpoints.ptr_eq(&after.groups()[1].endpoints), "not even the group is new");
    assert_eq!(list(&after, 0).weight, 7);
}

#[test]
fn a55_draining_endpoints_are_kept_with_their_health() {
    let mut draining = locality("a", 1, [1, 2]);
    draining.endpoints[0].health = EndpointHealth::Draining;
    for grouping in [Grouping::Localities, Grouping::Flat] {
        let assignment = assignment(vec![vec![draining.clone()]]);
        let built = update(&mut EndpointTable::default(), &assignment, grouping);
        let mut health = Vec::new();
        built.flatten(&mut |endpoint| health.push(endpoint.health));
        assert_eq!(health, [EndpointHealth::Draining, EndpointHealth::Healthy]);
    }
}

/// The example of A42's text.
#[test]
fn a113_02_flat_weights_are_shares_of_localities_times_shares_of_endpoints() {
    let weighted = |n, weight| LbEndpoint { weight, ..lb_endpoint(n) };
    let mut one = locality("1", 3, []);
    one.endpoints = vec![weighted(1, 2), weighted(2, 1)];
    let mut two = locality("2", 2, []);
    two.endpoints = vec![weighted(3, 3), weighted(4, 1)];
    let assignment = assignment(vec![vec![one, two]]);
    let built = update(&mut EndpointTable::default(), &assignment, Grouping::Flat);
    let weights: Vec<_> = built.groups()[0].endpoints.list().iter().map(|endpoint| endpoint.weight).collect();
    let shares = [3.0 / 5.0 * 2.0 / 3.0, 3.0 / 5.0 / 3.0, 2.0 / 5.0 * 3.0 / 4.0, 2.0 / 5.0 / 4.0];
    for (weight, share) in weights.into_iter().zip(shares) {
        let found = f64::from(weight) / f64::from(1_u32 << 31);
        assert!((found - share).abs() < 1e-8, "{found} instead of {share}");
    }
}

#[test]
fn a113_03_huge_weights_keep_their_proportion_and_none_is_zero() {
    let mut huge = locality("1", u32::MAX, []);
    huge.endpoints = vec![LbEndpoint { weight: u32::MAX, ..lb_endpoint(1) }];
    let mut small = locality("2", u32::MAX / 2, []);
    small.endpoints = vec![LbEndpoint { weight: u32::MAX, ..lb_endpoint(2) }, lb_endpoint(3)];
    let assignment = assignment(vec![vec![huge, small]]);
    let built = update(&mut EndpointTable::default(), &assignment, Grouping::Flat);
    let weights: Vec<_> =
        built.groups()[0].endpoints.list().iter().map(|endpoint| f64::from(endpoint.weight)).collect();
    assert!((weights[0] / weights[1] - 2.0).abs() < 1e-6, "{weights:?}");
    assert_eq!(weights[2], 1.0, "never 0");
}

#[test]
fn a86_12_a86_13_proxies_count_if_the_cluster_enables_them() {
    let proxy: Arc<SocketAddr> = Arc::new(([10, 0, 0, 9], 3128).into());
    let with_proxy = |proxy| {
        let mut locality = locality("a", 1, [1, 2]);
        locality.endpoints[0].extras = EndpointExtras { proxy, ..Default::default() }.shared();
        assignment(vec![vec![locality]])
    };
    for grouping in [Grouping::Localities, Grouping::Flat] {
        let (mut table, security) = (EndpointTable::default(), plaintext());
        let mut endpoints = |assignment: &ClusterLoadAssignment, http_connect| {
            let shared = Interner::default();
            let settings = EndpointSettings { security: &security, http_connect, names: &shared };
            let mut endpoints = Vec::new();
            table
                .update(assignment, &names(1), grouping, settings)
                .flatten(&mut |endpoint| endpoints.push(Arc::clone(endpoint)));
            endpoints
        };
        let assignment = with_proxy(Some(Arc::clone(&proxy)));
        let disabled = endpoints(&assignment, false);
        assert_eq!(disabled[0].proxy(), None);
        let enabled = endpoints(&assignment, true);
        assert_eq!([enabled[0].proxy(), enabled[1].proxy()], [Some(&proxy), None]);
        // Only the endpoint whose proxy changes is a new one.
        let without = endpoints(&with_proxy(None), true);
        assert_eq!(without[0].proxy(), None);
        for endpoints in [&enabled, &without] {
            assert!(Arc::ptr_eq(&endpoints[1], &disabled[1]));
        }
    }
}
