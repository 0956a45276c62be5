//! gRPC on the server's side of h2.

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Response};

/// The messages of a request.
pub(crate) struct Messages {
    stream: RecvStream,
    unread: BytesMut,
}

impl Messages {
    pub(crate) fn new(stream: RecvStream) -> Self {
        Self { stream, unread: BytesMut::new() }
    }

    /// The next message; `None` at the end, however it comes. Can be cancelled.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some([_, length @ ..]) = self.unread.first_chunk::<5>() {
                let length = u32::from_be_bytes(*length) as usize;
                if self.unread.len() >= 5 + length {
                    self.unread.advance(5);
                    return Some(self.unread.split_to(length).freeze());
                }
            }
            let data = self.stream.data().await?.ok()?;
            self.unread.extend_from_slice(&data);
            self.stream.flow_control().release_capacity(data.len()).ok()?;
        }
    }
}

/// A message as it is sent.
pub(crate) fn framed(message: &impl prost::Message) -> Bytes {
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.encoded_len()).expect("a short message").to_be_bytes());
    framed.extend(message.encode_to_vec());
    framed.into()
}

/// Begins a response that goes on.
pub(crate) fn begin(respond: &mut SendResponse<Bytes>) -> Result<h2::SendStream<Bytes>, h2::Error> {
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    respond.send_response(response, false)
}

/// Trailers with this status code.
pub(crate) fn trailers(code: u16) -> HeaderMap {
    [(http::HeaderName::from_static("grpc-status"), HeaderValue::from(code))].into_iter().collect()
}
