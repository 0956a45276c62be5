//! One channel, as its xDS client sees it: told of everything at once, or, while it is slow, of the newest later.

use std::collections::{BTreeMap, BTreeSet};

use proxyless_xds::client::{WatchEvent, WatchId};
use tokio::sync::mpsc::UnboundedSender;

use super::xds::{EventToken, XdsEvent};

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
    pub(super) fn tell(&mut self, watch: WatchId, event: WatchEvent, token: Option<EventToken>) {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proxyless_xds::client::{ResourceError, ResourceErrorKind};
    use proxyless_xds::resource::ResourceType;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    fn changed(why: &str) -> WatchEvent {
        WatchEvent::Changed(Err(error(why)))
    }

    fn error(why: &str) -> Arc<ResourceError> {
        Arc::new(ResourceError {
            resource_type: ResourceType::Cluster,
            name: "c".into(),
            server: "server".into(),
            node: "node".into(),
            kind: ResourceErrorKind::Transient(why.into()),
        })
    }

    /// What the channel finds in its inbox: the watch, and the reason or the kind.
    fn told(inbox: &mut UnboundedReceiver<XdsEvent>) -> Vec<(u64, String)> {
        let mut told = Vec::new();
        while let Ok(XdsEvent { watch, event, .. }) = inbox.try_recv() {
            let what = match event {
                WatchEvent::Changed(Err(error)) => match &error.kind {
                    ResourceErrorKind::Transient(why) => why.clone(),
                    other => format!("{other:?}"),
                },
                WatchEvent::Changed(Ok(_)) => "resource".into(),
                WatchEvent::Ambient(error) => format!("ambient {}", error.is_some()),
            };
            told.push((watch.0, what));
        }
        told
    }

    #[test]
    fn a_slow_channel_is_told_the_newest_of_each_watch_when_it_has_caught_up() {
        let (events, mut inbox) = unbounded_channel();
        let mut listener = Listener::new(events);
        listener.tell(WatchId(1), changed("first"), None);
        assert_eq!(told(&mut inbox), [(1, "first".into())]);
        listener.is_late(7);
        listener.is_late(8);
        for round in 0..1000 {
            listener.tell(WatchId(1), WatchEvent::Ambient(Some(error("old"))), None);
            listener.tell(WatchId(1), changed(&format!("round {round}")), None);
            listener.tell(WatchId(2), changed(&format!("round {round}")), None);
            listener.tell(WatchId(3), changed("ended"), None);
        }
        listener.tell(WatchId(2), WatchEvent::Ambient(Some(error("new"))), None);
        listener.tell(WatchId(2), WatchEvent::Ambient(None), None);
        listener.forget(WatchId(3));
        listener.caught_up(7);
        listener.caught_up(99);
        assert!(told(&mut inbox).is_empty(), "one is still late");
        listener.caught_up(8);
        let last = "round 999".to_owned();
        assert_eq!(told(&mut inbox), [(1, last.clone()), (2, last), (2, "ambient false".into())]);
        listener.tell(WatchId(1), changed("live"), None);
        assert_eq!(told(&mut inbox), [(1, "live".into())]);
    }
}
