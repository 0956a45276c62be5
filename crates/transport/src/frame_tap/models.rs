//! Loom models of the tap and the callers of its connection.

use std::sync::LazyLock;
use std::task::Waker;

use proxyless_sans_io::sync::loom::sync::{Mutex, Notify};
use proxyless_sans_io::sync::loom::thread;
use proxyless_sans_io::sync::{Step, check};

use super::*;
use crate::error::SendError;
use crate::options::ConnectOptions;
use crate::state::LocalEnd;
use crate::stream_permit::StreamPermit;

/// The preface, and the HEADERS of stream 1.
const REQUEST: usize = 24 + 9 + 2;

fn request() -> Vec<u8> {
    [&[0; 24][..], &[0, 0, 2, 1, 4, 0, 0, 0, 1, 0x88, 0x88]].concat()
}

/// The socket's reaction to the next write.
#[derive(Clone, Copy)]
enum Taking {
    /// Takes so many bytes.
    Some(usize),
    /// Sends all of it, and fails all the same: one that encrypts may.
    AllAndFails,
}

/// An event at the socket.
#[derive(Default)]
struct Seen {
    bytes: usize,
    failed: bool,
}

/// A socket. The bytes visible to the server are counted under loom's lock: exact, and part of loom's state space.
struct Socket {
    takes: std::vec::IntoIter<Taking>,
    seen: Arc<Mutex<Seen>>,
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let takes = self.takes.next().unwrap_or(Taking::Some(usize::MAX));
        let sent = match takes {
            Taking::Some(most) => most.min(buf.len()),
            Taking::AllAndFails => buf.len(),
        };
        let mut seen = self.seen.lock().unwrap();
        seen.bytes += sent;
        seen.failed |= !matches!(takes, Taking::Some(_));
        Poll::Ready(if seen.failed { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(sent) })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

/// The error that h2 gives the streams of a connection whose socket fails.
static IO_ERROR: LazyLock<h2::Error> = LazyLock::new(|| {
    let broken = broken_io();
    let mut context = Context::from_waker(Waker::noop());
    let mut handshake = Box::pin(h2::client::handshake(broken));
    let Poll::Ready(result) = handshake.as_mut().poll(&mut context) else { panic!("the handshake waits") };
    let error = match result {
        Ok((_sender, mut connection)) => match Pin::new(&mut connection).poll(&mut context) {
            Poll::Ready(Err(error)) => error,
            other => panic!("the connection does not fail: {other:?}"),
        },
        Err(error) => error,
    };
    assert!(error.is_io());
    error
});

/// A socket whose every use fails.
fn broken_io() -> impl AsyncRead + AsyncWrite + Unpin {
    let (near, far) = tokio::io::duplex(1);
    drop(far);
    near
}

/// The relevant part of h2's stream: its lock, under which the stream fails once; nothing is written after that.
struct Stream {
    failed: Mutex<bool>,
    waiter: Notify,
}

impl Stream {
    fn fail(&self) {
        *self.failed.lock().unwrap() = true;
        self.waiter.notify();
    }

    fn wait(&self) {
        while !*self.failed.lock().unwrap() {
            self.waiter.wait();
        }
    }
}

/// A request is unsent, or it was sent: unsent only if the server cannot have seen its head, and sent only if it can,
/// or if a write failed and the outcome is unknown. The permit is released in all cases.
fn exactly_one_of_sent_and_unsent(takes: &'static [Taking]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _in_runtime = runtime.enter();
    LazyLock::force(&IO_ERROR);
    check(3, move || {
        let (shared, seen) = (Arc::new(Shared::new(&ConnectOptions::default())), Arc::default());
        let io = Socket { takes: takes.to_vec().into_iter(), seen: Arc::clone(&seen) };
        let mut tap = FrameTap::new(BoxedIo::new(io), Arc::clone(&shared));
        let (stream, aborted) = (
            Arc::new(Stream { failed: Mutex::new(false), waiter: Notify::new() }),
            Arc::new(Step::default()),
        );
        let connection = {
            let (shared, stream, aborted) = (Arc::clone(&shared), Arc::clone(&stream), Arc::clone(&aborted));
            thread::spawn(move || {
                let (request, mut written) = (request(), 0);
                let mut context = Context::from_waker(Waker::noop());
                // An aborted task stops between two polls.
                while written < request.len() {
                    aborted.take();
                    if shared.is_ending() {
                        break;
                    }
                    match Pin::new(&mut tap).poll_write(&mut context, &request[written..]) {
                        Poll::Ready(Ok(more)) => written += more,
                        other => panic!("{other:?}"),
                    }
                }
                // Then its streams end, and the socket goes.
                stream.fail();
                drop(tap);
            })
        };
        let aborting = {
            let (shared, aborted) = (Arc::clone(&shared), Arc::clone(&aborted));
            thread::spawn(move || {
                aborted.take();
                shared.on_local_end(LocalEnd::Abort);
            })
        };
        let call = {
            let mut context = Context::from_waker(Waker::noop());
            let permit = Box::pin(StreamPermit::take(Arc::clone(&shared))).as_mut().poll(&mut context);
            permit.map(|permit| {
                let Ok(mut permit) = permit else { return };
                permit.begin(1);
                stream.wait();
                let error = SendError::<()>::of_stream(&IO_ERROR, 1, &shared);
                permit.end();
                let unsent = matches!(error, SendError::Unsent { .. });
                let Seen { bytes, failed } = *seen.lock().unwrap();
                let seen = bytes >= REQUEST;
                assert!(if failed { !(unsent && seen) } else { unsent != seen }, "{error:?}");
            })
        };
        assert!(call.is_ready());
        connection.join().unwrap();
        aborting.join().unwrap();
        assert_eq!(shared.quota.in_use(), 0);
    });
}

#[test]
fn a_request_whose_socket_takes_it_in_pieces_is_sent_or_unsent() {
    exactly_one_of_sent_and_unsent(&[Taking::Some(30), Taking::Some(4), Taking::Some(1)]);
}

#[test]
fn a_request_that_may_have_left_before_the_failure_is_sent() {
    exactly_one_of_sent_and_unsent(&[Taking::Some(30), Taking::AllAndFails]);
}
