//! Runs a `ChannelCore` in the task of its channel, until the last handle of the channel is gone.

use std::sync::Arc;

use proxyless_balancer::api::{CallCounts, ConnectivityState, Wake};
use proxyless_balancer::tree::{ConnectionCalls, ConnectionEvent, TreeEffect};
use proxyless_mesh::channel_core::{Activity, ChannelCore, ChannelEffect, ChannelInput};
use proxyless_transport::panics::contain;
use proxyless_xds::client::{ResourceError, ResourceErrorKind, WatchEvent, WatchId};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, oneshot};
use tracing::debug;

use super::connection::{ConnectSettings, ConnectionUpdate, Connections, Destination};
use super::describe::Ids;
use super::dns::Lookups;
use super::panics;
use super::subscription::{Joined, Subscription, Watched};
use super::supervisor::{History, Parts, Use};
use super::xds::XdsEvent;
use crate::clock::{self, Alarm};
use crate::inspect::{ChannelView, ExplainRequest, Explanation};
use crate::pending::MissingResource;
use crate::state::ChannelState;
use crate::targets;

/// A request of the channel's handles to its driver.
pub(crate) enum Command {
    ExitIdle,
    ResetBackoff,
    Describe {
        answer: oneshot::Sender<ChannelView>,
    },
    /// Boxed, because the queue of commands has room for many.
    Explain {
        request: Box<ExplainRequest>,
        answer: oneshot::Sender<Explanation>,
    },
}

/// Requests a description from a channel's driver. There is none if the driver ends first.
pub(crate) fn describe(
    commands: &UnboundedSender<Command>,
) -> impl Future<Output = Option<ChannelView>> + use<> {
    let (answer, description) = oneshot::channel();
    let asked = commands.send(Command::Describe { answer }).is_ok();
    async move { if asked { description.await.ok() } else { None } }
}

/// Requests the explanation of a call from a channel's driver. There is none if the driver ends first.
pub(crate) fn explain(
    commands: &UnboundedSender<Command>,
    request: ExplainRequest,
) -> impl Future<Output = Option<Explanation>> + use<> {
    let (answer, explanation) = oneshot::channel();
    let request = Box::new(request);
    let asked = commands.send(Command::Explain { request, answer }).is_ok();
    async move { if asked { explanation.await.ok() } else { None } }
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
pub(super) struct ChannelDriver {
    pub(super) parts: Arc<Parts>,
    pub(super) core: ChannelCore,
    pub(super) wake: Arc<DriverWake>,
    pub(super) subscription: Subscription,
    pub(super) xds_events: UnboundedReceiver<Box<XdsEvent>>,
    pub(super) connections: Connections,
    pub(super) connection_updates: UnboundedReceiver<Box<ConnectionUpdate>>,
    pub(super) dns: Lookups,
    pub(super) history: History,
    pub(super) ids: Ids,
}

impl ChannelDriver {
    /// Runs until the last handle of the channel is gone. If it panics, this is to be dropped.
    pub(super) async fn run(&mut self, wanted: Use, commands: &mut UnboundedReceiver<Command>) {
        if wanted == Use::InUse {
            self.handle(ChannelInput::ExitIdle);
        }
        let (mut ticks, mut rejoins) = (Alarm::default(), Alarm::default());
        loop {
            self.apply_effects();
            let deadline = self.core.next_deadline();
            tokio::select! {
                // A fixed order makes simulations repeatable. None starves another: deadlines move on, messages
                // wait for the core, and signals of pickers coalesce. Commands are unbounded, so they come last.
                biased;
                () = ticks.at(deadline) => self.handle(ChannelInput::Tick),
                () = rejoins.at(self.subscription.rejoin_at()) => self.rejoin_client(),
                () = self.subscription.client_ended() => self.leave_client(),
                Some(event) = self.xds_events.recv() => self.on_xds(event),
                Some(update) = self.connection_updates.recv() => self.on_connection(update),
                answer = self.dns.next() => self.handle(answer),
                () = self.wake.0.notified() => self.handle(ChannelInput::Wake),
                command = commands.recv() => match command {
                    Some(Command::ExitIdle) => self.handle(ChannelInput::ExitIdle),
                    Some(Command::ResetBackoff) => self.handle(ChannelInput::ResetBackoff),
                    Some(Command::Describe { answer }) => self.answer(answer, Self::describe),
                    Some(Command::Explain { request, answer }) => self.answer(answer, |it| it.explain(&request)),
                    None => break,
                },
            }
        }
        self.handle(ChannelInput::Shutdown);
        self.apply_effects();
        debug!(target: targets::CHANNEL, target_uri = %self.parts.target, "ended");
    }

    /// Whether the channel is in use.
    pub(super) fn usage(&self) -> Use {
        if self.core.is_idle() { Use::Idle } else { Use::InUse }
    }

    /// The calls that ended on its connections.
    pub(super) fn calls(&self) -> CallCounts {
        self.core.describe(clock::now()).calls
    }

    fn handle(&mut self, input: ChannelInput) {
        self.history.trace.input(&input);
        self.core.handle(clock::now(), input);
        for event in self.core.take_events() {
            tracing::info!(target: targets::CHANNEL, target_uri = %self.parts.target, "{event}");
            self.history.trace.policy(event);
        }
    }

    /// Handles an event and all that are queued behind it: a response with a thousand resources is one step.
    fn on_xds(&mut self, first: Box<XdsEvent>) {
        let (mut events, mut tokens) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(next_event) = next {
            let XdsEvent { watch, event, token } = *next_event;
            self.parts.published.missing.ended(&watch);
            events.push((watch, event));
            tokens.push(token);
            next = self.xds_events.try_recv().ok();
        }
        self.handle(ChannelInput::Resources { events });
        // The follow-up watches are sent before the tokens are released.
        self.apply_effects();
        drop(tokens);
    }

    /// Handles an update and all that are queued behind it: a thousand new connections are one step.
    fn on_connection(&mut self, first: Box<ConnectionUpdate>) {
        let mut events = Vec::new();
        let mut next = Some(first);
        while let Some(update) = next {
            let address = update.address();
            if let Some((connection, attempt, event)) = self.connections.on_update(*update) {
                if !matches!(event, ConnectionEvent::Load(..)) {
                    self.parts.published.connecting.ended(&(connection, attempt));
                }
                self.history.trace.connection(connection, address, &event);
                events.push((connection, attempt, event));
            }
            next = self.connection_updates.try_recv().ok();
        }
        if !events.is_empty() {
            self.handle(ChannelInput::Connections { events });
        }
    }

    fn answer<T>(&mut self, answer: oneshot::Sender<T>, describe: impl FnOnce(&mut Self) -> T) {
        // Inspection must not disturb the channel, even if it panics.
        match contain(|| describe(self)) {
            // The requester may have gone.
            Ok(description) => drop(answer.send(description)),
            Err(panicked) => panics::log(&format_args!("description of {}", self.parts.target), &panicked),
        }
    }

    fn apply_effects(&mut self) {
        while let Some(effect) = self.core.poll_effect() {
            self.apply(effect);
        }
        // The xDS client ends with its last channel: an IDLE one needs none.
        if self.core.is_idle() {
            self.subscription.leave();
        }
    }

    fn apply(&mut self, effect: ChannelEffect) {
        match effect {
            ChannelEffect::Watch { watch, resource_type, name } => self.watch((watch, resource_type, name)),
            ChannelEffect::Unwatch { watch } => self.unwatch(watch),
            ChannelEffect::Connection(effect) => self.apply_to_connection(effect),
            ChannelEffect::DnsQuery { query, host, port } => {
                self.history.trace.query(query, &host, port);
                self.dns.query(query, host, port);
            }
            ChannelEffect::DnsCancel { query } => {
                self.history.trace.cancel_query(query);
                self.dns.cancel(query);
            }
            ChannelEffect::RegisterLoad { store } => self.subscription.register_load(store),
            ChannelEffect::UnregisterLoad { store } => self.subscription.unregister_load(store),
            ChannelEffect::CheckActivity => {
                let used = self.parts.published.activity.take();
                let activity = if used { Activity::InUse } else { Activity::Unused };
                self.handle(ChannelInput::Activity(activity));
            }
            ChannelEffect::EnterIdle => {
                debug!(target: targets::CHANNEL, target_uri = %self.parts.target, "idle");
                self.history.trace.state(ConnectivityState::Idle);
                self.parts.published.enter_idle();
            }
            ChannelEffect::Publish(data) => {
                debug!(target: targets::CHANNEL, target_uri = %self.parts.target, generation = data.generation,
                    state = %data.state, "published");
                self.history.trace.state(data.state);
                self.parts.published.publish(data);
            }
        }
    }

    fn watch(&mut self, watched: Watched) {
        let (watch, resource_type, name) = watched.clone();
        self.history.trace.watch(watch, resource_type, &name);
        match self.subscription.watch(watched) {
            Ok(joined) => {
                self.parts.published.missing.began(watch, MissingResource::new(resource_type, &name));
                if joined == Joined::Now {
                    self.parts.published.set_state(ChannelState::Connecting);
                    self.history.trace.state(ConnectivityState::Connecting);
                }
            }
            // RPCs fail with the reason, instead of waiting for a resource that was never requested.
            Err(why) => {
                let bootstrap = &self.parts.clients.key.bootstrap;
                let error = ResourceError {
                    resource_type,
                    name,
                    server: bootstrap.server().uri.as_str().into(),
                    node: bootstrap.node_id().into(),
                    kind: ResourceErrorKind::Transient(why),
                };
                let events = vec![(watch, WatchEvent::Changed(Err(Arc::new(error))))];
                self.handle(ChannelInput::Resources { events });
            }
        }
    }

    fn unwatch(&mut self, watch: WatchId) {
        self.parts.published.missing.ended(&watch);
        self.history.trace.unwatch(watch);
        self.subscription.unwatch(watch);
    }

    fn apply_to_connection(&mut self, effect: TreeEffect) {
        match effect {
            TreeEffect::Connect {
                subchannel,
                attempt,
                address,
                security,
                proxy,
                timeout,
                keepalive_interval,
                demand,
                calls,
            } => {
                self.parts.published.connecting.began((subchannel, attempt), address);
                self.history.trace.connecting(subchannel, address);
                if let Some(demand) = demand {
                    self.connections.report_demand(subchannel, demand);
                }
                let settings = ConnectSettings {
                    timeout,
                    keepalive_interval,
                    calls: calls.map(|ConnectionCalls(calls)| calls),
                };
                let (security, proxy) = (security.as_deref(), proxy.as_deref().copied());
                let to = Destination { address, security, proxy };
                self.connections.connect(subchannel, attempt, to, settings);
            }
            TreeEffect::ReportDemand { subchannel, demand } => {
                self.connections.report_demand(subchannel, demand);
            }
            TreeEffect::CancelConnect { subchannel, attempt } => {
                self.parts.published.connecting.ended(&(subchannel, attempt));
                self.connections.close(subchannel, attempt);
            }
            TreeEffect::CloseGracefully { subchannel, attempt } => {
                self.connections.close(subchannel, attempt);
            }
            TreeEffect::OpenLoadStream { subchannel, attempt, stream, interval } => {
                self.connections.open_load_stream(subchannel, attempt, stream, interval);
            }
            TreeEffect::CloseLoadStream { subchannel, attempt, stream } => {
                self.connections.close_load_stream(subchannel, attempt, stream);
            }
        }
    }

    /// The xDS client has panicked. Its resources stay in use until a new one delivers others.
    fn leave_client(&mut self) {
        let pause = self.subscription.leave_panicked();
        tracing::error!(target: targets::CHANNEL, target_uri = %self.parts.target,
            "the xDS client panicked; restarting it after {pause:?}");
        self.history.trace.client_panicked();
    }

    /// Requests all watched resources from a new xDS client.
    fn rejoin_client(&mut self) {
        self.subscription.rejoin(self.history.trace.watched());
    }
}
