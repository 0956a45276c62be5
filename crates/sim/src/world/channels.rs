//! The drivers of channels: watches, DNS and connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{BackendMetrics, Code};
use proxyless_balancer::tree::{
    AttemptId, ConnectionEvent, LoadEvent, LoadStreamId, SubchannelId, TreeEffect,
};
use proxyless_mesh::channel_core::{Activity, ChannelEffect, ChannelInput, DataPlane};
use proxyless_mesh::dns::{DnsAnswer, QueryId};
use proxyless_xds::client::{Input, ReadToken, WatchEvent, WatchId};
use proxyless_xds::lrs;

use super::{Background, World};
use crate::clients::calls::{End, Wire};
use crate::clients::channel::{SimChannel, Watched};
use crate::clients::endpoints::{Behaviour, Connection, Happening, Phase};
use crate::laws::invariants::{self, Violation};
use crate::laws::kept::Before;
use crate::world::queue::{Event, Lane};

impl World {
    /// Starts a channel, unless it runs.
    pub(super) fn start_channel(&mut self, index: usize) {
        if self.channels.len() <= index {
            self.channels.resize_with(index + 1, || None);
        }
        let Some(place) = self.channels.get_mut(index).filter(|place| place.is_none()) else { return };
        self.epochs += 1;
        let epoch = self.epochs;
        let seed = self.seed.wrapping_add(epoch);
        let mut channel = SimChannel::new(index, epoch, &self.settings, self.circuits.clone(), seed);
        channel.asked = true;
        *place = Some(channel);
        let input = ChannelInput::ExitIdle;
        self.queue.push_in(Lane::ToChannel(epoch), self.now, Event::Channel { epoch, input, token: None });
    }

    /// Closes a channel, if it runs.
    pub(super) fn stop_channel(&mut self, index: usize) -> Result<(), Violation> {
        let Some(epoch) = self.channel(index).map(|channel| channel.epoch) else { return Ok(()) };
        for id in self.calls.of_channel(epoch) {
            self.calls.end(id, End::Badly("the channel is closed".into()));
        }
        self.tell_channel(epoch, ChannelInput::Shutdown)?;
        let stopped = self.channels.get_mut(index).and_then(Option::take);
        stopped.map_or(Ok(()), |channel| invariants::after_shutdown(&channel))
    }

    pub(crate) fn by_epoch(&mut self, epoch: u64) -> Option<&mut SimChannel> {
        self.channels.iter_mut().flatten().find(|channel| channel.epoch == epoch)
    }

    /// Hands a channel an input, and executes its effects. Does nothing if the channel is gone.
    pub(super) fn tell_channel(&mut self, epoch: u64, input: ChannelInput) -> Result<(), Violation> {
        let now = self.now;
        let before = Before::of(self, epoch, &input);
        let Some(channel) = self.by_epoch(epoch) else { return Ok(()) };
        if let ChannelInput::Resources { events } = &input {
            events.iter().for_each(|(watch, event)| channel.note(*watch, event));
        }
        if matches!(input, ChannelInput::ResetBackoff) {
            channel.connections.reset_backoff();
        }
        let is_news = !matches!(input, ChannelInput::Tick | ChannelInput::Wake | ChannelInput::Activity(_));
        channel.core.handle(now, input);
        let mut effects = Vec::new();
        while let Some(effect) = channel.core.poll_effect() {
            effects.push(effect);
        }
        if is_news || effects.iter().any(|effect| !matches!(effect, ChannelEffect::CheckActivity)) {
            channel.heard = now;
        }
        channel.forget_names();
        let (mut published, mut idle) = (0, false);
        for effect in effects {
            idle |= matches!(effect, ChannelEffect::EnterIdle);
            published += usize::from(matches!(effect, ChannelEffect::Publish(_)));
            self.do_for_channel(epoch, effect)?;
        }
        // A31, A74: one consistent snapshot per input.
        Violation::unless(published <= 1, "an input publishes at most once", || {
            format!("{published} snapshots")
        })?;
        if let Some(before) = before {
            before.check(self, epoch)?;
        }
        if let Some(channel) = self.by_epoch(epoch).filter(|_| idle) {
            invariants::after_idle(channel)?;
        }
        if published > 0 || idle { self.pick_again(epoch) } else { Ok(()) }
    }

    fn do_for_channel(&mut self, epoch: u64, effect: ChannelEffect) -> Result<(), Violation> {
        self.log_effect(epoch, &effect);
        let (now, local, delay) = (self.now, self.local_delay(), self.network_delay());
        let to_xds = |world: &mut Self, input| {
            world.queue.push_in(Lane::ToXds(epoch), now + local, Event::Xds(input));
        };
        let Some(channel) = self.by_epoch(epoch) else { return Ok(()) };
        match effect {
            ChannelEffect::Watch { watch, resource_type, name } => {
                let watched =
                    Watched { resource_type, name: Arc::clone(&name), answer: None, unreachable: false };
                let new = channel.watches.insert(watch, watched).is_none();
                Violation::unless(new, "watch ids are unique", || format!("{watch:?}"))?;
                to_xds(self, Input::Watch { watch: Self::client_watch(epoch, watch), resource_type, name });
            }
            ChannelEffect::Unwatch { watch } => {
                let known = channel.watches.remove(&watch).is_some();
                Violation::unless(known, "only existing watches are cancelled", || format!("{watch:?}"))?;
                to_xds(self, Input::Unwatch { watch: Self::client_watch(epoch, watch) });
            }
            ChannelEffect::DnsQuery { query, host, .. } => {
                let new = channel.resolver.ask(query, &host);
                Violation::unless(new, "query ids are unique", || format!("{query:?}"))?;
                self.queue.push(now + delay, Event::Resolve { epoch, query });
            }
            ChannelEffect::DnsCancel { query } => {
                let known = channel.resolver.end(query).is_some();
                Violation::unless(known, "only pending queries are cancelled", || format!("{query:?}"))?;
                channel.forget_names();
            }
            ChannelEffect::Connection(TreeEffect::Connect {
                subchannel: connection,
                attempt: AttemptId(attempt),
                address,
                timeout,
                keepalive_interval,
                demand,
                ..
            }) => {
                let told = channel.told.contains(&address);
                Violation::unless(told, "connection attempts go to configured endpoints", || {
                    address.to_string()
                })?;
                channel.connects += 1;
                channel.keepalive.connect(keepalive_interval)?;
                channel.demands.extend(demand.map(|demand| (connection, demand)));
                let max_connections = channel.max_connections;
                channel.connections.connect(now, connection, attempt, address, max_connections)?;
                self.dial(epoch, attempt, address, timeout);
            }
            ChannelEffect::Connection(TreeEffect::ReportDemand { subchannel, demand }) => {
                channel.demands.insert(subchannel, demand);
                // The calls that wait already count, as in the real queue.
                self.report_demand();
            }
            ChannelEffect::Connection(TreeEffect::CancelConnect {
                subchannel: connection,
                attempt: AttemptId(attempt),
            }) => {
                let Connection { id, address, .. } = channel.connections.cancel(connection, attempt)?;
                self.maybe_cross(epoch, id, attempt, address);
            }
            ChannelEffect::Connection(TreeEffect::CloseGracefully {
                subchannel: connection,
                attempt: AttemptId(attempt),
            }) => {
                channel.connections.close(connection, attempt)?;
                self.dissolve_line(epoch, connection);
            }
            ChannelEffect::Connection(TreeEffect::OpenLoadStream { subchannel, attempt, stream, .. }) => {
                let open = channel.load_streams.insert(subchannel, stream);
                Violation::unless(
                    open.is_none_or(ends),
                    "a subchannel has one stream of load reports",
                    || format!("{subchannel:?}: {open:?} and {stream:?}"),
                )?;
                for (after, event) in load_events(stream) {
                    let event = ConnectionEvent::Load(stream, event);
                    let input = ChannelInput::Connections { events: vec![(subchannel, attempt, event)] };
                    self.queue.push(now + delay + after, Event::Channel { epoch, input, token: None });
                }
            }
            ChannelEffect::Connection(TreeEffect::CloseLoadStream { subchannel, stream, .. }) => {
                let open = channel.load_streams.remove(&subchannel);
                Violation::unless(open == Some(stream), "only open streams are closed", || {
                    format!("{subchannel:?}: {open:?}, not {stream:?}")
                })?;
            }
            ChannelEffect::RegisterLoad { store } => {
                channel.loads.push(Arc::clone(&store));
                self.calls.load_is_counted(epoch, &store);
                self.load_changes(epoch, lrs::Input::Register { store });
            }
            ChannelEffect::UnregisterLoad { store } => {
                let before = channel.loads.len();
                channel.loads.retain(|known| !Arc::ptr_eq(known, &store));
                let known = channel.loads.len() + 1 == before;
                Violation::unless(known, "only registered stores are unregistered", || format!("{store:?}"))?;
                self.load_changes(epoch, lrs::Input::Unregister { store });
            }
            ChannelEffect::CheckActivity => {
                let used = std::mem::take(&mut channel.used);
                let streams = self.background == Background::Streams;
                let used = used || streams || !self.calls.of_channel(epoch).is_empty();
                let activity = if used { Activity::InUse } else { Activity::Unused };
                // RPCs may begin before the core receives this.
                let input = ChannelInput::Activity(activity);
                self.queue.push(now + local, Event::Channel { epoch, input, token: None });
            }
            ChannelEffect::EnterIdle => {
                channel.plane = None;
                // It has to request everything again, and the control plane may be unreachable.
                channel.served.clear();
                channel.connections.reset_backoff();
                channel.asked = false;
                channel.idles += 1;
            }
            ChannelEffect::Publish(plane) => return self.publish(epoch, plane),
        }
        Ok(())
    }

    /// An RPC uses the channel; the first one that finds it IDLE makes it connect.
    pub(super) fn use_channel(&mut self, epoch: u64) {
        let Some(channel) = self.by_epoch(epoch) else { return };
        channel.used = true;
        if channel.plane.is_some() || std::mem::replace(&mut channel.asked, true) {
            return;
        }
        let (at, input) = (self.now + self.local_delay(), ChannelInput::ExitIdle);
        self.queue.push(at, Event::Channel { epoch, input, token: None });
    }

    fn log_effect(&mut self, epoch: u64, effect: &ChannelEffect) {
        match effect {
            // The Debug output of a store contains all its counts.
            ChannelEffect::RegisterLoad { store } | ChannelEffect::UnregisterLoad { store } => {
                let register = matches!(effect, ChannelEffect::RegisterLoad { .. });
                let what = if register { "report" } else { "stop reporting" };
                let (cluster, eds) = (store.cluster(), store.eds_service_name());
                self.log
                    .line(self.now, format_args!("channel {epoch}: {what} the load of {cluster} {eds:?}"));
            }
            _ => self.log.line(self.now, format_args!("channel {epoch}: {effect:?}")),
        }
    }

    fn dial(&mut self, epoch: u64, attempt: u64, address: SocketAddr, timeout: Duration) {
        let (happening, after) = match self.backends.behaviour(address) {
            Behaviour::Accepts(delay) if delay < timeout => {
                (Happening::Answered, delay + self.network_delay())
            }
            Behaviour::Refuses | Behaviour::HangsUp => (Happening::Answered, self.network_delay()),
            Behaviour::Accepts(_) | Behaviour::Silent => (Happening::TimedOut, timeout),
        };
        if let Some(channel) = self.by_epoch(epoch).filter(|_| happening == Happening::TimedOut) {
            channel.connections.will_time_out(attempt);
        }
        let event = Event::Connection { epoch, attempt, happening };
        self.queue.push_in(Lane::Connection(epoch, attempt), self.now + after, event);
    }

    /// Sometimes an attempt succeeds while it is being cancelled: the core must close that connection.
    fn maybe_cross(&mut self, epoch: u64, id: SubchannelId, attempt: u64, address: SocketAddr) {
        if self.rng.below(4) != 0 || !self.backends.accepts(address) {
            return;
        }
        let event = Event::Connection { epoch, attempt, happening: Happening::Crossed { id, address } };
        self.queue.push(self.now, event);
    }

    /// Tells a channel about an event of a connection; a busy driver, about several at once.
    pub(super) fn on_connection(
        &mut self,
        epoch: u64,
        attempt: u64,
        happening: Happening,
    ) -> Result<(), Violation> {
        let mut happened = vec![(attempt, happening)];
        let mut events = Vec::from_iter(self.connection_event(epoch, attempt, happening));
        let until = self.now + self.patience();
        while let Some(Event::Connection { attempt, happening, .. }) = self
            .queue
            .pop_if(until, |next| matches!(next, Event::Connection { epoch: of, .. } if *of == epoch))
        {
            happened.push((attempt, happening));
            events.extend(self.connection_event(epoch, attempt, happening));
        }
        if events.is_empty() {
            return Ok(());
        }
        // The queue serves waiting calls before the core knows of a new connection.
        let subchannels: Vec<_> =
            events.iter().map(|(subchannel, attempt, _)| (*attempt, *subchannel)).collect();
        for (AttemptId(attempt), _) in &subchannels {
            self.stream_ends(epoch, *attempt);
        }
        self.report_demand();
        self.tell_channel(epoch, ChannelInput::Connections { events })?;
        for (attempt, happening) in happened {
            let found = subchannels.iter().find(|(of, _)| *of == AttemptId(attempt));
            if let (Happening::GoAway | Happening::Broken, Some((_, subchannel))) = (happening, found) {
                self.dissolve_line(epoch, *subchannel);
            }
            if happening == Happening::GoAway {
                self.refuse_some(epoch, attempt)?;
            }
        }
        Ok(())
    }

    /// Hands a channel events of resources; a busy driver, several at once.
    pub(super) fn on_resources(
        &mut self,
        epoch: u64,
        mut events: Vec<(WatchId, WatchEvent)>,
        token: Option<ReadToken>,
    ) -> Result<(), Violation> {
        let mut tokens = vec![token];
        let until = self.now + self.patience();
        let is_next = |next: &Event| match next {
            Event::Channel { epoch: of, input: ChannelInput::Resources { .. }, .. } => *of == epoch,
            _ => false,
        };
        while let Some(Event::Channel { input: ChannelInput::Resources { events: more }, token, .. }) =
            self.queue.pop_if(until, is_next)
        {
            events.extend(more);
            tokens.push(token);
        }
        let told = self.tell_channel(epoch, ChannelInput::Resources { events });
        tokens.into_iter().for_each(|token| self.release(epoch, token));
        told
    }

    /// How long a driver has been busy: it finds all events of that time at once.
    fn patience(&mut self) -> Duration {
        if self.rng.below(3) == 0 { Duration::from_millis(self.rng.below(50)) } else { Duration::ZERO }
    }

    fn connection_event(
        &mut self,
        epoch: u64,
        attempt: u64,
        happening: Happening,
    ) -> Option<(SubchannelId, AttemptId, ConnectionEvent)> {
        let (now, backends) = (self.now, self.backends.clone());
        let channel = self.by_epoch(epoch)?;
        if let Happening::Crossed { id, address } = happening {
            channel.connections.cross(id, attempt, address);
        }
        let &Connection { id, address, phase, .. } = channel.connections.get(attempt)?;
        let mut hangs_up = false;
        let event = match (happening, phase) {
            (Happening::Answered, Phase::Dialing) if backends.behaviour(address) == Behaviour::HangsUp => {
                channel.connections.ready(now, attempt);
                hangs_up = true;
                ConnectionEvent::Ready(Arc::new(Wire { attempt, subchannel: id }))
            }
            (Happening::Crossed { .. }, _) => {
                ConnectionEvent::Ready(Arc::new(Wire { attempt, subchannel: id }))
            }
            (Happening::Answered, Phase::Dialing) if backends.accepts(address) => {
                channel.connections.ready(now, attempt);
                ConnectionEvent::Ready(Arc::new(Wire { attempt, subchannel: id }))
            }
            (Happening::Answered, Phase::Dialing) => {
                channel.connections.over(now, attempt);
                ConnectionEvent::Failed("connection refused".into())
            }
            (Happening::TimedOut, Phase::Dialing) => {
                channel.connections.over(now, attempt);
                ConnectionEvent::Failed("timed out".into())
            }
            (Happening::GoAway, Phase::Ready) => {
                channel.connections.over(now, attempt);
                // Without a draw, so that the worlds of known seeds stay the same.
                if attempt.is_multiple_of(4) {
                    channel.keepalive.too_many_pings();
                    ConnectionEvent::TooManyPings("calm down".into())
                } else {
                    ConnectionEvent::GoAway("graceful".into())
                }
            }
            (Happening::Broken, Phase::Ready) => {
                channel.connections.over(now, attempt);
                ConnectionEvent::Closed("connection reset".into())
            }
            _ => return None,
        };
        if matches!(event, ConnectionEvent::Failed(_)) {
            channel.failed.insert(address, now);
        }
        self.log.line(self.now, format_args!("channel {epoch}: attempt {attempt} to {address}: {event:?}"));
        if hangs_up {
            let event = Event::Connection { epoch, attempt, happening: Happening::Broken };
            let at = now + self.network_delay();
            self.queue.push_in(Lane::Connection(epoch, attempt), at, event);
        }
        Some((id, AttemptId(attempt), event))
    }

    /// Retries calls that a backend did not process before its GOAWAY.
    fn refuse_some(&mut self, epoch: u64, attempt: u64) -> Result<(), Violation> {
        for id in self.calls.on_connection(epoch, attempt) {
            if self.rng.below(3) == 0 {
                self.send_again(id)?;
            }
        }
        Ok(())
    }

    pub(super) fn resolve(&mut self, epoch: u64, query: QueryId) -> Result<(), Violation> {
        let Some(host) = self.by_epoch(epoch).and_then(|channel| channel.resolver.end(query)) else {
            return Ok(());
        };
        let known = self
            .control_plane
            .mesh
            .hosts
            .get(&*host)
            .filter(|_| !self.broken_hosts.contains(&*host))
            .cloned();
        if let (Some(addresses), Some(channel)) = (&known, self.by_epoch(epoch)) {
            channel.note_dns(host, addresses);
        }
        let answer = known.map(|addresses| DnsAnswer { addresses, ttl: None });
        self.tell_channel(
            epoch,
            ChannelInput::DnsAnswer { query, result: answer.ok_or_else(|| "no such host".into()) },
        )
    }

    fn publish(&mut self, epoch: u64, plane: DataPlane) -> Result<(), Violation> {
        let now = self.now;
        let Some(channel) = self.by_epoch(epoch) else { return Ok(()) };
        let newest = channel.plane.as_ref().map_or(0, |plane| plane.generation);
        Violation::unless(plane.generation > newest, "generations grow", || format!("{newest}, {plane:?}"))?;
        channel.publishes += 1;
        if !channel.has_routes() {
            channel.routed_since = now;
        }
        channel.plane = Some(plane);
        if let Some(channel) = self.channels.iter().flatten().find(|channel| channel.epoch == epoch) {
            self.limits.note(channel);
        }
        self.check_snapshot(epoch)
    }

    /// Delivers the wake-ups that pickers and calls have requested.
    pub(super) fn wake_channels(&mut self) {
        let woken: Vec<u64> =
            self.channels().filter(|channel| channel.take_woken()).map(|c| c.epoch).collect();
        for epoch in woken {
            // A busy driver may take much longer.
            let late = if self.rng.below(8) == 0 {
                Duration::from_millis(self.rng.below(500))
            } else {
                Duration::ZERO
            };
            let at = self.now + late + self.local_delay();
            self.queue.push(at, Event::Channel { epoch, input: ChannelInput::Wake, token: None });
        }
    }
}

/// The events of a stream of load reports: a report, and for some streams their end.
fn load_events(stream: LoadStreamId) -> Vec<(Duration, LoadEvent)> {
    let utilization = 0.1 * (1 + stream.0 % 9) as f64;
    let metrics = BackendMetrics { rps: 100.0, cpu_utilization: utilization, ..Default::default() };
    let mut events = vec![(Duration::ZERO, LoadEvent::Report(Arc::new(metrics)))];
    if ends(stream) {
        let code = if stream.0 % 8 == 1 { Code::Unimplemented } else { Code::Unavailable };
        let reason = "the simulated server ended it".to_owned();
        events.push((Duration::from_secs(3), LoadEvent::Ended { code, reason }));
    }
    events
}

/// Whether a stream of load reports ends by itself.
fn ends(stream: LoadStreamId) -> bool {
    stream.0 % 4 == 1
}
