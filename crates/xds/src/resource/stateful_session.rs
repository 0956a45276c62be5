//! The filter `stateful_session` (gRFC A55): cookie-based sessions.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3 as wire;
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use prost::Name;

use super::HttpFilterConfig;
use super::common::duration;
use super::extension::Extension;
use super::field::Field;

/// The cookie of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieSession {
    /// The cookie's name; never empty.
    pub name: Arc<str>,
    /// The path that the cookie applies to; if empty, all paths.
    pub path: Arc<str>,
    /// The lifetime announced to the caller; zero: unspecified. The client does not enforce it.
    pub ttl: Duration,
}

/// Parses the filter in the connection manager.
pub(super) fn stateful_session(at: &Field<'_>, extension: &Extension<'_>) -> Option<HttpFilterConfig> {
    let proto: wire::StatefulSession = extension.decode(at)?;
    session_state(at, &proto).map(HttpFilterConfig::StatefulSession)
}

/// Parses the filter override of a virtual host, route or weighted cluster.
pub(super) fn stateful_session_per_route(
    at: &Field<'_>,
    extension: &Extension<'_>,
) -> Option<HttpFilterConfig> {
    use wire::stateful_session_per_route::Override;
    let proto: wire::StatefulSessionPerRoute = extension.decode(at)?;
    match &proto.r#override {
        Some(Override::StatefulSession(session)) => {
            session_state(&at.field("stateful_session"), session).map(HttpFilterConfig::StatefulSession)
        }
        // A55: disabled or unset, which is equivalent.
        Some(Override::Disabled(_)) | None => Some(HttpFilterConfig::StatefulSession(None)),
    }
}

/// `Some(None)` if sessions are disabled; `None` after a violation.
fn session_state(at: &Field<'_>, proto: &wire::StatefulSession) -> Option<Option<Arc<CookieSession>>> {
    let Some(state) = &proto.session_state else { return Some(None) };
    let at = at.field("session_state");
    let at = at.field("typed_config");
    let extension = Extension::read(&at, state.typed_config.as_ref())?;
    // A55: only cookie-based sessions are supported.
    if extension.type_name != CookieBasedSessionState::full_name() {
        return at.fail(format!("{} is not CookieBasedSessionState", extension.type_name));
    }
    let state: CookieBasedSessionState = extension.decode(&at)?;
    let at = at.field("cookie");
    let cookie = at.require(state.cookie.as_ref())?;
    // A55: the name must not be empty.
    let name = at.field("name").require_text(&cookie.name);
    // A55: the ttl must not be negative.
    let ttl = match &cookie.ttl {
        Some(proto) => duration(&at.field("ttl"), proto),
        None => Some(Duration::ZERO),
    };
    Some(Some(Arc::new(CookieSession { name: name?.into(), path: cookie.path.as_str().into(), ttl: ttl? })))
}
