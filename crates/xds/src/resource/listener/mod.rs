//! Listener (LDS).

mod validate;

use std::sync::Arc;

use super::{HttpFilter, RouteConfiguration};

/// A validated Listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// The kind of the listener.
    pub kind: ListenerKind,
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
