//! The state of one connection, shared by its tap, its task, its user and its streams.

use std::any::Any;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use h2::client::SendRequest;
use proxyless_sans_io::sync::atomic::AtomicU32;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::disconnect::Disconnect;
use crate::error::why_given_up;
use crate::frame_parser::Settings;
use crate::go_away::GoAway;
use crate::options::ConnectOptions;
use crate::quota::Quota;
use crate::receive_window::ReceiveWindow;

/// The way in which a connection stopped taking new streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It takes no new streams, and open ones may finish. The text is the reason.
    GoAway(String),
    /// It is closed. The text is the reason.
    Closed(String),
}

/// The state of a connection. It only moves forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The server's SETTINGS have not arrived.
    Starting,
    /// Takes new streams.
    Open,
    Lost(Lost),
}

impl State {
    fn rank(&self) -> u8 {
        match self {
            Self::Starting => STARTING,
            Self::Open => OPEN,
            Self::Lost(Lost::GoAway(_)) => GOING_AWAY,
            Self::Lost(Lost::Closed(_)) => CLOSED,
        }
    }

    /// The reason why the connection was lost.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Starting | Self::Open => None,
            Self::Lost(Lost::GoAway(reason) | Lost::Closed(reason)) => Some(reason),
        }
    }
}

const STARTING: u8 = 0;
const OPEN: u8 = 1;
const GOING_AWAY: u8 = 2;
const CLOSED: u8 = 3;

/// The shared state.
pub(crate) struct Shared {
    pub(crate) quota: Quota<Self>,
    /// [`ConnectOptions::tag`].
    pub(crate) tag: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) tasks: TaskTracker,
    /// The runtime of the connection. Callers may use others.
    runtime: Handle,
    /// Emptied when no more requests may be sent: h2 closes a connection without senders and streams.
    sender: ArcSwapOption<SendRequest<Bytes>>,
    /// The rank of `state`, for frequent readers.
    rank: AtomicU8,
    state: watch::Sender<State>,
    facts: Mutex<Facts>,
    /// The last stream whose HEADERS the socket has taken.
    last_written: AtomicU32,
    last_read: Option<LastRead>,
    pub(crate) receive_window: ReceiveWindow,
    /// The number of bytes of a request that may be sent before the server extends the window.
    initial_send_window: AtomicU32,
    pub(crate) write_timeout: Option<Duration>,
    /// The limit for response headers, for errors.
    pub(crate) max_header_list_size: u32,
    /// The length on the wire of the largest header block so far, for errors.
    largest_block: AtomicUsize,
}

/// The time at which data last arrived, in nanoseconds since the beginning. Maintained only for keepalive.
struct LastRead {
    beginning: Instant,
    nanos: AtomicU64,
}

#[derive(Default)]
struct Facts {
    settings_seen: bool,
    go_away: Option<GoAway>,
    /// The first error of the socket.
    io_end: Option<String>,
    /// The error of a write; the cause of the end, unless reading finds a better one.
    write_failure: Option<String>,
    local: Option<LocalEnd>,
    /// The first reason for which the connection ends or takes no more streams (A94).
    disconnect: Option<Disconnect>,
}

/// The way in which this side ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalEnd {
    Graceful,
    Abort,
}

/// The stream id from which on a new connection is needed. The ids above are for streams already started.
const LAST_STREAM: u32 = (1 << 31) - (1 << 20);

impl Shared {
    pub(crate) fn new(options: &ConnectOptions) -> Self {
        let last_read = || LastRead { beginning: Instant::now(), nanos: AtomicU64::new(0) };
        Self {
            quota: Quota::new(options.queue.as_ref().map(|queue| Arc::clone(&queue.0)).unwrap_or_default()),
            tag: options.tag.clone(),
            tasks: options.tasks.clone(),
            runtime: Handle::current(),
            sender: ArcSwapOption::empty(),
            rank: AtomicU8::new(STARTING),
            state: watch::Sender::new(State::Starting),
            facts: Mutex::default(),
            last_written: AtomicU32::new(0),
            last_read: options.keepalive_interval.map(|_| last_read()),
            receive_window: ReceiveWindow::new(options.initial_stream_window, options.max_stream_window),
            // RFC 9113, section 6.9.2.
            initial_send_window: AtomicU32::new(65_535),
            write_timeout: options.write_timeout,
            max_header_list_size: options.max_header_list_size,
            largest_block: AtomicUsize::new(0),
        }
    }

    // Observations of the tap.

    pub(crate) fn on_read(&self) {
        if let Some(LastRead { beginning, nanos }) = &self.last_read {
            // Centuries fit. Orders no other memory.
            let now = u64::try_from(beginning.elapsed().as_nanos()).unwrap_or(u64::MAX);
            nanos.store(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn on_header_blocks(&self, largest: usize) {
        // The tap has seen a block before h2 judges it, which orders this.
        self.largest_block.store(largest, Ordering::Relaxed);
    }

    /// Whether the server has sent headers that may be larger than the limit. HPACK makes them smaller, but not by much
    /// where they are large: its table holds 4 KiB.
    pub(crate) fn has_seen_large_headers(&self) -> bool {
        const LEAST_RATIO: usize = 8;
        let limit = usize::try_from(self.max_header_list_size).unwrap_or(usize::MAX);
        self.largest_block.load(Ordering::Relaxed) >= limit / LEAST_RATIO
    }

    pub(crate) fn on_written(&self, stream: u32) {
        // A reader has learned of a stream's end through h2's lock, which was after this. Trailers are HEADERS too, of
        // a stream that may not be the last.
        self.last_written.fetch_max(stream, Ordering::Release);
        if stream >= LAST_STREAM {
            self.go_away_because("the connection has used up its stream ids".into());
        }
    }

    pub(crate) fn on_settings(&self, settings: Settings) {
        if let Some(limit) = settings.max_concurrent_streams {
            self.quota.set_limit(limit);
        }
        if let Some(window) = settings.initial_window_size {
            // Orders no other memory.
            self.initial_send_window.store(window, Ordering::Relaxed);
        }
        self.facts().settings_seen = true;
        self.advance(State::Open);
    }

    pub(crate) fn on_go_away(&self, go_away: GoAway) {
        {
            let mut facts = self.facts();
            facts.disconnect.get_or_insert(Disconnect::GoAway(go_away.code));
            facts.go_away = Some(go_away);
        }
        self.go_away_because(self.why_sent_away());
    }

    pub(crate) fn on_io_end(&self, what: String, disconnect: Disconnect) {
        {
            let mut facts = self.facts();
            facts.disconnect.get_or_insert(disconnect);
            facts.io_end.get_or_insert(what);
        }
        self.close();
    }

    /// A write failed. The connection takes no more requests, while data that the server sent before is still read.
    pub(crate) fn on_write_failed(&self, reason: String, disconnect: Disconnect) {
        {
            let mut facts = self.facts();
            facts.disconnect.get_or_insert(disconnect);
            facts.write_failure.get_or_insert_with(|| reason.clone());
        }
        self.go_away_because(reason);
    }

    // Actions of this side.

    pub(crate) fn on_local_end(&self, how: LocalEnd) {
        {
            let mut facts = self.facts();
            // An abort overrides a graceful end, never the reverse.
            if facts.local != Some(LocalEnd::Abort) {
                facts.local = Some(how);
            }
        }
        match how {
            LocalEnd::Graceful => self.go_away_because("the client is closing the connection".into()),
            LocalEnd::Abort => self.close(),
        }
    }

    /// Starts a task of the connection.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.tasks.spawn_on(task, &self.runtime).abort_handle()
    }

    /// From now on requests can be sent; those of an [`Opening`](crate::Opening) leave before SETTINGS arrive.
    pub(crate) fn set_sender(&self, sender: SendRequest<Bytes>) {
        self.sender.store(Some(Arc::new(sender)));
    }

    /// A sender for one request, to be dropped right after, since it keeps the connection from ending.
    ///
    /// A clone, because h2 forbids a sender that has just reached the server's limit to send again before it has
    /// waited. [`Quota`] enforces the limit; where it was just lowered, requests wait in h2.
    pub(crate) fn sender(&self) -> Option<SendRequest<Bytes>> {
        self.sender.load().as_deref().cloned()
    }

    /// Drops the sender if the connection takes no more requests.
    pub(crate) fn release_sender_if_ending(&self) {
        if self.is_ending() && self.sender.load().is_some() {
            self.sender.store(None);
        }
    }

    /// h2 takes no more requests.
    pub(crate) fn on_refused(&self, error: &h2::Error) {
        self.go_away_because(why_given_up(error, self.max_header_list_size));
    }

    /// The socket is closed. Sets the cause if there is none yet.
    pub(crate) fn on_end(&self, result: Result<(), h2::Error>) {
        if let Err(error) = result
            && !error.is_io()
            && self.known_cause().is_none()
        {
            let reason = why_given_up(&error, self.max_header_list_size);
            self.facts().io_end.get_or_insert(reason);
        }
        self.close();
    }

    // Queries of its users.

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Waits for SETTINGS. If the connection ended first, returns the reason.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        let state = self.wait_for(|state| *state != State::Starting).await;
        // A connection that was READY for a moment was READY, even if a GOAWAY or the end arrived with the SETTINGS.
        match state.reason() {
            Some(reason) if !self.facts().settings_seen => Err(reason.to_owned()),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.rank() == OPEN
    }

    /// Whether SETTINGS have not arrived yet, and may still.
    pub(crate) fn is_starting(&self) -> bool {
        self.rank() == STARTING
    }

    /// Whether the connection takes no more streams. (Before SETTINGS it is only starting.)
    pub(crate) fn is_ending(&self) -> bool {
        self.rank() > OPEN
    }

    fn rank(&self) -> u8 {
        // Only a hint: a request may still be refused.
        self.rank.load(Ordering::Relaxed)
    }

    /// The last stream whose HEADERS may have been sent.
    pub(crate) fn last_written(&self) -> u32 {
        self.last_written.load(Ordering::Acquire)
    }

    /// The number of bytes of a request that may be sent before the server extends the window.
    pub(crate) fn initial_send_window(&self) -> usize {
        usize::try_from(self.initial_send_window.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// The time at which data last arrived. Only known with keepalive.
    pub(crate) fn last_read(&self) -> Instant {
        match &self.last_read {
            Some(LastRead { beginning, nanos }) => {
                *beginning + Duration::from_nanos(nanos.load(Ordering::Relaxed))
            }
            None => Instant::now(),
        }
    }

    /// Waits for a matching state, and returns it.
    pub(crate) async fn wait_for(&self, fits: impl FnMut(&State) -> bool) -> State {
        let mut states = self.state.subscribe();
        // `self` owns the sender, so it is not dropped.
        states.wait_for(fits).await.map_or(State::Open, |state| state.clone())
    }

    /// Waits until the connection takes no new streams.
    pub(crate) async fn left_open(&self) -> Lost {
        match self.wait_for(|state| matches!(state, State::Lost(_))).await {
            State::Lost(lost) => lost,
            // Unreachable: the wait is for `Lost`.
            State::Starting | State::Open => Lost::Closed(self.why_lost()),
        }
    }

    pub(crate) fn go_away(&self) -> Option<GoAway> {
        self.facts().go_away.clone()
    }

    pub(crate) fn disconnect(&self) -> Disconnect {
        self.facts().disconnect.unwrap_or(Disconnect::Unknown)
    }

    /// The reason why no stream can be opened.
    pub(crate) fn refusal(&self) -> String {
        let reason = self.state.borrow().reason().map(str::to_owned);
        reason.unwrap_or_else(|| "the connection takes no more requests".into())
    }

    /// The reason why a stream is not served although its connection still exists.
    pub(crate) fn why_sent_away(&self) -> String {
        let go_away = self.go_away();
        // The tap has seen everything that h2 has.
        go_away.map_or_else(|| self.refusal(), |go_away| format!("the server sent {go_away}"))
    }

    /// The reason why a stream lost its connection.
    pub(crate) fn why_lost(&self) -> String {
        self.known_cause().unwrap_or_else(|| "the connection was closed".into())
    }

    /// The cause of the end, as far as tap and user know it.
    fn known_cause(&self) -> Option<String> {
        let facts = self.facts();
        if facts.local == Some(LocalEnd::Abort) {
            return Some("the client aborted the connection".into());
        }
        let go_away = facts.go_away.as_ref();
        match (facts.io_end.as_ref().or(facts.write_failure.as_ref()), go_away, facts.local) {
            (Some(io_end), Some(go_away), _) => Some(format!("{io_end} after {go_away}")),
            (Some(io_end), None, _) => Some(io_end.clone()),
            (None, Some(go_away), _) => Some(format!("the connection ended after {go_away}")),
            (None, None, Some(LocalEnd::Graceful)) => Some("the client closed the connection".into()),
            (None, None, _) => None,
        }
    }

    /// Closes the connection, whatever the cause.
    pub(crate) fn close(&self) {
        self.advance(State::Lost(Lost::Closed(self.why_lost())));
    }

    fn go_away_because(&self, reason: String) {
        self.advance(State::Lost(Lost::GoAway(reason)));
    }

    fn advance(&self, new: State) {
        let open = new == State::Open;
        self.state.send_if_modified(|state| {
            // Before SETTINGS there is nothing to go away from.
            let (before, after) = (state.rank(), new.rank());
            let moves = before < after && (before, after) != (STARTING, GOING_AWAY);
            if moves {
                self.rank.store(after, Ordering::Relaxed);
                *state = new;
            }
            moves
        });
        // After the state, so that rejected callers find the reason.
        if !open {
            self.quota.close(self);
        }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        // The facts are consistent whenever the lock is free, even if a holder panicked.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
