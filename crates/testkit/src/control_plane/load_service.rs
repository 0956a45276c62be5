//! The LRS service: maps streams to inputs of [`LoadState`] and its outboxes to streams.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready as ready_or_pending};

use bytes::Bytes;
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::server::StreamingService;
use tonic::{Status, Streaming};

use super::load_state::LoadState;
use super::state::Outgoing;
use crate::observed::Observed;

pub(super) const STREAM_LOAD_STATS: &str =
    "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

#[derive(Clone, Debug)]
pub(super) struct Lrs(pub(super) Arc<Observed<LoadState>>);

impl StreamingService<LoadStatsRequest> for Lrs {
    type Response = Bytes;
    type ResponseStream = LrsStream;
    type Future = Ready<Result<tonic::Response<LrsStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<LoadStatsRequest>>) -> Self::Future {
        let (number, outbox) = self.0.update(LoadState::open);
        let (state, requests) = (self.0.clone(), request.into_inner());
        ready(Ok(tonic::Response::new(LrsStream { number, state, requests, outbox })))
    }
}

/// One stream. Polling for responses also handles requests.
#[derive(Debug)]
pub(super) struct LrsStream {
    number: u64,
    state: Arc<Observed<LoadState>>,
    requests: Streaming<LoadStatsRequest>,
    outbox: mpsc::UnboundedReceiver<Outgoing>,
}

impl Stream for LrsStream {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match Pin::new(&mut self.requests).poll_next(cx) {
                Poll::Ready(Some(Ok(request))) => self.state.update(|s| s.on_request(self.number, request)),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => break,
            }
        }
        Poll::Ready(match ready_or_pending!(self.outbox.poll_recv(cx)) {
            Some(Ok(Some(response))) => Some(Ok(response)),
            Some(Err(status)) => Some(Err(status)),
            Some(Ok(None)) | None => None,
        })
    }
}

impl Drop for LrsStream {
    fn drop(&mut self) {
        self.state.update(|s| s.close(self.number));
    }
}
