//! The body of a response.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;

use crate::error::Failure;
use crate::stream::Receiving;

/// The body of a response. It keeps its stream's place on the connection until it ends or is dropped; dropping it
/// early cancels the stream.
pub struct Body {
    incoming: Incoming,
    receiving: Option<Receiving>,
}

/// A response broke off.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
#[non_exhaustive]
pub struct BodyError {
    /// The HTTP/2 error code with which the stream was reset; `None` if the whole connection was lost.
    pub reset: Option<u32>,
    /// What happened.
    pub reason: String,
}

impl Body {
    pub(crate) fn new(incoming: Incoming, receiving: Receiving) -> Self {
        let ended = http_body::Body::is_end_stream(&incoming);
        Self { incoming, receiving: (!ended).then_some(receiving) }
    }

    fn fail(&mut self, error: &hyper::Error) -> BodyError {
        match self.receiving.take() {
            Some(receiving) => match Failure::of(error, receiving.shared()) {
                // Headers have come, so it cannot have been unprocessed.
                Failure::Unprocessed { reset, reason } | Failure::Failed { reset, reason } => {
                    BodyError { reset, reason }
                }
            },
            None => BodyError { reset: None, reason: crate::error::chain(error) },
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.receiving.is_none() {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if frame.is_trailers() || self.incoming.is_end_stream() {
                    self.receiving = None;
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => Some(Err(self.fail(&error))),
            None => {
                self.receiving = None;
                // hyper takes a reset with NO_ERROR for an end; to gRPC it is none.
                (!self.incoming.is_end_stream()).then(|| Err(Failure::reset_by_server(h2::Reason::NO_ERROR)))
            }
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.receiving.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.receiving.is_some() { "Body(open)" } else { "Body(ended)" })
    }
}
