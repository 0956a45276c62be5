//! One channel, as seen by its xDS client: it gets all events at once, or, while it is slow, only the latest ones
//! later.

use std::collections::{BTreeMap, BTreeSet};

use proxyless_xds::client::{WatchEvent, WatchId};
use tokio::sync::mpsc::UnboundedSender;

use super::xds::{EventToken, XdsEvent};

/// The destination of one channel's events.
pub(super) struct Listener {
    events: UnboundedSender<XdsEvent>,
    /// Events that the channel has not handled in time. While there are any, the client does not wait for it.
    late: BTreeSet<u64>,
    /// The events to deliver when it has caught up: the latest of each watch, so that a channel that never runs again
    /// costs no more than its resources.
    held: BTreeMap<WatchId, Held>,
}

#[derive(Default)]
struct Held {
    changed: Option<WatchEvent>,
    /// The latest event after the change.
    ambient: Option<WatchEvent>,
}

impl Listener {
    pub(super) fn new(events: UnboundedSender<XdsEvent>) -> Self {
        Self { events, late: BTreeSet::new(), held: BTreeMap::new() }
    }

    /// Delivers an event, or keeps it until the channel has caught up.
    pub(super) fn tell(&mut self, watch: WatchId, event: WatchEvent, token: Option<EventToken>) {
        if self.late.is_empty() {
            // A dropped channel has left, or will.
            let _ = self.events.send(XdsEvent { watch, event, token });
            return;
        }
        let held = self.held.entry(watch).or_default();
        match event {
            WatchEvent::Changed(_) => *held = Held { changed: Some(event), ambient: None },
            WatchEvent::Ambient(_) => held.ambient = Some(event),
        }
    }

    /// The channel has taken too long to handle this event.
    pub(super) fn is_late(&mut self, id: u64) {
        self.late.insert(id);
    }

    /// An event was handled late, perhaps one of this channel.
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

    /// The content of the channel's inbox: the watch, and the reason or the kind.
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
