//! What is known about one connection, shared by its tap, its user and its streams.

use std::error::Error;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::dispatch::Dispatch;
use crate::error::chain;
use crate::go_away::GoAway;
use crate::quota::Quota;

/// Where a connection is in its life. It only moves forward.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// New streams are welcome.
    Open,
    /// No new streams; those that exist may finish.
    GoingAway {
        /// Why.
        reason: String,
    },
    /// The socket is gone, and all streams with it.
    Closed {
        /// Why.
        reason: String,
    },
}

/// How a connection stopped being usable for new streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It takes no new streams, and those that exist may finish. The text says why.
    GoAway(String),
    /// It is gone. The text says why.
    Closed(String),
}

impl ConnectionState {
    fn rank(&self) -> u8 {
        match self {
            Self::Open => 1,
            Self::GoingAway { .. } => 2,
            Self::Closed { .. } => 3,
        }
    }

    /// Why it is not open.
    fn reason(&self) -> Option<&str> {
        match self {
            Self::Open => None,
            Self::GoingAway { reason } | Self::Closed { reason } => Some(reason),
        }
    }
}

/// The shared knowledge.
pub(crate) struct Shared {
    pub(crate) quota: Quota,
    pub(crate) dispatch: Dispatch,
    /// `None` until the server's SETTINGS have arrived.
    state: watch::Sender<Option<ConnectionState>>,
    facts: Mutex<Facts>,
    /// `None` if no PINGs are sent.
    keepalive_timeout: Option<Duration>,
}

#[derive(Default)]
struct Facts {
    settings_seen: bool,
    go_away: Option<GoAway>,
    /// The first thing that went wrong with the socket.
    io_end: Option<String>,
    local: Option<LocalEnd>,
}

/// How this side ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalEnd {
    Graceful,
    Abort,
}

impl Shared {
    pub(crate) fn new(keepalive_timeout: Option<Duration>) -> Self {
        Self {
            quota: Quota::default(),
            dispatch: Dispatch::default(),
            state: watch::Sender::new(None),
            facts: Mutex::default(),
            keepalive_timeout,
        }
    }

    // What the tap sees.

    pub(crate) fn on_settings(&self, max_concurrent_streams: Option<u32>) {
        if let Some(limit) = max_concurrent_streams {
            self.quota.set_limit(limit);
        }
        self.facts().settings_seen = true;
        self.advance(ConnectionState::Open);
    }

    pub(crate) fn on_go_away(&self, go_away: GoAway) {
        let reason = format!("the server sent {go_away}");
        self.facts().go_away = Some(go_away);
        self.advance(ConnectionState::GoingAway { reason });
    }

    pub(crate) fn on_io_end(&self, what: String) {
        self.facts().io_end.get_or_insert(what);
        self.close();
    }

    // What this side does.

    pub(crate) fn on_local_end(&self, how: LocalEnd) {
        {
            let mut facts = self.facts();
            // An abort overrides a graceful end, never the other way round.
            if facts.local != Some(LocalEnd::Abort) {
                facts.local = Some(how);
            }
        }
        match how {
            LocalEnd::Graceful => {
                self.advance(ConnectionState::GoingAway {
                    reason: "the client is closing the connection".into(),
                });
            }
            LocalEnd::Abort => self.close(),
        }
    }

    /// hyper takes no more requests.
    pub(crate) fn on_dispatch_end(&self, result: &Result<(), hyper::Error>) {
        let reason = match result {
            Err(error) if !is_broken_pipe(error) => format!("the connection failed: {}", chain(error)),
            _ => "the connection is closing".into(),
        };
        self.advance(ConnectionState::GoingAway { reason });
    }

    /// The socket is gone. Names the cause if nothing did before.
    pub(crate) fn on_socket_gone(&self, result: &Result<(), hyper::Error>) {
        if self.known_cause().is_none() {
            let cause = match result {
                Err(error) if !error.is_timeout() && !is_broken_pipe(error) => {
                    format!("the connection failed: {}", chain(error))
                }
                _ => self.unexplained_end(),
            };
            self.facts().io_end.get_or_insert(cause);
        }
        self.close();
    }

    // What its users ask.

    /// The state, `None` before SETTINGS.
    pub(crate) fn state(&self) -> Option<ConnectionState> {
        self.state.borrow().clone()
    }

    /// Waits for SETTINGS. If the connection ended first, says why.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        let state = self.wait_for(Option::is_some).await;
        // What was READY for a moment was READY, even if a GOAWAY or the end came along with the SETTINGS.
        match state.reason() {
            Some(reason) if !self.facts().settings_seen => Err(reason.to_owned()),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(*self.state.borrow(), Some(ConnectionState::Open))
    }

    /// Waits for a state that fits, and returns it.
    pub(crate) async fn wait_for(
        &self,
        fits: impl FnMut(&Option<ConnectionState>) -> bool,
    ) -> ConnectionState {
        let mut states = self.state.subscribe();
        // `self` owns the sender, so it is not gone; and `fits` is never true of `None`.
        let found = states.wait_for(fits).await.ok().and_then(|state| state.clone());
        found.unwrap_or(ConnectionState::Open)
    }

    pub(crate) fn go_away(&self) -> Option<GoAway> {
        self.facts().go_away.clone()
    }

    /// Why no stream can be opened.
    pub(crate) fn refusal(&self) -> String {
        let reason = self.state.borrow().as_ref().and_then(ConnectionState::reason).map(str::to_owned);
        reason.unwrap_or_else(|| "the connection takes no more requests".into())
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.facts().local == Some(LocalEnd::Abort)
    }

    /// Why a stream lost its connection, given what hyper said about it.
    pub(crate) fn why_lost(&self, error: &hyper::Error) -> String {
        if let Some(cause) = self.known_cause() {
            return cause;
        }
        if error.is_timeout() || is_broken_pipe(error) { self.unexplained_end() } else { chain(error) }
    }

    /// The cause of the end, as far as tap and user know.
    fn known_cause(&self) -> Option<String> {
        let facts = self.facts();
        if facts.local == Some(LocalEnd::Abort) {
            return Some("the client aborted the connection".into());
        }
        let go_away = facts.go_away.as_ref();
        match (&facts.io_end, go_away, facts.local) {
            (Some(io_end), Some(go_away), _) => Some(format!("{io_end} after {go_away}")),
            (Some(io_end), None, _) => Some(io_end.clone()),
            (None, Some(go_away), _) => Some(format!("the connection ended after {go_away}")),
            (None, None, Some(LocalEnd::Graceful)) => Some("the client closed the connection".into()),
            (None, None, _) => None,
        }
    }

    /// hyper drops a healthy socket only if a PING was not answered; it does not say so everywhere.
    fn unexplained_end(&self) -> String {
        match self.keepalive_timeout {
            Some(timeout) => format!("keepalive: no answer to a PING within {timeout:?}"),
            None => "the connection was closed".into(),
        }
    }

    /// The end, whatever its cause.
    pub(crate) fn close(&self) {
        let reason = self.known_cause().unwrap_or_else(|| self.unexplained_end());
        self.advance(ConnectionState::Closed { reason });
    }

    fn advance(&self, new: ConnectionState) {
        let open = new == ConnectionState::Open;
        self.state.send_if_modified(|state| {
            // Before SETTINGS there is nothing to go away from.
            let before = state.as_ref().map_or(0, ConnectionState::rank);
            let moves = before < new.rank() && (before, new.rank()) != (0, 2);
            if moves {
                *state = Some(new);
            }
            moves
        });
        // After the state, so that whoever is sent away finds the reason.
        if !open {
            self.quota.close();
            self.dispatch.close();
        }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        // Every holder leaves the facts complete, so a panic elsewhere does not spoil them.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// h2's word for "the socket is gone", which explains nothing.
fn is_broken_pipe(error: &hyper::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        let io = error.downcast_ref::<io::Error>().or_else(|| error.downcast_ref::<h2::Error>()?.get_io());
        if io.is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe) {
            return true;
        }
        source = error.source();
    }
    false
}
