//! Readers that pause, servers that send too much, and requests that are answered early: nobody else pays for them.

mod support;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use proxyless_transport::{Body, ConnectOptions, Connection, TcpConnector};
use support::{
    ACK, DATA, END_STREAM, HEADERS, PING, RST_STREAM, Raw, SETTINGS, TestBody, WINDOW_UPDATE, anywhere,
    max_concurrent_streams, ping, pipe, raw, raw_options, request,
};
use tokio::net::TcpStream;

/// A response that has begun.
async fn respond(connection: &Connection<TestBody>, server: &mut Raw<TcpStream>) -> (u32, Body) {
    let sent = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    (stream, sent.await.expect("no panic").expect("a response").into_body())
}

/// A whole call.
async fn call(connection: &Connection<TestBody>, server: &mut Raw<TcpStream>) {
    let (stream, body) = respond(connection, server).await;
    server.write(DATA, 0, stream, b"pong").await;
    server.end(stream).await;
    assert_eq!(body.collect().await.expect("no error").to_bytes(), "pong");
}

#[tokio::test]
async fn a_paused_reader_of_small_messages_leaves_the_connection_alone() {
    let (connection, mut server) = raw(&[]).await;
    // The stream windows count from then on.
    server.write(SETTINGS, ACK, 0, &[]).await;
    let (stream, body) = respond(&connection, &mut server).await;
    // A frame for each message of five bytes, as small as a message can be, until the window of the stream is full.
    let frames = (1 << 20) / 5;
    let message = [[0, 0, 5, DATA, 0].as_slice(), &stream.to_be_bytes(), &[0; 5]].concat();
    let sent = message.repeat(frames);
    tokio::io::AsyncWriteExt::write_all(&mut server.0, &sent).await.expect("the client is there");
    server.sync().await;
    assert!(connection.is_open(), "{connection:?}");
    call(&connection, &mut server).await;
    server.end(stream).await;
    assert_eq!(body.collect().await.expect("no error").to_bytes().len(), 5 * frames);
}

#[tokio::test]
async fn servers_may_send_large_frames_up_to_the_limit() {
    let (connection, mut server) = raw(&[]).await;
    // The stream windows count from then on.
    server.write(SETTINGS, ACK, 0, &[]).await;
    let (stream, body) = respond(&connection, &mut server).await;
    server.write(DATA, 0, stream, &[7; 128 << 10]).await;
    server.end(stream).await;
    assert_eq!(body.collect().await.expect("no error").to_bytes().len(), 128 << 10);
    let (stream, _body) = respond(&connection, &mut server).await;
    server.write(DATA, 0, stream, &[7; (128 << 10) + 1]).await;
    let reason = connection.closed().await;
    assert!(reason.contains("FRAME_SIZE_ERROR"), "{reason}");
    // HTTP/2 does not allow less than 16 KiB.
    let options = ConnectOptions { max_frame_size: 0, ..ConnectOptions::default() };
    let (connection, mut server) = raw_options(&TcpConnector::default(), &options, &[]).await;
    call(&connection, &mut server).await;
}

/// RUSTSEC-2024-0003: every frame for a stream that is over makes this side queue a RST_STREAM.
#[tokio::test]
async fn a_server_that_goes_on_sending_on_streams_that_are_over_is_given_up() {
    let options = ConnectOptions { max_late_frames: 50, ..ConnectOptions::default() };
    let (connection, mut server) = raw_options(&TcpConnector::default(), &options, &[]).await;
    for _ in 0..51 {
        call(&connection, &mut server).await;
    }
    for number in 0..50 {
        server.write(DATA, 0, 1 + 2 * number, b"x").await;
    }
    server.sync().await;
    assert!(connection.is_open(), "{connection:?}");
    server.write(DATA, 0, 101, b"x").await;
    let reason = connection.closed().await;
    assert!(reason.contains("excessive load"), "{reason}");
    assert_eq!(ConnectOptions::default().max_late_frames, 1 << 20);
}

/// The server answers without reading the request, and without resetting the stream.
#[tokio::test]
async fn requests_that_are_answered_early_hold_no_places() {
    let (connection, mut server) = raw(&max_concurrent_streams(2)).await;
    for _ in 0..5 {
        let sent = tokio::spawn(connection.send(request(TestBody::of(&[7; 100_000]))));
        let stream = server.next_request().await;
        server.respond(stream, END_STREAM).await;
        sent.await.expect("no panic").expect("a response");
        let reset = server.read_kind(RST_STREAM).await;
        assert_eq!((reset.stream, &reset.payload[..]), (stream, &8_u32.to_be_bytes()[..]));
        // Received bytes are returned to the connection's window, as every server does.
        server.write(WINDOW_UPDATE, 0, 0, &65_535_u32.to_be_bytes()).await;
    }
    call(&connection, &mut server).await;
    // The same holds for the second piece of a streaming request.
    let (feed, body) = TestBody::open();
    let sent = tokio::spawn(connection.send(request(body)));
    feed.send(Bytes::from_static(b"first")).expect("open");
    let stream = server.next_request().await;
    server.read_kind(DATA).await;
    feed.send(Bytes::from_static(&[7; 100_000])).expect("open");
    drop(feed);
    server.read_kind(DATA).await;
    server.respond(stream, END_STREAM).await;
    sent.await.expect("no panic").expect("a response");
    assert_eq!(server.read_kind(RST_STREAM).await.stream, stream);
    // And the connection can end.
    drop(connection);
    server.drained().await;
}

#[tokio::test]
async fn paused_readers_do_not_hold_up_other_calls() {
    let (connection, mut server) = raw(&[]).await;
    // The stream windows count from then on.
    server.write(SETTINGS, ACK, 0, &[]).await;
    let mut paused = Vec::new();
    // The total that the server may send, as far as it knows.
    let mut window = 65_535_u64;
    for number in 0..40 {
        let sent = tokio::spawn(connection.send(ping()));
        let stream = loop {
            let frame = server.read().await.expect("the client is there");
            if frame.kind == HEADERS {
                break frame.stream;
            } else if frame.kind == WINDOW_UPDATE && frame.stream == 0 {
                let by = frame.payload.try_into().map(u32::from_be_bytes).expect("four bytes");
                window += u64::from(by);
            }
        };
        server.respond(stream, 0).await;
        paused.push((stream, sent.await.expect("no panic").expect("a response").into_body()));
        for _ in 0..64 {
            assert!(window >= 16_384, "{window} bytes left with {number} paused readers");
            window -= 16_384;
            server.write(DATA, 0, stream, &[7; 16_384]).await;
        }
    }
    for (stream, body) in paused {
        server.end(stream).await;
        assert_eq!(body.collect().await.expect("no error").to_bytes().len(), 1 << 20);
    }
}

/// A connection over a link with this round-trip time, and a response whose reader keeps up.
#[tokio::test(start_paused = true)]
async fn the_windows_of_a_long_fast_link_grow_without_pings() {
    const ROUND_TRIP: Duration = Duration::from_millis(50);
    let (pipe, io) = pipe();
    let options = ConnectOptions { max_stream_window: 4 << 20, ..ConnectOptions::default() };
    let address = anywhere();
    let client = proxyless_transport::connect::<TestBody>(&pipe, &address, &options);
    let server = async {
        let mut server = Raw::begin(io).await;
        tokio::time::advance(ROUND_TRIP).await;
        server.write(SETTINGS, 0, 0, &[]).await;
        server.write(SETTINGS, ACK, 0, &[]).await;
        server
    };
    let (connection, mut server) = tokio::join!(client, server);
    let connection = connection.expect("a connection");
    let sent = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    let mut body = sent.await.expect("no panic").expect("a response").into_body();
    let reader = tokio::spawn(async move { while body.frame().await.is_some() {} });
    // The SETTINGS of each growth, and the time of a window that is too large to be used up.
    for (window, grown) in [(1 << 20, Some(2 << 20)), (2 << 20, Some(4 << 20)), (4 << 20, None)] {
        let (mut frames, mut received) = (Vec::new(), 0);
        while received < 2 * window + (1 << 17) {
            server.write(DATA, 0, stream, &[0; 16_000]).await;
            received += 16_000;
            // The reader has read it, and waits.
            frames.extend(server.sync().await);
        }
        assert!(frames.iter().all(|frame| frame.kind != PING), "a PING that the server did not ask for");
        let settings = frames.iter().find(|frame| frame.kind == SETTINGS && frame.flags & ACK == 0);
        let announced = settings.map(|frame| {
            let &[0, 4, a, b, c, d] = &frame.payload[..] else { panic!("not the window alone: {frame:?}") };
            u32::from_be_bytes([a, b, c, d])
        });
        assert_eq!(announced, grown, "after a window of {window} bytes");
        tokio::time::advance(ROUND_TRIP).await;
        server.write(SETTINGS, ACK, 0, &[]).await;
    }
    server.end(stream).await;
    reader.await.expect("no panic");
}
