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

use crate::service::{Payload, STREAM};

/// Length and flag before each message.
const PREFIX: usize = 5;

/// Answers unary calls and streams alike: each message with one of the same length.
pub(super) async fn answer(request: Request<Incoming>, name: &str) -> Result<Response<Answers>, io::Error> {
    let streams = request.uri().path() == STREAM;
    let body = request.into_body();
    let answers = if streams {
        Answers { incoming: Some(body), buffer: BytesMut::new(), name: name.into(), ended: false }
    } else {
        // A unary call is answered when its request is complete.
        let whole = body.collect().await.map_err(io::Error::other)?.to_bytes();
        Answers { incoming: None, buffer: whole.into(), name: name.into(), ended: false }
    };
    let mut response = Response::new(answers);
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// The responses to the received and the pending requests.
pub(super) struct Answers {
    incoming: Option<Incoming>,
    buffer: BytesMut,
    name: Box<str>,
    ended: bool,
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
        let mut value = self.name.as_bytes().to_vec();
        value.resize(wanted, 0);
        let answer = Payload { value: value.into() };
        let mut bytes = BytesMut::with_capacity(PREFIX + answer.encoded_len());
        bytes.put_u8(0);
        // A response is not longer than its request, whose length fits into 32 bits.
        bytes.put_u32(answer.encoded_len() as u32);
        answer.encode(&mut bytes)?;
        Ok(Some(bytes.freeze()))
    }
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
            if self.ended {
                return Poll::Ready(None);
            }
            let Some(incoming) = &mut self.incoming else {
                self.ended = true;
                return Poll::Ready(Some(Ok(Frame::trailers(ok()))));
            };
            match ready!(Pin::new(incoming).poll_frame(cx)).transpose().map_err(io::Error::other)? {
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => self.incoming = None,
            }
        }
    }
}

fn ok() -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))])
}
