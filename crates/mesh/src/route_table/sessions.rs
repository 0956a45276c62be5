//! Which session config counts for an RPC (gRFC A39, A55).

use std::sync::Arc;

use proxyless_xds::resource::{CookieSession, FilterOverrides, HttpFilter, HttpFilterConfig};

/// The session config for a destination, if sessions are kept there. `overrides` are the most specific first.
///
/// Of several session filters in one chain the last one that is on counts.
pub(super) fn session(filters: &[HttpFilter], overrides: &[&FilterOverrides]) -> Option<Arc<CookieSession>> {
    filters.iter().rev().find_map(|filter| {
        let HttpFilterConfig::StatefulSession(own) = &filter.config else { return None };
        // A39: the most specific override replaces the filter's own config as a whole, and turns it on or off.
        match overrides.iter().find_map(|overrides| overrides.get(&filter.name)) {
            Some(HttpFilterConfig::Disabled) => None,
            Some(HttpFilterConfig::StatefulSession(session)) => session.clone(),
            _ => own.clone(),
        }
    })
}
