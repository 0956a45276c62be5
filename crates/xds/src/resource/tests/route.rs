use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::route::v3 as wire;
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use wire::route_match::PathSpecifier;

use super::builders::{
    route, route_configuration, routes_with, routes_with_action, routes_with_match, virtual_host,
};
use super::{accepts, as_routes, rejects};
use crate::resource::{ClusterSpecifier, Route};

fn hosts(domains: &[&[&str]]) -> wire::RouteConfiguration {
    let virtual_hosts = domains.iter().map(|domains| virtual_host(domains)).collect();
    wire::RouteConfiguration { virtual_hosts, ..route_configuration() }
}

/// The routes that remain.
fn accepted(config: &wire::RouteConfiguration) -> Vec<Route> {
    as_routes(accepts(config)).virtual_hosts[0].routes.clone()
}

#[test]
fn a27_74_no_virtual_hosts_are_valid() {
    assert!(as_routes(accepts(&hosts(&[]))).virtual_hosts.is_empty());
}

#[test]
fn a27_75_domain_patterns_are_kept() {
    let config = hosts(&[&["a.example", "*.b.example"], &["c.*", "*"]]);
    let routes = as_routes(accepts(&config));
    assert_eq!(routes.virtual_hosts[0].domains, ["a.example", "*.b.example"]);
    assert_eq!(routes.virtual_hosts[1].domains, ["c.*", "*"]);
    assert_eq!(routes.virtual_hosts[0].name, "host");
}

#[test]
fn a27_75_bad_domain_patterns_are_rejected() {
    for bad in ["", "a*b", "*a*", "**", "a.*.b"] {
        rejects(&hosts(&[&["ok", bad]]), "virtual_hosts[0].domains[1]", "is not a domain pattern");
    }
}

#[test]
fn a27_75_a_virtual_host_needs_domains() {
    rejects(&hosts(&[&["a"], &[]]), "virtual_hosts[1].domains", "must not be empty");
}

#[test]
fn a27_75_a_domain_may_occur_twice() {
    let routes = as_routes(accepts(&hosts(&[&["a", "*", "A"], &["b", "*"]])));
    assert_eq!(routes.virtual_hosts[0].domains, ["a", "*", "A"]);
    assert_eq!(routes.virtual_hosts[1].domains, ["b", "*"]);
}

#[test]
fn a28_a_route_without_match_is_rejected() {
    rejects(&routes_with(|route| route.r#match = None), "virtual_hosts[0].routes[0].match", "must be set");
}

#[test]
fn a28_routes_keep_their_order() {
    let mut config = route_configuration();
    let named = |name: &str| wire::Route { name: name.into(), ..route() };
    config.virtual_hosts[0].routes = vec![named("b"), named("a"), named("b")];
    let names: Vec<String> = accepted(&config).into_iter().map(|route| route.name).collect();
    assert_eq!(names, ["b", "a", "b"]);
}

#[test]
fn a28_a_route_with_query_parameters_is_left_out() {
    let config = routes_with_match(|matcher| {
        matcher.query_parameters = vec![wire::QueryParameterMatcher::default()];
        // Nothing else of it is looked at.
        matcher.path_specifier = None;
    });
    assert!(accepted(&config).is_empty());
}

#[test]
fn a28_paths_that_no_rpc_has_are_left_out() {
    let config = |specifier| routes_with_match(|matcher| matcher.path_specifier = Some(specifier));
    for prefix in ["a", "a/b", "//", "//b", "/a/b/", "/a/b/c"] {
        assert!(accepted(&config(PathSpecifier::Prefix(prefix.into()))).is_empty(), "{prefix}");
    }
    for prefix in ["", "/", "/a", "/a/", "/a/b"] {
        assert_eq!(accepted(&config(PathSpecifier::Prefix(prefix.into()))).len(), 1, "{prefix}");
    }
    for path in ["", "/", "a/b", "/a", "/a/", "//b", "/a/b/", "/a/b/c"] {
        assert!(accepted(&config(PathSpecifier::Path(path.into()))).is_empty(), "{path}");
    }
    assert_eq!(accepted(&config(PathSpecifier::Path("/a/b".into()))).len(), 1);
}

#[test]
fn a28_a_route_without_a_supported_cluster_specifier_is_left_out() {
    use wire::route_action::ClusterSpecifier as Specifier;
    for specifier in [
        None,
        Some(Specifier::ClusterHeader("x".into())),
        Some(Specifier::ClusterSpecifierPlugin("x".into())),
        Some(Specifier::InlineClusterSpecifierPlugin(Default::default())),
    ] {
        let config = routes_with_action(|action| action.cluster_specifier = specifier);
        assert!(accepted(&config).is_empty());
    }
}

#[test]
fn a28_matchers_that_grpc_does_not_have_are_ignored() {
    let config = routes_with_match(|matcher| {
        matcher.grpc = Some(Default::default());
        matcher.tls_context = Some(Default::default());
        matcher.dynamic_metadata = vec![Default::default()];
    });
    assert_eq!(accepted(&config), accepted(&route_configuration()));
}

#[test]
fn a28_the_fraction_is_parts_of_a_million() {
    let config = |numerator, denominator| {
        routes_with_match(|matcher| {
            matcher.runtime_fraction = Some(RuntimeFractionalPercent {
                default_value: Some(FractionalPercent { numerator, denominator }),
                runtime_key: "ignored".into(),
            });
        })
    };
    let fraction = |config: &_| accepted(config)[0].matcher.fraction_per_million;
    assert_eq!(fraction(&config(3, 0)), Some(30_000));
    assert_eq!(fraction(&config(3, 1)), Some(300));
    assert_eq!(fraction(&config(3, 2)), Some(3));
    assert_eq!(fraction(&config(0, 0)), Some(0));
    // More than all is all, even where 32 bits would overflow.
    assert_eq!(fraction(&config(101, 0)), Some(1_000_000));
    assert_eq!(fraction(&config(u32::MAX, 0)), Some(1_000_000));
    assert_eq!(fraction(&route_configuration()), None);
    rejects(
        &config(1, 3),
        "virtual_hosts[0].routes[0].match.runtime_fraction.default_value.denominator",
        "3 is not a known denominator",
    );
}

#[test]
fn a28_a_fraction_without_a_default_value_always_matches() {
    let config =
        routes_with_match(|matcher| matcher.runtime_fraction = Some(RuntimeFractionalPercent::default()));
    assert_eq!(accepted(&config)[0].matcher.fraction_per_million, None);
}

#[test]
fn a36_a_route_with_another_action_stays_without_one() {
    use wire::route::Action;
    for action in [
        None,
        Some(Action::Redirect(Default::default())),
        Some(Action::DirectResponse(Default::default())),
        Some(Action::NonForwardingAction(Default::default())),
    ] {
        let routes = accepted(&routes_with(|route| route.action = action));
        assert_eq!(routes.len(), 1);
        assert_eq!(routes[0].action, None);
    }
}

#[test]
fn all_violations_of_a_route_are_collected() {
    let config = routes_with(|route| {
        let matcher = route.r#match.as_mut().expect("a match");
        matcher.path_specifier = None;
        matcher.headers = vec![wire::HeaderMatcher::default()];
        let Some(wire::route::Action::Route(action)) = &mut route.action else { panic!("{route:?}") };
        action.cluster_specifier = Some(wire::route_action::ClusterSpecifier::Cluster(String::new()));
    });
    let found = super::decode_message(&config).expect_err("violations");
    let mut paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "virtual_hosts[0].routes[0].match",
            "virtual_hosts[0].routes[0].match.headers[0]",
            "virtual_hosts[0].routes[0].match.headers[0].name",
            "virtual_hosts[0].routes[0].route.cluster",
        ]
    );
}

#[test]
fn a28_a_cluster_is_named() {
    let action = accepted(&route_configuration())[0].action.clone().expect("an action");
    assert_eq!(action.cluster, ClusterSpecifier::Cluster("cluster".into()));
    assert!(action.hash_policies.is_empty() && action.retry_policy.is_none());
}
