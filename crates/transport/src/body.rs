//! The body of a response.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Frame, SizeHint};
use thiserror::Error;

use crate::receive_window::Burst;
use crate::stream_permit::StreamPermit;
use crate::upload::Rest;

/// The part of a stream's window that is read before its flow control capacity is released, while there is more to read:
/// releasing takes the lock of the connection. h2 releases the rest when the stream ends.
const RELEASED_PART: u32 = 8;

/// The body of a response. It holds its stream's permit until it ends or is dropped; dropping it early
/// cancels the stream.
pub struct Body(Option<Open>);

/// A response that has not ended.
struct Open {
    stream: RecvStream,
    /// The number of bytes read whose capacity has not been released.
    unreleased: usize,
    burst: Burst,
    data_ended: bool,
    /// The request, which ends with the response.
    _upload: Rest,
    permit: StreamPermit,
}

/// A response was interrupted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
#[non_exhaustive]
pub struct BodyError {
    /// The HTTP/2 error code of the reset; `None` if the connection was lost.
    pub reset: Option<u32>,
    /// A description of the error.
    pub reason: String,
}

impl Body {
    pub(crate) fn new(stream: RecvStream, upload: Rest, mut permit: StreamPermit) -> Self {
        let ended = stream.is_end_stream();
        if ended {
            permit.end();
        }
        let open = Open {
            stream,
            unreleased: 0,
            burst: Burst::default(),
            data_ended: false,
            _upload: upload,
            permit,
        };
        Self((!ended).then_some(open))
    }
}

impl Open {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.data_ended {
            match self.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    self.unreleased += data.len();
                    let window = self.permit.shared().receive_window.size();
                    if self.unreleased as u64 >= u64::from(window / RELEASED_PART) {
                        self.release();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.data_ended = true,
                Poll::Pending => {
                    // A paused stream must not hold the connection's window.
                    self.release();
                    self.burst.waits(&self.permit.shared().receive_window);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(
            ready!(self.stream.poll_trailers(cx)).map(|trailers| trailers.map(Frame::trailers)).transpose(),
        )
    }

    fn release(&mut self) {
        let read = std::mem::take(&mut self.unreleased);
        if read > 0 {
            // Fails only for more than was received.
            let _ = self.stream.flow_control().release_capacity(read);
            self.burst.add(read);
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
        let Some(open) = &mut self.0 else { return Poll::Ready(None) };
        let frame = match ready!(open.poll_frame(cx)) {
            Some(Ok(frame)) if frame.is_data() => return Poll::Ready(Some(Ok(frame))),
            Some(Ok(trailers)) => Some(Ok(trailers)),
            Some(Err(error)) => Some(Err(BodyError::of(&error, open.permit.shared()))),
            None => None,
        };
        open.permit.end();
        self.0 = None;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.0.is_none() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Body(open)" } else { "Body(ended)" })
    }
}
