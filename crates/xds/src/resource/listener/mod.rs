//! Listener (LDS).

mod validate;

use std::sync::Arc;

use super::{HttpFilter, HttpFilterConfig, RouteConfiguration};

/// A validated Listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// The kind of the listener.
    pub kind: ListenerKind,
}

impl Listener {
    pub(super) fn unapplied_filters(&self) -> Vec<Arc<str>> {
        let ListenerKind::Api(manager) = &self.kind else { return Vec::new() };
        let unapplied = |filter: &&HttpFilter| matches!(filter.config, HttpFilterConfig::Unapplied { .. });
        let own = manager.filters.iter().filter(unapplied).map(|filter| Arc::clone(&filter.name));
        let inline = match &manager.routes {
            RouteSource::Inline(routes) => routes.unapplied_filters(),
            RouteSource::Rds(_) => Vec::new(),
        };
        own.chain(inline).collect()
    }
}

/// The two kinds of listeners.
#[derive(Clone, Debug, PartialEq)]
pub enum ListenerKind {
    /// An API listener, for clients.
    Api(HttpConnectionManager),
    /// A socket listener: valid, but of no use to a client (A27-66, A74).
    Socket,
}

/// The HttpConnectionManager of an API listener.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpConnectionManager {
    /// The source of the routes.
    pub routes: RouteSource,
    /// `common_http_protocol_options.max_stream_duration` (gRFC A31), if set.
    pub max_stream_duration: Option<std::time::Duration>,
    /// The filters in order; the router is last.
    pub filters: Arc<[HttpFilter]>,
}

/// Inline routes, or the name of a RouteConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub enum RouteSource {
    /// Routes in the listener itself.
    Inline(Arc<RouteConfiguration>),
    /// The name of a RouteConfiguration to request from RDS.
    Rds(Arc<str>),
}
