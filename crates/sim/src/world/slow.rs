//! Channels whose drivers do not run for a while, and the reaction of the xDS client: after five seconds it reads on,
//! and keeps the latest event of each watch until the channel has caught up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proxyless_mesh::channel_core::ChannelInput;
use proxyless_sans_io::Time;
use proxyless_xds::client::{Input, WatchEvent, WatchId};

use super::World;
use crate::laws::invariants::Violation;
use crate::world::queue::{Event, Lane};

/// How long the client waits for a channel to act on an event.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state of slow channels.
#[derive(Debug, Default)]
pub(super) struct Slow {
    /// Whether this world has slow channels.
    is_possible: bool,
    /// The stalled channels, with the events that wait for them.
    stalled: BTreeMap<u64, Vec<Event>>,
    /// The channel of each token that the client waits for.
    outstanding: BTreeMap<u64, u64>,
    /// Tokens that it no longer waits for, by channel.
    late: BTreeMap<u64, BTreeSet<u64>>,
    /// The events that channels get when they have caught up.
    held: BTreeMap<WatchId, Held>,
}

#[derive(Debug, Default)]
struct Held {
    changed: Option<WatchEvent>,
    /// The ambient error after the change.
    ambient: Option<WatchEvent>,
}

impl Slow {
    pub(super) fn new(is_possible: bool) -> Self {
        Self { is_possible, ..Self::default() }
    }

    pub(super) fn is_stalled(&self, epoch: u64) -> bool {
        self.stalled.contains_key(&epoch)
    }

    /// Whether a channel is stalled, or has not received the events kept for it.
    pub(super) fn is_behind(&self, epoch: u64) -> bool {
        self.is_stalled(epoch) || self.late.contains_key(&epoch)
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

    /// A watch has ended.
    pub(super) fn forget(&mut self, watch: WatchId) {
        self.held.remove(&watch);
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

    /// The client notifies a channel, or keeps the event.
    pub(super) fn tell_or_keep(
        &mut self,
        epoch: u64,
        id: WatchId,
        watch: WatchId,
        event: WatchEvent,
        token: Option<u64>,
    ) {
        if let Some(token) = token.filter(|_| self.slow.is_possible) {
            self.slow.outstanding.insert(token, epoch);
            self.queue.push(self.now + PATIENCE, Event::OutOfPatience { token });
        }
        if self.slow.late.contains_key(&epoch) {
            let held = self.slow.held.entry(id).or_default();
            match event {
                WatchEvent::Changed(_) => *held = Held { changed: Some(event), ambient: None },
                WatchEvent::Ambient(_) => held.ambient = Some(event),
            }
            return self.release(epoch, token);
        }
        self.send_to_channel(epoch, self.now, watch, event, token);
    }

    fn send_to_channel(
        &mut self,
        epoch: u64,
        at: Time,
        watch: WatchId,
        event: WatchEvent,
        token: Option<u64>,
    ) {
        let at = at + self.local_delay();
        let input = ChannelInput::Resource { watch, event };
        self.queue.push_in(Lane::ToChannel(epoch), at, Event::Channel { epoch, input, token });
    }

    /// A channel took too long.
    pub(super) fn read_on(&mut self, token: u64) -> Result<(), Violation> {
        let Some(epoch) = self.slow.outstanding.remove(&token) else { return Ok(()) };
        self.log.line(self.now, format_args!("xds: channel {epoch} is slow"));
        self.slow.late.entry(epoch).or_default().insert(token);
        self.tell_xds(Input::TokenReleased { token })
    }

    /// A channel has processed an event.
    pub(super) fn acted_on(&mut self, token: u64) -> Result<(), Violation> {
        if !self.slow.is_possible || self.slow.outstanding.remove(&token).is_some() {
            return self.tell_xds(Input::TokenReleased { token });
        }
        let Some((&epoch, late)) = self.slow.late.iter_mut().find(|(_, late)| late.contains(&token)) else {
            return Ok(());
        };
        late.remove(&token);
        if !late.is_empty() {
            return Ok(());
        }
        self.slow.late.remove(&epoch);
        let first = Self::client_watch(epoch, WatchId(0));
        let last = Self::client_watch(epoch + 1, WatchId(0));
        let ids: Vec<_> = self.slow.held.range(first..last).map(|(id, _)| *id).collect();
        for id in ids {
            let Some(Held { changed, ambient }) = self.slow.held.remove(&id) else { continue };
            for event in changed.into_iter().chain(ambient) {
                self.send_to_channel(epoch, self.now, Self::local_watch(id), event, None);
            }
        }
        Ok(())
    }
}
