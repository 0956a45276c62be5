//! Request bodies: when they are sent, and by whom.

mod support;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use proxyless_transport::{SendError, TcpConnector};
use support::{
    DATA, END_STREAM, HEADERS, RST_STREAM, Raw, TestBody, WINDOW_UPDATE, ping, poll_once, raw, raw_with,
    request,
};
use tokio::net::TcpStream;

/// Yields data, then an error if there is one, and counts how often it was read.
struct Endless {
    pulled: Arc<AtomicUsize>,
    fails: bool,
}

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let before = self.pulled.fetch_add(1, Ordering::SeqCst);
        if self.fails && before > 0 {
            return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into())));
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; 40_000])))))
    }
}

fn endless(fails: bool) -> (Arc<AtomicUsize>, Request<Endless>) {
    let pulled = Arc::new(AtomicUsize::new(0));
    let body = Endless { pulled: Arc::clone(&pulled), fails };
    (pulled, Request::post("http://test/service/method").body(body).expect("a request"))
}

/// Reads `bytes` of DATA. Returns the flags of the last frame.
async fn read_data(server: &mut Raw<TcpStream>, bytes: usize) -> u8 {
    let mut read = 0;
    loop {
        let frame = server.read_kind(DATA).await;
        read += frame.payload.len();
        assert!(read <= bytes, "{read} bytes");
        if read == bytes {
            return frame.flags;
        }
    }
}

async fn widen(server: &mut Raw<TcpStream>, stream: u32, by: u32) {
    server.write(WINDOW_UPDATE, 0, stream, &by.to_be_bytes()).await;
    server.write(WINDOW_UPDATE, 0, 0, &by.to_be_bytes()).await;
}

#[tokio::test]
async fn a_body_that_is_there_is_one_frame_and_needs_no_task() {
    let (connection, mut server) = raw(&[]).await;
    // As in tonic, only a read shows that there is no more.
    let (feed, body) = TestBody::open();
    feed.send(Bytes::from_static(b"ping")).expect("open");
    drop(feed);
    let sent = tokio::spawn(connection.send(request(body)));
    let stream = server.next_request().await;
    let data = server.read_kind(DATA).await;
    assert_eq!((&data.payload[..], data.flags), (&b"ping"[..], END_STREAM));
    assert_eq!(connection.tasks().len(), 1);
    server.respond(stream, END_STREAM).await;
    sent.await.expect("no panic").expect("a response");
}

#[tokio::test]
async fn no_body_ends_with_the_headers() {
    let (connection, mut server) = raw(&[]).await;
    let (feed, body) = TestBody::open();
    drop(feed);
    let _empty = tokio::spawn(connection.send(request(body)));
    assert_eq!(server.read_kind(HEADERS).await.flags & END_STREAM, 0);
    let data = server.read_kind(DATA).await;
    assert_eq!((data.payload.len(), data.flags), (0, END_STREAM));
    // One that says so saves the frame.
    let _none = tokio::spawn(connection.send(request(TestBody::none())));
    assert_eq!(server.read_kind(HEADERS).await.flags & END_STREAM, END_STREAM);
}

#[tokio::test]
async fn a_body_larger_than_the_window_waits_in_a_task() {
    let (connection, mut server) = raw(&[]).await;
    let sent = tokio::spawn(connection.send(request(TestBody::of(&[7; 200_000]))));
    let stream = server.next_request().await;
    assert_eq!(read_data(&mut server, 65_535).await, 0);
    assert_eq!(connection.tasks().len(), 2);
    // Exactly the missing bytes: the end must not wait for more.
    widen(&mut server, stream, 200_000 - 65_535).await;
    assert_eq!(read_data(&mut server, 200_000 - 65_535).await, END_STREAM);
    server.respond(stream, END_STREAM).await;
    sent.await.expect("no panic").expect("a response");
    assert!(server.sync().await.iter().all(|frame| frame.kind != RST_STREAM));
    assert_eq!(connection.tasks().len(), 1);
}

#[tokio::test]
async fn a_body_within_a_window_that_the_server_has_widened_needs_no_task() {
    // INITIAL_WINDOW_SIZE; that of the connection is another matter, which the server must widen in any case.
    let settings = [&4_u16.to_be_bytes()[..], &200_000_u32.to_be_bytes()].concat();
    let (connection, mut server) = raw(&settings).await;
    let sent = tokio::spawn(connection.send(request(TestBody::of(&[7; 200_000]))));
    let stream = server.next_request().await;
    assert_eq!(read_data(&mut server, 65_535).await, 0);
    assert_eq!(connection.tasks().len(), 1);
    server.write(WINDOW_UPDATE, 0, 0, &200_000_u32.to_be_bytes()).await;
    assert_eq!(read_data(&mut server, 200_000 - 65_535).await, END_STREAM);
    server.respond(stream, END_STREAM).await;
    sent.await.expect("no panic").expect("a response");
}

#[tokio::test]
async fn a_stream_of_requests_goes_on_while_nobody_polls_the_response() {
    let (connection, mut server) = raw(&[]).await;
    let (feed, body) = TestBody::open();
    let sent = tokio::spawn(connection.send(request(body)));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    let response = sent.await.expect("no panic").expect("a response");
    for part in [&b"one"[..], b"two"] {
        feed.send(Bytes::from_static(part)).expect("open");
        assert_eq!(server.read_kind(DATA).await.payload, part);
    }
    drop(feed);
    assert_eq!(server.read_kind(DATA).await.flags, END_STREAM);
    server.end(stream).await;
    let body = response.into_body().collect().await.expect("no error");
    assert!(body.trailers().is_some());
    assert!(server.sync().await.iter().all(|frame| frame.kind != RST_STREAM));
}

#[tokio::test]
async fn a_stream_of_requests_waits_for_the_window() {
    let (connection, mut server) = raw_with(&TcpConnector::default(), &[]).await;
    let (pulled, request) = endless(false);
    let sent = tokio::spawn(connection.send(request));
    let stream = server.next_request().await;
    read_data(&mut server, 65_535).await;
    server.sync().await;
    // One and a part of the second fill the window.
    assert_eq!(pulled.load(Ordering::SeqCst), 2);
    widen(&mut server, stream, 40_000).await;
    read_data(&mut server, 40_000).await;
    server.sync().await;
    assert_eq!(pulled.load(Ordering::SeqCst), 3);
    server.reset(stream, 8).await;
    sent.await.expect("no panic").expect_err("reset");
    drop(connection);
}

#[tokio::test]
async fn a_reset_by_the_server_ends_the_request() {
    let (connection, mut server) = raw(&[]).await;
    let (feed, body) = TestBody::open();
    let sent = tokio::spawn(connection.send(request(body)));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    let _unread = sent.await.expect("no panic").expect("a response");
    server.reset(stream, 8).await;
    feed.closed().await;
}

#[tokio::test]
async fn a_body_that_fails_resets_the_stream() {
    let (connection, mut server) = raw_with(&TcpConnector::default(), &[]).await;
    let (_, request) = endless(true);
    match connection.send(request).await.expect_err("no request") {
        SendError::Failed { reset: Some(2), reason } => {
            assert_eq!(reason, "the client reset the stream with INTERNAL_ERROR");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(server.read_kind(RST_STREAM).await.payload, 2_u32.to_be_bytes());
}

#[tokio::test]
async fn headers_of_http1_connections_are_left_out() {
    let (connection, mut server) = raw(&[]).await;
    let mut request = ping();
    for (name, value) in [("connection", "close"), ("te", "gzip"), ("keep-alive", "5"), ("x-kept", "yes")] {
        request.headers_mut().append(name, value.parse().expect("a value"));
    }
    let sent = tokio::spawn(connection.send(request));
    let headers = server.read_kind(HEADERS).await;
    server.respond(headers.stream, END_STREAM).await;
    sent.await.expect("no panic").expect("a response");
}

#[tokio::test]
async fn what_is_no_request_fails_and_is_not_sent_again() {
    let (connection, _server) = raw(&[]).await;
    let mut request = ping();
    *request.uri_mut() = "/no/host".parse().expect("a path");
    *request.version_mut() = Version::HTTP_2;
    let error = connection.send(request).await.expect_err("no authority");
    // INTERNAL_ERROR: gRPC's INTERNAL, which no policy takes for a server that is away.
    assert!(matches!(error, SendError::Failed { reset: Some(2), .. }), "{error:?}");
    assert!(error.reason().starts_with("not a valid request: "), "{error}");
    assert!(connection.is_open());
    assert_eq!(connection.streams(), 0);
}

#[tokio::test]
async fn callers_need_not_live_in_the_runtime_of_the_connection() {
    let (connection, mut server) = raw(&[]).await;
    let (feed, body) = TestBody::open();
    let mut sent = Box::pin(connection.send(request(body)));
    // A thread of its own has no runtime.
    let mut sent = std::thread::spawn(move || {
        assert!(poll_once(sent.as_mut()).is_pending());
        sent
    })
    .join()
    .expect("no panic");
    let stream = server.next_request().await;
    feed.send(Bytes::from_static(b"late")).expect("open");
    assert_eq!(server.read_kind(DATA).await.payload, b"late");
    server.respond(stream, END_STREAM).await;
    (&mut sent).await.expect("a response");
}

/// Its channel ends with a panic.
struct Panics(TestBody);

impl http_body::Body for Panics {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.0).poll_frame(cx);
        assert!(!matches!(frame, Poll::Ready(None)), "on purpose");
        frame
    }
}

#[tokio::test]
async fn a_body_that_panics_does_not_leave_its_call_waiting() {
    let (connection, mut server) = raw_with(&TcpConnector::default(), &[]).await;
    let (feed, body) = TestBody::open();
    let request = Request::post("http://test/service/method").body(Panics(body)).expect("a request");
    let sent = tokio::spawn(connection.send(request));
    let stream = server.next_request().await;
    drop(feed);
    let reset = server.read_kind(RST_STREAM).await;
    assert_eq!((reset.stream, &reset.payload[..]), (stream, &2_u32.to_be_bytes()[..]));
    let error = sent.await.expect("no panic here").expect_err("no request");
    assert!(matches!(error, SendError::Failed { reset: Some(2), .. }), "{error:?}");
}
