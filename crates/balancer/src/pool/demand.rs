//! The calls that wait for a stream of a subchannel's connections, reported by the data path to the tree (gRFC A105).

use std::fmt;
use std::sync::Arc;

use proxyless_sans_io::sync::atomic::Ordering::SeqCst;
use proxyless_sans_io::sync::atomic::{AtomicBool, AtomicUsize};
use proxyless_sans_io::sync::mpsc::{Receiver, Sender, channel};

use crate::api::Wake;
use crate::tree::SubchannelId;

/// The number of calls that wait for a stream of one subchannel's connections. Written by the data path whenever it
/// changes; the tree is woken only while it would start a connection for them.
///
/// Equal if it is the same object.
pub struct StreamDemand {
    subchannel: SubchannelId,
    queued: AtomicUsize,
    /// Whether the tree wants to know of waiting calls.
    armed: AtomicBool,
    tree: Arc<Outbox>,
}

struct Outbox {
    sender: Sender<SubchannelId>,
    wake: Arc<dyn Wake>,
}

impl StreamDemand {
    /// So many calls wait now.
    pub fn set_queued(&self, count: usize) {
        // Sequentially consistent: of this and `watch`, at least one sees the other.
        self.queued.store(count, SeqCst);
        // The plain load keeps the cache line shared while the tree does not care.
        if count > 0 && self.armed.load(SeqCst) && self.armed.swap(false, SeqCst) {
            // The receiver is dropped only with the tree.
            if self.tree.sender.send(self.subchannel).is_ok() {
                self.tree.wake.wake();
            }
        }
    }

    /// Whether calls wait. If not, the tree is woken when one does.
    pub(super) fn watch(&self) -> bool {
        self.armed.store(true, SeqCst);
        let queued = self.queued.load(SeqCst) > 0;
        if queued {
            self.ignore();
        }
        queued
    }

    /// The tree would not start a connection, and need not be woken.
    pub(super) fn ignore(&self) {
        self.armed.store(false, SeqCst);
    }
}

impl PartialEq for StreamDemand {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for StreamDemand {}

impl fmt::Debug for StreamDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subchannel, queued, armed, .. } = self;
        f.debug_struct("StreamDemand")
            .field("subchannel", &subchannel.0)
            .field("queued", &queued.load(SeqCst))
            .field("armed", &armed.load(SeqCst))
            .finish()
    }
}

/// The tree's end of all reports.
pub(super) struct Demands {
    wake: Arc<dyn Wake>,
    /// From the first report on, which most channels never have.
    queue: Option<Queue>,
}

struct Queue {
    inbox: Receiver<SubchannelId>,
    outbox: Arc<Outbox>,
}

impl Demands {
    pub(super) fn new(wake: Arc<dyn Wake>) -> Self {
        Self { wake, queue: None }
    }

    /// The report of a new subchannel.
    pub(super) fn demand(&mut self, subchannel: SubchannelId) -> Arc<StreamDemand> {
        let queue = self.queue.get_or_insert_with(|| {
            let (sender, inbox) = channel();
            Queue { inbox, outbox: Arc::new(Outbox { sender, wake: Arc::clone(&self.wake) }) }
        });
        Arc::new(StreamDemand {
            subchannel,
            queued: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            tree: Arc::clone(&queue.outbox),
        })
    }

    /// The next subchannel whose calls have begun to wait.
    pub(super) fn next(&self) -> Option<SubchannelId> {
        self.queue.as_ref()?.inbox.try_recv().ok()
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
