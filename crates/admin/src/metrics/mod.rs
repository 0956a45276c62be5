//! `/metrics` (in the routes of another server `/proxyless/metrics`): gRPC's standard metrics of the process, in the text format of OpenMetrics, which Prometheus reads.
//!
//! Names are those of the gRFCs with underscores instead of dots, the unit of latencies (`_seconds`) and sizes (`_bytes`)
//! appended, and `_total` on counters, as OpenTelemetry's exporters for Prometheus write them.

mod series;
mod store;
mod text;

use std::sync::{Arc, LazyLock, Once};

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use tokio::task::JoinError;

pub use store::MetricStore;

/// The store of the process. Channels that are built after [`collect_metrics`] record in it.
static STORE: LazyLock<MetricStore> = LazyLock::new(MetricStore::new);

/// Starts to collect the metrics of all channels that are built from now on, for `/metrics` of the admin services of the
/// process. [`serve`](crate::serve) and [`add_to`](crate::add_to) do this; call it before if channels are built earlier.
pub fn collect_metrics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| proxyless::telemetry::install(STORE.clone()));
}

/// The store of the process.
pub(crate) fn store() -> MetricStore {
    STORE.clone()
}

/// Serves a store at this path.
pub(crate) fn router(path: &str, store: MetricStore) -> Router {
    let store = Arc::new(store);
    let answer = move || {
        let store = Arc::clone(&store);
        // It waits for the threads of xDS clients.
        async move { tokio::task::spawn_blocking(move || metrics(&store)).await.map_err(failed) }
    };
    Router::new().route(path, get(answer))
}

/// The answer if reading the metrics panicked, or the runtime is shutting down.
fn failed(error: JoinError) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn metrics(store: &MetricStore) -> impl IntoResponse + use<> {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")], store.to_text())
}
