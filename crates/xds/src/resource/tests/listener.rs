use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::{HttpProtocolOptions, TypedExtensionConfig};
use envoy_types::pb::envoy::config::listener::v3::{ApiListener, Listener};
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use hcm::http_connection_manager::RouteSpecifier;

use super::builders::{
    address, ads, any, any_of_type, connection_manager, listener_with, path_source, route_configuration,
    seconds, self_source,
};
use super::{accepts, as_listener, rejects};
use crate::resource::{HttpConnectionManager, HttpFilterConfig, ListenerKind, RouteSource};

const HCM: &str = "api_listener.api_listener";

/// A listener whose connection manager has been changed.
fn with(change: impl FnOnce(&mut hcm::HttpConnectionManager)) -> Listener {
    let mut manager = connection_manager();
    change(&mut manager);
    listener_with(&manager)
}

fn accepted(listener: &Listener) -> HttpConnectionManager {
    match &as_listener(accepts(listener)).kind {
        ListenerKind::Api(manager) => manager.clone(),
        ListenerKind::Socket => panic!("a socket listener"),
    }
}

#[test]
fn a27_66_an_api_listener_is_for_clients() {
    let mut listener = listener_with(&connection_manager());
    // Some servers add an address to it.
    listener.address = Some(address("0.0.0.0", 0));
    let manager = accepted(&listener);
    assert_eq!(manager.filters.len(), 1);
    assert_eq!(manager.filters[0].config, HttpFilterConfig::Router);
    assert_eq!(manager.max_stream_duration, None);
}

#[test]
fn a27_66_a_socket_listener_is_valid() {
    let listener =
        Listener { name: "listener".into(), address: Some(address("0.0.0.0", 80)), ..Default::default() };
    assert_eq!(as_listener(accepts(&listener)).kind, ListenerKind::Socket);
}

#[test]
fn a27_66_a_listener_without_either_is_rejected() {
    let listener = Listener { name: "listener".into(), ..Default::default() };
    rejects(&listener, "", "must have an api_listener or an address");
}

#[test]
fn a27_67_an_api_listener_must_be_a_connection_manager() {
    let mut listener = listener_with(&connection_manager());
    listener.api_listener = Some(ApiListener { api_listener: Some(any(&Router::default())) });
    rejects(&listener, HCM, "router.v3.Router is not an HttpConnectionManager");
    listener.api_listener = Some(ApiListener { api_listener: None });
    rejects(&listener, HCM, "must be set");
    let name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    listener.api_listener = Some(ApiListener { api_listener: Some(any_of_type(name, b"\xff")) });
    rejects(&listener, HCM, "does not decode");
}

#[test]
fn a27_68_inline_routes_are_accepted() {
    let listener = with(|manager| {
        manager.route_specifier = Some(RouteSpecifier::RouteConfig(route_configuration()));
    });
    let RouteSource::Inline(routes) = accepted(&listener).routes else { panic!("not inline") };
    assert_eq!(routes.virtual_hosts[0].domains, ["*"]);
}

#[test]
fn a27_68_inline_routes_are_validated() {
    let listener = with(|manager| {
        let mut routes = route_configuration();
        // Inline routes need no name.
        routes.name.clear();
        routes.virtual_hosts[0].domains.clear();
        manager.route_specifier = Some(RouteSpecifier::RouteConfig(routes));
    });
    rejects(
        &listener,
        "api_listener.api_listener.route_config.virtual_hosts[0].domains",
        "must not be empty",
    );
}

#[test]
fn a27_69_routes_by_name_are_accepted() {
    for source in [ads(), self_source()] {
        let listener = with(|manager| {
            let rds = hcm::Rds { config_source: Some(source), route_config_name: "name".into() };
            manager.route_specifier = Some(RouteSpecifier::Rds(rds));
        });
        assert_eq!(accepted(&listener).routes, RouteSource::Rds("name".into()));
    }
}

#[test]
fn a27_70_routes_from_elsewhere_are_rejected() {
    for (source, why) in [(Some(path_source()), "must be ads or self"), (None, "must be set")] {
        let listener = with(|manager| {
            let rds = hcm::Rds { config_source: source, route_config_name: "name".into() };
            manager.route_specifier = Some(RouteSpecifier::Rds(rds));
        });
        rejects(&listener, "api_listener.api_listener.rds.config_source", why);
    }
}

#[test]
fn a27_70_routes_by_an_empty_name_are_rejected() {
    let listener = with(|manager| {
        let rds = hcm::Rds { config_source: Some(ads()), route_config_name: String::new() };
        manager.route_specifier = Some(RouteSpecifier::Rds(rds));
    });
    rejects(&listener, "api_listener.api_listener.rds.route_config_name", "must not be empty");
}

#[test]
fn a27_71_a_manager_without_routes_is_rejected() {
    rejects(&with(|manager| manager.route_specifier = None), HCM, "must have route_config or rds");
}

#[test]
fn a27_71_scoped_routes_are_rejected() {
    let listener = with(|manager| {
        manager.route_specifier = Some(RouteSpecifier::ScopedRoutes(hcm::ScopedRoutes::default()));
    });
    rejects(&listener, "api_listener.api_listener.scoped_routes", "is not supported");
}

#[test]
fn a31_max_stream_duration_is_read() {
    let with_duration = |duration| {
        with(|manager| {
            manager.common_http_protocol_options =
                Some(HttpProtocolOptions { max_stream_duration: Some(duration), ..Default::default() });
        })
    };
    assert_eq!(accepted(&with_duration(seconds(3))).max_stream_duration, Some(Duration::from_secs(3)));
    rejects(
        &with_duration(seconds(-1)),
        "api_listener.api_listener.common_http_protocol_options.max_stream_duration.seconds",
        "-1 is not in the range",
    );
}

#[test]
fn a41_trusted_hops_are_rejected() {
    let listener = with(|manager| manager.xff_num_trusted_hops = 1);
    rejects(&listener, "api_listener.api_listener.xff_num_trusted_hops", "must be zero");
}

#[test]
fn a41_ip_detection_extensions_are_rejected() {
    let listener =
        with(|manager| manager.original_ip_detection_extensions = vec![TypedExtensionConfig::default()]);
    rejects(&listener, "api_listener.api_listener.original_ip_detection_extensions", "must be empty");
}
