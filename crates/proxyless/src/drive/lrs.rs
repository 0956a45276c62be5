//! Runs an `LrsCore` next to the `XdsCore` of the same client, in the same loop.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_sans_io::Time;
use proxyless_xds::Limits;
use proxyless_xds::client::WatcherId;
use proxyless_xds::lrs::{Effect, Input, LoadStore, LrsCore, LrsCoreConfig};
use tokio::sync::mpsc::UnboundedReceiver;

use super::stream::{StreamEvent, StreamEventKind, Streams};
use crate::clock;
use crate::drive::management_server::ManagementServer;

const METHOD: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

/// The load reports of one client.
pub(super) struct LoadReports {
    core: LrsCore,
    streams: Streams,
    events: UnboundedReceiver<StreamEvent>,
    /// The registered stores of each channel, to be unregistered when it leaves.
    registered: BTreeMap<WatcherId, Vec<Arc<LoadStore>>>,
}

impl LoadReports {
    /// Reports to this server (A27-48); opens nothing yet.
    pub(super) fn new(config: LrsCoreConfig, server: ManagementServer, limits: &Limits) -> Self {
        let (streams, events) = Streams::new(server, METHOD, limits.message_bytes);
        Self { core: LrsCore::new(config).with_limits(limits), streams, events, registered: BTreeMap::new() }
    }

    pub(super) fn register(&mut self, channel: WatcherId, store: Arc<LoadStore>) {
        self.registered.entry(channel).or_default().push(Arc::clone(&store));
        self.handle(Input::Register { store });
    }

    pub(super) fn unregister(&mut self, channel: WatcherId, store: Arc<LoadStore>) {
        if let Some(stores) = self.registered.get_mut(&channel) {
            stores.retain(|known| !Arc::ptr_eq(known, &store));
        }
        self.handle(Input::Unregister { store });
    }

    /// The channel has left: unregisters its remaining stores.
    pub(super) fn leave(&mut self, channel: WatcherId) {
        for store in self.registered.remove(&channel).unwrap_or_default() {
            self.handle(Input::Unregister { store });
        }
    }

    /// The next event of a stream; pends while there is none.
    pub(super) async fn next_event(&mut self) -> Input {
        match self.events.recv().await {
            Some(StreamEvent { stream, kind }) => match kind {
                StreamEventKind::Up => Input::StreamUp { stream },
                StreamEventKind::Sent => Input::SendDone { stream },
                StreamEventKind::Message(bytes) => Input::Message { stream, bytes },
                StreamEventKind::Down { reason, .. } => Input::StreamDown { stream, reason },
            },
            // Unreachable: `streams` holds a sender.
            None => std::future::pending().await,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.core.next_deadline()
    }

    pub(super) fn handle(&mut self, input: Input) {
        self.core.handle(clock::now(), input);
        while let Some(effect) = self.core.poll_effect() {
            match effect {
                Effect::OpenStream { stream } => self.streams.open(stream),
                Effect::CloseStream { stream } => self.streams.close(stream),
                Effect::Send { stream, bytes } => self.streams.send(stream, bytes),
                Effect::ReadNext { stream } => self.streams.read_next(stream),
            }
        }
    }
}
