//! Length-prefixed messages.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use proxyless_sans_io::values::Code;

use super::status::Status;
use crate::body::{Body, BodyError};

const PREFIX: usize = 5;

/// Frames an uncompressed message with its length prefix.
///
/// A message is at most 4 GiB long; the length of a longer one does not fit.
pub fn frame(message: &[u8]) -> Bytes {
    frame_parts(&[message])
}

/// As [`frame`], of a message in parts.
pub fn frame_parts(message: &[&[u8]]) -> Bytes {
    let length: usize = message.iter().map(|part| part.len()).sum();
    let mut framed = BytesMut::with_capacity(PREFIX + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.iter().for_each(|part| framed.put_slice(part));
    framed.freeze()
}

/// The messages of a response. Reads only on request, so that HTTP/2 flow control reaches the server.
#[derive(Debug)]
pub struct MessageReader<T = Body> {
    body: T,
    /// Received bytes that have not been consumed.
    chunk: Bytes,
    /// The start of a message that spans chunks, with its prefix.
    partial: BytesMut,
    /// The result, once the stream has ended.
    end: Option<Result<(), Status>>,
    /// The maximum length of a message.
    max_message: usize,
}

impl<T> MessageReader<T>
where
    T: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    /// Reads the messages of `response`. A message longer than `max_message` bytes ends the stream.
    ///
    /// # Errors
    /// If the response is not a gRPC response, or it has ended with a status other than OK.
    pub fn new(response: Response<T>, max_message: usize) -> Result<Self, Status> {
        let (head, body) = response.into_parts();
        let status = Status::from_headers(&head.headers);
        if head.status != StatusCode::OK {
            let code = Code::from_http_status(head.status.as_u16().into());
            return Err(status
                .unwrap_or_else(|| Status::new(code, format!("the server answered HTTP {}", head.status))));
        }
        let content_type = head.headers.get(http::header::CONTENT_TYPE).map(http::HeaderValue::as_bytes);
        if content_type.is_some_and(|value| !value.starts_with(b"application/grpc")) {
            let value = String::from_utf8_lossy(content_type.unwrap_or_default());
            return Err(Status::new(Code::Unknown, format!("the server answered with content-type {value}")));
        }
        // Trailers-only: the status is in the headers, and nothing follows.
        let end = status.map(Status::result).transpose()?.map(Ok);
        Ok(Self { body, chunk: Bytes::new(), partial: BytesMut::new(), end, max_message })
    }

    /// The next message; `None` when the stream has ended with status OK.
    ///
    /// # Errors
    /// If the stream has ended with another status.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next message; `None` when the stream has ended with status OK.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            match self.take_message() {
                Ok(Some(message)) => return Poll::Ready(Ok(Some(message))),
                Ok(None) => {}
                Err(status) => {
                    self.end = Some(Err(status));
                    self.chunk = Bytes::new();
                    self.partial = BytesMut::new();
                }
            }
            if let Some(end) = &self.end {
                return Poll::Ready(end.clone().map(|()| None));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.chunk = data,
                    Err(frame) => {
                        self.end = frame.into_trailers().ok().map(|trailers| self.ended(Some(&trailers)))
                    }
                },
                Some(Err(error)) => self.end = Some(Err(error.into())),
                None => self.end = Some(self.ended(None)),
            }
        }
    }

    fn ended(&self, trailers: Option<&HeaderMap>) -> Result<(), Status> {
        let status = trailers.and_then(Status::from_headers);
        status.unwrap_or_else(|| Status::new(Code::Unknown, "the stream ended without a status")).result()?;
        if self.partial.is_empty() {
            Ok(())
        } else {
            Err(Status::internal("the stream ended in the middle of a message"))
        }
    }

    /// A message, if it is complete.
    fn take_message(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if self.partial.is_empty() {
                // The common case: the message lies within one chunk and is not copied.
                let wanted = self.wanted(&self.chunk)?;
                if self.chunk.len() >= wanted {
                    let mut message = self.chunk.split_to(wanted);
                    let _prefix = message.split_to(PREFIX);
                    return Ok(Some(message));
                }
            }
            if self.chunk.is_empty() {
                return Ok(None);
            }
            let missing = self.wanted(&self.partial)? - self.partial.len();
            let part = self.chunk.split_to(missing.min(self.chunk.len()));
            self.partial.extend_from_slice(&part);
            if self.partial.len() >= PREFIX && self.partial.len() == self.wanted(&self.partial)? {
                // All of it: `split` would keep a reference to the allocation, however large, until the stream ends.
                let mut message = std::mem::take(&mut self.partial).freeze();
                let _prefix = message.split_to(PREFIX);
                return Ok(Some(message));
            }
        }
    }

    /// The length of the message that starts with `start`, including its prefix; only that of the prefix while it is
    /// incomplete.
    fn wanted(&self, start: &[u8]) -> Result<usize, Status> {
        let Some((&[compressed, a, b, c, d], _)) = start.split_first_chunk::<PREFIX>() else {
            return Ok(PREFIX);
        };
        if compressed != 0 {
            return Err(Status::internal("the server sent a compressed message without being asked to"));
        }
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > self.max_message {
            let limit = self.max_message;
            let why = format!("a message of {length} bytes is longer than the limit of {limit} bytes");
            return Err(Status::new(Code::ResourceExhausted, why));
        }
        Ok(length.saturating_add(PREFIX))
    }
}

#[cfg(test)]
mod tests;
