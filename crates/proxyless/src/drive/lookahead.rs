//! Requests the resources that a channel will need next, before the channel does.
//!
//! A channel watches the RouteConfiguration that a Listener names when it has received the Listener, and so on down to
//! the endpoints. Each of these steps would cost two switches between threads: the event to the channel, and its watch
//! back. So the client watches what the resources of an event name in the channel's stead, until the channel has handled
//! that event: then the channel has its own watches, and nothing changes for the server. Usually no response is read in
//! between, because the event holds its token; the channel's own watch gets what has arrived nevertheless.

use std::collections::BTreeMap;

use proxyless_mesh::dependency_manager::next_resources;
use proxyless_xds::client::{Input, ReadToken, WatchId, WatchKey, XdsCore};
use proxyless_xds::resource::Resource;

/// Part of the ids of these watches; channels count theirs from zero. The watcher is the channel, so that metrics, CSDS and
/// the end of the channel treat them as its own.
const OWN: u64 = 1 << 63;

/// The watches that the client has in the stead of its channels.
#[derive(Default)]
pub(super) struct Lookahead {
    last: u64,
    /// By the tokens of the events that caused them.
    watches: BTreeMap<ReadToken, Vec<WatchKey>>,
}

impl Lookahead {
    /// Whether this watch is one of these. Its events are for nobody.
    pub(super) fn owns(watch: WatchKey) -> bool {
        watch.watch.0 & OWN != 0
    }

    /// The watches of the resources that a channel of this authority will need after the event with this token, which
    /// brought `resource` to its `watch`; only of those that nobody watches yet.
    pub(super) fn begin(
        &mut self,
        core: &XdsCore,
        authority: &str,
        watch: WatchKey,
        resource: &Resource,
        token: ReadToken,
    ) -> Vec<Input> {
        let Some(name) = core.watched_name(watch) else { return Vec::new() };
        let mut inputs = Vec::new();
        for (resource_type, name) in next_resources(authority, name, resource) {
            if core.is_requestable(resource_type, &name) {
                self.last += 1;
                let watch = WatchKey { watcher: watch.watcher, watch: WatchId(OWN | self.last) };
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
