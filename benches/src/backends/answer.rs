//! Hand-written responses, so that the backends cost little compared to the clients.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use prost::Message;

use crate::service::{Payload, SINK, SOURCE, STREAM};

/// Length and flag before each message.
const PREFIX: usize = 5;

/// Endless messages are sent in DATA frames of at least this length, as servers do that gather what is ready: h2 closes a
/// connection on which too many small DATA frames wait to be read.
const GATHERED: usize = 4096;

/// Answers unary calls and streams alike: each message with one of the same length.
pub(super) async fn answer(request: Request<Incoming>, name: &str) -> Result<Response<Answers>, io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body();
    let mut answers = Answers { source: Source::Ended, buffer: BytesMut::new(), name: name.into() };
    match path.as_str() {
        STREAM => answers.source = Source::Requests(body),
        SINK => answers.source = Source::Discarded(body),
        _ => {
            // A unary call is answered when its request is complete.
            let whole = body.collect().await.map_err(io::Error::other)?.to_bytes();
            if path == SOURCE {
                let request = Payload::decode(whole.get(PREFIX..).unwrap_or_default())?;
                let length = std::str::from_utf8(&request.value).ok().and_then(|text| text.parse().ok());
                let message = encoded(name, length.unwrap_or(0))?;
                answers.source = Source::Endless(message.repeat(GATHERED.div_ceil(message.len())).into());
            } else {
                answers.buffer = whole.into();
            }
        }
    }
    let mut response = Response::new(answers);
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// The responses to the received and the pending requests.
pub(super) struct Answers {
    source: Source,
    /// Requests that are not answered yet.
    buffer: BytesMut,
    name: Box<str>,
}

/// What is answered after the requests in the buffer.
enum Source {
    /// Each request.
    Requests(Incoming),
    /// The end of the requests.
    Discarded(Incoming),
    /// These messages, again and again.
    Endless(Bytes),
    /// The trailers.
    Ended,
    /// Nothing: the trailers are sent.
    Complete,
}

impl Answers {
    /// The response to the next complete message, if there is one.
    fn next(&mut self) -> Result<Option<Bytes>, io::Error> {
        let Some((prefix, rest)) = self.buffer.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let [_, a, b, c, d] = *prefix;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let Some(message) = rest.get(..length) else { return Ok(None) };
        let wanted = Payload::decode(message)?.value.len();
        self.buffer.advance(PREFIX + length);
        encoded(&self.name, wanted).map(Some)
    }
}

/// A message of this length with the name and its prefix.
fn encoded(name: &str, length: usize) -> Result<Bytes, io::Error> {
    let mut value = name.as_bytes().to_vec();
    value.resize(length, 0);
    let answer = Payload { value: value.into() };
    let mut bytes = BytesMut::with_capacity(PREFIX + answer.encoded_len());
    bytes.put_u8(0);
    // A response is not longer than its request says, whose length fits into 32 bits.
    bytes.put_u32(answer.encoded_len() as u32);
    answer.encode(&mut bytes)?;
    Ok(bytes.freeze())
}

impl Body for Answers {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if let Some(answer) = self.next()? {
                return Poll::Ready(Some(Ok(Frame::data(answer))));
            }
            let (incoming, discards) = match &mut self.source {
                Source::Requests(incoming) => (incoming, false),
                Source::Discarded(incoming) => (incoming, true),
                Source::Endless(answer) => return Poll::Ready(Some(Ok(Frame::data(answer.clone())))),
                Source::Complete => return Poll::Ready(None),
                Source::Ended => {
                    self.source = Source::Complete;
                    return Poll::Ready(Some(Ok(Frame::trailers(ok()))));
                }
            };
            match ready!(Pin::new(incoming).poll_frame(cx)).transpose().map_err(io::Error::other)? {
                Some(_) if discards => {}
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => {
                    if discards {
                        // An empty message, which is answered with one.
                        self.buffer.put_bytes(0, PREFIX);
                    }
                    self.source = Source::Ended;
                }
            }
        }
    }
}

fn ok() -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))])
}
