//! Requests the resources that a channel will need next, before the channel does.
//!
//! A channel watches the RouteConfiguration that a Listener names when it has received the Listener, and so on down to
//! the endpoints. Each of these steps would cost two switches between threads: the event to the channel, and its watch
//! back. So the client itself watches what the resources of an event name, until the channel has handled that event:
//! then the channel has its own watches, and nothing changes for the server. No response is read in between, because the
//! event holds its token.

use std::collections::BTreeMap;

use proxyless_mesh::dependency_manager::next_resources;
use proxyless_xds::client::{Input, ReadToken, WatchEvent, WatchId, WatchKey, WatcherId, XdsCore};

/// The watcher of these watches. The ids of channels count from zero.
const WATCHER: WatcherId = WatcherId(u64::MAX);

/// The watches of the client itself.
#[derive(Default)]
pub(super) struct Lookahead {
    last: u64,
    /// By the tokens of the events that caused them.
    watches: BTreeMap<ReadToken, Vec<WatchKey>>,
}

impl Lookahead {
    /// Whether this watch is one of these. Its events are for nobody.
    pub(super) fn owns(watch: WatchKey) -> bool {
        watch.watcher == WATCHER
    }

    /// The watches of the resources that a channel of this authority will need after an event and that nobody watches yet.
    pub(super) fn begin(
        &mut self,
        core: &XdsCore,
        authority: &str,
        watch: WatchKey,
        event: &WatchEvent,
        token: ReadToken,
    ) -> Vec<Input> {
        let WatchEvent::Changed(Ok(resource)) = event else { return Vec::new() };
        let Some(name) = core.watched_name(watch) else { return Vec::new() };
        let mut inputs = Vec::new();
        for (resource_type, name) in next_resources(authority, name, resource) {
            if core.is_requestable(resource_type, &name) {
                self.last += 1;
                let watch = WatchKey { watcher: WATCHER, watch: WatchId(self.last) };
                self.watches.entry(token).or_default().push(watch);
                inputs.push(Input::Watch { watch, resource_type, name });
            }
        }
        inputs
    }

    /// The channel has handled the event with this token: the watches to end.
    pub(super) fn end(&mut self, token: ReadToken) -> Vec<WatchKey> {
        self.watches.remove(&token).unwrap_or_default()
    }
}
