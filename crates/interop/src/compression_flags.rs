//! Sees which gRPC messages of a body are compressed: tonic hides the flag of a message from both sides.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

/// The length of a message's prefix: its flag, and its length.
const PREFIX: usize = 5;

/// The flags of the messages that have passed, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompressionFlags(Arc<Mutex<Vec<bool>>>);

impl CompressionFlags {
    /// A body that notes its messages here.
    pub(crate) fn watch(&self, inner: Body) -> Body {
        Body::new(WatchedBody {
            inner,
            flags: self.clone(),
            prefix: Vec::with_capacity(PREFIX),
            remaining: 0,
        })
    }

    /// Whether the message with this index was compressed, if it has passed.
    pub(crate) fn nth(&self, index: usize) -> Option<bool> {
        // The list is consistent even if a holder panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(index).copied()
    }

    fn push(&self, compressed: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(compressed);
    }
}

struct WatchedBody {
    inner: Body,
    flags: CompressionFlags,
    /// The beginning of a prefix.
    prefix: Vec<u8>,
    /// How much of the current message is still to come.
    remaining: usize,
}

impl WatchedBody {
    fn note(&mut self, mut data: Bytes) {
        while data.has_remaining() {
            let in_message = self.remaining.min(data.len());
            data.advance(in_message);
            self.remaining -= in_message;
            while self.remaining == 0 && self.prefix.len() < PREFIX && data.has_remaining() {
                self.prefix.push(data.get_u8());
            }
            if let [flag, a, b, c, d] = self.prefix[..] {
                self.flags.push(flag != 0);
                self.remaining = u32::from_be_bytes([a, b, c, d]) as usize;
                self.prefix.clear();
            }
        }
    }
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.note(data.clone());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A client service that notes the messages of its responses.
#[derive(Clone, Debug)]
pub(crate) struct WatchResponses<S> {
    pub(crate) inner: S,
    pub(crate) flags: CompressionFlags,
}

impl<S, B> Service<Request<Body>> for WatchResponses<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (response, flags) = (self.inner.call(request), self.flags.clone());
        Box::pin(async move { Ok(response.await?.map(|body| flags.watch(Body::new(body)))) })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    #[tokio::test]
    async fn flags_are_seen_however_the_bytes_are_cut() {
        let bytes =
            [&[1, 0, 0, 0, 3, 7, 7, 7][..], &[0, 0, 0, 0, 0], &[0, 0, 0, 0, 1, 9], &[1, 0, 0, 0, 0]].concat();
        for cut in 1..=bytes.len() {
            let chunks: Vec<_> = bytes.chunks(cut).map(Bytes::copy_from_slice).collect();
            let frames = chunks.into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
            let flags = CompressionFlags::default();
            let body = flags.watch(Body::new(StreamBody::new(tokio_stream::iter(frames))));
            let passed = body.collect().await.unwrap().to_bytes();
            assert_eq!(passed, bytes, "cut into {cut}");
            let seen: Vec<_> = (0..5).map(|index| flags.nth(index)).collect();
            assert_eq!(seen, [Some(true), Some(false), Some(false), Some(true), None], "cut into {cut}");
        }
    }
}
