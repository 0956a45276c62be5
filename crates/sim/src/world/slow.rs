//! Channels whose drivers do not run for a while. The xDS client stops waiting for them, and keeps the latest event of
//! each watch until the channel has caught up.

use std::collections::BTreeMap;
use std::time::Duration;

use super::World;
use crate::world::queue::Event;

/// The state of slow channels.
#[derive(Debug, Default)]
pub(super) struct Slow {
    /// The stalled channels, with the events that wait for them.
    stalled: BTreeMap<u64, Vec<Event>>,
}

impl Slow {
    pub(super) fn is_stalled(&self, epoch: u64) -> bool {
        self.stalled.contains_key(&epoch)
    }

    /// The event, unless its channel is stalled.
    pub(super) fn hold_back(&mut self, event: Event) -> Option<Event> {
        let (Event::Channel { epoch, .. } | Event::Resolve { epoch, .. } | Event::Connection { epoch, .. }) =
            &event
        else {
            return Some(event);
        };
        match self.stalled.get_mut(epoch) {
            Some(backlog) => {
                backlog.push(event);
                None
            }
            None => Some(event),
        }
    }
}

impl World {
    /// Stalls a channel's driver.
    pub(super) fn stall(&mut self, index: usize, span: Duration) {
        let Some(epoch) = self.channel(index).map(|channel| channel.epoch) else { return };
        self.slow.stalled.entry(epoch).or_default();
        self.queue.push(self.now + span, Event::Resume { epoch });
    }

    /// Resumes a channel's driver: it finds all events that arrived meanwhile.
    pub(super) fn resume(&mut self, epoch: u64) {
        let now = self.now;
        for event in self.slow.stalled.remove(&epoch).unwrap_or_default() {
            self.queue.push(now, event);
        }
        if let Some(channel) = self.by_epoch(epoch) {
            channel.resumed = now;
        }
    }

    /// Resumes all drivers.
    pub(super) fn resume_all(&mut self) {
        for epoch in self.slow.stalled.keys().copied().collect::<Vec<_>>() {
            self.resume(epoch);
        }
    }
}
