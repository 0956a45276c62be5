//! Readers that pause, servers that send too much, and requests that are answered early: nobody else pays for them.

mod support;

use http_body_util::BodyExt;
use proxyless_transport::{Body, ConnectOptions, Connection, TcpConnector};
use support::{ACK, DATA, Raw, SETTINGS, TestBody, ping, raw, raw_options};
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
    assert!(connection.is_open(), "{:?}", connection.state());
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
    assert!(connection.is_open(), "{:?}", connection.state());
    server.write(DATA, 0, 101, b"x").await;
    let reason = connection.closed().await;
    assert!(reason.contains("excessive load"), "{reason}");
    assert_eq!(ConnectOptions::default().max_late_frames, 1 << 20);
}
