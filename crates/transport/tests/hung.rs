//! Peers that hang: they take nothing, and say nothing.

mod support;

use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use proxyless_transport::{ConnectOptions, Connection, Disconnect, SendError};
use support::{
    END_STREAM, Gate, PING, Raw, SETTINGS, TestBody, WINDOW_UPDATE, anywhere, finished, ping, pipe,
    poll_once, raw_with, request,
};
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::time::Instant;

/// Far more than the pipe holds.
const LARGE: &[u8] = &[7; 1 << 20];

/// A connection whose server takes requests of any size, as far as HTTP/2 is concerned.
async fn connected(options: &ConnectOptions) -> (Connection<TestBody>, Raw<DuplexStream>) {
    let (connector, server) = pipe();
    let window = (1_u32 << 31) - 1;
    let settings = [&4_u16.to_be_bytes()[..], &window.to_be_bytes()].concat();
    let server = async {
        let mut server = Raw::begin(server).await;
        server.write(SETTINGS, 0, 0, &settings).await;
        server.write(WINDOW_UPDATE, 0, 0, &(window - 65_535).to_be_bytes()).await;
        server
    };
    let address = anywhere();
    let (connection, mut server) =
        tokio::join!(proxyless_transport::connect(&connector, &address, options), server);
    server.sync().await;
    (connection.expect("READY"), server)
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_for_twenty_seconds_is_given_up() {
    let (connection, server) = connected(&ConnectOptions::default()).await;
    let before = Instant::now();
    let large = tokio::spawn(connection.send(request(TestBody::of(LARGE))));
    let reason = connection.closed().await;
    assert_eq!(reason, "writing failed: the socket has taken nothing for 20s");
    assert_eq!(connection.disconnect(), Disconnect::TimedOut, "A94");
    assert_eq!(before.elapsed().as_secs(), 20);
    match large.await.expect("no panic").expect_err("lost") {
        SendError::Failed { reset: None, reason: why } => assert_eq!(why, reason),
        other => panic!("{other:?}"),
    }
    finished(connection.tasks()).await;
    drop(server);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_slowly_is_not_given_up() {
    let (connection, mut server) = connected(&ConnectOptions::default()).await;
    let large = tokio::spawn(connection.send(request(TestBody::of(LARGE))));
    let stream = server.next_request().await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(15)).await;
        server.0.read_exact(&mut [0; 1_000]).await.expect("the client is there");
    }
    assert!(connection.is_open(), "{connection:?}");
    // Bytes read meanwhile are no longer parsed as frames.
    server.respond(stream, END_STREAM).await;
    large.await.expect("no panic").expect("a response");
}

#[tokio::test(start_paused = true)]
async fn an_idle_peer_is_not_given_up() {
    let (connection, mut server) = connected(&ConnectOptions::default()).await;
    tokio::time::sleep(Duration::from_secs(100_000)).await;
    server.sync().await;
    assert!(connection.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_graceful_close_does_not_wait_for_a_peer_that_hangs() {
    let options = ConnectOptions { write_timeout: None, ..ConnectOptions::default() };
    let (connection, server) = connected(&options).await;
    let tasks = connection.tasks().clone();
    let large = tokio::spawn(connection.send(request(TestBody::of(LARGE))));
    let small = tokio::spawn(connection.send(ping()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(connection.is_open(), "no watchdog was asked for");
    drop(connection);
    // As long as somebody waits, so does the connection.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!tasks.is_empty());
    let before = Instant::now();
    small.abort();
    large.abort();
    finished(&tasks).await;
    assert!(before.elapsed() <= Duration::from_secs(10), "{:?}", before.elapsed());
    drop(server);
}

/// Their frames stay in h2 until the socket takes them.
#[tokio::test]
async fn requests_that_callers_gave_up_do_not_pile_up_before_a_peer_that_hangs() {
    let gate = Gate::open();
    let (connection, mut server) = raw_with::<TestBody>(&gate, &[]).await;
    server.sync().await;
    gate.budget.store(0, Ordering::SeqCst);
    let mut given_up = 0;
    loop {
        let mut reserved = Box::pin(connection.reserve());
        let Poll::Ready(reserved) = poll_once(reserved.as_mut()) else { break };
        let mut call = Box::pin(reserved.expect("open").send(ping()));
        assert!(poll_once(call.as_mut()).is_pending());
        // The connection tries to write.
        tokio::task::yield_now().await;
        drop(call);
        given_up += 1;
        assert!(given_up < 2_000, "there is no limit");
    }
    assert!(given_up >= 1_000, "{given_up}");
    assert_eq!(connection.streams(), 0);
    // All goes on when the peer does.
    gate.budget.store(usize::MAX, Ordering::SeqCst);
    let call = tokio::spawn(connection.send(ping()));
    server.write(PING, 0, 0, b"anything").await;
    let mine = 2 * given_up + 1;
    while server.next_request().await != mine {}
    server.respond(mine, END_STREAM).await;
    call.await.expect("no panic").expect("a response");
    assert!(poll_once(Box::pin(connection.reserve()).as_mut()).is_ready());
}
