//! The body of a response: passes data through, enforces the deadline, and records the end of the call.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use proxyless_balancer::api::{BackendMetrics, CallTicket, Code, PickTarget};
use tonic::Status;

use super::deadline::Deadline;
use super::telemetry::CallTelemetry;
use super::throttle::RetryThrottle;
use super::{orca, status};
use crate::activity::InUse;

/// The body of a response on an [`XdsChannel`](crate::XdsChannel). Its errors are [`tonic::Status`].
#[derive(Default)]
pub struct XdsBody(pub(super) Option<OpenResponse>);

/// A response that has not ended.
pub(super) struct OpenResponse {
    pub(super) inner: proxyless_transport::Body,
    pub(super) ticket: Option<CallTicket>,
    pub(super) deadline: Deadline,
    pub(super) cluster: Arc<str>,
    pub(super) throttle: Option<Arc<RetryThrottle>>,
    /// The limit on header lists, for errors.
    pub(super) max_header_list_size: u32,
    /// Keeps the channel from going IDLE.
    pub(super) _in_use: Option<InUse>,
    /// The metrics and traces of the call, if there are any and the call has not ended.
    pub(super) telemetry: Option<Box<CallTelemetry>>,
}

impl XdsBody {
    /// Ends the call: notifies the trackers, and releases the connection's stream. `tell` records the end.
    fn finish(
        &mut self,
        code: Code,
        metrics: Option<BackendMetrics>,
        tell: impl FnOnce(&mut CallTelemetry, &PickTarget),
    ) {
        let Some(OpenResponse { ticket: Some(ticket), throttle, telemetry, .. }) = self.0.take() else {
            return;
        };
        if let Some(throttle) = throttle.filter(|_| code == Code::Ok) {
            throttle.succeeded();
        }
        if let Some(mut telemetry) = telemetry {
            tell(&mut telemetry, ticket.target());
        }
        ticket.finish_with(code, metrics);
    }

    fn fail(&mut self, code: Code, why: &str) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let backend = self.0.as_ref().map(OpenResponse::backend).unwrap_or_default();
        self.finish(code, None, |telemetry, target| telemetry.ended(code, why, Some(target)));
        Poll::Ready(Some(Err(Status::new(status::to_tonic(code), format!("{backend}{why}")))))
    }

    fn late(&mut self) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.fail(Code::DeadlineExceeded, "deadline exceeded while receiving the response")
    }
}

impl OpenResponse {
    /// The status of a call whose trailers have no grpc-status.
    fn without_status(&self, trailers: &HeaderMap) -> (Code, String) {
        let limit = self.max_header_list_size;
        // RFC 9113, section 6.5.2.
        let size: usize = trailers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
        // h2 silently drops header fields beyond the limit.
        if size >= usize::try_from(limit).unwrap_or(usize::MAX) / 2 {
            let why =
                format!("the response's trailers are larger than {limit} bytes, or have no grpc-status");
            return (Code::ResourceExhausted, why);
        }
        (Code::Unknown, "the trailers have no grpc-status".into())
    }

    /// The backend, for errors; empty if the call has ended.
    fn backend(&self) -> String {
        let address = self.ticket.as_ref().map(|ticket| ticket.target().address);
        address.map_or_else(String::new, |address| format!("{address} (cluster {}): ", self.cluster))
    }
}

impl Body for XdsBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(live) = &mut self.0 else { return Poll::Ready(None) };
        match Pin::new(&mut live.inner).poll_frame(cx) {
            // A slow reader of an endless stream never waits, so the deadline is checked here.
            Poll::Ready(Some(Ok(frame))) if frame.is_data() && live.deadline.is_past() => self.late(),
            Poll::Ready(Some(Ok(mut frame))) => {
                if let (Some(telemetry), Some(data)) = (&mut live.telemetry, frame.data_ref()) {
                    telemetry.received(data);
                }
                if let Some(trailers) = frame.trailers_mut() {
                    let Some(code) = status::in_headers(trailers) else {
                        let (code, why) = live.without_status(trailers);
                        return self.fail(code, &why);
                    };
                    status::remove_unreadable_details(trailers);
                    // A server that ends the call at the deadline may report CANCELLED.
                    if code == Code::Cancelled && live.deadline.is_past() {
                        return self.late();
                    }
                    let metrics = live.ticket.as_ref().and_then(|ticket| orca::metrics(ticket, trailers));
                    self.finish(code, metrics, |telemetry, target| {
                        telemetry.ended_with(code, trailers, target);
                    });
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error)))
                if status::code_of_body(&error) == Code::Cancelled && live.deadline.is_past() =>
            {
                self.late()
            }
            Poll::Ready(Some(Err(error))) => self.fail(status::code_of_body(&error), &error.to_string()),
            // A call that ended with its headers has nothing more.
            Poll::Ready(None) if live.ticket.is_none() => {
                self.0 = None;
                Poll::Ready(None)
            }
            // As in gRPC's other libraries, once the response had started.
            Poll::Ready(None) => self.fail(Code::Internal, "the stream ended without trailers"),
            Poll::Pending => {
                ready!(live.deadline.poll_expired(cx));
                self.late()
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|live| live.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |live| live.inner.size_hint())
    }
}

impl fmt::Debug for XdsBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "XdsBody(open)" } else { "XdsBody(ended)" })
    }
}
