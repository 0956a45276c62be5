//! The line of requests that wait for a stream of any of the connections to one server (gRFC A105).

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError, Weak};

use proxyless_sans_io::sync::atomic::AtomicBool;
use proxyless_sans_io::sync::atomic::Ordering::SeqCst;
use proxyless_sans_io::sync::{Mutex, MutexGuard};

use crate::quota::{Quota, QuotaClosed};
use crate::state::Shared;
use crate::sync::oneshot;

/// The requests that wait for a stream of any of the connections that share the queue
/// ([`ConnectOptions::queue`](crate::ConnectOptions::queue)). They are served in order, by the oldest connection that
/// has a stream. Clones are the same queue.
#[derive(Clone, Default)]
pub struct StreamQueue(pub(crate) Arc<Line<Shared>>);

impl StreamQueue {
    /// Calls `observer` with the number of waiting requests now, and whenever it changes, also from the middle of
    /// other requests: it must be short. Replaces an earlier observer.
    pub fn observe(&self, observer: impl Fn(usize) + Send + Sync + 'static) {
        self.0.observe(Box::new(observer));
    }
}

impl fmt::Debug for StreamQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamQueue")
    }
}

/// A connection with a quota of streams.
pub(crate) trait Member: Sized {
    /// Its quota.
    fn quota(&self) -> &Quota<Self>;
}

impl Member for Shared {
    fn quota(&self) -> &Quota<Self> {
        &self.quota
    }
}

/// The line in front of the quotas of some connections.
pub(crate) struct Line<C> {
    /// Whether a task waits, or is about to. Written under the lock.
    waiting: AtomicBool,
    state: Mutex<LineState<C>>,
}

pub(crate) struct LineState<C> {
    pub(crate) waiters: VecDeque<Waiter<C>>,
    next_ticket: u64,
    /// The number of waiters that have given up.
    gone: usize,
    /// The connections that take streams, the oldest first.
    connections: Vec<Weak<C>>,
    observer: Option<Observer>,
    /// The number of waiters that the observer knows of.
    reported: usize,
}

type Observer = Box<dyn Fn(usize) + Send + Sync>;

pub(crate) struct Waiter<C> {
    ticket: u64,
    call: oneshot::Sender<Arc<C>>,
    gone: bool,
}

impl<C> Default for Line<C> {
    fn default() -> Self {
        let state = LineState {
            waiters: VecDeque::new(),
            next_ticket: 0,
            gone: 0,
            connections: Vec::new(),
            observer: None,
            reported: 0,
        };
        Self { waiting: AtomicBool::new(false), state: Mutex::new(state) }
    }
}

/// A place in the line, or a stream that was free after all.
enum Place<'a, C: Member> {
    Waits(Turn<'a, C>),
    Served(Arc<C>),
}

impl<C: Member> Line<C> {
    /// Whether a request that comes now has to wait for others.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(SeqCst)
    }

    /// Waits for a stream. Returns its connection, whose quota must be released.
    pub(crate) async fn wait(&self) -> Result<Arc<C>, QuotaClosed> {
        match self.line_up()? {
            Place::Served(connection) => Ok(connection),
            Place::Waits(mut turn) => {
                let called = (&mut turn.come).await;
                turn.heard = true;
                called.map_err(|_| QuotaClosed)
            }
        }
    }

    /// A connection takes streams from now on: the first waiters get them.
    pub(crate) fn join(&self, connection: &Arc<C>) {
        let mut state = self.lock();
        // A connection that was closed meanwhile has left before it joined.
        if !connection.quota().is_closed() {
            state.connections.push(Arc::downgrade(connection));
            self.serve(&mut state);
        }
    }

    /// A connection takes no more streams. Without any, all waiters fail.
    pub(crate) fn leave(&self, connection: &C) {
        let waiters = {
            let mut state = self.lock();
            state.connections.retain(|other| !std::ptr::eq(other.as_ptr(), connection));
            if !state.connections.is_empty() {
                return;
            }
            self.waiting.store(false, SeqCst);
            state.gone = 0;
            let waiters = std::mem::take(&mut state.waiters);
            state.report();
            waiters
        };
        // Without the lock: it wakes them.
        drop(waiters);
    }

    /// Gives free streams to waiters, after one was released or a limit has changed.
    pub(crate) fn serve_waiters(&self) {
        self.serve(&mut self.lock());
    }

    pub(crate) fn observe(&self, observer: Observer) {
        let mut state = self.lock();
        state.reported = state.queued();
        observer(state.reported);
        state.observer = Some(observer);
    }

    /// Joins the line, unless a stream is free after all.
    fn line_up(&self) -> Result<Place<'_, C>, QuotaClosed> {
        let mut state = self.lock();
        if state.connections.is_empty() {
            return Err(QuotaClosed);
        }
        self.waiting.store(true, SeqCst);
        if state.waiters.is_empty()
            && let Some(connection) = state.take()
        {
            self.waiting.store(false, SeqCst);
            return Ok(Place::Served(connection));
        }
        let (call, come) = oneshot::channel();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiters.push_back(Waiter { ticket, call, gone: false });
        state.report();
        Ok(Place::Waits(Turn { line: self, ticket, come, heard: false }))
    }

    /// A waiter has given up. The line is compacted once most have: it stays proportional to the number of waiters, at
    /// a constant cost for each.
    fn give_up(&self, ticket: u64) {
        const FEW: usize = if cfg!(proxyless_loom) { 0 } else { 16 };
        let mut state = self.lock();
        // Not there if it was served just before, or all were sent away.
        let Ok(at) = state.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket) else { return };
        if let Some(waiter) = state.waiters.get_mut(at) {
            waiter.gone = true;
            state.gone += 1;
        }
        if state.gone > FEW.max(state.waiters.len() / 2) {
            state.waiters.retain(|waiter| !waiter.gone);
            let room = 2 * FEW.max(state.waiters.len());
            state.waiters.shrink_to(room);
            state.gone = 0;
            self.waiting.store(!state.waiters.is_empty(), SeqCst);
        }
        state.report();
    }

    fn serve(&self, state: &mut LineState<C>) {
        while let Some(first) = state.waiters.pop_front() {
            if first.gone || first.call.is_closed() {
                state.gone -= usize::from(first.gone);
                continue;
            }
            let Some(connection) = state.take() else {
                state.waiters.push_front(first);
                break;
            };
            if let Err(connection) = first.call.send(connection) {
                connection.quota().put_back();
            }
        }
        self.waiting.store(!state.waiters.is_empty(), SeqCst);
        state.report();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LineState<C>> {
        // The line is consistent whenever the lock is free, even if a holder panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Member> LineState<C> {
    /// Takes a stream. A105-21: of the oldest connection that has one.
    fn take(&self) -> Option<Arc<C>> {
        let mut open = self.connections.iter().filter_map(Weak::upgrade);
        open.find(|connection| connection.quota().try_take())
    }
}

impl<C> LineState<C> {
    /// The number of waiters.
    pub(crate) fn queued(&self) -> usize {
        self.waiters.len() - self.gone
    }

    fn report(&mut self) {
        let queued = self.queued();
        if let Some(observer) = &self.observer
            && std::mem::replace(&mut self.reported, queued) != queued
        {
            observer(queued);
        }
    }
}

/// A position in the line.
struct Turn<'a, C: Member> {
    line: &'a Line<C>,
    ticket: u64,
    come: oneshot::Receiver<Arc<C>>,
    heard: bool,
}

impl<C: Member> Drop for Turn<'_, C> {
    fn drop(&mut self) {
        if self.heard {
            return;
        }
        self.come.close();
        match self.come.try_recv() {
            // Served, but dropped before it noticed.
            Ok(connection) => connection.quota().release(),
            Err(_) => self.line.give_up(self.ticket),
        }
    }
}
