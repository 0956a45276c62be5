//! The task of a connection: the only one that touches its socket.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use tracing::debug;

use crate::disconnect::Disconnect;
use crate::frame_tap::FrameTap;
use crate::keepalive::Keepalive;
use crate::options::ConnectOptions;
use crate::panics;
use crate::state::Shared;
use crate::targets;

/// Runs a connection to its end, and records the cause.
pub(crate) fn run(
    mut http2: h2::client::Connection<FrameTap, Bytes>,
    options: &ConnectOptions,
    shared: Arc<Shared>,
) -> impl Future<Output = ()> + Send + 'static {
    let keepalive = Keepalive::new(options, http2.ping_pong());
    let window = ConnectionWindow(options.initial_connection_window);
    shared.receive_window.on_settings_sent();
    let overdue = Box::pin(overdue(Arc::clone(&shared)));
    let driver = Driver { http2, keepalive, window, overdue, watched: false, shared: Arc::clone(&shared) };
    // Here, so that the task has the pointer only.
    let driver = panics::catch(driver);
    let shared = CloseOnDrop(shared);
    async move {
        let CloseOnDrop(shared) = &shared;
        // The socket is dropped with the driver.
        match driver.await {
            Ok(result) => shared.on_end(result),
            Err(panicked) => {
                let what = format!("the task of the connection panicked: {panicked}");
                shared.on_io_end(what, Disconnect::Unknown);
            }
        }
        debug!(target: targets::SUBCHANNEL, state = ?shared.state(), "connection closed");
    }
}

struct Driver {
    http2: h2::client::Connection<FrameTap, Bytes>,
    keepalive: Option<Keepalive>,
    window: ConnectionWindow,
    /// Wakes this task when the connection starts to end: h2 does not while it waits for the socket.
    overdue: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// [`Self::overdue`] has been polled, and has our waker.
    watched: bool,
    shared: Arc<Shared>,
}

/// The time for which an ending connection may continue after the last of its callers has gone.
const LONGEST_CLOSE: Duration = Duration::from_secs(5);

/// Completes when the connection takes too long to end: no caller has a stream, but h2 has data to write that a hung
/// peer does not read.
async fn overdue(shared: Arc<Shared>) {
    shared.left_open().await;
    loop {
        sleep(LONGEST_CLOSE).await;
        if shared.quota.in_use() == 0 {
            return;
        }
    }
}

/// The receive window of the connection.
struct ConnectionWindow(u32);

impl ConnectionWindow {
    /// The new window of the connection, if it must grow so that every open stream has its own: unread responses must
    /// not keep the server from sending others.
    fn grown(&mut self, stream: u32, streams: usize) -> Option<u32> {
        /// RFC 9113, section 6.9.1.
        const MOST: u32 = (1 << 31) - 1;
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        let needed = stream.saturating_mul(streams);
        if needed <= self.0 {
            return None;
        }
        // Doubled each time, so that it rarely happens.
        let next = needed.checked_next_power_of_two().unwrap_or(MOST).min(MOST);
        (next > self.0).then(|| {
            self.0 = next;
            next
        })
    }
}

impl Future for Driver {
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Before h2 announces new streams to the server.
        let window = &this.shared.receive_window;
        if let Some(size) = this.window.grown(window.size(), this.shared.quota.in_use()) {
            this.http2.set_target_window_size(size);
        }
        if let Some(size) = window.growth()
            && this.http2.set_initial_window_size(size).is_ok()
        {
            window.on_announced(size);
        }
        let polled = Pin::new(&mut this.http2).poll(cx);
        this.shared.quota.on_all_written();
        // Here, where h2 is not running, and not where the tap sees the end.
        this.shared.release_sender_if_ending();
        // After h2, so that a received answer is processed. A PING sent here wakes the connection.
        if polled.is_pending()
            && let Some(keepalive) = &mut this.keepalive
            && let Poll::Ready(cause) = keepalive.poll(cx, &this.shared)
        {
            this.shared.on_io_end(cause, Disconnect::TimedOut);
            return Poll::Ready(Ok(()));
        }
        if polled.is_pending()
            && (this.shared.is_ending() || !std::mem::replace(&mut this.watched, true))
            && this.overdue.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Ok(()));
        }
        polled
    }
}

/// Closes the connection even if the task is dropped unfinished: it was aborted, or its runtime ended.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
        self.0.release_sender_if_ending();
    }
}
