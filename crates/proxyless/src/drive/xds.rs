//! Runs an `XdsCore`, with its load reports, on a separate thread.
//!
//! A client is shared by channels of any runtime, so it belongs to none of them: it would die with the first caller's
//! runtime, and decoding megabytes must not stall user tasks. The thread starts with the first watch and ends with the
//! last handle.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use proxyless_sans_io::metrics::{GaugeSource, Instrument, LabelValue, Meter};
use proxyless_transport::Connector;
use proxyless_transport::panics::{catch, contain};
use proxyless_xds::bootstrap::Bootstrap;
use proxyless_xds::client::{
    Effect, Input, ReadToken, ResourceDump, ServerId, UpdateCounts, WatchEvent, WatchId, WatchKey, WatcherId,
    XdsCore, XdsCoreConfig,
};
use proxyless_xds::lrs::{LoadStore, LrsCoreConfig};
use proxyless_xds::resource::{Resource, ResourceType};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tracing::{debug, info};

use super::lookahead::Lookahead;
use super::lrs::LoadReports;
use super::panics;
use super::security::MaybeTls;
use super::stream::{StreamEvent, StreamEventKind, Streams};
use crate::clock::{self, Alarm};
use crate::drive::management_server::ManagementServer;
use crate::targets;

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// A reference to a running xDS client. Its thread ends when the last reference is dropped.
pub(crate) struct XdsClient {
    commands: UnboundedSender<Command>,
    channels: AtomicU64,
    pub(crate) server_uri: Arc<str>,
    /// The encoded `Node`, as sent to the server.
    pub(crate) node: Bytes,
}

/// One channel's subscription to the client; dropping it ends the channel's watches.
pub(crate) struct Subscriber {
    client: Arc<XdsClient>,
    channel: WatcherId,
    /// Recorders hold weak references to it.
    _gauges: Option<Arc<ClientGauges>>,
}

/// An event for a channel. Sent in a box, because a queue has room for many.
pub(crate) struct XdsEvent {
    /// The channel's id of the watch.
    pub(crate) watch: WatchId,
    pub(crate) event: WatchEvent,
    /// Dropped when the channel has handled the event.
    pub(crate) token: TokenGuard,
}

/// Returns a token to the client when dropped: a channel has handled an event, or will never.
pub(crate) struct TokenGuard {
    token: ReadToken,
    commands: UnboundedSender<Command>,
}

impl Drop for TokenGuard {
    fn drop(&mut self) {
        // A client that has ended reads nothing more.
        let _ = self.commands.send(Command::TokenReleased { token: self.token });
    }
}

/// The state of a client, for inspection.
pub(crate) struct Dump {
    pub(crate) resources: Vec<ResourceDump>,
    /// The target of each channel.
    pub(crate) targets: BTreeMap<WatcherId, Arc<str>>,
    pub(crate) updates: BTreeMap<ResourceType, UpdateCounts>,
}

/// A channel as its client knows it.
struct JoinedChannel {
    target: Arc<str>,
    /// The authority by which the channel chooses its virtual host.
    authority: Arc<str>,
    events: UnboundedSender<Box<XdsEvent>>,
}

enum Command {
    Join { channel: WatcherId, joined: JoinedChannel, meter: Meter },
    Leave { channel: WatcherId },
    Watch { watch: WatchKey, resource_type: ResourceType, name: Arc<str> },
    Unwatch { watch: WatchKey },
    TokenReleased { token: ReadToken },
    RegisterLoad { channel: WatcherId, store: Arc<LoadStore> },
    UnregisterLoad { channel: WatcherId, store: Arc<LoadStore> },
    Dump { answer: oneshot::Sender<Dump> },
    Gauges { target: Arc<str>, answer: mpsc::Sender<Vec<GaugeValue>> },
}

impl XdsClient {
    /// Starts a client for the servers of a bootstrap. With a connector it runs in the caller's runtime, where a test can
    /// pause the time, and reaches its servers through the connector; without, it has a thread.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub(crate) fn start(
        config: XdsCoreConfig,
        bootstrap: &Bootstrap,
        connector: Option<Arc<dyn Connector>>,
        tls: &MaybeTls,
    ) -> std::io::Result<Arc<Self>> {
        let (commands, inbox) = unbounded_channel();
        // The driver's own sender is weak, so that the inbox closes with the last handle.
        let weak = commands.downgrade();
        let (server_uri, node) = (Arc::from(bootstrap.server().uri.as_str()), config.node.clone());
        let in_runtime = connector.is_some();
        let servers = bootstrap.server_lists().servers.into_iter().map(|server| {
            let lrs_config = LrsCoreConfig::new(bootstrap, &server, clock::seed());
            (lrs_config, ManagementServer::new(&server, connector.clone(), tls.clone()))
        });
        let servers: Vec<_> = servers.collect();
        let run = async move {
            let server = config.servers.first().map(|server| &*server.uri);
            info!(target: targets::XDS_CLIENT, server, node = %config.node_id, "started");
            let driver = Driver::new(config, servers, weak);
            // Inbox and driver are gone before it is logged: channels need not wait for that.
            if let Err(panicked) = catch(driver.run(inbox)).await {
                panics::log(&"xDS client", &panicked);
            }
        };
        if in_runtime {
            tokio::spawn(run);
        } else {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            // As a task: each wake-up of the future of `block_on` is a system call, even from its own thread.
            let run = async { drop(tokio::spawn(run).await) };
            std::thread::Builder::new().name("xds-client".into()).spawn(move || runtime.block_on(run))?;
        }
        Ok(Arc::new(Self { commands, channels: AtomicU64::new(0), server_uri, node }))
    }

    /// Adds a channel to `target`, whose events go to `events`. `authority` chooses its virtual host.
    pub(crate) fn join(
        self: &Arc<Self>,
        target: Arc<str>,
        authority: Arc<str>,
        meter: &Meter,
        events: UnboundedSender<Box<XdsEvent>>,
    ) -> Subscriber {
        let channel = WatcherId(self.channels.fetch_add(1, Ordering::Relaxed));
        let joined = JoinedChannel { target, authority, events };
        self.tell(Command::Join { channel, joined, meter: meter.clone() });
        let gauges = ClientGauges::offer(&self.commands, meter);
        Subscriber { client: Arc::clone(self), channel, _gauges: gauges }
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
        let watch = WatchKey { watcher: self.channel, watch };
        self.client.tell(Command::Watch { watch, resource_type, name });
    }

    pub(crate) fn unwatch(&self, watch: WatchId) {
        self.client.tell(Command::Unwatch { watch: WatchKey { watcher: self.channel, watch } });
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

/// A gauge with its labels and its value.
type GaugeValue = (&'static Instrument, Vec<LabelValue>, f64);

/// The gauges of the channels to one target (gRFC A78).
struct ClientGauges {
    commands: WeakUnboundedSender<Command>,
    target: Arc<str>,
}

impl ClientGauges {
    /// Offers the gauges to the recorders of a channel.
    fn offer(commands: &UnboundedSender<Command>, meter: &Meter) -> Option<Arc<Self>> {
        if !meter.is_enabled() {
            return None;
        }
        let gauges = Arc::new(Self { commands: commands.downgrade(), target: meter.target().into() });
        let weak = Arc::downgrade(&gauges);
        meter.recorders().iter().for_each(|recorder| recorder.observe(weak.clone()));
        Some(gauges)
    }
}

impl GaugeSource for ClientGauges {
    fn read(&self, observe: &mut dyn FnMut(&'static Instrument, &[LabelValue], f64)) {
        /// The client answers between two events.
        const PATIENCE: Duration = Duration::from_secs(1);
        let Some(commands) = self.commands.upgrade() else { return };
        let (answer, values) = mpsc::channel();
        if commands.send(Command::Gauges { target: Arc::clone(&self.target), answer }).is_err() {
            return;
        }
        // Reading does not keep the client alive.
        drop(commands);
        for (instrument, labels, value) in values.recv_timeout(PATIENCE).unwrap_or_default() {
            observe(instrument, &labels, value);
        }
    }
}

struct Driver {
    core: XdsCore,
    /// By [`ServerId`].
    servers: Vec<ManagementServer>,
    streams: Streams,
    stream_events: UnboundedReceiver<StreamEvent>,
    load_reports: LoadReports,
    tokens: WeakUnboundedSender<Command>,
    channels: BTreeMap<WatcherId, JoinedChannel>,
    lookahead: Lookahead,
}

impl Driver {
    fn new(
        config: XdsCoreConfig,
        servers: Vec<(LrsCoreConfig, ManagementServer)>,
        tokens: WeakUnboundedSender<Command>,
    ) -> Self {
        let limits = config.limits;
        let (streams, stream_events) = Streams::new(METHOD, limits.message_bytes);
        Self {
            core: XdsCore::new(config),
            servers: servers.iter().map(|(_, server)| server.for_other_streams()).collect(),
            streams,
            stream_events,
            load_reports: LoadReports::new(servers, &limits),
            tokens,
            channels: BTreeMap::new(),
            lookahead: Lookahead::default(),
        }
    }

    async fn run(mut self, mut inbox: UnboundedReceiver<Command>) {
        let (mut ticks, mut reports) = (Alarm::default(), Alarm::default());
        loop {
            self.apply_effects();
            let deadline = self.core.next_deadline();
            let report_deadline = self.load_reports.next_deadline();
            tokio::select! {
                // A fixed order makes simulations repeatable. None starves another: deadlines move on, and streams are
                // read one message at a time, as the core permits. Commands are unbounded, so they come last.
                biased;
                () = ticks.at(deadline) => self.handle(Input::Tick),
                () = reports.at(report_deadline) => self.load_reports.tick(),
                Some(event) = self.stream_events.recv() => self.handle(input(event)),
                (server, event) = self.load_reports.next_event() => self.load_reports.handle(server, event),
                command = inbox.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => break,
                },
            }
        }
        debug!(target: targets::XDS_CLIENT, "ended");
    }

    fn handle(&mut self, input: Input) {
        self.core.handle(clock::now(), input);
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Join { channel, joined, meter } => {
                self.core.meter(channel, &meter);
                self.channels.insert(channel, joined);
            }
            Command::Leave { channel } => {
                self.channels.remove(&channel);
                self.handle(Input::Leave { watcher: channel });
                self.load_reports.leave(channel);
            }
            Command::Watch { watch, resource_type, name } => {
                self.handle(Input::Watch { watch, resource_type, name });
            }
            Command::Unwatch { watch } => self.handle(Input::Unwatch { watch }),
            Command::TokenReleased { token } => {
                self.handle(Input::TokenReleased { token });
                // The channel's own watches are there.
                for watch in self.lookahead.end(token) {
                    self.handle(Input::Unwatch { watch });
                }
            }
            Command::RegisterLoad { channel, store } => {
                let server = self.core.load_server(store.cluster());
                self.load_reports.register(channel, store, server);
            }
            Command::UnregisterLoad { channel, store } => self.load_reports.unregister(channel, &store),
            Command::Gauges { target, answer } => {
                let gauges = || {
                    let mut values = Vec::new();
                    self.core.gauges(&target, &mut |instrument, labels, value| {
                        values.push((instrument, labels.to_vec(), value));
                    });
                    values
                };
                match contain(gauges) {
                    // The requester may have lost patience.
                    Ok(values) => drop(answer.send(values)),
                    Err(panicked) => panics::log(&"gauges of the xDS client", &panicked),
                }
            }
            Command::Dump { answer } => {
                let dump = || Dump {
                    resources: self.core.dump(),
                    targets: self
                        .channels
                        .iter()
                        .map(|(&id, joined)| (id, Arc::clone(&joined.target)))
                        .collect(),
                    updates: self.core.update_counts().clone(),
                };
                // Inspection must not disturb the channels, even if it panics.
                match contain(dump) {
                    // The requester may have gone.
                    Ok(dump) => drop(answer.send(dump)),
                    Err(panicked) => panics::log(&"dump of the xDS client", &panicked),
                }
            }
        }
    }

    fn apply_effects(&mut self) {
        let mut arrivals = VecDeque::new();
        while let Some(effect) = self.next_effect(&mut arrivals) {
            match effect {
                Effect::OpenStream { stream, server: ServerId(index) } => {
                    if let Some(server) = self.servers.get(index) {
                        self.streams.open(server, stream);
                    }
                }
                Effect::CloseStream { stream } => self.streams.close(stream),
                Effect::Disconnect { server: ServerId(index) } => {
                    if let Some(server) = self.servers.get_mut(index) {
                        server.disconnect();
                    }
                }
                Effect::Send { stream, request } => {
                    self.streams.send(stream, &[&request.head, &request.names])
                }
                Effect::ReadNext { stream } => self.streams.read_next(stream),
                Effect::Notify { watch, event, token } => arrivals.extend(self.notify(watch, event, token)),
                Effect::MoveLoad => self.load_reports.move_stores(|cluster| self.core.load_server(cluster)),
            }
        }
    }

    /// The next effect. When there is none, the channels have their events and the server its ACKs: then the client looks
    /// ahead, which may lead to further effects.
    fn next_effect(&mut self, arrivals: &mut VecDeque<Arrival>) -> Option<Effect> {
        loop {
            if let Some(effect) = self.core.poll_effect() {
                return Some(effect);
            }
            let Arrival { watch, resource, token } = arrivals.pop_front()?;
            let Some(channel) = self.channels.get(&watch.watcher) else { continue };
            for input in self.lookahead.begin(&self.core, &channel.authority, watch, &resource, token) {
                self.handle(input);
            }
        }
    }

    /// Passes an event to its channel. Returns the resource that it brings, if any.
    fn notify(&mut self, watch: WatchKey, event: WatchEvent, token: ReadToken) -> Option<Arrival> {
        if Lookahead::owns(watch) {
            self.handle(Input::TokenReleased { token });
            return None;
        }
        let commands = self.tokens.upgrade()?;
        // If the channel is gone, the guard is dropped, which returns the token.
        let guard = TokenGuard { token, commands };
        let channel = self.channels.get(&watch.watcher)?;
        let arrival = match &event {
            WatchEvent::Changed(Ok(resource)) => Some(Arrival { watch, resource: resource.clone(), token }),
            _ => None,
        };
        // Dropped with its token if the channel has ended.
        let _ = channel.events.send(Box::new(XdsEvent { watch: watch.watch, event, token: guard }));
        arrival
    }
}

/// A resource that a channel has been told of, and whose token it has not returned yet.
struct Arrival {
    watch: WatchKey,
    resource: Resource,
    token: ReadToken,
}

fn input(StreamEvent { stream, kind }: StreamEvent) -> Input {
    match kind {
        StreamEventKind::Up => Input::StreamUp { stream },
        StreamEventKind::Sent => Input::SendDone { stream },
        StreamEventKind::Message(bytes) => Input::Message { stream, bytes },
        StreamEventKind::Down { code, reason } => Input::StreamDown { stream, code, reason },
    }
}
