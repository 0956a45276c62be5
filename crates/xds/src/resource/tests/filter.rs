use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use envoy_types::pb::envoy::config::route::v3::{FilterConfig, RouteConfiguration, WeightedCluster};
use envoy_types::pb::envoy::extensions::filters::http;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType;
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use envoy_types::pb::envoy::r#type::http::v3::Cookie;
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use prost::Message;

use super::builders::{
    any, any_of_type, connection_manager, http_filter, listener_with, route_configuration, router,
    routes_with_action,
};
use super::{accepts, as_listener, as_routes, rejects};
use crate::resource::extension::TypedStruct;
use crate::resource::{HttpFilterConfig, ListenerKind};

const FILTERS: &str = "api_listener.api_listener.http_filters";

fn listener(filters: &[HttpFilter]) -> envoy_types::pb::envoy::config::listener::v3::Listener {
    let mut manager = connection_manager();
    manager.http_filters = filters.to_vec();
    listener_with(&manager)
}

fn accepted(filters: &[HttpFilter]) -> Vec<(String, HttpFilterConfig)> {
    match &as_listener(accepts(&listener(filters))).kind {
        ListenerKind::Api(manager) => {
            manager.filters.iter().map(|filter| (filter.name.to_string(), filter.config.clone())).collect()
        }
        ListenerKind::Socket => panic!("a socket listener"),
    }
}

fn fault(name: &str) -> HttpFilter {
    http_filter(name, any(&http::fault::v3::HttpFault::default()))
}

fn unknown(name: &str) -> HttpFilter {
    http_filter(name, any_of_type("example.Unknown", b"\xff"))
}

fn optional(filter: HttpFilter) -> HttpFilter {
    HttpFilter { is_optional: true, ..filter }
}

fn typed_struct(outer: &str, inner: &str) -> Any {
    let typed = TypedStruct { type_url: format!("type.googleapis.com/{inner}"), value: None };
    any_of_type(outer, &typed.encode_to_vec())
}

#[test]
fn a39_known_filters_are_kept_in_order() {
    let session = any(&http::stateful_session::v3::StatefulSession::default());
    let filters = [fault("a"), http_filter("b", session), fault("c"), router()];
    let accepted = accepted(&filters);
    let names: Vec<&str> = accepted.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "router"]);
    assert_eq!(accepted[3].1, HttpFilterConfig::Router);
    assert_eq!(accepted[0].1, HttpFilterConfig::Fault(Arc::default()));
}

#[test]
fn a39_a_filter_for_servers_is_rejected_unless_optional() {
    let rbac = http_filter("a", any(&http::rbac::v3::Rbac::default()));
    rejects(
        &listener(&[rbac.clone(), router()]),
        "api_listener.api_listener.http_filters[0].typed_config",
        "http.rbac.v3.RBAC is not supported on clients",
    );
    assert_eq!(accepted(&[optional(rbac), router()]).len(), 1);
}

#[test]
fn a39_a_disabled_filter_is_off_and_must_be_valid_nevertheless() {
    let cookie = CookieBasedSessionState { cookie: Some(Cookie { name: "c".into(), ..Default::default() }) };
    let state = TypedExtensionConfig { name: "cookie".into(), typed_config: Some(any(&cookie)) };
    let session =
        http::stateful_session::v3::StatefulSession { session_state: Some(state), ..Default::default() };
    let filter = http_filter("a", any(&session));
    let config = |filter: &HttpFilter| accepted(&[filter.clone(), router()])[0].1.clone();
    assert!(matches!(config(&filter), HttpFilterConfig::StatefulSession(Some(_))));
    let off = HttpFilter { disabled: true, ..filter };
    assert_eq!(config(&off), HttpFilterConfig::StatefulSession(None));
    let bad = any_of_type("envoy.extensions.filters.http.fault.v3.HTTPFault", b"\xff");
    rejects(
        &listener(&[HttpFilter { disabled: true, ..http_filter("a", bad) }, router()]),
        "api_listener.api_listener.http_filters[0].typed_config",
        "does not decode",
    );
}

#[test]
fn a39_a_disabled_override_turns_the_filter_off() {
    let session = any(&http::stateful_session::v3::StatefulSessionPerRoute::default());
    let fault = any(&http::fault::v3::HttpFault::default());
    for config in [session, fault] {
        for disabled in [false, true] {
            let wrapper = FilterConfig { config: Some(config.clone()), disabled, ..Default::default() };
            let (routes, _) = &overrides(any(&wrapper))[0];
            let host = as_routes(accepts(routes)).virtual_hosts[0].clone();
            let found = host.filter_overrides.get("filter") == Some(&HttpFilterConfig::Disabled);
            assert_eq!(found, disabled);
        }
    }
}

#[test]
fn a39_an_empty_chain_is_rejected() {
    rejects(&listener(&[]), FILTERS, "must have a router");
    rejects(&listener(&[optional(unknown("a"))]), FILTERS, "must have a router");
}

#[test]
fn a39_names_must_not_be_empty() {
    rejects(
        &listener(&[fault(""), router()]),
        "api_listener.api_listener.http_filters[0].name",
        "must not be empty",
    );
}

#[test]
fn a39_names_must_be_unique() {
    let filters = [fault("a"), fault("a"), router()];
    rejects(
        &listener(&filters),
        "api_listener.api_listener.http_filters[1].name",
        "\"a\" is the name of two filters",
    );
}

#[test]
fn a39_typed_config_is_required() {
    let path = "api_listener.api_listener.http_filters[0].typed_config";
    let bare = HttpFilter { name: "a".into(), ..Default::default() };
    rejects(&listener(&[bare.clone(), router()]), path, "must be set");
    rejects(&listener(&[optional(bare.clone()), router()]), path, "must be set");
    let discovered =
        HttpFilter { config_type: Some(ConfigType::ConfigDiscovery(Default::default())), ..bare };
    rejects(&listener(&[discovered, router()]), path, "must be set");
}

#[test]
fn a39_a_typed_config_without_a_type_is_rejected() {
    for type_url in ["", "no-slash", "type.googleapis.com/"] {
        let config = Any { type_url: type_url.into(), value: vec![] };
        rejects(
            &listener(&[http_filter("a", config), router()]),
            "api_listener.api_listener.http_filters[0].typed_config.type_url",
            "is not a type URL",
        );
    }
}

#[test]
fn a39_the_router_must_be_last_and_only_last() {
    let first = HttpFilter { name: "first".into(), ..router() };
    rejects(
        &listener(&[first, fault("a"), router()]),
        "api_listener.api_listener.http_filters[0]",
        "the router must be the last filter",
    );
    rejects(
        &listener(&[fault("a"), fault("b")]),
        "api_listener.api_listener.http_filters[1]",
        "the last filter must be the router",
    );
}

#[test]
fn a39_filters_that_are_left_out_do_not_count_for_the_order() {
    let accepted = accepted(&[router(), optional(unknown("a"))]);
    assert_eq!(accepted, [("router".to_owned(), HttpFilterConfig::Router)]);
}

#[test]
fn a39_unknown_filters_are_rejected_unless_optional() {
    rejects(
        &listener(&[unknown("a"), router()]),
        "api_listener.api_listener.http_filters[0].typed_config",
        "example.Unknown is not supported",
    );
    assert_eq!(accepted(&[optional(unknown("a")), router()]).len(), 1);
}

#[test]
fn a39_a_known_filter_must_decode_even_if_optional() {
    let bad = http_filter("a", any_of_type("envoy.extensions.filters.http.fault.v3.HTTPFault", b"\xff"));
    rejects(
        &listener(&[optional(bad), router()]),
        "api_listener.api_listener.http_filters[0].typed_config",
        "does not decode",
    );
}

#[test]
fn a39_typed_structs_stand_for_the_type_they_name() {
    for outer in ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"] {
        let unknown = http_filter("a", typed_struct(outer, "example.Custom"));
        rejects(
            &listener(&[unknown.clone(), router()]),
            "api_listener.api_listener.http_filters[0].typed_config",
            "example.Custom is not supported",
        );
        assert_eq!(accepted(&[optional(unknown), router()]).len(), 1);
        let known = http_filter("a", typed_struct(outer, "envoy.extensions.filters.http.fault.v3.HTTPFault"));
        rejects(
            &listener(&[known, router()]),
            "api_listener.api_listener.http_filters[0].typed_config",
            "must not come as a TypedStruct",
        );
        rejects(
            &listener(&[http_filter("a", any_of_type(outer, b"\xff")), router()]),
            "api_listener.api_listener.http_filters[0].typed_config",
            "does not decode",
        );
    }
}

/// The same override at a virtual host, a route and a weighted cluster, each with its path.
fn overrides(config: Any) -> [(RouteConfiguration, &'static str); 3] {
    let entry = ("filter".to_owned(), config);
    let mut host = route_configuration();
    host.virtual_hosts[0].typed_per_filter_config = [entry.clone()].into();
    let mut route = route_configuration();
    route.virtual_hosts[0].routes[0].typed_per_filter_config = [entry.clone()].into();
    let cluster = routes_with_action(|action| {
        let cluster = ClusterWeight {
            name: "cluster".into(),
            weight: Some(UInt32Value { value: 1 }),
            typed_per_filter_config: [entry].into(),
            ..Default::default()
        };
        let clusters = WeightedCluster { clusters: vec![cluster], ..Default::default() };
        action.cluster_specifier = Some(ClusterSpecifier::WeightedClusters(clusters));
    });
    [
        (host, "virtual_hosts[0].typed_per_filter_config[\"filter\"]"),
        (route, "virtual_hosts[0].routes[0].typed_per_filter_config[\"filter\"]"),
        (
            cluster,
            "virtual_hosts[0].routes[0].route.weighted_clusters.clusters[0].typed_per_filter_config[\"filter\"]",
        ),
    ]
}

#[test]
fn a39_overrides_of_known_types_are_accepted() {
    let fault = any(&http::fault::v3::HttpFault::default());
    let rbac = any(&http::rbac::v3::RbacPerRoute::default());
    let session = any(&http::stateful_session::v3::StatefulSessionPerRoute::default());
    let wrapped = any(&FilterConfig { config: Some(fault.clone()), ..Default::default() });
    for config in [fault, rbac, session, wrapped] {
        for (routes, _) in overrides(config) {
            accepts(&routes);
        }
    }
}

#[test]
fn a39_overrides_of_unknown_types_are_rejected_unless_optional() {
    for (routes, path) in overrides(any_of_type("example.Unknown", b"")) {
        rejects(&routes, path, "example.Unknown is not supported");
    }
    let mut wrapper =
        FilterConfig { config: Some(any_of_type("example.Unknown", b"")), ..Default::default() };
    for (routes, path) in overrides(any(&wrapper)) {
        rejects(&routes, &format!("{path}.config"), "example.Unknown is not supported");
    }
    wrapper.is_optional = true;
    for (routes, _) in overrides(any(&wrapper)) {
        accepts(&routes);
    }
}

#[test]
fn a39_a_top_level_config_is_not_an_override() {
    for config in [any(&http::rbac::v3::Rbac::default()), any(&http::router::v3::Router::default())] {
        for (routes, path) in overrides(config) {
            rejects(&routes, path, "is not supported");
        }
    }
}

#[test]
fn a39_a_wrapper_needs_a_config() {
    for (routes, path) in overrides(any(&FilterConfig::default())) {
        rejects(&routes, &format!("{path}.config"), "must be set");
    }
}

#[test]
fn a39_an_override_needs_the_name_of_a_filter() {
    let mut routes = route_configuration();
    let fault = any(&http::fault::v3::HttpFault::default());
    routes.virtual_hosts[0].typed_per_filter_config = [(String::new(), fault)].into();
    rejects(&routes, "virtual_hosts[0].typed_per_filter_config[\"\"]", "must not be empty");
}
