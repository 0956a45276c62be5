//! The number of streams that the server allows at once on a connection.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use proxyless_sans_io::sync::atomic::Ordering::SeqCst;
use proxyless_sans_io::sync::atomic::{AtomicBool, AtomicUsize};
use proxyless_sans_io::sync::{Mutex, MutexGuard};

use crate::line::{Line, Member};

/// A count of streams with a limit that the server may change. Requests that find none wait in its [`Line`], which
/// several connections may share.
///
/// Taking a stream without waiting is one compare-and-swap, releasing it one subtraction. The atomics are sequentially
/// consistent: of a task that starts to wait and one that releases, at least one sees the other.
pub(crate) struct Quota<C> {
    in_use: AtomicUsize,
    limit: AtomicUsize,
    /// Whether the socket accepts no writes.
    blocked: AtomicBool,
    /// The length of `Facts::abandoned`.
    abandoned: AtomicUsize,
    facts: Mutex<Facts>,
    line: Arc<Line<C>>,
}

/// The maximum number of requests that wait for a blocked socket after their callers have gone. h2 must still send them
/// (their streams have ids), so each takes memory: about 11 KB with tonic.
const MAX_ABANDONED: usize = if cfg!(proxyless_loom) { 2 } else { 1024 };

/// The facts behind the limit.
#[derive(Default)]
struct Facts {
    closed: bool,
    /// The server's limit, if it has one.
    limit: Option<usize>,
    /// The streams whose callers have gone while the socket was blocked, and whose RST_STREAM has not been written.
    abandoned: VecDeque<u32>,
    /// Too many are abandoned: no stream is given out for now.
    congested: bool,
}

/// Whether a socket accepts writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    Writable,
    Blocked,
}

/// No more streams are given out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QuotaClosed;

impl<C: Member> Quota<C> {
    /// A quota without a limit. Its connection has to join the line.
    pub(crate) fn new(line: Arc<Line<C>>) -> Self {
        Self {
            in_use: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            blocked: AtomicBool::new(false),
            abandoned: AtomicUsize::new(0),
            facts: Mutex::default(),
            line,
        }
    }

    /// Takes one stream, unless others wait for one. Success must be paired with [`Self::release`].
    pub(crate) fn try_acquire(&self) -> bool {
        !self.line.is_waiting() && self.try_take()
    }

    /// Waits in line for a stream. Returns its connection, which may be another one, and whose quota must be released.
    pub(crate) async fn wait(&self) -> Result<Arc<C>, QuotaClosed> {
        self.line.wait().await
    }

    /// Whether a request that comes now gets a stream at once.
    pub(crate) fn has_room(&self) -> bool {
        !self.line.is_waiting() && self.in_use.load(SeqCst) < self.limit.load(SeqCst)
    }

    /// The connection is open: requests may wait for its streams.
    pub(crate) fn join_line(connection: &Arc<C>) {
        connection.quota().line.join(connection);
    }

    pub(crate) fn release(&self) {
        self.put_back();
        if self.line.is_waiting() {
            self.line.serve_waiters();
        }
    }

    /// Releases a stream without serving waiters.
    pub(crate) fn put_back(&self) {
        self.in_use.fetch_sub(1, SeqCst);
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        let mut facts = self.facts();
        facts.limit = Some(usize::try_from(limit).unwrap_or(usize::MAX));
        self.settle(facts);
    }

    /// The server's limit, if it has one.
    pub(crate) fn server_limit(&self) -> Option<usize> {
        self.facts().limit
    }

    /// Releases a stream that was cancelled. While the socket is blocked it counts as abandoned.
    pub(crate) fn abandon(&self, stream: u32) {
        if self.blocked.load(SeqCst) {
            let mut facts = self.facts();
            facts.abandoned.push_back(stream);
            self.abandoned.store(facts.abandoned.len(), SeqCst);
            // Read after the store: either this sees that the socket has taken everything, or `on_all_written` sees
            // this.
            if facts.abandoned.len() >= MAX_ABANDONED && self.blocked.load(SeqCst) {
                facts.congested = true;
                self.settle(facts);
            }
        }
        self.release();
    }

    /// Records whether the socket accepts writes.
    pub(crate) fn set_socket(&self, socket: Socket) {
        let blocked = socket == Socket::Blocked;
        // Only the task of the connection writes it.
        if self.blocked.load(SeqCst) != blocked {
            self.blocked.store(blocked, SeqCst);
        }
    }

    /// The socket has taken a RST_STREAM.
    pub(crate) fn on_reset_written(&self, stream: u32) {
        if self.abandoned.load(SeqCst) == 0 {
            return;
        }
        let mut facts = self.facts();
        if let Some(at) = facts.abandoned.iter().position(|&abandoned| abandoned == stream) {
            // h2 writes in order, so earlier ones have been written too, or had ended and needed no reset.
            facts.abandoned.drain(..=at);
            self.uncongest(facts);
        }
    }

    /// h2 has written everything, unless the socket is blocked.
    pub(crate) fn on_all_written(&self) {
        if self.abandoned.load(SeqCst) > 0 && !self.blocked.load(SeqCst) {
            let mut facts = self.facts();
            facts.abandoned = VecDeque::new();
            self.uncongest(facts);
        }
    }

    fn uncongest(&self, mut facts: MutexGuard<'_, Facts>) {
        self.abandoned.store(facts.abandoned.len(), SeqCst);
        if facts.congested && facts.abandoned.len() < MAX_ABANDONED / 2 {
            facts.congested = false;
            self.settle(facts);
        }
    }

    /// The limit has changed. The locks are taken one after the other, never together.
    fn settle(&self, facts: MutexGuard<'_, Facts>) {
        if facts.closed {
            return;
        }
        let limit = facts.limit.unwrap_or(usize::MAX);
        self.limit.store(if facts.congested { 0 } else { limit }, SeqCst);
        drop(facts);
        if self.line.is_waiting() {
            self.line.serve_waiters();
        }
    }

    /// The number of streams in use.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(SeqCst)
    }

    /// Gives out no more streams of this connection, which leaves the line.
    pub(crate) fn close(&self, connection: &C) {
        {
            let mut facts = self.facts();
            facts.closed = true;
            self.limit.store(0, SeqCst);
        }
        self.line.leave(connection);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.facts().closed
    }

    /// Takes a stream, whoever waits.
    pub(crate) fn try_take(&self) -> bool {
        let limit = self.limit.load(SeqCst);
        self.in_use.fetch_update(SeqCst, SeqCst, |n| (n < limit).then_some(n + 1)).is_ok()
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        // The facts are consistent whenever the lock is free, even if a holder panicked.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
#[cfg(test)]
mod tests;
