use std::sync::Arc;

use crate::api::{Endpoint, Endpoints};
use crate::policies::round_robin::RoundRobinConfig;
use crate::testing::{Bench, address, endpoint, endpoint_at};

fn bench(endpoints: &Endpoints) -> Bench {
    let mut bench = Bench::new();
    bench.update(Arc::new(RoundRobinConfig), endpoints.clone());
    bench
}

#[test]
fn a_changed_weight_does_not_restart_the_search_for_a_connection() {
    // With two addresses, the second is tried in a while: a restarted search would delay that.
    let at = |weight| Endpoint { weight, ..endpoint_at(&[address(1), address(2)]) };
    let mut bench = bench(&Endpoints::of([at(1)]));
    let deadline = bench.tree().next_deadline();
    assert!(deadline.is_some());
    bench.advance(std::time::Duration::from_millis(100));
    bench.update(Arc::new(RoundRobinConfig), Endpoints::of([at(2)]));
    assert_eq!(bench.tree().next_deadline(), deadline);
}

#[test]
fn a61_members_are_kept_when_their_endpoints_move() {
    let list = |numbers: &[u16]| Endpoints::of(numbers.iter().copied().map(endpoint));
    let before: Vec<u16> = (1..=40).collect();
    let mut bench = bench(&list(&before));
    before.iter().for_each(|&n| bench.ready(address(n)));
    let owners = bench.tree().stats().owners;
    for after in [
        (1..=40).rev().collect::<Vec<u16>>(),
        // Half of them, from the end; then all, with a new one between each pair and duplicates of far ones.
        (1..=40).step_by(2).rev().collect(),
        (1..=40).flat_map(|n| [n, 100 + n, 41 - n]).collect(),
        (1..=40).collect(),
    ] {
        bench.update(Arc::new(RoundRobinConfig), list(&after));
        let mut distinct = after.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(bench.tree().stats().owners, distinct.len(), "one subchannel for each endpoint");
        // In the order of their first places.
        let mut expected = Vec::new();
        after.iter().for_each(|&n| {
            if n <= 40 && !expected.contains(&address(n)) {
                expected.push(address(n));
            }
        });
        let mut picked = bench.picks(expected.len());
        let first = picked.iter().position(|picked| Some(picked) == expected.first());
        picked.rotate_left(first.expect("the first endpoint is picked"));
        assert_eq!(picked, expected);
        // Those that were left out linger, so that nobody connects again.
    }
    assert_eq!(bench.tree().stats().owners, owners);
}
