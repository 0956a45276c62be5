//! How connections end: GOAWAY, loss, and this side's will. Nothing is left behind.

mod support;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use proxyless_transport::{
    Address, BoxedIo, ConnectOptions, Connecting, Connection, Connector, Disconnect, Lost, SendError,
};
use support::{
    END_STREAM, GOAWAY, Raw, SETTINGS, TestBody, anywhere, connect, finished, listen, ping, pipe, raw,
    request,
};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

const NO_ERROR: u32 = 0;

#[tokio::test]
async fn goaway_is_seen_at_once_while_a_stream_lives() {
    let (connection, mut server) = raw(&[]).await;
    let live = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.go_away(stream, NO_ERROR, b"max_age").await;
    let reason = "the server sent GOAWAY with NO_ERROR and debug data \"max_age\"".to_owned();
    assert_eq!(connection.left_open().await, Lost::GoAway(reason.clone()));
    assert_eq!(connection.left_open().await, Lost::GoAway(reason));
    match connection.send(ping()).await.expect_err("no new streams") {
        SendError::Unsent { request, .. } => {
            assert_eq!(request.expect("untouched").body().queued(), ["ping"]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(connection.disconnect(), Disconnect::GoAway(NO_ERROR), "A94");
    // The one in flight is not disturbed.
    server.respond(stream, 0).await;
    server.end(stream).await;
    let body = live.await.expect("no panic").expect("a response").into_body();
    assert!(body.collect().await.expect("no error").trailers().is_some());
    server.drained().await;
    assert_eq!(
        connection.closed().await,
        "the connection ended after GOAWAY with NO_ERROR and debug data \"max_age\""
    );
    finished(connection.tasks()).await;
}

#[tokio::test]
async fn streams_above_the_last_one_of_a_goaway_are_refused() {
    let (connection, mut server) = raw(&[]).await;
    let covered = tokio::spawn(connection.send(ping()));
    let last = server.next_request().await;
    let above = tokio::spawn(connection.send(ping()));
    server.next_request().await;
    server.go_away(last, NO_ERROR, b"").await;
    let error = above.await.expect("no panic").expect_err("not processed");
    assert!(matches!(error, SendError::Refused { .. }), "{error:?}");
    assert_eq!(error.reason(), "the server sent GOAWAY with NO_ERROR");
    server.respond(last, END_STREAM).await;
    covered.await.expect("no panic").expect("a response");
}

#[tokio::test]
async fn too_many_pings_is_recognised() {
    let (connection, mut server) = raw(&[]).await;
    server.go_away(0, 11, b"too_many_pings").await;
    connection.left_open().await;
    assert!(connection.go_away().expect("a GOAWAY").is_too_many_pings());
}

/// Servers that shut down gracefully under load: every request is answered, or came back safe to repeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_goaway_under_load_fails_nothing() {
    for round in 0..20 {
        let (listener, address) = listen().await;
        let server = tokio::spawn(async move {
            let io = listener.accept().await.expect("a client").0;
            let mut server = h2::server::handshake(io).await.expect("HTTP/2");
            let mut served = 0;
            while let Some(next) = server.accept().await {
                let (request, mut respond) = next.expect("the client ends gracefully");
                served += 1;
                if served == 10 + round {
                    server.graceful_shutdown();
                }
                tokio::spawn(async move {
                    // Not before the request is complete.
                    let mut body = request.into_body();
                    while let Some(data) = body.data().await {
                        data.expect("no error");
                    }
                    let response = http::Response::new(());
                    let mut stream = respond.send_response(response, false).expect("still open");
                    stream.send_data(Bytes::from_static(b"pong"), true).expect("still open");
                });
            }
            served
        });
        let connection = Arc::new(connect(&address).await);
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let connection = Arc::clone(&connection);
                tokio::spawn(async move {
                    let mut answered = 0;
                    let mut refused = 0;
                    loop {
                        match connection.send(ping()).await {
                            Ok(response) => {
                                let body = response.into_body().collect().await.expect("a whole response");
                                assert_eq!(body.to_bytes(), "pong");
                                answered += 1;
                            }
                            Err(SendError::Refused { .. }) => refused += 1,
                            Err(SendError::Unsent { request, .. }) => {
                                assert!(request.is_none_or(|request| request.body().queued() == ["ping"]));
                                return (answered, refused);
                            }
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                })
            })
            .collect();
        let mut answered = 0;
        for client in clients {
            answered += client.await.expect("no failure").0;
        }
        assert_eq!(server.await.expect("no panic"), answered, "nothing was processed in vain");
        let closed = connection.closed().await;
        assert!(closed.contains("GOAWAY with NO_ERROR"), "{closed}");
        finished(connection.tasks()).await;
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_is_named_as_the_cause() {
    let (connection, mut server) = raw(&[]).await;
    let early = tokio::spawn(connection.send(ping()));
    server.next_request().await;
    let late = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    let mut late = late.await.expect("no panic").expect("a response").into_body();
    // Everything is read, so that the kernel sends FIN and not RST.
    server.sync().await;
    drop(server);
    let cause = "the server closed the connection";
    assert_eq!(connection.left_open().await, Lost::Closed(cause.into()));
    assert_eq!(connection.closed().await, cause);
    assert_eq!(connection.disconnect(), Disconnect::Socket, "A94");
    match early.await.expect("no panic").expect_err("lost") {
        SendError::Failed { reset: None, reason } => assert_eq!(reason, cause),
        other => panic!("{other:?}"),
    }
    let error = late.frame().await.expect("an end").expect_err("lost");
    assert_eq!((error.reset, &*error.reason), (None, cause));
    assert!(matches!(connection.send(ping()).await, Err(SendError::Unsent { .. })));
    finished(connection.tasks()).await;
}

#[tokio::test]
async fn a_connection_reset_is_named_as_the_cause() {
    let (connection, mut server) = raw(&[]).await;
    let sent = tokio::spawn(connection.send(ping()));
    server.next_request().await;
    server.0.set_zero_linger().expect("an option of every TCP socket");
    drop(server);
    let closed = connection.closed().await;
    assert!(closed.contains("failed: Connection reset by peer"), "{closed}");
    assert_eq!(connection.disconnect(), Disconnect::Reset, "A94");
    match sent.await.expect("no panic").expect_err("lost") {
        SendError::Failed { reset: None, reason } => assert_eq!(reason, closed),
        other => panic!("{other:?}"),
    }
    finished(connection.tasks()).await;
}

#[tokio::test]
async fn a_goaway_with_an_error_is_part_of_the_cause() {
    let (connection, mut server) = raw(&[]).await;
    let sent = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.sync().await;
    server.go_away(stream, 2, b"bug").await;
    drop(server);
    let cause = "the server closed the connection after GOAWAY with INTERNAL_ERROR and debug data \"bug\"";
    assert_eq!(connection.closed().await, cause);
    assert_eq!(connection.disconnect(), Disconnect::GoAway(2), "A94: the first reason counts");
    match sent.await.expect("no panic").expect_err("lost") {
        SendError::Failed { reset: None, reason } => assert_eq!(reason, cause),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn close_gracefully_lets_streams_finish() {
    let (connection, mut server) = raw(&[]).await;
    let (feed, body) = TestBody::open();
    let sent = tokio::spawn(connection.send(request(body)));
    let stream = server.next_request().await;
    connection.close_gracefully();
    assert_eq!(connection.left_open().await, Lost::GoAway("the client is closing the connection".into()));
    assert!(matches!(connection.send(ping()).await, Err(SendError::Unsent { .. })));
    // Both directions go on.
    feed.send(Bytes::from_static(b"more")).expect("still open");
    assert_eq!(server.read_kind(support::DATA).await.payload, b"more");
    drop(feed);
    server.respond(stream, 0).await;
    server.end(stream).await;
    let body = sent.await.expect("no panic").expect("a response").into_body();
    assert!(body.collect().await.expect("no error").trailers().is_some());
    server.read_kind(GOAWAY).await;
    server.drained().await;
    assert_eq!(connection.closed().await, "the client closed the connection");
    finished(connection.tasks()).await;
}

#[tokio::test]
async fn an_idle_connection_that_is_dropped_leaves_nothing_behind() {
    let (connection, mut server) = raw(&[]).await;
    let tasks = connection.tasks().clone();
    assert_eq!(tasks.len(), 1);
    drop(connection);
    server.drained().await;
    finished(&tasks).await;
}

#[tokio::test]
async fn requests_leave_no_tasks_behind() {
    let (connection, mut server) = raw(&[]).await;
    for _ in 0..10 {
        let sent = tokio::spawn(connection.send(ping()));
        let stream = server.next_request().await;
        server.respond(stream, END_STREAM).await;
        sent.await.expect("no panic").expect("a response");
    }
    let tasks = connection.tasks().clone();
    drop(connection);
    server.drained().await;
    finished(&tasks).await;
}

#[tokio::test]
async fn abort_ends_everything_now() {
    let (connection, mut server) = raw(&[]).await;
    let (feed, body) = TestBody::open();
    let sent = tokio::spawn(connection.send(request(body)));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    let mut body = sent.await.expect("no panic").expect("a response").into_body();
    let waiting = tokio::spawn(connection.send(ping()));
    server.next_request().await;
    connection.abort();
    let cause = "the client aborted the connection";
    assert_eq!(connection.left_open().await, Lost::Closed(cause.into()));
    let error = body.frame().await.expect("an end").expect_err("aborted");
    assert_eq!((error.reset, &*error.reason), (None, cause));
    match waiting.await.expect("no panic").expect_err("aborted") {
        SendError::Failed { reset: None, reason } => assert_eq!(reason, cause),
        other => panic!("{other:?}"),
    }
    feed.closed().await;
    server.drained().await;
    finished(connection.tasks()).await;
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_keepalive_ends_the_connection() {
    let (connector, server) = pipe();
    let options = ConnectOptions {
        keepalive_interval: Some(Duration::from_secs(30)),
        keepalive_timeout: Duration::from_secs(5),
        keepalive_while_idle: true,
        ..ConnectOptions::default()
    };
    let address = anywhere();
    let server = async {
        let mut server = Raw::begin(server).await;
        server.write(SETTINGS, 0, 0, &[]).await;
        server
    };
    let (connection, mut server) =
        tokio::join!(proxyless_transport::connect(&connector, &address, &options), server);
    let connection: Connection<TestBody> = connection.expect("READY");
    let before = tokio::time::Instant::now();
    let waiting = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    server.respond(stream, 0).await;
    let mut body = waiting.await.expect("no panic").expect("a response").into_body();
    let waiting = tokio::spawn(connection.send(ping()));
    server.read_kind(support::PING).await;
    let cause = "keepalive: no answer to a PING within 5s";
    assert_eq!(connection.closed().await, cause);
    assert_eq!(connection.disconnect(), Disconnect::TimedOut, "A94");
    assert!(before.elapsed() >= Duration::from_secs(35), "{:?}", before.elapsed());
    match waiting.await.expect("no panic").expect_err("lost") {
        SendError::Failed { reset: None, reason } => assert_eq!(reason, cause),
        other => panic!("{other:?}"),
    }
    assert_eq!(body.frame().await.expect("an end").expect_err("lost").reason, cause);
    finished(connection.tasks()).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_without_keepalive_is_left_alone() {
    let (connector, server) = pipe();
    let address = anywhere();
    let options = ConnectOptions::default();
    let server = async {
        let mut server = Raw::begin(server).await;
        server.write(SETTINGS, 0, 0, &[]).await;
        server
    };
    let (connection, mut server) =
        tokio::join!(proxyless_transport::connect(&connector, &address, &options), server);
    let connection: Connection<TestBody> = connection.expect("READY");
    tokio::time::advance(Duration::from_secs(100_000)).await;
    assert!(server.sync().await.iter().all(|frame| frame.kind != support::PING));
    assert!(connection.is_open());
}

#[tokio::test(start_paused = true)]
async fn keepalive_probes_only_while_a_stream_is_open() {
    let (connector, server) = pipe();
    let options = ConnectOptions {
        keepalive_interval: Some(Duration::from_secs(30)),
        keepalive_timeout: Duration::from_secs(5),
        ..ConnectOptions::default()
    };
    let address = anywhere();
    let server = async {
        let mut server = Raw::begin(server).await;
        server.write(SETTINGS, 0, 0, &[]).await;
        server
    };
    let (connection, mut server) =
        tokio::join!(proxyless_transport::connect(&connector, &address, &options), server);
    let connection: Connection<TestBody> = connection.expect("READY");
    tokio::time::advance(Duration::from_secs(1_000)).await;
    assert!(server.sync().await.iter().all(|frame| frame.kind != support::PING), "idle");

    let live = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    let mut heard = tokio::time::Instant::now();
    // An answer restarts the interval.
    for _ in 0..3 {
        let probe = server.read_kind(support::PING).await;
        let quiet = heard.elapsed();
        assert!((30..32).contains(&quiet.as_secs()), "{quiet:?}");
        server.write(support::PING, support::ACK, 0, &probe.payload).await;
        heard = tokio::time::Instant::now();
    }
    server.respond(stream, END_STREAM).await;
    live.await.expect("no panic").expect("a response");
    tokio::time::advance(Duration::from_secs(1_000)).await;
    assert!(server.sync().await.iter().all(|frame| frame.kind != support::PING), "idle again");
    assert!(connection.is_open());
}

/// In gRPC's other languages the longest interval means never.
#[tokio::test(start_paused = true)]
async fn keepalive_may_take_for_ever() {
    for (interval, timeout) in
        [(Duration::MAX, Duration::from_secs(5)), (Duration::from_secs(30), Duration::MAX)]
    {
        let (connector, server) = pipe();
        let options = ConnectOptions {
            keepalive_interval: Some(interval),
            keepalive_timeout: timeout,
            ..ConnectOptions::default()
        };
        let address = anywhere();
        let server = async {
            let mut server = Raw::begin(server).await;
            server.write(SETTINGS, 0, 0, &[]).await;
            server
        };
        let (connection, mut server) =
            tokio::join!(proxyless_transport::connect(&connector, &address, &options), server);
        let connection: Connection<TestBody> = connection.expect("READY");
        let live = tokio::spawn(connection.send(ping()));
        let stream = server.next_request().await;
        if interval < Duration::MAX {
            server.read_kind(support::PING).await;
        }
        tokio::time::advance(Duration::from_secs(100_000)).await;
        server.sync().await;
        server.respond(stream, END_STREAM).await;
        live.await.expect("no panic").expect("a response");
    }
}

/// A pipe that hides incoming bytes while it is held.
struct Held {
    io: DuplexStream,
    held: Arc<AtomicBool>,
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.held.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Held {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

struct Holds(Mutex<Option<Held>>);

impl Connector for Holds {
    fn connect<'a>(&'a self, _: &'a Address) -> Connecting<'a> {
        let io = self.0.lock().expect("not poisoned").take();
        Box::pin(async move { io.map(BoxedIo::new).ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }
}

/// A process that was stopped for a while finds the answer and the end of its patience at the same moment.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_counts_though_the_time_is_over() {
    let (client, server) = duplex(1 << 16);
    let held = Arc::new(AtomicBool::new(false));
    let connector = Holds(Mutex::new(Some(Held { io: client, held: Arc::clone(&held) })));
    let options = ConnectOptions {
        keepalive_interval: Some(Duration::from_secs(30)),
        keepalive_timeout: Duration::from_secs(5),
        keepalive_while_idle: true,
        ..ConnectOptions::default()
    };
    let address = anywhere();
    let server = async {
        let mut server = Raw::begin(server).await;
        server.write(SETTINGS, 0, 0, &[]).await;
        server
    };
    let (connection, mut server) =
        tokio::join!(proxyless_transport::connect(&connector, &address, &options), server);
    let connection: Connection<TestBody> = connection.expect("READY");
    let probe = server.read_kind(support::PING).await;
    held.store(true, Ordering::SeqCst);
    server.write(support::PING, support::ACK, 0, &probe.payload).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    held.store(false, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(6)).await;
    server.sync().await;
    assert!(connection.is_open());
}

/// The kernel of a peer whose process hangs goes on acknowledging that its window is closed.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a18_a_peer_that_stops_reading_is_given_up() {
    use support::{WINDOW_UPDATE, raw_with};

    let connector =
        proxyless_transport::TcpConnector::default().user_timeout(Some(Duration::from_millis(200)));
    // INITIAL_WINDOW_SIZE as large as can be, then the same for the connection.
    let window = (1_u32 << 31) - 1;
    let settings = [&4_u16.to_be_bytes()[..], &window.to_be_bytes()].concat();
    let (connection, mut server) = raw_with(&connector, &settings).await;
    server.write(WINDOW_UPDATE, 0, 0, &(window - 65_535).to_be_bytes()).await;
    server.sync().await;
    let (body, stream) = TestBody::open();
    let call = tokio::spawn(connection.send(request(stream)));
    // More than the buffers of both sides take, and nobody reads.
    body.send(Bytes::from(vec![0; 64 << 20])).expect("the call runs");
    let reason = tokio::time::timeout(Duration::from_secs(60), connection.closed()).await.expect("given up");
    assert!(reason.contains("timed out"), "{reason}");
    assert!(call.await.expect("no panic").is_err());
    drop(server);
}
