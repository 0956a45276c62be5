//! The last five minutes: rates, errors and latencies of channels, clusters and endpoints, and what happened meanwhile.
//!
//! `/proxyless/history.json` serves them, so that a page that is opened after a failover still shows it. A sampler reads
//! the [`MetricStore`] and the views of the channels each second ([`sampler`]); RPCs pay nothing for it. [`recording`] is
//! its pure core, [`counts`] computes percentiles, and [`marks`] chooses the events to show.
//!
//! # Format
//!
//! A [`HistoryView`]. Its `series` have as many values as there are `times`, the oldest first; `null` where nothing was
//! measured: before the first RPC, and the latency of seconds without RPCs.
//!
//! * `target`: the RPCs of a channel, as the application sees them (`grpc.client.call.duration`): retries and the time
//!   without a connection included.
//! * `cluster`: the attempts on a leaf cluster (`grpc.client.attempt.duration`).
//! * `endpoint`: the attempts on an endpoint (`proxyless.endpoint.duration`), without `p90`. Its errors come from the
//!   views of channels.
//!
//! `?since=SAMPLE` with the `last_sample` of an earlier answer leaves out all that this answer had; the `recording` of both
//! is the same, or else the process has started again. `?only=clusters` leaves out endpoints. Channels that were built
//! before [`collect_metrics`](crate::collect_metrics) have marks only.

mod answer;
mod counts;
mod marks;
mod recording;
mod sampler;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::StatusCode;

pub use answer::{HistoryMark, HistorySeries, HistoryView, LeftOut};
pub use marks::MarkKind;
pub(crate) use sampler::{History, Sampling};

#[cfg(doc)]
use crate::MetricStore;
use crate::page::json;

/// Serves the history.
pub(crate) fn router(history: History) -> Router {
    Router::new().route("/proxyless/history.json", get(answer)).with_state(history)
}

async fn answer(State(history): State<History>, RawQuery(query): RawQuery) -> Response {
    match Question::parse(query.as_deref().unwrap_or_default()) {
        Ok(question) => json(&history.view(question)).into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, why).into_response(),
    }
}

/// The part of the history that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Question {
    /// The last sample that the reader has.
    since: Option<u64>,
    detail: Detail,
}

/// Whether endpoints are included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Detail {
    #[default]
    Endpoints,
    Clusters,
}

impl Question {
    fn parse(query: &str) -> Result<Self, String> {
        let mut question = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("since", number) => match number.parse() {
                    Ok(number) => question.since = Some(number),
                    Err(_) => return Err("since: not the number of a sample".to_owned()),
                },
                ("only", "clusters") => question.detail = Detail::Clusters,
                _ => return Err("since=SAMPLE and only=clusters are known".to_owned()),
            }
        }
        Ok(question)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_a_sample_and_a_detail() {
        let all = Question::default();
        assert_eq!(Question::parse(""), Ok(all));
        let clusters = Question { since: Some(7), detail: Detail::Clusters };
        assert_eq!(Question::parse("since=7&only=clusters"), Ok(clusters));
        for bad in ["since=x", "since", "only=endpoints", "until=7"] {
            assert!(Question::parse(bad).is_err(), "{bad}");
        }
    }
}
