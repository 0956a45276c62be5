//! The number of streams that the server allows at once.

use std::collections::VecDeque;
use std::sync::PoisonError;

use proxyless_sans_io::sync::atomic::Ordering::SeqCst;
use proxyless_sans_io::sync::atomic::{AtomicBool, AtomicUsize};
use proxyless_sans_io::sync::{Mutex, MutexGuard};

use crate::sync::oneshot;

/// A count of streams with a limit that the server may change. Waiters are served in order.
///
/// Taking a stream without waiting is one compare-and-swap, releasing it one subtraction. The atomics are sequentially
/// consistent: of a task that starts to wait and one that releases, at least one sees the other.
pub(crate) struct Quota {
    in_use: AtomicUsize,
    limit: AtomicUsize,
    /// Whether a task waits, or is about to. Written under the lock of `line`.
    waiting: AtomicBool,
    /// Whether the socket accepts no writes.
    blocked: AtomicBool,
    /// The length of `Line::abandoned`.
    abandoned: AtomicUsize,
    line: Mutex<Line>,
}

/// The maximum number of requests that wait for a blocked socket after their callers have gone. h2 must still send them
/// (their streams have ids), so each takes memory: about 11 KB with tonic.
const MAX_ABANDONED: usize = if cfg!(proxyless_loom) { 2 } else { 1024 };

#[derive(Default)]
struct Line {
    waiters: VecDeque<oneshot::Sender<()>>,
    /// The approximate number of waiters that have given up.
    gone: usize,
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

impl Default for Quota {
    fn default() -> Self {
        Self {
            in_use: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            waiting: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            abandoned: AtomicUsize::new(0),
            line: Mutex::default(),
        }
    }
}

impl Quota {
    /// Takes one stream, waiting in line if there is none. Every success must be paired with [`Self::release`].
    pub(crate) async fn acquire(&self) -> Result<(), QuotaClosed> {
        // Waiters come first.
        if !self.waiting.load(SeqCst) && self.try_take() {
            return Ok(());
        }
        match self.line_up()? {
            Some(mut turn) => {
                let called = (&mut turn.come).await;
                turn.heard = true;
                called.map_err(|_| QuotaClosed)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn release(&self) {
        self.in_use.fetch_sub(1, SeqCst);
        if self.waiting.load(SeqCst) {
            self.serve(&mut self.line());
        }
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        let mut line = self.line();
        line.limit = Some(usize::try_from(limit).unwrap_or(usize::MAX));
        self.settle(&mut line);
    }

    /// Releases a stream that was cancelled. While the socket is blocked it counts as abandoned.
    pub(crate) fn abandon(&self, stream: u32) {
        if self.blocked.load(SeqCst) {
            let mut line = self.line();
            line.abandoned.push_back(stream);
            self.abandoned.store(line.abandoned.len(), SeqCst);
            // Read after the store: either this sees that the socket has taken everything, or `on_all_written` sees
            // this.
            if line.abandoned.len() >= MAX_ABANDONED && self.blocked.load(SeqCst) {
                line.congested = true;
                self.settle(&mut line);
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
        let mut line = self.line();
        if let Some(at) = line.abandoned.iter().position(|&abandoned| abandoned == stream) {
            // h2 writes in order, so earlier ones have been written too, or had ended and needed no reset.
            line.abandoned.drain(..=at);
            self.uncongest(&mut line);
        }
    }

    /// h2 has written everything, unless the socket is blocked.
    pub(crate) fn on_all_written(&self) {
        if self.abandoned.load(SeqCst) > 0 && !self.blocked.load(SeqCst) {
            let mut line = self.line();
            line.abandoned = VecDeque::new();
            self.uncongest(&mut line);
        }
    }

    fn uncongest(&self, line: &mut Line) {
        self.abandoned.store(line.abandoned.len(), SeqCst);
        if line.congested && line.abandoned.len() < MAX_ABANDONED / 2 {
            line.congested = false;
            self.settle(line);
        }
    }

    /// The limit has changed.
    fn settle(&self, line: &mut Line) {
        if !line.closed {
            let limit = line.limit.unwrap_or(usize::MAX);
            self.limit.store(if line.congested { 0 } else { limit }, SeqCst);
            self.serve(line);
        }
    }

    /// The number of streams in use.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(SeqCst)
    }

    /// Gives out no more streams, and fails the waiters.
    pub(crate) fn close(&self) {
        let waiters = {
            let mut line = self.line();
            line.closed = true;
            self.limit.store(0, SeqCst);
            self.waiting.store(false, SeqCst);
            std::mem::take(&mut line.waiters)
        };
        drop(waiters);
    }

    fn try_take(&self) -> bool {
        let limit = self.limit.load(SeqCst);
        self.in_use.fetch_update(SeqCst, SeqCst, |n| (n < limit).then_some(n + 1)).is_ok()
    }

    /// Joins the line; `None` if a stream was free after all.
    fn line_up(&self) -> Result<Option<Turn<'_>>, QuotaClosed> {
        let mut line = self.line();
        if line.closed {
            return Err(QuotaClosed);
        }
        self.waiting.store(true, SeqCst);
        if line.waiters.is_empty() && self.try_take() {
            self.waiting.store(false, SeqCst);
            return Ok(None);
        }
        let (call, come) = oneshot::channel();
        line.waiters.push_back(call);
        Ok(Some(Turn { quota: self, come, heard: false }))
    }

    /// A waiter has given up. The line is compacted once most have: it stays proportional to the number of waiters, at
    /// a constant cost for each.
    fn give_up(&self) {
        const FEW: usize = if cfg!(proxyless_loom) { 0 } else { 16 };
        let mut line = self.line();
        line.gone += 1;
        if line.gone > FEW.max(line.waiters.len() / 2) {
            line.waiters.retain(|waiter| !waiter.is_closed());
            let room = 2 * FEW.max(line.waiters.len());
            line.waiters.shrink_to(room);
            line.gone = 0;
            if !line.closed {
                self.waiting.store(!line.waiters.is_empty(), SeqCst);
            }
        }
    }

    /// Gives free streams to waiters.
    fn serve(&self, line: &mut Line) {
        while let Some(first) = line.waiters.pop_front() {
            if first.is_closed() {
                line.gone = line.gone.saturating_sub(1);
                continue;
            }
            if !self.try_take() {
                line.waiters.push_front(first);
                break;
            }
            if first.send(()).is_err() {
                self.in_use.fetch_sub(1, SeqCst);
            }
        }
        self.waiting.store(!line.waiters.is_empty(), SeqCst);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // The line is consistent whenever the lock is free, even if a holder panicked.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A position in the line.
struct Turn<'a> {
    quota: &'a Quota,
    come: oneshot::Receiver<()>,
    heard: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.heard {
            return;
        }
        self.come.close();
        match self.come.try_recv() {
            // Served, but dropped before it noticed.
            Ok(()) => self.quota.release(),
            Err(_) => self.quota.give_up(),
        }
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
#[cfg(test)]
mod tests;
