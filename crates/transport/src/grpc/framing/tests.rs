//! Tests of gRPC message framing.

use std::collections::VecDeque;

use http_body::Frame;

use super::*;

const MAX_MESSAGE: usize = 10_000;

/// A response body that plays a script.
#[derive(Default)]
struct Script(VecDeque<Result<Frame<Bytes>, BodyError>>);

impl http_body::Body for Script {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.0.pop_front())
    }
}

fn trailers(status: &'static str) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static(status));
    Frame::trailers(trailers)
}

fn reader(frames: impl IntoIterator<Item = Result<Frame<Bytes>, BodyError>>) -> MessageReader<Script> {
    MessageReader::new(Response::new(Script(frames.into_iter().collect())), MAX_MESSAGE)
        .expect("a good response")
}

/// All messages, and how the stream ended.
async fn read(mut reader: MessageReader<Script>) -> (Vec<Bytes>, Result<(), Status>) {
    let mut messages = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, Ok(())),
            Err(status) => {
                assert_eq!(reader.next().await, Err(status.clone()), "the end is final");
                return (messages, Err(status));
            }
        }
    }
}

fn messages() -> Vec<Bytes> {
    vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from(vec![7; 1000]), Bytes::from_static(b"four")]
}

#[tokio::test]
async fn messages_survive_any_chunking() {
    let wire: Vec<u8> = messages().iter().flat_map(|message| frame(message).to_vec()).collect();
    for size in [1, 2, 3, 4, 5, 6, 7, 64, 1004, 1005, 1006, wire.len()] {
        let chunks = wire.chunks(size).map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk))));
        let (read, end) = read(reader(chunks.chain([Ok(trailers("0"))]))).await;
        assert_eq!(read, messages(), "chunks of {size}");
        assert_eq!(end, Ok(()), "chunks of {size}");
    }
}

#[tokio::test]
async fn a_message_within_one_chunk_is_not_copied() {
    let chunk = frame(b"payload");
    let message = reader([Ok(Frame::data(chunk.clone()))]).next().await.expect("open").expect("a message");
    assert_eq!(message.as_ptr(), chunk.slice(PREFIX..).as_ptr());
}

#[tokio::test]
async fn a_message_across_chunks_is_not_kept_by_the_reader() {
    let framed = frame(&[7; 100]);
    let parts = [framed.slice(..50), framed.slice(50..)].map(|part| Ok(Frame::data(part)));
    let mut reader = reader(parts);
    let message = reader.next().await.expect("no error").expect("a message");
    assert_eq!(message, [7; 100][..]);
    assert!(message.is_unique(), "the reader holds the allocation");
}

#[tokio::test]
async fn trailers_give_the_status() {
    let (messages, end) = read(reader([Ok(Frame::data(frame(b"x"))), Ok(trailers("5"))])).await;
    assert_eq!(messages, [&b"x"[..]]);
    assert_eq!(end.map_err(|status| status.code), Err(Code::NotFound));
}

#[tokio::test]
async fn a_stream_without_status_is_unknown() {
    assert_eq!(read(reader([])).await.1.map_err(|status| status.code), Err(Code::Unknown));
    let no_status = Frame::trailers(HeaderMap::new());
    assert_eq!(read(reader([Ok(no_status)])).await.1.map_err(|status| status.code), Err(Code::Unknown));
}

#[tokio::test]
async fn a_cut_message_is_internal() {
    let cut = frame(b"cut off").slice(..8);
    let (messages, end) = read(reader([Ok(Frame::data(cut)), Ok(trailers("0"))])).await;
    assert!(messages.is_empty());
    assert_eq!(end.map_err(|status| status.code), Err(Code::Internal));
}

#[tokio::test]
async fn a_compressed_message_is_an_error() {
    let compressed = Bytes::from_static(&[1, 0, 0, 0, 1, b'x']);
    let (_, end) = read(reader([Ok(Frame::data(compressed))])).await;
    assert_eq!(end.map_err(|status| status.code), Err(Code::Internal));
}

#[tokio::test]
async fn a_monstrous_length_is_refused_before_it_arrives() {
    let (_, end) = read(reader([Ok(Frame::data(Bytes::from_static(&[0, 0, 0, 0x27, 0x11])))])).await;
    let why = "a message of 10001 bytes is longer than the limit of 10000 bytes";
    assert_eq!(end, Err(Status::new(Code::ResourceExhausted, why)));
    // The longest that is allowed.
    let longest = Bytes::from(vec![7; MAX_MESSAGE]);
    let (messages, end) = read(reader([Ok(Frame::data(frame(&longest))), Ok(trailers("0"))])).await;
    assert_eq!((messages, end), (vec![longest], Ok(())));
}

#[tokio::test]
async fn broken_bodies_get_the_code_of_their_reset() {
    for (reset, code) in
        [(Some(8), Code::Cancelled), (Some(11), Code::ResourceExhausted), (None, Code::Unavailable)]
    {
        let error = BodyError { reset, reason: "why".into() };
        assert_eq!(read(reader([Err(error)])).await.1, Err(Status::new(code, "why")));
    }
}

#[tokio::test]
async fn trailers_only_responses_end_at_once() {
    let response = |status: &str| Response::builder().header("grpc-status", status).body(Script::default());
    let failed = MessageReader::new(response("14").expect("a response"), MAX_MESSAGE);
    assert_eq!(failed.map(drop).map_err(|status| status.code), Err(Code::Unavailable));
    let ok = MessageReader::new(response("0").expect("a response"), MAX_MESSAGE).expect("status OK");
    assert_eq!(read(ok).await, (vec![], Ok(())));
}

#[test]
fn responses_that_are_not_grpc_are_refused() {
    let http = Response::builder().status(503).body(Script::default()).expect("a response");
    assert_eq!(
        MessageReader::new(http, MAX_MESSAGE).map(drop).map_err(|status| status.code),
        Err(Code::Unavailable)
    );
    let html =
        Response::builder().header("content-type", "text/html").body(Script::default()).expect("a response");
    let status = MessageReader::new(html, MAX_MESSAGE).map(drop).expect_err("HTML is not gRPC");
    assert_eq!(status.to_string(), "UNKNOWN: the server answered with content-type text/html");
}
