//! gRPC on HTTP/2: message framing and statuses.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use proxyless_sans_io::Rng;
use proxyless_transport::BodyError;
use proxyless_transport::grpc::{MessageReader, Status, frame};

/// The body of a response as a stream of messages; the first byte seeds how it is split.
///
/// Properties: no panic; whole, split at random or byte by byte, the bytes give the same messages and the same end,
/// equal to those of a direct parser; a framed message is decoded unchanged.
pub fn grpc_framing(data: &[u8]) {
    let Some((&seed, data)) = data.split_first() else { return };
    let whole = read(vec![Bytes::copy_from_slice(data)]);
    let mut rng = Rng::new(u64::from(seed));
    let (mut rest, mut cut) = (Bytes::copy_from_slice(data), Vec::new());
    while !rest.is_empty() {
        let length = rng.below(rest.len().min(12) as u64 + 1) as usize;
        cut.push(rest.split_to(length));
    }
    assert_eq!(whole, read(cut), "cut at random");
    assert_eq!(whole, read(data.iter().map(|&byte| Bytes::from(vec![byte])).collect()), "byte by byte");
    assert_eq!(whole.0, messages(data), "read directly");
    assert_eq!(read(vec![frame(data)]), (vec![Bytes::copy_from_slice(data)], Ok(())), "a framed message");
}

/// `grpc-status` and `grpc-message`, on two lines.
///
/// Properties: no panic; a message of printable ASCII without escapes does not change, and no message grows.
pub fn grpc_status(data: &[u8]) {
    let mut lines = data.splitn(2, |&byte| byte == b'\n');
    let mut headers = HeaderMap::new();
    let (code, message) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if let Ok(code) = HeaderValue::from_bytes(code) {
        headers.insert("grpc-status", code);
    }
    if let Ok(message) = HeaderValue::from_bytes(message) {
        headers.insert("grpc-message", message);
    }
    let status = Status::from_headers(&headers);
    assert_eq!(status.is_some(), headers.contains_key("grpc-status"));
    let Some(status) = status else { return };
    let _ = status.to_string();
    if !headers.contains_key("grpc-message") {
        assert_eq!(status.message, "");
    } else if message.iter().all(|byte| matches!(byte, b' '..=b'~' if *byte != b'%')) {
        assert_eq!(status.message.as_bytes(), message);
    } else {
        // A byte that is not UTF-8 becomes a replacement character of three bytes.
        assert!(status.message.len() <= 3 * message.len());
    }
}

/// Longer than any input.
const MAX_MESSAGE: usize = 1 << 20;

/// The messages and the end of a response with this body.
fn read(chunks: Vec<Bytes>) -> (Vec<Bytes>, Result<(), Status>) {
    let mut reader = MessageReader::new(Response::new(Chunks(Some(chunks.into()))), MAX_MESSAGE)
        .expect("no headers to refuse");
    let mut messages = Vec::new();
    loop {
        let mut next = pin!(reader.next());
        match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(Some(message))) => messages.push(message),
            Poll::Ready(Ok(None)) => return (messages, Ok(())),
            Poll::Ready(Err(status)) => return (messages, Err(status)),
            Poll::Pending => panic!("waits although everything is there"),
        }
    }
}

/// The complete, uncompressed messages at the beginning of a stream.
fn messages(mut data: &[u8]) -> Vec<Bytes> {
    let mut found = Vec::new();
    while let Some((&[0, a, b, c, d], rest)) = data.split_first_chunk::<5>() {
        let Some((message, rest)) = rest.split_at_checked(u32::from_be_bytes([a, b, c, d]) as usize) else {
            break;
        };
        found.push(Bytes::copy_from_slice(message));
        data = rest;
    }
    found
}

/// A body of these chunks that ends with status OK.
struct Chunks(Option<VecDeque<Bytes>>);

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(chunks) = &mut self.0 else { return Poll::Ready(None) };
        Poll::Ready(Some(Ok(match chunks.pop_front() {
            Some(chunk) => Frame::data(chunk),
            None => {
                self.0 = None;
                Frame::trailers(HeaderMap::from_iter([(
                    http::HeaderName::from_static("grpc-status"),
                    HeaderValue::from_static("0"),
                )]))
            }
        })))
    }
}
