//! Describes a channel, for inspection.

use std::collections::BTreeMap;
use std::time::SystemTime;

use proxyless_balancer::tree::{AttemptId, ConnectionNode, SubchannelId, SubchannelNode};
use proxyless_mesh::channel_core::TreeView;

use super::channel::ChannelDriver;
use super::connection::Connections;
use super::supervisor::{History, Parts};
use crate::clock;
use crate::inspect::{CallsView, ChannelView, SocketView, SubchannelView, TlsView};
use crate::snapshot::Published;

/// The ids of connections and sockets for inspection; assigned when they are first described.
#[derive(Default)]
pub(super) struct Ids {
    connections: BTreeMap<SubchannelId, u64>,
    sockets: BTreeMap<(SubchannelId, AttemptId), u64>,
}

impl Ids {
    fn forget(&mut self, live: &[SubchannelNode]) {
        let nodes: BTreeMap<_, _> = live.iter().map(|node| (node.subchannel, &node.connections)).collect();
        self.connections.retain(|subchannel, _| nodes.contains_key(subchannel));
        self.sockets.retain(|(subchannel, attempt), _| {
            nodes.get(subchannel).is_some_and(|live| live.iter().any(|node| node.attempt == *attempt))
        });
    }

    fn connection(&mut self, subchannel: SubchannelId) -> u64 {
        *self.connections.entry(subchannel).or_insert_with(clock::next_id)
    }

    fn socket(&mut self, subchannel: SubchannelId, attempt: AttemptId) -> u64 {
        *self.sockets.entry((subchannel, attempt)).or_insert_with(clock::next_id)
    }
}

impl ChannelDriver {
    /// Describes the channel.
    pub(super) fn describe(&mut self) -> ChannelView {
        let Self { history, ids, .. } = self;
        let nodes = self.core.subchannels();
        ids.forget(&nodes);
        let now = clock::now();
        let mut by_key = BTreeMap::new();
        let mut connections = Vec::with_capacity(nodes.len());
        for node in nodes {
            let key = (node.address, node.security, node.proxy.as_deref().copied());
            let view = connection(&self.connections, node, ids, clock::wall_time(now));
            let tls = view.sockets.first().and_then(|socket| socket.tls.clone());
            by_key.insert(key, (view.id, tls, view.sockets.len()));
            connections.push(view);
        }
        let mut tree = self.core.describe(now);
        if let Some(root) = &mut tree.root {
            root.walk_endpoints_mut(&mut |endpoint| {
                let key = endpoint.connected.map(|address| (address, endpoint.security_id, endpoint.proxy));
                let Some((id, tls, sockets)) = key.and_then(|key| by_key.get(&key)) else { return };
                endpoint.connections = Some(*sockets).filter(|&sockets| sockets > 1);
                endpoint.subchannel = Some(*id);
                endpoint.security = tls.as_ref().map(|tls| tls.summary(clock::wall_time(now)));
            });
        }
        view(&self.parts, history, tree, connections, |subchannel| ids.connections.get(&subchannel).copied())
    }
}

/// Describes a channel; `id` returns the id of a subchannel.
pub(super) fn view(
    parts: &Parts,
    history: &History,
    tree: TreeView,
    subchannels: Vec<SubchannelView>,
    id: impl FnMut(SubchannelId) -> Option<u64>,
) -> ChannelView {
    let Published { unsent, retried, faults, .. } = &*parts.published;
    // Connections count attempts; a call that was tried again is still one call.
    let ended = (history.calls + tree.calls + unsent.counts()).since(&retried.counts());
    let in_flight = subchannels.iter().map(|subchannel| subchannel.calls.in_flight()).sum();
    ChannelView {
        id: parts.id,
        target: parts.target.as_ref().to_owned(),
        state: history.trace.last_state(),
        created: clock::wall_time(history.created),
        restarts: history.restarts,
        calls: CallsView::new(ended, in_flight),
        faults: faults.view(),
        tree,
        subchannels,
        events: history.trace.events(id),
        events_total: history.trace.total(),
    }
}

fn connection(
    connections: &Connections,
    node: SubchannelNode,
    ids: &mut Ids,
    now: SystemTime,
) -> SubchannelView {
    let subchannel = node.subchannel;
    let socket = |&ConnectionNode { attempt, calls }: &ConnectionNode| {
        Some(SocketView {
            id: ids.socket(subchannel, attempt),
            calls: CallsView::new(calls, connections.streams(subchannel, attempt)?),
            max_concurrent_streams: connections.max_concurrent_streams(subchannel, attempt),
            tls: connections.tls(subchannel, attempt).map(|info| TlsView::new(info, now)),
        })
    };
    let sockets: Vec<_> = node.connections.iter().filter_map(socket).collect();
    let in_flight = sockets.iter().map(|socket| socket.calls.in_flight()).sum();
    SubchannelView {
        id: ids.connection(node.subchannel),
        address: node.address,
        proxy: node.proxy.as_deref().copied(),
        state: node.state,
        error: node.error,
        calls: CallsView::new(node.calls, in_flight),
        sockets,
        max_connections: node.max_connections,
    }
}
