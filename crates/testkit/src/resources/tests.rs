use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::HealthStatus;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use prost::Message;

use super::*;

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

#[test]
fn a_listener_has_its_routes_by_name_or_inline() {
    let manager = |listener: envoy_types::pb::envoy::config::listener::v3::Listener| {
        let any = listener.api_listener.unwrap().api_listener.unwrap();
        HttpConnectionManager::decode(&any.value[..]).unwrap()
    };
    let by_name = manager(listener("l", "routes"));
    assert!(
        matches!(by_name.route_specifier, Some(RouteSpecifier::Rds(rds)) if rds.route_config_name == "routes")
    );
    let inline = manager(listener("l", simple_route_config("routes", "c")));
    assert!(matches!(inline.route_specifier, Some(RouteSpecifier::RouteConfig(c)) if c.name == "routes"));
    assert_eq!(inline.http_filters.len(), 1);
}

#[test]
fn a_weighted_route_names_all_its_clusters() {
    let Some(Action::Route(action)) = weighted_route([("a", 3), ("b", 1)]).action else { panic!("no route") };
    let Some(ClusterSpecifier::WeightedClusters(weighted)) = action.cluster_specifier else {
        panic!("no weights")
    };
    let weights: Vec<_> =
        weighted.clusters.iter().map(|c| (c.name.as_str(), c.weight.unwrap().value)).collect();
    assert_eq!(weights, [("a", 3), ("b", 1)]);
}

#[test]
fn priorities_count_from_zero() {
    let message = priorities("c", [vec![address(1), address(2)], vec![address(3)]]).drops("lb", 500);
    let counts: Vec<_> = message.endpoints.iter().map(|l| (l.priority, l.lb_endpoints.len())).collect();
    assert_eq!(counts, [(0, 2), (1, 1)]);
    let drops = &message.policy.unwrap().drop_overloads;
    assert_eq!((drops[0].category.as_str(), drops[0].drop_percentage.unwrap().numerator), ("lb", 500));
}

#[test]
fn endpoints_and_localities_carry_their_settings() {
    let endpoint = endpoint(address(1)).weight(5).health(HealthStatus::Draining);
    assert_eq!(endpoint.load_balancing_weight.unwrap().value, 5);
    assert_eq!(endpoint.health_status(), HealthStatus::Draining);
    let locality = locality("z", [endpoint]).weight(7).priority(2).region("far");
    assert_eq!((locality.load_balancing_weight.unwrap().value, locality.priority), (7, 2));
    assert_eq!(locality.clone().locality.unwrap().region, "far");
    assert!(locality.without_weight().load_balancing_weight.is_none());
}

#[test]
fn durations_keep_their_fractions() {
    let message = duration(Duration::from_millis(1500));
    assert_eq!((message.seconds, message.nanos), (1, 500_000_000));
}
