//! A wrapper around every method: deadlines, echoed metadata, and which messages of a request are compressed.
//!
//! tonic's server answers CANCELLED at a deadline, cannot add trailers to a unary response and hides the flags of messages,
//! so all three are done around the generated service.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body as _, Frame};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::compression_flags::CompressionFlags;

/// Echoed in the initial metadata.
const ECHO_INITIAL: HeaderName = HeaderName::from_static("x-grpc-test-echo-initial");
/// Echoed in the trailing metadata.
const ECHO_TRAILING: HeaderName = HeaderName::from_static("x-grpc-test-echo-trailing-bin");

/// tonic's own timer runs for the time in the header. Ours must not end after it.
const AHEAD: Duration = Duration::from_millis(2);

/// A gRPC service that answers DEADLINE_EXCEEDED at deadlines and echoes the metadata of gRPC's test `custom_metadata`.
#[derive(Clone, Debug)]
pub(super) struct Envelope<S>(pub(super) S);

impl<S: NamedService> NamedService for Envelope<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Envelope<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let headers = request.headers();
        let echo = |name: &HeaderName| headers.get(name).cloned();
        let (initial, trailing) = (echo(&ECHO_INITIAL), echo(&ECHO_TRAILING));
        let mut deadline = timeout(headers).map(|timeout| Box::pin(sleep(timeout.saturating_sub(AHEAD))));
        let flags = CompressionFlags::default();
        let mut request = request.map(|body| flags.watch(body));
        request.extensions_mut().insert(flags);
        let response = self.0.call(request);
        Box::pin(async move {
            let response = match &mut deadline {
                Some(deadline) => tokio::select! {
                    biased;
                    response = response => response?,
                    () = deadline => Status::deadline_exceeded(EXCEEDED).into_http(),
                },
                None => response.await?,
            };
            // A response without a body has its trailers in its headers.
            let trailers_only = response.body().is_end_stream();
            let (mut head, inner) = response.into_parts();
            head.headers.extend(initial.map(|value| (ECHO_INITIAL, value)));
            if trailers_only {
                head.headers.extend(trailing.map(|value| (ECHO_TRAILING, value)));
                return Ok(Response::from_parts(head, inner));
            }
            Ok(Response::from_parts(head, Body::new(EndedBody { inner, trailing, deadline, ended: false })))
        })
    }
}

const EXCEEDED: &str = "the deadline of the request has passed";

/// The time limit in `grpc-timeout`, if it is valid.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.saturating_mul(3600)),
        "M" => Duration::from_secs(number.saturating_mul(60)),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// A response body that ends at the deadline, and has an additional trailer.
struct EndedBody {
    inner: Body,
    trailing: Option<HeaderValue>,
    deadline: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl http_body::Body for EndedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(self.deadline.as_mut().map_or(Poll::Pending, |deadline| deadline.as_mut().poll(cx)));
                let mut trailers = HeaderMap::new();
                Status::deadline_exceeded(EXCEEDED).add_header(&mut trailers)?;
                Some(Ok(Frame::trailers(trailers)))
            }
        };
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        Poll::Ready(Some(Ok(match frame.into_trailers() {
            Ok(mut trailers) => {
                self.ended = true;
                trailers.extend(self.trailing.take().map(|value| (ECHO_TRAILING, value)));
                Frame::trailers(trailers)
            }
            Err(frame) => frame,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            timeout(&headers)
        };
        for (text, expected) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("4S", Duration::from_secs(4)),
            ("5m", Duration::from_millis(5)),
            ("6u", Duration::from_micros(6)),
            ("7n", Duration::from_nanos(7)),
        ] {
            assert_eq!(of(text), Some(expected), "{text}");
        }
        for bad in ["", "S", "1", "1s", "xS"] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }
}
