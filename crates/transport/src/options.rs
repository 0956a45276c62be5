//! Connection options.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::line::StreamQueue;

/// Connection options. The defaults suit the data plane: no keepalive, windows for long fat networks.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The time limit from the first packet to the server's SETTINGS.
    pub connect_timeout: Duration,
    /// The time without data after which a PING is sent. `None`: never.
    pub keepalive_interval: Option<Duration>,
    /// The time after which a connection with an unanswered PING counts as dead.
    pub keepalive_timeout: Duration,
    /// Whether to send PINGs while no stream is open. Many servers punish that.
    pub keepalive_while_idle: bool,
    /// The time after which a connection counts as dead if the socket accepts no writes while there is data to send;
    /// 20 seconds by default. `None`: unlimited. The peer of such a connection hangs, or does not read.
    pub write_timeout: Option<Duration>,
    /// The number of bytes of one response that may be in flight or unread, at first.
    pub initial_stream_window: u32,
    /// The number up to which that grows while a connection's round-trip time and a reader that keeps up need it.
    pub max_stream_window: u32,
    /// The maximum number of bytes of all responses in flight or unread. It grows with the number of open streams to
    /// the sum of their windows (at most 2 GiB), so that unread responses do not block others.
    pub initial_connection_window: u32,
    /// The largest frame that the server may send; 128 KiB by default, where HTTP/2 begins with 16 KiB. A server passes each
    /// frame to its socket by itself, and each is read by itself, so large frames make large messages cheaper on both sides.
    pub max_frame_size: u32,
    /// The maximum number of frames that the server may send for closed streams during the connection's lifetime before
    /// it is closed with ENHANCE_YOUR_CALM; 1,048,576 by default. Each one makes this side queue a RST_STREAM
    /// (RUSTSEC-2024-0003). Well-behaved servers send some too: frames in flight when a deadline cancels a stream,
    /// unless they arrive soon.
    pub max_late_frames: usize,
    /// How much overhead unread DATA frames may have, at 256 bytes less its length for each, before the connection is
    /// closed with ENHANCE_YOUR_CALM: each takes about half a kilobyte, however short it is. `None`: as much as sixteen
    /// readers have that pause while their initial windows are full of the smallest messages.
    pub max_unread_overhead: Option<usize>,
    /// The maximum size of a header block from the server.
    pub max_header_list_size: u32,
    /// Tracks the connection's tasks. Clones share it.
    pub tasks: TaskTracker,
    /// The queue of requests that wait for a stream, to be shared with other connections to the same server. `None`: a
    /// queue of its own.
    pub queue: Option<StreamQueue>,
    /// A value of the user, for [`ReservedStream::tag`](crate::ReservedStream::tag).
    pub tag: Option<Arc<dyn Any + Send + Sync>>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(20),
            keepalive_interval: None,
            keepalive_timeout: Duration::from_secs(20),
            keepalive_while_idle: false,
            write_timeout: Some(Duration::from_secs(20)),
            initial_stream_window: 1 << 20,
            max_stream_window: 16 << 20,
            initial_connection_window: 16 << 20,
            max_frame_size: 128 << 10,
            max_late_frames: 1 << 20,
            max_unread_overhead: None,
            max_header_list_size: 16 << 10,
            tasks: TaskTracker::default(),
            queue: None,
            tag: None,
        }
    }
}

impl ConnectOptions {
    /// The overhead that h2 tolerates for unread DATA frames, at 256 bytes minus its length for each, before it closes
    /// the connection. A paused reader must not reach it: its window may be full of the smallest gRPC messages, of five
    /// bytes and one frame each. Allows for sixteen such readers; with the default stream window that is about 0.8 GiB.
    pub(crate) fn data_frame_budget(&self) -> usize {
        if let Some(overhead) = self.max_unread_overhead {
            return overhead;
        }
        const OVERHEAD: usize = 256;
        const SMALLEST_MESSAGE: usize = 5;
        const READERS: usize = 16;
        let window = usize::try_from(self.initial_stream_window).unwrap_or(usize::MAX);
        (window / SMALLEST_MESSAGE).saturating_mul(OVERHEAD * READERS)
    }
}
