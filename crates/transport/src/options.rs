//! How to connect.

use std::time::Duration;

use crate::tasks::Tasks;

/// How to connect. The default suits the data plane: no keepalive, windows for long fat networks.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// From the first packet to the server's SETTINGS.
    pub connect_timeout: Duration,
    /// How long a connection is quiet before a PING probes it. `None`: never.
    pub keepalive_interval: Option<Duration>,
    /// How long a PING may stay unanswered before the connection counts as dead.
    pub keepalive_timeout: Duration,
    /// Whether to probe also while no stream is open. Many servers punish that.
    pub keepalive_while_idle: bool,
    /// How long the socket may take nothing while there is something to write before the connection counts as dead;
    /// 20 seconds by default. `None`: for ever. The peer of such a connection hangs, or does not read.
    pub write_timeout: Option<Duration>,
    /// How many bytes of one response may be in flight or unread.
    pub initial_stream_window: u32,
    /// How many bytes of all responses may be in flight or unread; it grows with the number of open streams to what their
    /// windows add up to (2 GiB at most), so that responses that nobody reads do not hold up others.
    pub initial_connection_window: u32,
    /// How many frames for streams that are over already the server may send in the life of the connection before it is
    /// closed with ENHANCE_YOUR_CALM; 1,048,576 by default. Each one makes this side queue a RST_STREAM (RUSTSEC-2024-0003).
    /// Honest servers send some too: what is on its way when a deadline cancels a stream counts, unless it arrives soon.
    pub max_late_frames: usize,
    /// How much overhead unread DATA frames may have, at 256 bytes less its length for each, before the connection is
    /// closed with ENHANCE_YOUR_CALM: each takes about half a kilobyte, however short it is. `None`: as much as sixteen
    /// readers have that pause while their windows are full of the smallest messages.
    pub max_unread_overhead: Option<usize>,
    /// The largest header block accepted from the server.
    pub max_header_list_size: u32,
    /// Where the connection's tasks are counted. Clones share the count.
    pub tasks: Tasks,
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
            initial_connection_window: 16 << 20,
            max_late_frames: 1 << 20,
            max_unread_overhead: None,
            max_header_list_size: 16 << 10,
            tasks: Tasks::default(),
        }
    }
}

impl ConnectOptions {
    /// How many bytes of overhead h2 may spend on unread DATA frames, at 256 bytes less its length for each, before it
    /// closes the connection. A paused reader must not get there: its window may be full of the smallest gRPC messages,
    /// of five bytes and one frame each. There is room for sixteen such readers; with the default stream window that
    /// is about 0.8 GiB.
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
