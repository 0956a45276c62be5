use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::state::ConnectionState;

const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const GO_AWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0];
const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

fn tap() -> (FrameTap, DuplexStream, Arc<Shared>) {
    let (client, server) = duplex(1024);
    let shared = Arc::new(Shared::new(None));
    let tap = FrameTap::new(BoxedIo::new(client), Arc::clone(&shared), oneshot::channel().0);
    (tap, server, shared)
}

async fn read(tap: &mut FrameTap) -> Vec<u8> {
    let mut bytes = Vec::new();
    tap.read_buf(&mut bytes).await.expect("no error");
    bytes
}

#[tokio::test]
async fn bytes_pass_unchanged_and_are_understood() {
    let (mut tap, mut server, shared) = tap();
    server.write_all(&[&SETTINGS[..], &GO_AWAY, &PING].concat()).await.expect("written");
    drop(server);
    let mut bytes = Vec::new();
    tap.read_to_end(&mut bytes).await.expect("no error");
    assert_eq!(bytes, [&SETTINGS[..], &GO_AWAY, &PING].concat());
    let reason = "the server closed the connection after GOAWAY with NO_ERROR".to_owned();
    assert_eq!(shared.state(), Some(ConnectionState::Closed { reason }));
}

#[tokio::test]
async fn a_goaway_waits_for_requests_that_are_being_dispatched() {
    let (mut tap, mut server, shared) = tap();
    assert!(shared.dispatch.enter());
    server.write_all(&[&SETTINGS[..], &GO_AWAY, &PING].concat()).await.expect("written");
    // All but the last byte, so that h2 cannot act on it; but we know.
    assert_eq!(read(&mut tap).await, [&SETTINGS[..], &GO_AWAY[..16]].concat());
    assert!(matches!(shared.state(), Some(ConnectionState::GoingAway { .. })));
    let mut rest = Box::pin(read(&mut tap));
    assert!(futures_pending(&mut rest).await);
    shared.dispatch.leave();
    assert_eq!(rest.await, [&GO_AWAY[16..], &PING].concat());
    server.write_all(&PING).await.expect("written");
    assert_eq!(read(&mut tap).await, PING);
}

#[tokio::test]
async fn held_bytes_are_not_taken_for_the_end() {
    let (mut tap, mut server, shared) = tap();
    server.write_all(&[&SETTINGS[..], &GO_AWAY[..16]].concat()).await.expect("written");
    assert_eq!(read(&mut tap).await.len(), 25);
    assert!(shared.dispatch.enter());
    server.write_all(&GO_AWAY[16..]).await.expect("written");
    let mut rest = Box::pin(read(&mut tap));
    assert!(futures_pending(&mut rest).await);
    shared.dispatch.leave();
    assert_eq!(rest.await, &GO_AWAY[16..]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_held_for_ever() {
    let (mut tap, mut server, shared) = tap();
    assert!(shared.dispatch.enter());
    server.write_all(&[&SETTINGS[..], &GO_AWAY].concat()).await.expect("written");
    assert_eq!(read(&mut tap).await.len(), 25);
    let before = tokio::time::Instant::now();
    assert_eq!(read(&mut tap).await, &GO_AWAY[16..]);
    assert!(before.elapsed() >= LONGEST_HOLD);
}

/// A socket that can no longer be written and whose read side never says a word about it.
struct HalfDead;

impl AsyncRead for HalfDead {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for HalfDead {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_ends_the_connection_even_if_nothing_more_can_be_read() {
    let shared = Arc::new(Shared::new(None));
    let mut tap = FrameTap::new(BoxedIo::new(HalfDead), shared, oneshot::channel().0);
    // As h2 does: reads until there is nothing more, writes once, and waits to be woken.
    let mut written = false;
    let end = std::future::poll_fn(|cx| {
        let mut buf = [0; 16];
        let read = Pin::new(&mut tap).poll_read(cx, &mut ReadBuf::new(&mut buf));
        if read.is_pending() && !std::mem::replace(&mut written, true) {
            assert!(matches!(Pin::new(&mut tap).poll_write(cx, b"x"), Poll::Ready(Ok(1))));
        }
        read
    });
    let before = tokio::time::Instant::now();
    let end = tokio::time::timeout(LONGEST_DRAIN * 10, end).await.expect("an end");
    assert_eq!(end.expect_err("a dead socket").kind(), io::ErrorKind::BrokenPipe);
    assert!(before.elapsed() < LONGEST_DRAIN * 2, "only something else woke it");
}

/// Whether the future waits, after it has had its chance.
async fn futures_pending<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}
