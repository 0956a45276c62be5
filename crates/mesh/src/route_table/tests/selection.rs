//! Which route, which cluster, which settings.

use proxyless_sans_io::values::Code;
use proxyless_xds::resource::RetryPolicy;

use super::*;

fn weighted(clusters: &[(&str, u32)]) -> Route {
    let list = clusters.iter().map(|&(name, weight)| WeightedCluster {
        name: name.into(),
        weight,
        filter_overrides: FilterOverrides::default(),
    });
    Route { action: Some(action(ClusterSpecifier::Weighted(list.collect()))), ..to("weighted") }
}

fn retry(num_retries: u32) -> RetryPolicy {
    let second = Duration::from_secs(1);
    RetryPolicy { codes: vec![Code::Unavailable], num_retries, base_interval: second, max_interval: second }
}

#[test]
fn a28_first_match_wins() {
    let mut first = to("first");
    first.matcher.path = PathMatcher::Prefix { prefix: "/MyService".into(), case_sensitive: true };
    let mut second = to("second");
    second.matcher.path = PathMatcher::Path { path: "/MyService/MyMethod".into(), case_sensitive: true };
    let table = table(vec![first, second, to("rest")]);
    assert_eq!(cluster_of(&table, "/MyService/MyMethod", &mut Rng::new(1)), "first");
    assert_eq!(cluster_of(&table, "/Other/Method", &mut Rng::new(1)), "rest");
}

#[test]
fn a28_no_match_is_unavailable_and_says_why() {
    let mut only = to("c");
    only.matcher.path = PathMatcher::Path { path: "/s/m".into(), case_sensitive: true };
    let error =
        table(vec![only]).select("/s/other", &HeaderMap::new(), &mut Rng::new(1)).expect_err("no match");
    let status = PickError::from(error);
    assert_eq!(status.code, Code::Unavailable);
    assert_eq!(status.message, "no route of virtual host \"host\" matches \"/s/other\"");
}

#[test]
fn a36_route_that_does_not_forward_fails_the_rpc() {
    let table = table(vec![Route { action: None, ..to("redirect") }, to("rest")]);
    let error =
        table.select("/s/m", &HeaderMap::new(), &mut Rng::new(1)).expect_err("not a forwarding route");
    let status = PickError::from(error);
    assert_eq!(status.code, Code::Unavailable);
    assert!(
        status.message.contains("\"redirect\"") && status.message.contains("\"/s/m\""),
        "{}",
        status.message
    );
}

#[test]
fn a28_fraction_takes_its_share() {
    let mut some = to("some");
    some.matcher.fraction_per_million = Some(300_000);
    let table = table(vec![some, to("rest")]);
    let mut rng = Rng::new(1);
    let hits = (0..10_000).filter(|_| cluster_of(&table, "/", &mut rng) == "some").count();
    assert!((2_800..3_200).contains(&hits), "{hits}");
}

#[test]
fn a28_fraction_of_nothing_and_of_everything() {
    for (share, expected) in [(0, "rest"), (1_000_000, "some"), (u32::MAX, "some")] {
        let mut some = to("some");
        some.matcher.fraction_per_million = Some(share);
        let table = table(vec![some, to("rest")]);
        let mut rng = Rng::new(1);
        assert!((0..100).all(|_| cluster_of(&table, "/", &mut rng) == expected), "{share}");
    }
}

#[test]
fn a28_clusters_are_chosen_by_weight() {
    let table = table(vec![weighted(&[("a", 20), ("none", 0), ("b", 30), ("c", 50)])]);
    let mut rng = Rng::new(1);
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..10_000 {
        *counts.entry(cluster_of(&table, "/", &mut rng)).or_default() += 1;
    }
    assert_eq!(counts.len(), 3, "{counts:?}");
    for (name, expected) in [("a", 2_000), ("b", 3_000), ("c", 5_000)] {
        assert!(counts[name].abs_diff(expected) < 200, "{counts:?}");
    }
}

#[test]
fn a28_weights_may_add_up_to_the_largest_number() {
    let table = table(vec![weighted(&[("a", u32::MAX - 1), ("b", 1)])]);
    let mut rng = Rng::new(1);
    assert!((0..1_000).all(|_| cluster_of(&table, "/", &mut rng) == "a"));
}

#[test]
fn single_cluster_needs_no_random_number() {
    let untouched = |route| {
        let mut rng = Rng::new(1);
        cluster_of(&table(vec![route]), "/", &mut rng);
        rng.next_u64() == Rng::new(1).next_u64()
    };
    assert!(untouched(to("c")));
    assert!(untouched(weighted(&[("zero", 0), ("c", 7)])));
    assert!(!untouched(weighted(&[("b", 1), ("c", 7)])));
}

#[test]
fn a31_each_cluster_is_claimed_once_even_with_weight_zero() {
    let mut claimed = Vec::new();
    let routes = vec![to("a"), weighted(&[("b", 1), ("zero", 0), ("a", 1)]), to("b")];
    let table = RouteTable::new(&host(routes), None, &[], |name| {
        claimed.push(name.to_string());
        claim(name)
    });
    assert_eq!(claimed, ["a", "b", "zero"]);
    assert_eq!(table.clusters().iter().map(|c| c.name().to_string()).collect::<Vec<_>>(), claimed);
}

#[test]
fn a31_max_stream_duration_table() {
    let seconds = |n: Option<u64>| n.map(Duration::from_secs);
    for (route, listener, effective) in [
        (None, None, None),
        (None, Some(0), None),
        (None, Some(10), Some(10)),
        (Some(0), None, None),
        (Some(0), Some(10), None),
        (Some(10), None, Some(10)),
        (Some(10), Some(5), Some(10)),
    ] {
        let mut only = to("c");
        only.action.as_mut().expect("it forwards").max_stream_duration = seconds(route);
        let table = table_of(&host(vec![only]), seconds(listener));
        let selection = table.select("/", &HeaderMap::new(), &mut Rng::new(1)).expect("a route");
        assert_eq!(selection.route.max_stream_duration, seconds(effective), "{route:?} {listener:?}");
    }
}

#[test]
fn a44_route_without_retry_policy_takes_the_virtual_hosts() {
    for (route, host_policy, expected) in
        [(None, None, None), (None, Some(1), Some(1)), (Some(2), Some(1), Some(2)), (Some(2), None, Some(2))]
    {
        let mut only = to("c");
        only.action.as_mut().expect("it forwards").retry_policy = route.map(retry).map(Arc::new);
        let mut host = host(vec![only]);
        host.retry_policy = host_policy.map(retry).map(Arc::new);
        let table = table_of(&host, None);
        let selection = table.select("/", &HeaderMap::new(), &mut Rng::new(1)).expect("a route");
        assert_eq!(selection.route.retry_policy.as_ref().map(|policy| policy.num_retries), expected);
    }
}

#[test]
fn a81_host_rewrite_is_that_of_the_route() {
    let mut only = to("c");
    only.action.as_mut().expect("it forwards").auto_host_rewrite = true;
    let table = table(vec![only]);
    let selection = table.select("/", &HeaderMap::new(), &mut Rng::new(1)).expect("a route");
    assert!(selection.route.auto_host_rewrite);
}
