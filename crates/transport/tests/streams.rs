//! Requests: their results, their concurrency limit and their cancellation.

mod support;

use bytes::Bytes;
use http_body_util::BodyExt;
use proxyless_transport::grpc::MessageReader;
use proxyless_transport::{SendError, grpc};
use support::{
    ACK, DATA, END_STREAM, HEADERS, RST_STREAM, SETTINGS, TestBody, WINDOW_UPDATE, max_concurrent_streams,
    ping, poll_once, raw, request,
};

#[tokio::test]
async fn a_request_gets_its_response_and_trailers() {
    let (connection, mut server) = raw(&[]).await;
    let sent = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    assert_eq!(server.read_kind(DATA).await.payload, b"ping");
    server.respond(stream, 0).await;
    server.write(DATA, 0, stream, &grpc::frame(b"pong")).await;
    server.end(stream).await;
    let response = sent.await.expect("no panic").expect("a response");
    let mut messages = MessageReader::new(response, usize::MAX).expect("a gRPC response");
    assert_eq!(messages.next().await, Ok(Some(Bytes::from_static(b"pong"))));
    assert_eq!(messages.next().await, Ok(None));
}

#[tokio::test]
async fn refused_stream_is_refused() {
    let (connection, mut server) = raw(&[]).await;
    let sent = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.reset(stream, 7).await;
    let error = sent.await.expect("no panic").expect_err("refused");
    assert!(matches!(error, SendError::Refused { .. }), "{error:?}");
    assert_eq!(error.reason(), "the server reset the stream with REFUSED_STREAM");
    assert!(connection.is_open());
}

#[tokio::test]
async fn other_resets_fail_with_their_code() {
    let (connection, mut server) = raw(&[]).await;
    for (code, name) in [(0, "NO_ERROR"), (2, "INTERNAL_ERROR"), (8, "CANCEL"), (11, "ENHANCE_YOUR_CALM")] {
        let sent = tokio::spawn(connection.send(ping()));
        let stream = server.next_request().await;
        server.reset(stream, code).await;
        match sent.await.expect("no panic").expect_err("reset") {
            SendError::Failed { reset, reason } => {
                assert_eq!(reset, Some(code));
                assert_eq!(reason, format!("the server reset the stream with {name}"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_reset_in_the_middle_of_a_response_is_an_error_even_with_no_error() {
    let (connection, mut server) = raw(&[]).await;
    for code in [0, 2, 7, 8] {
        let sent = tokio::spawn(connection.send(ping()));
        let stream = server.next_request().await;
        server.respond(stream, 0).await;
        server.write(DATA, 0, stream, b"some").await;
        let mut body = sent.await.expect("no panic").expect("a response").into_body();
        let data = body.frame().await.expect("a frame").expect("no error").into_data().expect("data");
        assert_eq!(data, "some");
        server.reset(stream, code).await;
        let error = body.frame().await.expect("an end").expect_err("a reset");
        assert_eq!(error.reset, Some(code));
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test]
async fn a_response_that_ends_before_the_request_stops_the_request() {
    let (connection, mut server) = raw(&[]).await;
    let (feed, body) = TestBody::open();
    let sent = tokio::spawn(connection.send(request(body)));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    server.end(stream).await;
    let body = sent.await.expect("no panic").expect("a response").into_body();
    assert!(body.collect().await.expect("no error").trailers().is_some());
    // The request's body is dropped, so that its producer knows.
    feed.closed().await;
    let reset = server.read_kind(RST_STREAM).await;
    assert_eq!((reset.stream, &reset.payload[..]), (stream, &8_u32.to_be_bytes()[..]));
}

#[tokio::test]
async fn dropping_the_response_cancels_the_stream() {
    let (connection, mut server) = raw(&max_concurrent_streams(1)).await;
    let (feed, body) = TestBody::open();
    let sent = tokio::spawn(connection.send(request(body)));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    let response = sent.await.expect("no panic").expect("a response");
    drop(response);
    feed.closed().await;
    let reset = server.read_kind(RST_STREAM).await;
    assert_eq!((reset.stream, &reset.payload[..]), (stream, &8_u32.to_be_bytes()[..]));
    // Its permit is free again.
    let next = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.respond(stream, END_STREAM).await;
    next.await.expect("no panic").expect("a response");
}

#[tokio::test]
async fn dropping_the_future_cancels_the_stream() {
    let (connection, mut server) = raw(&max_concurrent_streams(1)).await;
    let (feed, body) = TestBody::open();
    let sent = tokio::spawn(connection.send(request(body)));
    let stream = server.next_request().await;
    sent.abort();
    feed.closed().await;
    assert_eq!(server.read_kind(RST_STREAM).await.stream, stream);
    let next = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.respond(stream, END_STREAM).await;
    next.await.expect("no panic").expect("a response");
}

#[tokio::test]
async fn the_servers_limit_of_streams_is_kept_in_order() {
    let (connection, mut server) = raw(&max_concurrent_streams(1)).await;
    let first = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    let mut second = Box::pin(connection.send(request(TestBody::of(b"second"))));
    assert!(poll_once(second.as_mut()).is_pending());
    let mut third = Box::pin(connection.send(request(TestBody::of(b"third"))));
    assert!(poll_once(third.as_mut()).is_pending());
    assert!(server.sync().await.iter().all(|frame| frame.kind != HEADERS), "one stream only");

    server.respond(stream, END_STREAM).await;
    drop(first.await.expect("no panic").expect("a response"));
    // Polled in the wrong order, served in the right one.
    let third = tokio::spawn(third);
    let second = tokio::spawn(second);
    for expected in [&b"second"[..], b"third"] {
        let stream = server.next_request().await;
        assert_eq!(server.read_kind(DATA).await.payload, expected);
        assert!(server.sync().await.iter().all(|frame| frame.kind != HEADERS), "one stream only");
        server.respond(stream, END_STREAM).await;
    }
    second.await.expect("no panic").expect("a response");
    third.await.expect("no panic").expect("a response");
}

#[tokio::test]
async fn the_limit_may_change_at_any_time() {
    let (connection, mut server) = raw(&max_concurrent_streams(1)).await;
    let sent: Vec<_> = (0..5).map(|_| tokio::spawn(connection.send(ping()))).collect();
    let mut open = vec![server.next_request().await];
    assert!(server.sync().await.iter().all(|frame| frame.kind != HEADERS));

    server.write(SETTINGS, 0, 0, &max_concurrent_streams(3)).await;
    open.push(server.next_request().await);
    open.push(server.next_request().await);
    assert!(server.sync().await.iter().all(|frame| frame.kind != HEADERS));

    server.write(SETTINGS, 0, 0, &max_concurrent_streams(1)).await;
    // Two of three end: still one in use.
    for stream in open.drain(..2) {
        server.respond(stream, END_STREAM).await;
    }
    assert!(server.sync().await.iter().all(|frame| frame.kind != HEADERS));
    for _ in 0..2 {
        server.respond(open.pop().expect("one is open"), END_STREAM).await;
        open.push(server.next_request().await);
    }
    server.respond(open.pop().expect("one is open"), END_STREAM).await;
    for sent in sent {
        sent.await.expect("no panic").expect("a response");
    }
}

#[tokio::test]
async fn requests_waiting_for_a_stream_are_returned_unsent() {
    let (connection, mut server) = raw(&max_concurrent_streams(0)).await;
    let mut waiting = Box::pin(connection.send(ping()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    server.go_away(0, 0, b"").await;
    match waiting.await.expect_err("no stream") {
        SendError::Unsent { request, reason } => {
            assert_eq!(request.expect("untouched").body().queued(), ["ping"]);
            assert!(reason.ends_with("GOAWAY with NO_ERROR"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_held_response_holds_its_place() {
    let (connection, mut server) = raw(&max_concurrent_streams(1)).await;
    let sent = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    let response = sent.await.expect("no panic").expect("a response");
    let mut next = Box::pin(connection.send(ping()));
    assert!(poll_once(next.as_mut()).is_pending());
    // The end of the response frees the permit, although the body is still there.
    server.end(stream).await;
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame.expect("no error");
    }
    let next = tokio::spawn(next);
    let stream = server.next_request().await;
    server.respond(stream, END_STREAM).await;
    next.await.expect("no panic").expect("a response");
    drop(body);
}

#[tokio::test]
async fn what_is_read_is_given_back_to_the_server() {
    let (connection, mut server) = raw(&[]).await;
    // The client's windows hold from here on.
    server.write(SETTINGS, ACK, 0, &[]).await;
    let sent = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    let mut body = sent.await.expect("no panic").expect("a response").into_body();
    // More than half of the stream's window.
    for _ in 0..40 {
        server.write(DATA, 0, stream, &[0; 16 << 10]).await;
    }
    let mut read = 0;
    while read < 40 << 14 {
        read += body.frame().await.expect("data").expect("no error").into_data().expect("data").len();
    }
    loop {
        let update = server.read_kind(WINDOW_UPDATE).await;
        if update.stream == stream {
            break;
        }
    }
}

/// Streams that are not read do not use up the connection's window for those that are.
#[tokio::test]
async fn a_reader_that_waits_holds_nothing_back() {
    let (connection, mut server) = raw(&[]).await;
    server.sync().await;
    let mut updated = false;
    let mut bodies = Vec::new();
    // Together more than half of the connection's window, each less than is told while there is more to read.
    for _ in 0..700 {
        let sent = tokio::spawn(connection.send(ping()));
        let stream = loop {
            let frame = server.read().await.expect("the client is there");
            updated |= frame.kind == WINDOW_UPDATE && frame.stream == 0;
            if frame.kind == HEADERS {
                break frame.stream;
            }
        };
        server.respond(stream, 0).await;
        server.write(DATA, 0, stream, &[0; 12 << 10]).await;
        let mut body = sent.await.expect("no panic").expect("a response").into_body();
        body.frame().await.expect("data").expect("no error");
        let mut more = Box::pin(async move {
            let frame = body.frame().await;
            (frame.is_some(), body)
        });
        assert!(poll_once(more.as_mut()).is_pending());
        bodies.push(more);
    }
    assert!(updated);
}

/// The window of unread data is returned, no matter how the reader ended.
#[tokio::test]
async fn responses_that_are_given_up_hold_nothing_back() {
    const CHUNK: usize = 16 << 10;
    let (connection, mut server) = raw(&[]).await;
    server.write(SETTINGS, ACK, 0, &[]).await;
    let mut window = 65_535_i64;
    // Together far more than the connection's window.
    for round in 0..1_000 {
        let (_feed, open) = TestBody::open();
        let body = if round % 2 == 0 { open } else { TestBody::of(b"ping") };
        let sent = tokio::spawn(connection.send(request(body)));
        let mut stream = None;
        while stream.is_none() || window < 4 * CHUNK as i64 {
            let frame = server.read().await.expect("the client is there");
            match (frame.kind, frame.stream, &frame.payload[..]) {
                (HEADERS, id, _) => stream = Some(id),
                (WINDOW_UPDATE, 0, &[a, b, c, d]) => window += i64::from(u32::from_be_bytes([a, b, c, d])),
                _ => {}
            }
        }
        let stream = stream.expect("just read");
        server.respond(stream, 0).await;
        window -= 4 * CHUNK as i64;
        for _ in 0..4 {
            server.write(DATA, 0, stream, &[0; CHUNK]).await;
        }
        match round % 3 {
            // Before the response is looked at.
            0 => {
                sent.abort();
                let _ = sent.await;
            }
            1 => drop(sent.await.expect("no panic").expect("a response")),
            // After some of it.
            _ => {
                let mut body = sent.await.expect("no panic").expect("a response").into_body();
                body.frame().await.expect("data").expect("no error");
            }
        }
    }
}
