//! Tests of the tap on the frames.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::options::ConnectOptions;
use crate::state::{Lost, State};

const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const GO_AWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0];
const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

fn tap() -> (FrameTap, DuplexStream, Arc<Shared>) {
    let (client, server) = duplex(1024);
    let shared = Arc::new(Shared::new(&ConnectOptions::default()));
    let tap = FrameTap::new(BoxedIo::new(client), Arc::clone(&shared));
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
    assert_eq!(shared.state(), State::Lost(Lost::Closed(reason)));
}

#[tokio::test]
async fn streams_that_the_socket_has_taken_are_known() {
    let (mut tap, mut server, shared) = tap();
    let headers = [0, 0, 2, 1, 4, 0, 0, 0, 5, 0x88, 0x88];
    tap.write_all(&[0; 24]).await.expect("written");
    tap.write_all(&headers[..10]).await.expect("written");
    assert_eq!(shared.last_written(), 0);
    let rest = [io::IoSlice::new(&headers[10..]), io::IoSlice::new(&PING)];
    assert_eq!(tap.write_vectored(&rest).await.expect("written"), 18);
    assert_eq!(shared.last_written(), 5);
    server.read_exact(&mut [0; 24 + 11 + 17]).await.expect("everything");
    // Trailers of an earlier one.
    tap.write_all(&[0, 0, 1, 1, 5, 0, 0, 0, 3, 0x88]).await.expect("written");
    assert_eq!(shared.last_written(), 5);
}

#[tokio::test]
async fn with_many_streams_others_may_add_to_a_write() {
    #[derive(Default)]
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (mut tap, _server, shared) = tap();
    let woken = Arc::new(Woken::default());
    let waker = Arc::clone(&woken).into();
    let mut cx = Context::from_waker(&waker);
    for _ in 1..BUSY {
        assert!(shared.quota.try_acquire());
    }
    assert!(Pin::new(&mut tap).poll_write(&mut cx, &PING).is_ready());
    assert!(Pin::new(&mut tap).poll_flush(&mut cx).is_ready());
    assert!(shared.quota.try_acquire());
    for _ in 0..2 {
        assert!(Pin::new(&mut tap).poll_write(&mut cx, &PING).is_pending());
        assert!(woken.0.swap(false, Ordering::SeqCst), "it must come back by itself");
        assert!(Pin::new(&mut tap).poll_write(&mut cx, &PING).is_ready());
        assert!(Pin::new(&mut tap).poll_write(&mut cx, &PING).is_ready());
        assert!(Pin::new(&mut tap).poll_flush(&mut cx).is_ready());
    }
}

#[tokio::test]
async fn a_connection_ends_before_its_stream_ids_do() {
    let (mut tap, mut server, shared) = tap();
    server.write_all(&SETTINGS).await.expect("written");
    assert_eq!(read(&mut tap).await, SETTINGS);
    tap.write_all(&[0; 24]).await.expect("written");
    tap.write_all(&[0, 0, 0, 1, 4, 0x7f, 0xef, 0xff, 0xff]).await.expect("written");
    assert!(shared.is_open());
    tap.write_all(&[0, 0, 0, 1, 4, 0x7f, 0xf0, 0, 1]).await.expect("written");
    let reason = "the connection has used up its stream ids".to_owned();
    assert_eq!(shared.state(), State::Lost(Lost::GoAway(reason)));
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
    let shared = Arc::new(Shared::new(&ConnectOptions::default()));
    let mut tap = FrameTap::new(BoxedIo::new(HalfDead), shared);
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

/// A server that has answered and hung up before it was written to.
struct HungUp(&'static [u8]);

impl AsyncRead for HungUp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buf.put_slice(std::mem::take(&mut self.0));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HungUp {
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

#[tokio::test]
async fn a_failed_write_does_not_hide_earlier_data_from_the_server() {
    for (said, cause) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "the server answered with HTTP/1"),
        (b"", "the server closed the connection before it sent anything (does it expect TLS?)"),
    ] {
        let shared = Arc::new(Shared::new(&ConnectOptions::default()));
        let mut tap = FrameTap::new(BoxedIo::new(HungUp(said)), Arc::clone(&shared));
        tap.write_all(b"x").await.expect("found out by reading");
        let mut bytes = Vec::new();
        tap.read_to_end(&mut bytes).await.expect("an end");
        assert_eq!(shared.state(), State::Lost(Lost::Closed(cause.into())));
    }
}

#[tokio::test]
async fn too_many_interim_responses_end_the_connection() {
    let (mut tap, mut server, shared) = tap();
    let interim = [0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88];
    let flood = tokio::spawn(async move {
        server.write_all(&SETTINGS).await?;
        while server.write_all(&interim).await.is_ok() {}
        Ok::<_, io::Error>(())
    });
    let mut bytes = Vec::new();
    let error = tap.read_to_end(&mut bytes).await.expect_err("too many");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let reason = "the server sent more than 256 interim responses to a request".to_owned();
    assert_eq!(shared.state(), State::Lost(Lost::Closed(reason)));
    drop(tap);
    flood.await.expect("no panic").expect("written");
}
