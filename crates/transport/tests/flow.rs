//! Readers that pause, servers that send too much, and requests that are answered early: nobody else pays for them.

mod support;

use bytes::Bytes;
use http_body_util::BodyExt;
use proxyless_transport::{Body, ConnectOptions, Connection, TcpConnector};
use support::{
    ACK, DATA, END_STREAM, HEADERS, RST_STREAM, Raw, SETTINGS, TestBody, WINDOW_UPDATE,
    max_concurrent_streams, ping, raw, raw_options, request,
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
