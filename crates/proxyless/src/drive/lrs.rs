//! Runs an `LrsCore` for each server that gets load reports, next to the `XdsCore` of the same client, in the same loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use proxyless_sans_io::Time;
use proxyless_xds::Limits;
use proxyless_xds::client::{ServerId, WatcherId};
use proxyless_xds::lrs::{Effect, Input, LoadStore, LrsCore, LrsCoreConfig};
use tokio::sync::mpsc::UnboundedReceiver;

use super::stream::{StreamEvent, StreamEventKind, Streams};
use crate::clock;
use crate::drive::management_server::ManagementServer;

const METHOD: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

/// The load reports of one client.
pub(super) struct LoadReports {
    /// By [`ServerId`].
    servers: Vec<Reports>,
    /// The registered stores of each channel and the servers that they are reported to, to be unregistered when the
    /// channel leaves.
    registered: BTreeMap<WatcherId, Vec<(Arc<LoadStore>, ServerId)>>,
}

/// The reports to one server.
struct Reports {
    core: LrsCore,
    server: ManagementServer,
    streams: Streams,
    events: UnboundedReceiver<StreamEvent>,
}

impl LoadReports {
    /// Reports to these servers (A27-48); opens nothing yet.
    pub(super) fn new(servers: Vec<(LrsCoreConfig, ManagementServer)>, limits: &Limits) -> Self {
        let reports = |(config, server)| {
            let (streams, events) = Streams::new(METHOD, limits.message_bytes);
            Reports { core: LrsCore::new(config).with_limits(limits), server, streams, events }
        };
        Self { servers: servers.into_iter().map(reports).collect(), registered: BTreeMap::new() }
    }

    /// Reports the load of a store to a server.
    pub(super) fn register(&mut self, channel: WatcherId, store: Arc<LoadStore>, server: ServerId) {
        self.registered.entry(channel).or_default().push((Arc::clone(&store), server));
        self.handle(server, Input::Register { store });
    }

    pub(super) fn unregister(&mut self, channel: WatcherId, store: &Arc<LoadStore>) {
        let stores = self.registered.get_mut(&channel);
        let found = stores.and_then(|stores| {
            let index = stores.iter().position(|(known, _)| Arc::ptr_eq(known, store))?;
            Some(stores.remove(index))
        });
        if let Some((store, server)) = found {
            self.handle(server, Input::Unregister { store });
        }
    }

    /// The channel has left: unregisters its remaining stores.
    pub(super) fn leave(&mut self, channel: WatcherId) {
        for (store, server) in self.registered.remove(&channel).unwrap_or_default() {
            self.handle(server, Input::Unregister { store });
        }
    }

    /// A47-25: moves stores to the servers that have sent their Clusters since.
    pub(super) fn move_stores(&mut self, server_of: impl Fn(&Arc<str>) -> ServerId) {
        let mut moved = Vec::new();
        for (store, server) in self.registered.values_mut().flatten() {
            let new = server_of(store.cluster());
            if new != *server {
                moved.push((Arc::clone(store), std::mem::replace(server, new), new));
            }
        }
        for (store, old, new) in moved {
            self.handle(old, Input::Withdraw { store: Arc::clone(&store) });
            self.handle(new, Input::Register { store });
        }
    }

    /// The next event of a stream; pends while there is none.
    pub(super) async fn next_event(&mut self) -> (ServerId, Input) {
        std::future::poll_fn(|cx| {
            for (index, reports) in self.servers.iter_mut().enumerate() {
                // Never `None`: `streams` holds a sender.
                if let Poll::Ready(Some(event)) = reports.events.poll_recv(cx) {
                    return Poll::Ready((ServerId(index), input(event)));
                }
            }
            Poll::Pending
        })
        .await
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.servers.iter().filter_map(|reports| reports.core.next_deadline()).min()
    }

    /// Time has passed.
    pub(super) fn tick(&mut self) {
        (0..self.servers.len()).for_each(|index| self.handle(ServerId(index), Input::Tick));
    }

    pub(super) fn handle(&mut self, ServerId(index): ServerId, input: Input) {
        let Some(Reports { core, server, streams, .. }) = self.servers.get_mut(index) else { return };
        core.handle(clock::now(), input);
        while let Some(effect) = core.poll_effect() {
            match effect {
                Effect::OpenStream { stream } => streams.open(server, stream),
                Effect::CloseStream { stream } => streams.close(stream),
                Effect::Disconnect => server.disconnect(),
                Effect::Send { stream, bytes } => streams.send(stream, &[&bytes]),
                Effect::ReadNext { stream } => streams.read_next(stream),
            }
        }
    }
}

fn input(StreamEvent { stream, kind }: StreamEvent) -> Input {
    match kind {
        StreamEventKind::Up => Input::StreamUp { stream },
        StreamEventKind::Sent => Input::SendDone { stream },
        StreamEventKind::Message(bytes) => Input::Message { stream, bytes },
        StreamEventKind::Down { reason, .. } => Input::StreamDown { stream, reason },
    }
}
