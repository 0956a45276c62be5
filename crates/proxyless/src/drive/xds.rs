//! Runs an `XdsCore`, with its load reports, on a separate thread.
//!
//! A client is shared by channels of any runtime, so it belongs to none of them: it would die with the first caller's
//! runtime, and decoding megabytes must not stall user tasks. The thread starts with the first watch and ends with the
//! last handle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use proxyless_sans_io::Time;
use proxyless_transport::Connector;
use proxyless_transport::panics::{catch, contain};
use proxyless_xds::client::{
    Effect, Input, ResourceDump, UpdateCounts, WatchEvent, WatchId, XdsCore, XdsCoreConfig,
};
use proxyless_xds::lrs::{self, LoadStore, LrsCoreConfig};
use proxyless_xds::resource::ResourceType;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tracing::{debug, info};

use super::listener::Listener;
use super::lrs::LoadReports;
use super::panics;
use super::stream::{StreamEvent, StreamEventKind, Streams};
use crate::clock;
use crate::server::ServerChannel;

/// The time for a channel to handle an event before the client reads on without it. A channel whose runtime is not
/// being driven must not delay channels of other runtimes.
const TOKEN_PATIENCE: Duration = Duration::from_secs(5);

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// A reference to a running xDS client. Its thread ends when the last reference is dropped.
pub(crate) struct XdsClient {
    commands: UnboundedSender<Command>,
    channels: AtomicU64,
    server_uri: Arc<str>,
    node: Bytes,
}

/// Where a client runs.
#[derive(Clone, Default)]
pub(crate) enum Place {
    #[default]
    Thread,
    /// In the runtime that starts it, where a test can pause the time. Its server is reached through this.
    Runtime(Arc<dyn Connector>),
}

impl Place {
    pub(crate) fn connector(&self) -> Option<Arc<dyn Connector>> {
        match self {
            Self::Thread => None,
            Self::Runtime(connector) => Some(Arc::clone(connector)),
        }
    }
}

/// One channel's subscription to the client; dropping it ends the channel's watches.
pub(crate) struct Subscriber {
    client: Arc<XdsClient>,
    channel: u64,
}

/// An event for a channel.
pub(crate) struct XdsEvent {
    /// The channel's id of the watch.
    pub(crate) watch: WatchId,
    pub(crate) event: WatchEvent,
    /// Dropped when the channel has acted on the event. The client reads its next response only then, if the event is
    /// of a response. None where the channel has been slow and is told what it missed.
    pub(crate) token: Option<EventToken>,
}

/// Tells the client, when dropped, that a channel has acted on an event.
pub(crate) struct EventToken {
    id: u64,
    commands: UnboundedSender<Command>,
}

impl Drop for EventToken {
    fn drop(&mut self) {
        // A client that has ended reads nothing more.
        let _ = self.commands.send(Command::TokenReleased { id: self.id });
    }
}

/// The state of a client, for inspection.
pub(crate) struct Dump {
    pub(crate) resources: Vec<ResourceDump>,
    pub(crate) updates: BTreeMap<ResourceType, UpdateCounts>,
}

enum Command {
    Join { channel: u64, events: UnboundedSender<XdsEvent> },
    Leave { channel: u64 },
    Watch { channel: u64, watch: WatchId, resource_type: ResourceType, name: Arc<str> },
    Unwatch { channel: u64, watch: WatchId },
    TokenReleased { id: u64 },
    RegisterLoad { channel: u64, store: Arc<LoadStore> },
    UnregisterLoad { channel: u64, store: Arc<LoadStore> },
    Dump { answer: oneshot::Sender<Dump> },
}

impl XdsClient {
    /// Starts a client for one management server.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub(crate) fn start(
        config: XdsCoreConfig,
        lrs_config: LrsCoreConfig,
        server: ServerChannel,
        place: &Place,
    ) -> std::io::Result<Arc<Self>> {
        let (commands, inbox) = unbounded_channel();
        // The driver's own sender is weak, so that the inbox closes with the last handle.
        let weak = commands.downgrade();
        let (server_uri, node) = (Arc::clone(&config.server_uri), config.node.clone());
        let run = async move {
            info!(target: "xds_client", server = %config.server_uri, node = %config.node_id, "started");
            let driver = Driver::new(config, lrs_config, server, weak);
            // Inbox and driver are gone before it is logged: channels need not wait for that.
            if let Err(panicked) = catch(driver.run(inbox)).await {
                panics::log(&"xDS client", &panicked);
            }
        };
        match place {
            Place::Thread => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                std::thread::Builder::new().name("xds-client".into()).spawn(move || runtime.block_on(run))?;
            }
            Place::Runtime(_) => drop(tokio::spawn(run)),
        }
        Ok(Arc::new(Self { commands, channels: AtomicU64::new(0), server_uri, node }))
    }

    /// Adds a channel, whose events go to `events`.
    pub(crate) fn join(self: &Arc<Self>, events: UnboundedSender<XdsEvent>) -> Subscriber {
        let channel = self.channels.fetch_add(1, Ordering::Relaxed);
        self.tell(Command::Join { channel, events });
        Subscriber { client: Arc::clone(self), channel }
    }

    /// The management server.
    pub(crate) fn server_uri(&self) -> &Arc<str> {
        &self.server_uri
    }

    /// The encoded `Node`, as sent to the server.
    pub(crate) fn node(&self) -> &Bytes {
        &self.node
    }

    /// Requests all resources, as they are between two events. There is no answer if the client ends first.
    pub(crate) fn dump(&self) -> oneshot::Receiver<Dump> {
        let (answer, dump) = oneshot::channel();
        self.tell(Command::Dump { answer });
        dump
    }

    /// Whether its thread has panicked.
    pub(crate) fn has_ended(&self) -> bool {
        self.commands.is_closed()
    }

    fn tell(&self, command: Command) {
        // The driver runs while a handle exists, unless it panics; its channels then join a new client.
        let _ = self.commands.send(command);
    }
}

impl Subscriber {
    /// Completes when the client ends while this reference exists, that is, when its thread panicked.
    pub(crate) fn client_ended(&self) -> impl Future<Output = ()> + use<> {
        let commands = self.client.commands.clone();
        async move { commands.closed().await }
    }

    pub(crate) fn watch(&self, watch: WatchId, resource_type: ResourceType, name: Arc<str>) {
        self.client.tell(Command::Watch { channel: self.channel, watch, resource_type, name });
    }

    pub(crate) fn unwatch(&self, watch: WatchId) {
        self.client.tell(Command::Unwatch { channel: self.channel, watch });
    }

    /// Starts to report the load of this store (A27-41).
    pub(crate) fn register_load(&self, store: Arc<LoadStore>) {
        self.client.tell(Command::RegisterLoad { channel: self.channel, store });
    }

    pub(crate) fn unregister_load(&self, store: Arc<LoadStore>) {
        self.client.tell(Command::UnregisterLoad { channel: self.channel, store });
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.client.tell(Command::Leave { channel: self.channel });
    }
}

/// An event that a channel has not handled.
struct Outstanding {
    channel: u64,
    /// The core's token, if the event is of a response.
    token: Option<u64>,
    /// The time until which the client waits for the channel.
    until: Time,
}

struct Driver {
    core: XdsCore,
    streams: Streams,
    stream_events: UnboundedReceiver<StreamEvent>,
    load_reports: LoadReports,
    tokens: tokio::sync::mpsc::WeakUnboundedSender<Command>,
    channels: BTreeMap<u64, Listener>,
    /// Each channel numbers its own watches; the core needs one numbering.
    watches: BTreeMap<(u64, WatchId), WatchId>,
    watchers: BTreeMap<WatchId, (u64, WatchId)>,
    next_watch: u64,
    /// Events that channels have not handled. Ids are in time order.
    outstanding: BTreeMap<u64, Outstanding>,
    next_token: u64,
}

impl Driver {
    fn new(
        config: XdsCoreConfig,
        lrs_config: LrsCoreConfig,
        server: ServerChannel,
        tokens: tokio::sync::mpsc::WeakUnboundedSender<Command>,
    ) -> Self {
        let limits = config.limits;
        let (streams, stream_events) = Streams::new(server.clone(), METHOD, limits.message_bytes);
        Self {
            core: XdsCore::new(config),
            streams,
            stream_events,
            load_reports: LoadReports::new(lrs_config, server, &limits),
            tokens,
            channels: BTreeMap::new(),
            watches: BTreeMap::new(),
            watchers: BTreeMap::new(),
            next_watch: 0,
            outstanding: BTreeMap::new(),
            next_token: 0,
        }
    }

    async fn run(mut self, mut inbox: UnboundedReceiver<Command>) {
        loop {
            self.apply_effects();
            let deadline = self.core.next_deadline();
            let report_deadline = self.load_reports.next_deadline();
            let token_deadline = self.outstanding.values().next().map(|first| first.until);
            tokio::select! {
                // A fixed order makes simulations repeatable. None starves another: deadlines move on, and streams are
                // read one message at a time, as the core permits. What channels ask for is not bounded, so it is last.
                biased;
                () = clock::sleep_until(deadline) => self.handle(Input::Tick),
                () = clock::sleep_until(token_deadline) => self.read_on(),
                () = clock::sleep_until(report_deadline) => self.load_reports.handle(lrs::Input::Tick),
                Some(event) = self.stream_events.recv() => self.handle(input(event)),
                event = self.load_reports.next_event() => self.load_reports.handle(event),
                command = inbox.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => break,
                },
            }
        }
        debug!(target: "xds_client", "ended");
    }

    fn handle(&mut self, input: Input) {
        self.core.handle(clock::now(), input);
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Join { channel, events } => {
                self.channels.insert(channel, Listener::new(events));
            }
            Command::Leave { channel } => {
                self.channels.remove(&channel);
                let of_channel = (channel, WatchId(0))..=(channel, WatchId(u64::MAX));
                let left: Vec<_> = self.watches.range(of_channel).map(|((_, watch), _)| *watch).collect();
                left.into_iter().for_each(|watch| self.unwatch(channel, watch));
                self.load_reports.leave(channel);
            }
            Command::Watch { channel, watch, resource_type, name } => {
                self.next_watch += 1;
                let id = WatchId(self.next_watch);
                self.watches.insert((channel, watch), id);
                self.watchers.insert(id, (channel, watch));
                self.handle(Input::Watch { id, resource_type, name });
            }
            Command::Unwatch { channel, watch } => self.unwatch(channel, watch),
            Command::TokenReleased { id } => self.release(id),
            Command::RegisterLoad { channel, store } => self.load_reports.register(channel, store),
            Command::UnregisterLoad { channel, store } => self.load_reports.unregister(channel, store),
            Command::Dump { answer } => {
                let dump =
                    || Dump { resources: self.core.dump(), updates: self.core.update_counts().clone() };
                // Who looks must not disturb the channels, even if there is a bug in the way.
                match contain(dump) {
                    // Whoever asked may have given up.
                    Ok(dump) => drop(answer.send(dump)),
                    Err(panicked) => panics::log(&"dump of the xDS client", &panicked),
                }
            }
        }
    }

    fn unwatch(&mut self, channel: u64, watch: WatchId) {
        if let Some(id) = self.watches.remove(&(channel, watch)) {
            self.watchers.remove(&id);
            if let Some(listener) = self.channels.get_mut(&channel) {
                listener.forget(watch);
            }
            self.handle(Input::Unwatch { id });
        }
    }

    fn apply_effects(&mut self) {
        while let Some(effect) = self.core.poll_effect() {
            match effect {
                Effect::OpenStream { stream } => self.streams.open(stream),
                Effect::CloseStream { stream } => self.streams.close(stream),
                Effect::Send { stream, bytes } => self.streams.send(stream, bytes),
                Effect::ReadNext { stream } => self.streams.read_next(stream),
                Effect::Notify { watch, event, token } => self.notify(watch, event, token),
            }
        }
    }

    /// A channel has handled an event.
    fn release(&mut self, id: u64) {
        match self.outstanding.remove(&id) {
            Some(Outstanding { token, .. }) => self.release_token(token),
            // The client was no longer waiting for it.
            None => self.channels.values_mut().for_each(|listener| listener.caught_up(id)),
        }
    }

    /// Stops waiting for channels that took too long, until they have caught up: one whose runtime is not being driven
    /// must not delay every response.
    fn read_on(&mut self) {
        let now = clock::now();
        while let Some(first) = self.outstanding.first_entry().filter(|first| first.get().until <= now) {
            let (id, Outstanding { channel, token, .. }) = first.remove_entry();
            debug!(target: "xds_client", channel, "a channel is slow to act on a resource; reading on without it");
            if let Some(listener) = self.channels.get_mut(&channel) {
                listener.is_late(id);
            }
            self.release_token(token);
        }
    }

    fn release_token(&mut self, token: Option<u64>) {
        if let Some(token) = token {
            self.handle(Input::TokenReleased { token });
        }
    }

    fn notify(&mut self, id: WatchId, event: WatchEvent, token: Option<u64>) {
        let Some(commands) = self.tokens.upgrade() else { return };
        let Some(&(channel, watch)) = self.watchers.get(&id) else {
            // The watcher has gone.
            return self.release_token(token);
        };
        // Also what is not of a response: of a channel that nobody runs it must be known that it does not keep up.
        self.next_token += 1;
        let until = clock::now() + TOKEN_PATIENCE;
        self.outstanding.insert(self.next_token, Outstanding { channel, token, until });
        let token = Some(EventToken { id: self.next_token, commands });
        // If it cannot be delivered, the token is dropped, which releases it.
        if let Some(listener) = self.channels.get_mut(&channel) {
            listener.tell(watch, event, token);
        }
    }
}

fn input(StreamEvent { stream, kind }: StreamEvent) -> Input {
    match kind {
        StreamEventKind::Up => Input::StreamUp { stream },
        StreamEventKind::Sent => Input::SendDone { stream },
        StreamEventKind::Message(bytes) => Input::Message { stream, bytes },
        StreamEventKind::Down { code, reason } => Input::StreamDown { stream, code, reason },
    }
}

#[cfg(test)]
mod tests {
    use proxyless_xds::Gates;
    use proxyless_xds::bootstrap::Bootstrap;
    use proxyless_xds::client::{ResourceError, ResourceErrorKind};

    use super::*;

    /// What no response brought: the server cannot be reached, for another reason each time.
    fn unreachable(round: usize) -> WatchEvent {
        WatchEvent::Ambient(Some(Arc::new(ResourceError {
            resource_type: ResourceType::Cluster,
            name: "c".into(),
            server: "server".into(),
            node: "node".into(),
            kind: ResourceErrorKind::Transient(round.to_string()),
        })))
    }

    #[tokio::test]
    async fn the_inbox_of_a_channel_that_nobody_runs_does_not_grow() {
        let bootstrap = Bootstrap::builder().server("127.0.0.1:1").node_id("n").build().unwrap();
        let (commands, mut inbox) = unbounded_channel();
        let config = XdsCoreConfig::new(&bootstrap, Gates::default(), 1);
        let lrs_config = LrsCoreConfig::new(&bootstrap, 1);
        let server = ServerChannel::new(bootstrap.server().target.clone(), None);
        let mut driver = Driver::new(config, lrs_config, server, commands.downgrade());
        let (events, mut told) = unbounded_channel();
        driver.on_command(Command::Join { channel: 1, events });
        let (watch, name) = (WatchId(7), Arc::from("c"));
        driver.on_command(Command::Watch { channel: 1, watch, resource_type: ResourceType::Cluster, name });
        let id = driver.watches[&(1, watch)];
        driver.notify(id, unreachable(0), None);
        // It has had its time.
        driver.outstanding.values_mut().for_each(|outstanding| outstanding.until = Time::ZERO);
        driver.read_on();
        for round in 1..1000 {
            driver.notify(id, unreachable(round), None);
        }
        assert_eq!(told.len(), 1, "the rest is joined");
        // Those that were not delivered are not waited for.
        while let Ok(command) = inbox.try_recv() {
            driver.on_command(command);
        }
        assert!(driver.outstanding.is_empty());
        // The channel runs again.
        drop(told.try_recv().expect("the first event"));
        while let Ok(command) = inbox.try_recv() {
            driver.on_command(command);
        }
        let XdsEvent { event, .. } = told.try_recv().expect("the newest event");
        assert_eq!(format!("{event:?}"), format!("{:?}", unreachable(999)));
        assert!(told.try_recv().is_err());
    }
}
