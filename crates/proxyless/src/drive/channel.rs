//! Runs a `ChannelCore` in the task of its channel, until the last handle of the channel is gone.

use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{CallCounts, ConnectivityState, Wake};
use proxyless_mesh::channel_core::{Activity, ChannelCore, ChannelEffect, ChannelInput};
use proxyless_sans_io::Time;
use proxyless_transport::panics::contain;
use proxyless_xds::client::{ResourceError, ResourceErrorKind, WatchEvent};
use proxyless_xds::lrs::LoadStore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tracing::debug;

use super::connection::{Connections, Report};
use super::dns::Lookups;
use super::panics;
use super::report::{Ids, report};
use super::restarts::Restarts;
use super::supervisor::{History, Use};
use super::xds::{Subscriber, XdsEvent};
use crate::client_pool::ClientSource;
use crate::clock;
use crate::inspect::ChannelReport;
use crate::snapshot::Published;
use crate::state::ChannelState;

/// A request of the channel's handles to its driver.
pub(crate) enum Command {
    ExitIdle,
    ResetBackoff,
    Report { answer: oneshot::Sender<ChannelReport> },
}

/// Requests a report from a channel's driver. There is none if the driver ends first.
pub(crate) fn ask_for_report(
    commands: &UnboundedSender<Command>,
) -> impl Future<Output = Option<ChannelReport>> + use<> {
    let (answer, report) = oneshot::channel();
    let asked = commands.send(Command::Report { answer }).is_ok();
    async move { if asked { report.await.ok() } else { None } }
}

/// Wakes the driver from the data path: a picker raised a signal, or a cluster's last RPC ended.
#[derive(Default)]
pub(crate) struct DriverWake(Notify);

impl Wake for DriverWake {
    fn wake(&self) {
        self.0.notify_one();
    }
}

/// The driver of one channel.
pub(super) struct Driver {
    pub(super) id: u64,
    pub(super) target: Arc<str>,
    pub(super) core: ChannelCore,
    pub(super) wake: Arc<DriverWake>,
    pub(super) published: Arc<Published>,
    pub(super) clients: ClientSource,
    pub(super) connections: Connections,
    pub(super) reports: UnboundedReceiver<Report>,
    pub(super) dns: Lookups,
}

/// Awaits the future; pends if there is none.
async fn until(future: Option<impl Future<Output = ()>>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// A driver at work.
pub(super) struct Running {
    driver: Driver,
    events: UnboundedSender<XdsEvent>,
    xds_events: UnboundedReceiver<XdsEvent>,
    /// The channel's subscription to the xDS client; created with the first watch (A27-35), dropped when the channel is
    /// IDLE.
    subscriber: Option<Subscriber>,
    joined: Time,
    /// Set after a panic of the xDS client: the time to join a new one.
    rejoin_at: Option<Time>,
    rejoins: Restarts,
    /// The load stores registered with the xDS client.
    loads: Vec<Arc<LoadStore>>,
    pub(super) history: History,
    ids: Ids,
}

impl Running {
    pub(super) fn new(driver: Driver, history: History) -> Self {
        let (events, xds_events) = unbounded_channel();
        Self {
            driver,
            events,
            xds_events,
            subscriber: None,
            joined: Time::ZERO,
            rejoin_at: None,
            rejoins: Restarts::default(),
            loads: Vec::new(),
            history,
            ids: Ids::default(),
        }
    }

    /// Runs until the last handle of the channel is gone. If it panics, this is to be dropped.
    pub(super) async fn run(&mut self, wanted: Use, commands: &mut UnboundedReceiver<Command>) {
        if wanted == Use::InUse {
            self.handle(ChannelInput::ExitIdle);
        }
        loop {
            self.apply_effects();
            let deadline = self.driver.core.next_deadline();
            let client_ended = self.subscriber.as_ref().map(Subscriber::client_ended);
            tokio::select! {
                // A fixed order makes simulations repeatable. None starves another: deadlines move on, what servers
                // send waits for the core, and signals of pickers coalesce. Requests of users are not bounded, so they
                // come last.
                biased;
                () = clock::sleep_until(deadline) => self.handle(ChannelInput::Tick),
                () = clock::sleep_until(self.rejoin_at) => self.rejoin(),
                () = until(client_ended) => self.leave_client(),
                Some(event) = self.xds_events.recv() => self.on_xds(event),
                Some(report) = self.driver.reports.recv() => self.on_report(report),
                answer = self.driver.dns.next() => self.handle(answer),
                () = self.driver.wake.0.notified() => self.handle(ChannelInput::Wake),
                command = commands.recv() => match command {
                    Some(Command::ExitIdle) => self.handle(ChannelInput::ExitIdle),
                    Some(Command::ResetBackoff) => self.handle(ChannelInput::ResetBackoff),
                    Some(Command::Report { answer }) => self.report(answer),
                    None => break,
                },
            }
        }
        self.handle(ChannelInput::Shutdown);
        self.apply_effects();
        debug!(target: "channel", target_uri = %self.driver.target, "ended");
    }

    /// Whether somebody uses the channel.
    pub(super) fn usage(&self) -> Use {
        if self.driver.core.is_idle() { Use::Idle } else { Use::InUse }
    }

    /// The calls that ended on its connections.
    pub(super) fn calls(&self) -> CallCounts {
        self.driver.core.describe(clock::now()).calls
    }

    fn handle(&mut self, input: ChannelInput) {
        self.history.trace.input(&input);
        self.driver.core.handle(clock::now(), input);
        for event in self.driver.core.take_events() {
            tracing::info!(target: "channel", target_uri = %self.driver.target, "{event}");
            self.history.trace.policy(event);
        }
    }

    /// Handles an event and all that are queued behind it: a response with a thousand resources is one step.
    fn on_xds(&mut self, first: XdsEvent) {
        let (mut events, mut tokens) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(XdsEvent { watch, event, token }) = next {
            self.driver.published.missing().answered(watch);
            events.push((watch, event));
            tokens.push(token);
            next = self.xds_events.try_recv().ok();
        }
        self.handle(ChannelInput::Resources { events });
        // The follow-up watches are sent before the tokens are released.
        self.apply_effects();
        drop(tokens);
    }

    fn report(&mut self, answer: oneshot::Sender<ChannelReport>) {
        // Who looks must not disturb the channel, even if there is a bug in the way.
        match contain(|| report(&self.driver, &self.history, &mut self.ids)) {
            // Whoever asked may have given up.
            Ok(report) => drop(answer.send(report)),
            Err(panicked) => panics::log(&format_args!("report of {}", self.driver.target), &panicked),
        }
    }

    /// Handles a report and all that are queued behind it: a thousand new connections are one step.
    fn on_report(&mut self, first: Report) {
        let mut events = Vec::new();
        let mut next = Some(first);
        while let Some(report) = next {
            let address = report.address();
            if let Some((connection, attempt, event)) = self.driver.connections.on_report(report) {
                self.driver.published.connecting().ended(connection, attempt);
                self.history.trace.connection(connection, address, &event);
                events.push((connection, attempt, event));
            }
            next = self.driver.reports.try_recv().ok();
        }
        if !events.is_empty() {
            self.handle(ChannelInput::Connections { events });
        }
    }

    fn apply_effects(&mut self) {
        self.apply_all();
        // The xDS client ends with its last channel: an IDLE one needs none.
        if self.driver.core.is_idle() {
            self.subscriber = None;
            self.rejoin_at = None;
        }
    }

    fn apply_all(&mut self) {
        while let Some(effect) = self.driver.core.poll_effect() {
            let connections = &mut self.driver.connections;
            match effect {
                ChannelEffect::Watch { watch, resource_type, name } => {
                    self.history.trace.watch(watch, resource_type, &name);
                    if self.rejoin_at.is_some() {
                        // It is requested with the other watches.
                        self.driver.published.missing().asked(watch, resource_type, &name);
                        continue;
                    }
                    let first = self.subscriber.is_none();
                    match self.subscriber() {
                        Ok(subscriber) => {
                            subscriber.watch(watch, resource_type, Arc::clone(&name));
                            self.driver.published.missing().asked(watch, resource_type, &name);
                            if first {
                                self.driver.published.set_state(ChannelState::Connecting);
                                self.history.trace.state(ConnectivityState::Connecting);
                            }
                        }
                        // RPCs fail with the reason, instead of waiting for a resource that was never requested.
                        Err(why) => {
                            let bootstrap = &self.driver.clients.key.bootstrap;
                            let error = ResourceError {
                                resource_type,
                                name,
                                server: bootstrap.server().uri.as_str().into(),
                                node: bootstrap.node_id().into(),
                                kind: ResourceErrorKind::Transient(why),
                            };
                            let event = WatchEvent::Changed(Err(Arc::new(error)));
                            self.handle(ChannelInput::Resource { watch, event });
                        }
                    }
                }
                ChannelEffect::Unwatch { watch } => {
                    self.driver.published.missing().answered(watch);
                    self.history.trace.unwatch(watch);
                    if let Some(subscriber) = &self.subscriber {
                        subscriber.unwatch(watch);
                    }
                }
                ChannelEffect::Connect { connection, attempt, address, timeout, keepalive_interval } => {
                    self.driver.published.connecting().began(connection, attempt, address);
                    self.history.trace.connecting(connection, address);
                    connections.connect(connection, attempt, address, timeout, keepalive_interval);
                }
                ChannelEffect::CancelConnect { connection, attempt } => {
                    self.driver.published.connecting().ended(connection, attempt);
                    connections.cancel(connection, attempt)
                }
                ChannelEffect::CloseGracefully { connection, attempt } => {
                    connections.close_gracefully(connection, attempt);
                }
                ChannelEffect::DnsQuery { query, host, port } => {
                    self.history.trace.query(query, &host, port);
                    self.driver.dns.query(query, host, port);
                }
                ChannelEffect::DnsCancel { query } => {
                    self.history.trace.cancel_query(query);
                    self.driver.dns.cancel(query);
                }
                ChannelEffect::RegisterLoad { store } => {
                    self.loads.push(Arc::clone(&store));
                    if let Some(subscriber) = &self.subscriber {
                        subscriber.register_load(store);
                    }
                }
                ChannelEffect::UnregisterLoad { store } => {
                    self.loads.retain(|known| !Arc::ptr_eq(known, &store));
                    if let Some(subscriber) = &self.subscriber {
                        subscriber.unregister_load(store);
                    }
                }
                ChannelEffect::CheckActivity => {
                    let used = self.driver.published.activity().take();
                    let activity = if used { Activity::InUse } else { Activity::Unused };
                    self.handle(ChannelInput::Activity(activity));
                }
                ChannelEffect::EnterIdle => {
                    debug!(target: "channel", target_uri = %self.driver.target, "idle");
                    self.history.trace.state(ConnectivityState::Idle);
                    self.driver.published.enter_idle();
                }
                ChannelEffect::Publish(data) => {
                    debug!(target: "channel", target_uri = %self.driver.target, generation = data.generation,
                        state = %data.state, "published");
                    self.history.trace.state(data.state);
                    self.driver.published.publish(data);
                }
            }
        }
    }

    /// The xDS client has panicked. Its resources stay in use until a new one delivers others.
    fn leave_client(&mut self) {
        let now = clock::now();
        let pause = self.rejoins.pause(now.since(self.joined), &mut clock::rng());
        tracing::error!(target: "channel", target_uri = %self.driver.target, ?pause,
            "the xDS client panicked; another one follows after a pause");
        self.history.trace.client_panicked();
        self.subscriber = None;
        self.rejoin_at = Some(now + pause);
    }

    /// Requests all watched resources from a new xDS client.
    fn rejoin(&mut self) {
        let (watches, loads) = (self.history.trace.watched(), self.loads.clone());
        self.rejoin_at = match self.subscriber() {
            Ok(subscriber) => {
                for (watch, resource_type, name) in watches {
                    subscriber.watch(watch, resource_type, name);
                }
                loads.into_iter().for_each(|store| subscriber.register_load(store));
                None
            }
            Err(_) => Some(clock::now() + self.rejoins.pause(Duration::ZERO, &mut clock::rng())),
        };
    }

    /// The channel's subscription, or the reason why there is no client.
    fn subscriber(&mut self) -> Result<&Subscriber, String> {
        let subscriber = match self.subscriber.take() {
            Some(subscriber) => subscriber,
            None => {
                let client = self.driver.clients.client().map_err(|error| {
                    tracing::error!(target: "xds_client", %error, "cannot start the xDS client");
                    format!("cannot start the xDS client: {error}")
                })?;
                self.joined = clock::now();
                client.join(self.events.clone())
            }
        };
        Ok(self.subscriber.insert(subscriber))
    }
}
