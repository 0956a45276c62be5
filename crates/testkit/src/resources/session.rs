//! The session filter (A55).

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::stateful_session_per_route::Override;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::{
    StatefulSession, StatefulSessionPerRoute,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use envoy_types::pb::envoy::r#type::http::v3::Cookie;
use envoy_types::pb::google::protobuf::Any;

use super::{duration, http_filter, pack};

/// The session filter with a cookie of this name, under the filter name `stateful_session` (A55).
pub fn stateful_session(cookie: &str) -> HttpFilter {
    stateful_session_with(cookie, "", Duration::ZERO)
}

/// Like [`stateful_session`], with the cookie's path and lifetime.
pub fn stateful_session_with(cookie: &str, path: &str, ttl: Duration) -> HttpFilter {
    let cookie = Cookie {
        name: cookie.into(),
        path: path.into(),
        ttl: (!ttl.is_zero()).then(|| duration(ttl)),
        ..Default::default()
    };
    let state = TypedExtensionConfig {
        name: "cookie".into(),
        typed_config: Some(pack(&CookieBasedSessionState { cookie: Some(cookie) })),
    };
    http_filter("stateful_session", &StatefulSession { session_state: Some(state), ..Default::default() })
}

/// An override for `typed_per_filter_config` that disables sessions, for the filter name `stateful_session`.
pub fn no_stateful_session() -> Any {
    pack(&StatefulSessionPerRoute { r#override: Some(Override::Disabled(true)) })
}

/// Further settings of a connection manager.
pub trait ConnectionManagerExt {
    /// Adds a filter before the router.
    #[must_use]
    fn filter(self, filter: HttpFilter) -> Self;
}

impl ConnectionManagerExt for HttpConnectionManager {
    fn filter(mut self, filter: HttpFilter) -> Self {
        let router = self.http_filters.len().saturating_sub(1);
        self.http_filters.insert(router, filter);
        self
    }
}
