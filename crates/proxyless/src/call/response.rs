//! The response's body: passes everything through, enforces the deadline, and sees how the call ended.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use proxyless_balancer::api::{BackendMetrics, CallTicket, Code};
use proxyless_mesh::cluster_ref::ClusterRef;
use tonic::Status;

use super::deadline::Deadline;
use super::{orca, status};

/// The body of a response on an [`XdsChannel`](crate::XdsChannel). Its errors are [`tonic::Status`].
#[derive(Default)]
pub struct XdsBody(Option<Live>);

/// A response that is still coming.
struct Live {
    inner: proxyless_transport::Body,
    ticket: Option<CallTicket>,
    deadline: Deadline,
    /// Keeps the cluster configured until the RPC is over (gRFC A31).
    _cluster: Arc<ClusterRef>,
}

impl XdsBody {
    pub(super) fn new(
        inner: proxyless_transport::Body,
        ticket: Option<CallTicket>,
        deadline: Deadline,
        cluster: Arc<ClusterRef>,
    ) -> Self {
        Self(Some(Live { inner, ticket, deadline, _cluster: cluster }))
    }

    /// Ends the call: the trackers hear of it, and the connection's stream is given up.
    fn finish(&mut self, code: Code, metrics: Option<BackendMetrics>) {
        if let Some(ticket) = self.0.take().and_then(|live| live.ticket) {
            ticket.finish_with(code, metrics);
        }
    }

    fn fail(&mut self, status: Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.finish(status::code(status.code() as i32), None);
        Poll::Ready(Some(Err(status)))
    }
}

fn late() -> Status {
    Status::deadline_exceeded("deadline exceeded while receiving the response")
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
            // A slow reader of an endless stream never waits: it is told here.
            Poll::Ready(Some(Ok(frame))) if frame.is_data() && live.deadline.is_past() => self.fail(late()),
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    let code = status::in_headers(trailers).unwrap_or(Code::Unknown);
                    let metrics = live.ticket.as_ref().and_then(|ticket| orca::metrics(ticket, trailers));
                    self.finish(code, metrics);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let status = status::of_body(&error);
                self.fail(status)
            }
            // The stream ended without trailers: gRPC calls that INTERNAL when the call had begun to answer.
            Poll::Ready(None) => {
                self.finish(Code::Internal, None);
                Poll::Ready(None)
            }
            Poll::Pending => {
                ready!(live.deadline.poll_expired(cx));
                self.fail(late())
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
