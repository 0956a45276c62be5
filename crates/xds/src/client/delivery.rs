//! Delivery of events to watchers: which events they have not handled, and which watchers are slow.
//!
//! A watcher gets each event at once. One that takes longer than [`PATIENCE`] to handle an event is slow until it has
//! caught up: it is not waited for, and of the events for each of its watches only the latest are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proxyless_sans_io::Time;

use super::api::{Effect, WatchEvent};
use super::ids::{ReadToken, WatchId, WatchKey, WatcherId};
use crate::targets;

/// The time for a watcher to handle an event. A channel whose runtime is not being driven must not delay the channels
/// of other runtimes.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Delivery {
    last_token: ReadToken,
    /// Events that watchers have not handled, with the end of the wait for each. Tokens are in time order.
    outstanding: BTreeMap<ReadToken, (WatcherId, Time)>,
    slow: BTreeMap<WatcherId, Slow>,
}

/// A watcher that has not handled events in time.
#[derive(Debug, Default)]
struct Slow {
    late: BTreeSet<ReadToken>,
    /// The latest events of each watch, so that a watcher that never runs again costs no more than its resources.
    held: BTreeMap<WatchId, Held>,
}

#[derive(Debug, Default)]
struct Held {
    changed: Option<WatchEvent>,
    /// The latest event after the change.
    ambient: Option<WatchEvent>,
}

impl Held {
    /// Whether the server has said that the resource is not usable.
    fn is_lost(&self) -> bool {
        matches!(&self.changed, Some(WatchEvent::Changed(Err(error))) if !error.kind.is_about_server())
    }
}

impl Delivery {
    /// Delivers an event, or keeps it if the watcher is slow. Returns the effect and its token.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        watch: WatchKey,
        event: WatchEvent,
    ) -> Option<(ReadToken, Effect)> {
        if let Some(slow) = self.slow.get_mut(&watch.watcher) {
            let held = slow.held.entry(watch.watch).or_default();
            match &event {
                // An unreachable server takes back nothing of what it said about the resource.
                WatchEvent::Changed(Err(error)) if error.kind.is_about_server() && held.is_lost() => {}
                WatchEvent::Changed(_) => *held = Held { changed: Some(event), ambient: None },
                WatchEvent::Ambient(_) => held.ambient = Some(event),
            }
            return None;
        }
        self.last_token.0 += 1;
        let token = self.last_token;
        self.outstanding.insert(token, (watch.watcher, now + PATIENCE));
        Some((token, Effect::Notify { watch, event, token }))
    }

    /// A watcher has handled an event. Returns the events that were kept for it, if it has caught up.
    pub(super) fn release(&mut self, token: ReadToken) -> Vec<(WatchKey, WatchEvent)> {
        if self.outstanding.remove(&token).is_some() {
            return Vec::new();
        }
        let late = self.slow.iter_mut().find_map(|(&watcher, slow)| {
            (slow.late.remove(&token) && slow.late.is_empty()).then_some(watcher)
        });
        let Some((watcher, slow)) = late.and_then(|watcher| self.slow.remove_entry(&watcher)) else {
            return Vec::new();
        };
        let of_watch = |(watch, Held { changed, ambient }): (WatchId, Held)| {
            let key = WatchKey { watcher, watch };
            changed.into_iter().chain(ambient).map(move |event| (key, event))
        };
        slow.held.into_iter().flat_map(of_watch).collect()
    }

    /// The next token whose watcher has taken too long; it is not waited for any longer.
    pub(super) fn expire(&mut self, now: Time) -> Option<ReadToken> {
        let first = self.outstanding.first_entry().filter(|first| first.get().1 <= now)?;
        let (token, (watcher, _)) = first.remove_entry();
        tracing::debug!(
            target: targets::XDS_CLIENT, watcher = watcher.0,
            "a channel is slow to act on a resource; reading on without it"
        );
        self.slow.entry(watcher).or_default().late.insert(token);
        Some(token)
    }

    /// The time at which [`Self::expire`] is due.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.outstanding.values().next().map(|(_, until)| *until)
    }

    /// Whether events are kept for the watcher until it has caught up.
    pub(super) fn is_slow(&self, watcher: WatcherId) -> bool {
        self.slow.contains_key(&watcher)
    }

    /// A watch has ended.
    pub(super) fn forget(&mut self, watch: WatchKey) {
        if let Some(slow) = self.slow.get_mut(&watch.watcher) {
            slow.held.remove(&watch.watch);
        }
    }
}
