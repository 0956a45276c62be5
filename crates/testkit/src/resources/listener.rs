//! Listeners, connection managers and HTTP filters.

use envoy_types::pb::envoy::config::listener::v3::{ApiListener, Listener};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{HttpConnectionManager, HttpFilter, Rds};
use prost::Name;

use super::{ads_source, pack};

/// The source of a listener's routes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RouteSource {
    /// A route configuration of this name, from RDS.
    Rds(String),
    /// Inline routes.
    Inline(Box<RouteConfiguration>),
}

impl From<&str> for RouteSource {
    fn from(name: &str) -> Self {
        Self::Rds(name.into())
    }
}

impl From<String> for RouteSource {
    fn from(name: String) -> Self {
        Self::Rds(name)
    }
}

impl From<RouteConfiguration> for RouteSource {
    fn from(routes: RouteConfiguration) -> Self {
        Self::Inline(Box::new(routes))
    }
}

/// An API listener, as gRPC clients use them. `routes` is a name for RDS, or a route configuration.
pub fn listener(name: &str, routes: impl Into<RouteSource>) -> Listener {
    listener_with(name, &connection_manager(routes))
}

/// An API listener with this connection manager.
pub fn listener_with(name: &str, manager: &HttpConnectionManager) -> Listener {
    Listener {
        name: name.into(),
        api_listener: Some(ApiListener { api_listener: Some(pack(manager)) }),
        ..Default::default()
    }
}

/// A connection manager with these routes and the router as its only filter.
pub fn connection_manager(routes: impl Into<RouteSource>) -> HttpConnectionManager {
    let specifier = match routes.into() {
        RouteSource::Rds(route_config_name) => {
            RouteSpecifier::Rds(Rds { config_source: Some(ads_source()), route_config_name })
        }
        RouteSource::Inline(routes) => RouteSpecifier::RouteConfig(*routes),
    };
    HttpConnectionManager {
        http_filters: vec![http_filter("router", &Router::default())],
        route_specifier: Some(specifier),
        ..Default::default()
    }
}

/// An HTTP filter. The router must be the last one of a connection manager.
pub fn http_filter<M: Name>(name: &str, config: &M) -> HttpFilter {
    HttpFilter {
        name: name.into(),
        config_type: Some(ConfigType::TypedConfig(pack(config))),
        ..Default::default()
    }
}
