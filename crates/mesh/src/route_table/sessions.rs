//! Selection of the session config of an RPC (gRFC A39, A55).

use std::sync::Arc;

use proxyless_xds::resource::{CookieSession, FilterOverrides, HttpFilter, HttpFilterConfig};

/// The session config of a destination, if it has sessions. `overrides` are ordered from the most specific.
///
/// The last enabled session filter of the chain applies.
pub(super) fn session(filters: &[HttpFilter], overrides: &[&FilterOverrides]) -> Option<Arc<CookieSession>> {
    filters.iter().rev().find_map(|filter| {
        let HttpFilterConfig::StatefulSession(own) = &filter.config else { return None };
        // A39: the most specific override replaces the filter's own config entirely, and enables or disables it.
        match overrides.iter().find_map(|overrides| overrides.get(&filter.name)) {
            Some(HttpFilterConfig::Disabled) => None,
            Some(HttpFilterConfig::StatefulSession(session)) => session.clone(),
            _ => own.clone(),
        }
    })
}
