//! The live page and its JSON data.

use std::time::SystemTime;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use http::HeaderName;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use proxyless::ClientPool;
use proxyless::inspect::ProcessView;
use serde::Serialize;

use crate::explain;
use crate::resources::{ClientResources, unix_seconds};

/// One document: the policy below allows no other files.
const PAGE: &str = concat!(
    include_str!("page/open.html"),
    include_str!("page/style.css"),
    include_str!("page/body.html"),
    include_str!("page/elements.js"),
    include_str!("page/history.js"),
    include_str!("page/plots.js"),
    include_str!("page/tree.js"),
    include_str!("page/lists.js"),
    include_str!("page/explain.js"),
    include_str!("page/look.js"),
    include_str!("page/close.html"),
);

/// Loads nothing from other sites, and cannot be embedded in other pages.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

pub(crate) fn router(clients: &ClientPool) -> Router {
    Router::new()
        .route("/proxyless/", get(page))
        .route("/proxyless/channels.json", get(channels))
        .route("/proxyless/resources.json", get(resources))
        .route("/proxyless/process.json", get(process))
        .route("/proxyless/explain.json", get(explain::explain))
        .with_state(clients.clone())
}

/// Redirects the root of our own server to the page.
pub(crate) fn root() -> Router {
    Router::new().route("/", get(|| async { Redirect::temporary("/proxyless/") }))
}

async fn page() -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, PAGE)
}

async fn channels(State(clients): State<ClientPool>) -> impl IntoResponse {
    json(&clients.channels().await)
}

async fn resources(State(clients): State<ClientPool>) -> impl IntoResponse {
    json(&clients.clients().await.iter().map(ClientResources::new).collect::<Vec<_>>())
}

async fn process() -> impl IntoResponse {
    json(&ProcessView::current())
}

pub(crate) fn json<T: Serialize>(value: &T) -> impl IntoResponse + use<T> {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    // Rates are computed from the server's time, which excludes network delays.
    let time = [(HeaderName::from_static("server-time"), unix_seconds(SystemTime::now()).to_string())];
    // Only maps with non-string keys would fail; there are none.
    (headers, time, serde_json::to_vec(value).unwrap_or_default())
}
