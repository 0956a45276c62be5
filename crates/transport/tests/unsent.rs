//! Which requests of a lost connection a server can have seen.

mod support;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use proxyless_transport::{Address, BoxedIo, Connecting, Connection, Connector, SendError};
use support::{END_STREAM, Gate, HEADERS, Raw, TestBody, finished, ping, poll_once, raw_with};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// A connection with one stream on the wire, whose socket will take `budget` bytes more.
async fn one_on_the_wire(
    budget: usize,
) -> (
    Connection<TestBody>,
    Raw<TcpStream>,
    u32,
    tokio::task::JoinHandle<Result<http::Response<proxyless_transport::Body>, SendError<TestBody>>>,
) {
    let gate = Gate::open();
    let (connection, mut server) = raw_with::<TestBody>(&gate, &[]).await;
    let first = tokio::spawn(connection.send(ping()));
    let stream = server.next_request().await;
    // Everything of the first is on the wire.
    server.sync().await;
    gate.budget.store(budget, Ordering::SeqCst);
    (connection, server, stream, first)
}

#[tokio::test]
async fn requests_that_did_not_leave_whole_are_unsent_when_the_connection_dies() {
    // Nothing of the second request, and a part of its headers.
    for budget in [0, 5, 12] {
        let (connection, server, _, first) = one_on_the_wire(budget).await;
        let mut second = Box::pin(connection.send(ping()));
        assert!(poll_once(second.as_mut()).is_pending());
        let mut third = Box::pin(connection.send(ping()));
        assert!(poll_once(third.as_mut()).is_pending());
        drop(server);
        for unsent in [second.await, third.await] {
            let error = unsent.expect_err("the connection is lost");
            assert!(matches!(error, SendError::Unsent { request: None, .. }), "{budget} bytes: {error:?}");
        }
        let error = first.await.expect("no panic").expect_err("lost");
        assert!(matches!(error, SendError::Failed { reset: None, .. }), "{error:?}");
        assert!(matches!(connection.send(ping()).await, Err(SendError::Unsent { request: Some(_), .. })));
        finished(connection.tasks()).await;
    }
}

#[tokio::test]
async fn requests_whose_headers_left_have_failed_when_the_connection_dies() {
    let (connection, mut server, _, first) = one_on_the_wire(usize::MAX).await;
    let second = tokio::spawn(connection.send(ping()));
    server.next_request().await;
    drop(server);
    for sent in [first, second] {
        let error = sent.await.expect("no panic").expect_err("lost");
        assert!(matches!(error, SendError::Failed { reset: None, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn requests_that_did_not_leave_before_a_goaway_are_unsent_and_not_refused() {
    let (connection, mut server, stream, first) = one_on_the_wire(0).await;
    let mut second = Box::pin(connection.send(ping()));
    assert!(poll_once(second.as_mut()).is_pending());
    server.go_away(stream, 0, b"").await;
    let error = second.await.expect_err("no stream for it");
    assert!(matches!(error, SendError::Unsent { request: None, .. }), "{error:?}");
    // The one before goes on.
    server.respond(stream, END_STREAM).await;
    first.await.expect("no panic").expect("a response");
}

/// h2 may have begun to write it, and finishes that before it closes.
#[tokio::test]
async fn requests_of_a_connection_that_this_side_gives_up_have_failed() {
    let (connection, mut server, _, _first) = one_on_the_wire(0).await;
    let mut second = Box::pin(connection.send(ping()));
    assert!(poll_once(second.as_mut()).is_pending());
    // DATA on no stream breaks HTTP/2.
    server.write(support::DATA, 0, 0, b"nonsense").await;
    let error = second.await.expect_err("the connection is over");
    assert!(matches!(error, SendError::Failed { reset: None, .. }), "{error:?}");
}

/// Like TLS: the bytes it was given have been sent, and then it fails for a different reason.
struct FailsLate {
    io: TcpStream,
    fails: Arc<AtomicBool>,
}

impl AsyncRead for FailsLate {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for FailsLate {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, buf))?;
        let fails = self.fails.load(Ordering::SeqCst);
        Poll::Ready(if fails { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(written) })
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

struct ConnectsLate(Arc<AtomicBool>);

impl Connector for ConnectsLate {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            let Address::Tcp(address) = address else { return Err(io::ErrorKind::Unsupported.into()) };
            let io = TcpStream::connect(address).await?;
            Ok(BoxedIo::new(FailsLate { io, fails: Arc::clone(&self.0) }))
        })
    }
}

#[tokio::test]
async fn requests_in_a_write_that_failed_are_not_taken_for_unsent() {
    let fails = Arc::new(AtomicBool::new(false));
    let (connection, mut server) = raw_with::<TestBody>(&ConnectsLate(Arc::clone(&fails)), &[]).await;
    server.sync().await;
    fails.store(true, Ordering::SeqCst);
    let sent = tokio::spawn(connection.send(ping()));
    // The server has it.
    server.next_request().await;
    drop(server);
    let error = sent.await.expect("no panic").expect_err("lost");
    assert!(matches!(error, SendError::Failed { reset: None, .. }), "{error:?}");
}

/// A reset of a stream that the server cannot have seen does not make it safe to resend the request repeatedly.
#[tokio::test]
async fn a_reset_of_a_request_that_did_not_leave_is_a_failure() {
    let (connection, mut server, stream, _first) = one_on_the_wire(0).await;
    let mut second = Box::pin(connection.send(ping()));
    assert!(poll_once(second.as_mut()).is_pending());
    server.reset(stream + 2, 8).await;
    let error = second.await.expect_err("reset");
    assert!(matches!(error, SendError::Failed { reset: Some(8), .. }), "{error:?}");
}

/// At every position of the cut, and for both sides that end the connection: the server never gets an unsent request,
/// not even from the buffers of h2.
#[tokio::test]
async fn unsent_requests_never_arrive() {
    for budget in 0..120 {
        for server_ends in [true, false] {
            let gate = Gate::open();
            let (connection, mut server) = raw_with::<TestBody>(&gate, &[]).await;
            server.sync().await;
            gate.budget.store(budget, Ordering::SeqCst);
            let sent: Vec<_> = (0..3).map(|_| tokio::spawn(connection.send(ping()))).collect();
            // The connection's task comes to where the socket takes no more.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            assert_eq!(connection.streams(), 3);
            // From here on it would take all.
            gate.budget.store(usize::MAX, Ordering::SeqCst);
            if server_ends {
                server.0.shutdown().await.expect("still connected");
            } else {
                connection.abort();
            }
            let mut unsent = Vec::new();
            for (stream, sent) in [1, 3, 5].into_iter().zip(sent) {
                match sent.await.expect("no panic").expect_err("lost") {
                    SendError::Unsent { .. } => unsent.push(stream),
                    SendError::Failed { reset: None, .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            finished(connection.tasks()).await;
            while let Some(frame) = server.read().await {
                let arrived = frame.kind == HEADERS && unsent.contains(&frame.stream);
                assert!(!arrived, "{budget} bytes: {frame:?} of {unsent:?}");
            }
            assert!(budget > 0 || unsent == [1, 3, 5], "{unsent:?}");
        }
    }
}
