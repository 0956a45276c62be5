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
    /// How many bytes of one response may be in flight or unread.
    pub initial_stream_window: u32,
    /// How many bytes of all responses may be in flight or unread.
    pub initial_connection_window: u32,
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
            initial_stream_window: 1 << 20,
            // h2 ends a connection on which more than half this many bytes of overhead (about 256 per tiny DATA
            // frame) are unread: a paused reader of small messages must not get there.
            initial_connection_window: 16 << 20,
            max_header_list_size: 16 << 10,
            tasks: Tasks::default(),
        }
    }
}
