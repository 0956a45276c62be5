use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::CommonLbConfig;
use envoy_types::pb::envoy::config::core::v3::{HealthStatus, HealthStatusSet, TypedExtensionConfig};
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier as WireSpecifier;
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use envoy_types::pb::envoy::config::route::v3::{FilterConfig, WeightedCluster};
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::stateful_session_per_route::Override;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::{
    StatefulSession, StatefulSessionPerRoute,
};
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use envoy_types::pb::envoy::r#type::http::v3::Cookie;
use envoy_types::pb::google::protobuf::{Any, UInt32Value};

use super::builders::{
    any, any_of_type, connection_manager, eds_cluster, http_filter, listener_with, route_configuration,
    router, routes_with_action, seconds,
};
use super::{accepts, as_cluster, as_listener, as_routes, rejects};
use crate::resource::{
    ClusterSpecifier, CookieSession, FilterOverrides, HttpFilterConfig, ListenerKind, OverrideHostStatus,
};

const PATH: &str = "api_listener.api_listener.http_filters[0].typed_config";

fn cookie(name: &str) -> Cookie {
    Cookie { name: name.into(), ..Default::default() }
}

fn session(state: Option<Any>) -> StatefulSession {
    let session_state = TypedExtensionConfig { name: "state".into(), typed_config: state };
    StatefulSession { session_state: Some(session_state), ..Default::default() }
}

fn cookie_session(cookie: Cookie) -> StatefulSession {
    session(Some(any(&CookieBasedSessionState { cookie: Some(cookie) })))
}

fn listener(session: &StatefulSession) -> envoy_types::pb::envoy::config::listener::v3::Listener {
    let mut manager = connection_manager();
    manager.http_filters = vec![http_filter("session", any(session)), router()];
    listener_with(&manager)
}

fn parsed(session: &StatefulSession) -> Option<CookieSession> {
    match &as_listener(accepts(&listener(session))).kind {
        ListenerKind::Api(manager) => match &manager.filters[0].config {
            HttpFilterConfig::StatefulSession(session) => session.as_deref().cloned(),
            other => panic!("{other:?}"),
        },
        ListenerKind::Socket => panic!("a socket listener"),
    }
}

fn named(name: &str) -> HttpFilterConfig {
    let session = CookieSession { name: name.into(), path: "".into(), ttl: Duration::ZERO };
    HttpFilterConfig::StatefulSession(Some(Arc::new(session)))
}

#[test]
fn a55_name_path_and_ttl_of_the_cookie() {
    let full = Cookie { path: "/service".into(), ttl: Some(seconds(120)), ..cookie("sid") };
    let expected =
        CookieSession { name: "sid".into(), path: "/service".into(), ttl: Duration::from_secs(120) };
    assert_eq!(parsed(&cookie_session(full)), Some(expected));
    let expected = CookieSession { name: "sid".into(), path: "".into(), ttl: Duration::ZERO };
    assert_eq!(parsed(&cookie_session(cookie("sid"))), Some(expected));
}

#[test]
fn a55_without_session_state_the_filter_is_off() {
    assert_eq!(parsed(&StatefulSession::default()), None);
}

#[test]
fn a55_other_session_states_are_rejected() {
    let state = format!("{PATH}.session_state.typed_config");
    let header = any_of_type("envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState", b"");
    rejects(&listener(&session(Some(header))), &state, "is not CookieBasedSessionState");
    rejects(&listener(&session(None)), &state, "must be set");
    let bad =
        any_of_type("envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState", b"\xff");
    rejects(&listener(&session(Some(bad))), &state, "does not decode");
}

#[test]
fn a55_the_cookie_needs_a_name_and_a_valid_ttl() {
    let path = format!("{PATH}.session_state.typed_config.cookie");
    rejects(&listener(&session(Some(any(&CookieBasedSessionState::default())))), &path, "must be set");
    rejects(&listener(&cookie_session(cookie(""))), &format!("{path}.name"), "must not be empty");
    let negative = Cookie { ttl: Some(seconds(-1)), ..cookie("sid") };
    rejects(&listener(&cookie_session(negative)), &format!("{path}.ttl.seconds"), "is not in the range");
}

fn per_route(choice: Option<Override>) -> Any {
    any(&StatefulSessionPerRoute { r#override: choice })
}

#[test]
fn a55_overrides_of_virtual_host_route_and_weighted_cluster_are_kept() {
    let other = |name| {
        let entry = per_route(Some(Override::StatefulSession(cookie_session(cookie(name)))));
        ("session".to_owned(), entry)
    };
    let mut config = routes_with_action(|action| {
        let cluster = ClusterWeight {
            name: "cluster".into(),
            weight: Some(UInt32Value { value: 1 }),
            typed_per_filter_config: [other("cluster")].into(),
            ..Default::default()
        };
        let clusters = WeightedCluster { clusters: vec![cluster], ..Default::default() };
        action.cluster_specifier = Some(WireSpecifier::WeightedClusters(clusters));
    });
    config.virtual_hosts[0].typed_per_filter_config = [other("host")].into();
    config.virtual_hosts[0].routes[0].typed_per_filter_config = [other("route")].into();
    let routes = as_routes(accepts(&config));
    let host = &routes.virtual_hosts[0];
    assert_eq!(host.filter_overrides.get("session"), Some(&named("host")));
    assert_eq!(host.routes[0].filter_overrides.get("session"), Some(&named("route")));
    let action = host.routes[0].action.as_ref().expect("it forwards");
    let ClusterSpecifier::Weighted(clusters) = &action.cluster else { panic!("{action:?}") };
    assert_eq!(clusters[0].filter_overrides.get("session"), Some(&named("cluster")));
    assert_eq!(clusters[0].filter_overrides.get("other"), None);
}

#[test]
fn a55_an_override_may_turn_the_filter_off() {
    let nothing = StatefulSession::default();
    for choice in [Some(Override::Disabled(true)), Some(Override::StatefulSession(nothing)), None] {
        let wrapped = any(&FilterConfig { config: Some(per_route(choice.clone())), ..Default::default() });
        for config in [per_route(choice.clone()), wrapped] {
            let mut routes = route_configuration();
            routes.virtual_hosts[0].typed_per_filter_config = [("session".to_owned(), config)].into();
            let off: FilterOverrides =
                [("session".into(), HttpFilterConfig::StatefulSession(None))].into_iter().collect();
            assert_eq!(as_routes(accepts(&routes)).virtual_hosts[0].filter_overrides, off, "{choice:?}");
        }
    }
}

#[test]
fn a55_a_bad_override_is_rejected() {
    let mut routes = route_configuration();
    let bad = per_route(Some(Override::StatefulSession(cookie_session(cookie("")))));
    routes.virtual_hosts[0].typed_per_filter_config = [("session".to_owned(), bad)].into();
    rejects(
        &routes,
        "virtual_hosts[0].typed_per_filter_config[\"session\"].stateful_session.session_state.typed_config.cookie.name",
        "must not be empty",
    );
}

fn override_host_status(statuses: Option<&[HealthStatus]>) -> OverrideHostStatus {
    let set = statuses
        .map(|statuses| HealthStatusSet { statuses: statuses.iter().map(|&status| status as i32).collect() });
    let config = CommonLbConfig { override_host_status: set, ..Default::default() };
    let cluster = Cluster { common_lb_config: Some(config), ..eds_cluster() };
    as_cluster(accepts(&cluster)).override_host_status
}

#[test]
fn a55_override_host_status_is_unknown_and_healthy_by_default() {
    let expected = OverrideHostStatus { unknown: true, healthy: true, draining: false };
    assert_eq!(as_cluster(accepts(&eds_cluster())).override_host_status, expected);
    assert_eq!(override_host_status(None), expected);
}

#[test]
fn a55_override_host_status_counts_as_it_is_and_other_statuses_are_ignored() {
    let none = OverrideHostStatus { unknown: false, healthy: false, draining: false };
    assert_eq!(override_host_status(Some(&[])), none);
    let statuses = [HealthStatus::Draining, HealthStatus::Unhealthy, HealthStatus::Degraded];
    assert_eq!(override_host_status(Some(&statuses)), OverrideHostStatus { draining: true, ..none });
    let statuses = [HealthStatus::Healthy, HealthStatus::Healthy];
    assert_eq!(override_host_status(Some(&statuses)), OverrideHostStatus { healthy: true, ..none });
}
