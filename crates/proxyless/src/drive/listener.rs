//! One channel, as its xDS client sees it: told of everything at once, or, while it is slow, of the newest later.

use std::collections::{BTreeMap, BTreeSet};

use proxyless_xds::client::{WatchEvent, WatchId};
use tokio::sync::mpsc::UnboundedSender;

use super::xds::{ReadToken, XdsEvent};

/// Where the events of one channel go.
pub(super) struct Listener {
    events: UnboundedSender<XdsEvent>,
    /// Events that the channel has not acted on in time. While there are some, it is not waited for.
    late: BTreeSet<u64>,
    /// What it is told when it has caught up: the newest of each watch, so that a channel which is never run again costs
    /// no more than its resources.
    held: BTreeMap<WatchId, Held>,
}

#[derive(Default)]
struct Held {
    changed: Option<WatchEvent>,
    /// What came after the change.
    ambient: Option<WatchEvent>,
}

impl Listener {
    pub(super) fn new(events: UnboundedSender<XdsEvent>) -> Self {
        Self { events, late: BTreeSet::new(), held: BTreeMap::new() }
    }

    /// Tells the channel something, or keeps it until it has caught up.
    pub(super) fn tell(&mut self, watch: WatchId, event: WatchEvent, token: Option<ReadToken>) {
        if self.late.is_empty() {
            // A channel that is gone has said so, or will.
            let _ = self.events.send(XdsEvent { watch, event, token });
            return;
        }
        let held = self.held.entry(watch).or_default();
        match event {
            WatchEvent::Changed(_) => *held = Held { changed: Some(event), ambient: None },
            WatchEvent::Ambient(_) => held.ambient = Some(event),
        }
    }

    /// The channel has taken too long to act on this event.
    pub(super) fn is_late(&mut self, id: u64) {
        self.late.insert(id);
    }

    /// The channel has acted on an event that was no longer waited for, perhaps one of this channel.
    pub(super) fn caught_up(&mut self, id: u64) {
        if !self.late.remove(&id) || !self.late.is_empty() {
            return;
        }
        for (watch, Held { changed, ambient }) in std::mem::take(&mut self.held) {
            for event in changed.into_iter().chain(ambient) {
                let _ = self.events.send(XdsEvent { watch, event, token: None });
            }
        }
    }

    /// A watch has ended.
    pub(super) fn forget(&mut self, watch: WatchId) {
        self.held.remove(&watch);
    }
}
