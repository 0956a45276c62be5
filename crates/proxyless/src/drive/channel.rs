//! Runs a `ChannelCore` as a task of the caller's runtime, until the last handle of the channel is gone.

use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{ConnectivityState, Wake};
use proxyless_mesh::channel_core::{Activity, ChannelCore, ChannelEffect, ChannelInput};
use proxyless_sans_io::Time;
use proxyless_xds::client::{ResourceError, ResourceErrorKind, WatchEvent};
use proxyless_xds::lrs::LoadStore;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tracing::debug;

use super::connection::{Connections, Report};
use super::dns::Lookups;
use super::panics;
use super::report::{Ids, report};
use super::trace::Trace;
use super::xds::{Subscriber, XdsEvent};
use crate::client_pool::ClientSource;
use crate::clock;
use crate::inspect::ChannelReport;
use crate::snapshot::{End, Published};
use crate::state::ChannelState;

/// How long a channel waits before it looks for another xDS client in place of one that panicked.
const REJOIN_DELAY: Duration = Duration::from_secs(1);

/// What handles of a channel ask of its driver.
pub(crate) enum Command {
    ExitIdle,
    ResetBackoff,
    Report { answer: oneshot::Sender<ChannelReport> },
}

/// Asks a channel's driver for a report. There is none if the driver ends first.
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

/// One channel's driver.
pub(crate) struct Driver {
    pub(crate) id: u64,
    pub(crate) target: Arc<str>,
    pub(crate) core: ChannelCore,
    pub(crate) wake: Arc<DriverWake>,
    pub(crate) published: Arc<Published>,
    pub(crate) clients: ClientSource,
    pub(crate) connections: Connections,
    pub(crate) reports: UnboundedReceiver<Report>,
    pub(crate) dns: Lookups,
}

impl Driver {
    pub(crate) async fn run(self, commands: UnboundedReceiver<Command>) {
        panics::guard("channel", self.run_unguarded(commands)).await;
    }

    async fn run_unguarded(self, mut commands: UnboundedReceiver<Command>) {
        let (events, mut xds_events) = unbounded_channel();
        let mut running = Running {
            driver: self,
            events,
            subscriber: None,
            rejoin_at: None,
            loads: Vec::new(),
            created: clock::now(),
            trace: Trace::default(),
            ids: Ids::default(),
        };
        loop {
            running.apply_effects();
            let deadline = running.driver.core.next_deadline();
            let client_ended = running.subscriber.as_ref().map(Subscriber::client_ended);
            tokio::select! {
                // A fixed order makes simulations repeatable. None starves another: deadlines move on, and what servers
                // send waits for the core. What users and their RPCs cause is not bounded, so it comes last.
                biased;
                () = clock::sleep_until(deadline) => running.handle(ChannelInput::Tick),
                () = clock::sleep_until(running.rejoin_at) => running.rejoin(),
                () = until(client_ended) => running.leave_client(),
                Some(event) = xds_events.recv() => running.on_xds(event, &mut xds_events),
                Some(report) = running.driver.reports.recv() => running.on_report(report),
                answer = running.driver.dns.next() => running.handle(answer),
                command = commands.recv() => match command {
                    Some(Command::ExitIdle) => running.handle(ChannelInput::ExitIdle),
                    Some(Command::ResetBackoff) => running.handle(ChannelInput::ResetBackoff),
                    Some(Command::Report { answer }) => running.report(answer),
                    None => break,
                },
                () = running.driver.wake.0.notified() => running.handle(ChannelInput::Wake),
            }
        }
        running.handle(ChannelInput::Shutdown);
        running.apply_effects();
        debug!(target: "channel", target_uri = %running.driver.target, "ended");
    }
}

/// Also if the runtime drops the driver unfinished, or before it began.
impl Drop for Driver {
    fn drop(&mut self) {
        self.published.end(if std::thread::panicking() { End::Panicked } else { End::Dropped });
    }
}

/// What the future gives; never, if there is none.
async fn until(future: Option<impl Future<Output = ()>>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

struct Running {
    driver: Driver,
    events: UnboundedSender<XdsEvent>,
    /// The channel's place at the xDS client; taken when the first watch starts (A27-35), left when the channel is IDLE.
    subscriber: Option<Subscriber>,
    /// Set after a panic of the xDS client: when to look for another.
    rejoin_at: Option<Time>,
    /// What the xDS client reports for the channel.
    loads: Vec<Arc<LoadStore>>,
    created: Time,
    trace: Trace,
    ids: Ids,
}

impl Running {
    fn handle(&mut self, input: ChannelInput) {
        self.trace.input(&input);
        self.driver.core.handle(clock::now(), input);
        for event in self.driver.core.take_events() {
            tracing::info!(target: "channel", target_uri = %self.driver.target, "{event}");
            self.trace.policy(event);
        }
    }

    /// Takes in an event and all that wait behind it: a response with a thousand resources is one step.
    fn on_xds(&mut self, first: XdsEvent, inbox: &mut UnboundedReceiver<XdsEvent>) {
        let (mut events, mut tokens) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(XdsEvent { watch, event, token }) = next {
            self.driver.published.missing().answered(watch);
            events.push((watch, event));
            tokens.push(token);
            next = inbox.try_recv().ok();
        }
        self.handle(ChannelInput::Resources { events });
        // The follow-up watches are on their way before the tokens are given back.
        self.apply_effects();
        drop(tokens);
    }

    fn report(&mut self, answer: oneshot::Sender<ChannelReport>) {
        let Self { driver, created, ids, trace, .. } = self;
        // Whoever asked may have given up.
        let _ = answer.send(report(driver, *created, ids, trace));
    }

    /// Takes in a report and all that wait behind it: a thousand connections that come up are one step.
    fn on_report(&mut self, first: Report) {
        let mut events = Vec::new();
        let mut next = Some(first);
        while let Some(report) = next {
            let address = report.address();
            if let Some((connection, attempt, event)) = self.driver.connections.on_report(report) {
                self.driver.published.connecting().ended(connection, attempt);
                self.trace.connection(connection, address, &event);
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
        // The xDS client ends with its last channel: one that is IDLE needs none.
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
                    self.trace.watch(watch, resource_type, &name);
                    if self.rejoin_at.is_some() {
                        // It is asked for with the other watches.
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
                                self.trace.state(ConnectivityState::Connecting);
                            }
                        }
                        // RPCs fail and say why, instead of waiting for what was never asked for.
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
                    self.trace.unwatch(watch);
                    if let Some(subscriber) = &self.subscriber {
                        subscriber.unwatch(watch);
                    }
                }
                ChannelEffect::Connect { connection, attempt, address, timeout } => {
                    self.driver.published.connecting().began(connection, attempt, address);
                    self.trace.connecting(connection, address);
                    connections.connect(connection, attempt, address, timeout);
                }
                ChannelEffect::CancelConnect { connection, attempt } => {
                    self.driver.published.connecting().ended(connection, attempt);
                    connections.cancel(connection, attempt)
                }
                ChannelEffect::CloseGracefully { connection, attempt } => {
                    connections.close_gracefully(connection, attempt);
                }
                ChannelEffect::DnsQuery { query, host, port } => {
                    self.trace.query(query, &host, port);
                    self.driver.dns.query(query, host, port);
                }
                ChannelEffect::DnsCancel { query } => {
                    self.trace.cancel_query(query);
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
                    self.trace.state(ConnectivityState::Idle);
                    self.driver.published.enter_idle();
                }
                ChannelEffect::Publish(data) => {
                    debug!(target: "channel", target_uri = %self.driver.target, generation = data.generation,
                        state = %data.state, "published");
                    self.trace.state(data.state);
                    self.driver.published.publish(data);
                }
            }
        }
    }

    /// The xDS client has panicked. What it told stays in use until another one says something else.
    fn leave_client(&mut self) {
        tracing::error!(target: "channel", target_uri = %self.driver.target, "the xDS client is gone; starting another");
        self.subscriber = None;
        self.rejoin_at = Some(clock::now() + REJOIN_DELAY);
    }

    /// Asks another xDS client for all that the channel watches.
    fn rejoin(&mut self) {
        let (watches, loads) = (self.trace.watched(), self.loads.clone());
        self.rejoin_at = match self.subscriber() {
            Ok(subscriber) => {
                for (watch, resource_type, name) in watches {
                    subscriber.watch(watch, resource_type, name);
                }
                loads.into_iter().for_each(|store| subscriber.register_load(store));
                None
            }
            Err(_) => Some(clock::now() + REJOIN_DELAY),
        };
    }

    /// The channel's place at the xDS client, or why there is no client.
    fn subscriber(&mut self) -> Result<&Subscriber, String> {
        let subscriber = match self.subscriber.take() {
            Some(subscriber) => subscriber,
            None => {
                let client = self.driver.clients.client().map_err(|error| {
                    tracing::error!(target: "xds_client", %error, "cannot start the xDS client");
                    format!("cannot start the xDS client: {error}")
                })?;
                client.join(self.events.clone())
            }
        };
        Ok(self.subscriber.insert(subscriber))
    }
}
