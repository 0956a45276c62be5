//! [`XdsCore`]: watches, timers, and what watchers are told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use prost::Message as _;
use proxyless_sans_io::{Interner, Rng, SmallMap, Time};

use super::ads_stream::AdsStream;
use super::api::{
    Effect, EncodedRequest, Input, ResourceError, ResourceErrorKind, WatchEvent, XdsCoreConfig,
};
use super::authorities::{Authorities, AuthorityId};
use super::cache::{Cache, Use};
use super::delivery::Delivery;
use super::dump::{ResourceDump, ResourceStatus, UpdateCounts};
use super::ids::{ReadToken, ServerId, WatchId, WatchKey, WatcherId};
use super::requested_names::RequestedNames;
use super::resource_state::{DataError, Received, ResourceState, Wait};
use super::server::Server;
use super::telemetry::ClientMetrics;
use crate::StreamId;
use crate::resource::{Locality, ResourceType, cut};
use crate::resource_name::ResourceName;
use crate::targets;

/// The xDS client: speaks ADS (state of the world, v3) with management servers, caches resources and notifies watchers.
///
/// Each resource belongs to an authority (gRFC A47), which has a list of servers (gRFC A71).
///
/// Call [`Self::handle`] for each input, then [`Self::poll_effect`] until it returns `None`.
#[derive(Debug)]
pub struct XdsCore {
    pub(super) config: XdsCoreConfig,
    pub(super) cache: Cache,
    pub(super) authorities: Authorities,
    /// By [`ServerId`].
    pub(super) servers: Vec<Server>,
    /// The localities of all resources.
    pub(super) localities: Interner<Locality>,
    pub(super) watches: SmallMap<WatchKey, Watched>,
    pub(super) last_stream_id: StreamId,
    pub(super) rng: Rng,
    delivery: Delivery,
    pub(super) updates: BTreeMap<ResourceType, UpdateCounts>,
    pub(super) metrics: ClientMetrics,
    pub(super) effects: VecDeque<Effect>,
}

/// The resource of a watch; `None` if its name is invalid.
pub(super) type Watched = Option<(AuthorityId, ResourceType, Arc<str>)>;

/// A rejected response.
#[derive(Debug)]
pub(super) struct Rejection {
    pub(super) version: Arc<str>,
    pub(super) time: Time,
    /// The violations, truncated if there are very many.
    pub(super) why: String,
    /// Whether one of its resources has no readable name, and so may be any of the requested ones.
    pub(super) unnamed: bool,
}

impl Rejection {
    pub(super) fn text(&self, resource_type: ResourceType) -> String {
        let (version, why) = (shown(&self.version), &self.why);
        format!("the last {} response, version {version:?}, was rejected: {why}", resource_type.name())
    }
}

/// The version, truncated for display: a server can make it as long as a message.
pub(super) fn shown(version: &Arc<str>) -> Arc<str> {
    const MAX_SHOWN: usize = 256;
    if version.len() <= MAX_SHOWN { Arc::clone(version) } else { cut(version.to_string(), MAX_SHOWN).into() }
}

/// Whether an event comes from a response; the next response is read only after watchers have handled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A response of this server.
    Response(ServerId),
    Other,
}

/// The number of effects for which an empty queue has room.
const FEW_EFFECTS: usize = 32;

impl XdsCore {
    /// Creates a core that does nothing until the first watch (A27-35).
    #[must_use]
    pub fn new(config: XdsCoreConfig) -> Self {
        Self {
            rng: Rng::new(config.seed),
            authorities: Authorities::new(&config.default_servers, &config.authorities),
            servers: config.servers.iter().map(|server| Server::new(server, &config)).collect(),
            config,
            cache: Cache::default(),
            localities: Interner::default(),
            watches: SmallMap::new(),
            last_stream_id: StreamId::default(),
            delivery: Delivery::default(),
            updates: BTreeMap::new(),
            metrics: ClientMetrics::default(),
            effects: VecDeque::new(),
        }
    }

    /// Handles an input. Inputs about earlier streams are ignored.
    pub fn handle(&mut self, now: Time, input: Input) {
        let (authorities, servers) = (&self.authorities, &self.servers);
        self.cache.end_limbo(now, |of, resource_type| {
            let stream =
                authorities.active(of).and_then(|ServerId(index)| servers.get(index)?.stream.as_ref());
            stream.is_some_and(|stream| stream.has_unsent(resource_type))
        });
        self.leave_servers();
        match input {
            Input::Watch { watch, resource_type, name } => self.watch(now, watch, resource_type, &name),
            Input::Unwatch { watch } => self.unwatch(now, watch),
            Input::Leave { watcher } => {
                let first = WatchKey { watcher, watch: WatchId(0) };
                while let Some((&watch, _)) = self.watches.next_from(&first)
                    && watch.watcher == watcher
                {
                    self.unwatch(now, watch);
                }
                self.metrics.leave(watcher);
            }
            Input::TokenReleased { token } => {
                self.stop_waiting(token);
                for (watch, event) in self.delivery.release(token) {
                    self.deliver(now, watch, event);
                }
            }
            Input::Tick => {}
            Input::StreamUp { stream }
            | Input::SendDone { stream }
            | Input::Message { stream, .. }
            | Input::StreamDown { stream, .. } => {
                if let Some(server) = self.server_of(stream) {
                    self.stream_input(now, server, input);
                }
            }
        }
        // After the input: a resource that arrives at its deadline is in time.
        self.expire(now);
        self.send_and_read(now);
    }

    fn stream_input(&mut self, now: Time, server: ServerId, input: Input) {
        match input {
            Input::StreamUp { .. } => self.stream_up(now, server),
            Input::SendDone { .. } => self.send_done(now, server),
            Input::Message { bytes, .. } => self.message(now, server, bytes),
            Input::StreamDown { code, reason, .. } => self.stream_down(now, server, code, reason),
            _ => {}
        }
    }

    /// Returns the next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            // A response with very many resources leaves a long queue behind.
            self.effects.shrink_to(FEW_EFFECTS);
        }
        effect
    }

    /// The time at which [`Input::Tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let of_server = |server: &Server| {
            let next_nack = server.stream.as_ref().and_then(AdsStream::next_nack);
            [server.retry_at, next_nack].into_iter().flatten().min()
        };
        let servers = self.servers.iter().filter_map(of_server);
        let others = [self.cache.next_deadline(), self.delivery.next_deadline()];
        servers.chain(others.into_iter().flatten()).min()
    }

    /// A40-28: all watched resources, by type and name. A40-35: and no others.
    #[must_use]
    pub fn dump(&self) -> Vec<ResourceDump> {
        let watched = self.cache.iter().filter(|(_, _, state)| !state.watchers.is_empty());
        let dump = |(resource_type, name, state): (_, _, &ResourceState)| {
            ResourceDump::new(resource_type, name, state, self.active_server(state.authority))
        };
        watched.map(dump).collect()
    }

    /// A47-24: the server to which the load of a cluster is reported: the one that sent the Cluster.
    #[must_use]
    pub fn load_server(&self, cluster: &Arc<str>) -> ServerId {
        let of_type = ResourceType::Cluster;
        let found =
            ResourceName::parse(cluster, of_type).ok().and_then(|ResourceName { authority, name }| {
                let source = self.cache.get(of_type, &name).and_then(|state| state.source());
                source.or_else(|| self.authorities.active(self.authorities.find(authority.as_deref())?))
            });
        found.or_else(|| self.config.default_servers.first().copied()).unwrap_or_default()
    }

    /// The name by which a resource is watched, normalized; `None` if the watch has ended or its name is invalid.
    #[must_use]
    pub fn watched_name(&self, watch: WatchKey) -> Option<&Arc<str>> {
        self.watches.get(&watch)?.as_ref().map(|(_, _, name)| name)
    }

    /// Whether a watch of the resource would request it: the name is valid, and no other watch has it.
    #[must_use]
    pub fn is_requestable(&self, resource_type: ResourceType, name: &Arc<str>) -> bool {
        let Ok((_, name)) = self.find(resource_type, name) else { return false };
        self.cache.get(resource_type, &name).is_none_or(|state| state.watchers.is_empty())
    }

    /// The numbers of received and rejected resources of each type, including those without a readable name.
    #[must_use]
    pub fn update_counts(&self) -> &BTreeMap<ResourceType, UpdateCounts> {
        &self.updates
    }

    /// Whether the watcher has not handled events in time, so that its events are kept until it has.
    #[must_use]
    pub fn is_slow(&self, watcher: WatcherId) -> bool {
        self.delivery.is_slow(watcher)
    }

    fn watch(&mut self, now: Time, watch: WatchKey, resource_type: ResourceType, name: &Arc<str>) {
        if self.watches.contains_key(&watch) {
            tracing::warn!(target: targets::XDS_CLIENT, ?watch, "a watch with this id exists and is replaced");
            self.unwatch(now, watch);
        }
        let (authority, name) = match self.find(resource_type, name) {
            Ok(found) => found,
            Err(why) => {
                self.watches.insert(watch, None);
                let error = self.error(None, resource_type, name, ResourceErrorKind::Name(why));
                tracing::warn!(target: targets::XDS_CLIENT, "{error}");
                return self.deliver(now, watch, WatchEvent::Changed(Err(error)));
            }
        };
        self.watches.insert(watch, Some((authority, resource_type, name.clone())));
        let stream = self.active_server(authority).and_then(|server| server.stream.as_ref());
        let doubt = stream.and_then(|stream| stream.doubt(now, resource_type, &name));
        let state = self.cache.watch(resource_type, &name, authority, watch, doubt);
        let asked_for = state.wait != Wait::Unsent && state.watchers.len() > 1;
        if let Some(authority) = self.authorities.get_mut(authority) {
            authority.watches += 1;
        }
        let fell_back = self.settle_fallback(now, authority);
        let unreachable = self.unreachable(authority, resource_type, &name);
        let Some(state) = self.cache.get_mut(resource_type, &name) else { return };
        // The new watcher gets the current state, the others what they have not been told yet.
        let mut events = Vec::new();
        for event in state.news(unreachable) {
            let others = state.watchers.keys().filter(|&&other| other != watch);
            events.extend(others.map(|&other| (other, event.clone())));
        }
        events.extend(state.replay().into_iter().map(|event| (watch, event)));
        for (watch, event) in events {
            self.deliver(now, watch, event);
        }
        if fell_back {
            self.tell_all(now, Cause::Other, |of| of == authority);
        }
        self.use_servers(authority);
        if !asked_for {
            self.want(now, authority, resource_type);
        }
    }

    /// A47-22: the authority of a resource and its normalized name.
    fn find(&self, resource_type: ResourceType, name: &Arc<str>) -> Result<(AuthorityId, Arc<str>), String> {
        let ResourceName { authority, name } = ResourceName::parse(name, resource_type)?;
        match self.authorities.find(authority.as_deref()) {
            Some(found) => Ok((found, name)),
            None => {
                let authority = authority.unwrap_or_default();
                Err(format!("the authority {authority:?} is not among `authorities` in the bootstrap"))
            }
        }
    }

    fn unwatch(&mut self, now: Time, watch: WatchKey) {
        let Some(watched) = self.watches.remove(&watch) else { return };
        self.delivery.forget(watch);
        let Some((id, resource_type, name)) = watched else { return };
        let Some(authority) = self.authorities.get_mut(id) else { return };
        authority.watches = authority.watches.saturating_sub(1);
        let Some(state) = self.cache.unwatch(resource_type, &name, watch) else { return };
        let is_watched = !state.watchers.is_empty();
        let unsent = state.wait == Wait::Unsent && state.limbo.is_none();
        if authority.watches == 0 {
            self.close_unused();
        }
        if is_watched || self.cache.get(resource_type, &name).is_none() {
            return;
        }
        let requested = |server: &Server| {
            let stream = server.stream.as_ref();
            stream.is_some_and(|stream| stream.has_asked_for(resource_type, &name))
        };
        if unsent && !self.in_use(id).any(requested) {
            self.cache.remove(resource_type, &name);
        } else {
            self.want(now, id, resource_type);
        }
    }

    fn expire(&mut self, now: Time) {
        for index in 0..self.servers.len() {
            let server = ServerId(index);
            if self.server(server).and_then(|server| server.retry_at).is_some_and(|at| at <= now) {
                self.open_stream(server);
            }
            if let Some(stream) = self.stream_mut(server) {
                stream.release_nacks(now);
            }
        }
        while let Some(token) = self.delivery.expire(now) {
            self.stop_waiting(token);
        }
        while let Some((resource_type, name, since)) = self.cache.expire(now) {
            let Some(authority) = self.cache.get(resource_type, &name).map(|state| state.authority) else {
                continue;
            };
            let Some(server) = self.active_server(authority) else { continue };
            let why = timeout_text(server, resource_type, now, since);
            // gRFC A88: with this feature the timer indicates that the server is slow, not that the resource is absent.
            let transient =
                self.config.gates.data_error_handling && server.features.resource_timer_is_transient_error;
            let kind = if transient {
                ResourceErrorKind::Timeout(why)
            } else {
                // If it was subscribed again, it still has its old value.
                self.cache.drop_data(resource_type, &name);
                ResourceErrorKind::DoesNotExist(why)
            };
            let server = self.authorities.active(authority).unwrap_or_default();
            let no_response = Received { server, version: &Arc::default(), time: now };
            self.set_error(resource_type, &name, kind, no_response);
            self.tell(now, resource_type, &name, Cause::Other);
        }
    }

    /// Records the latest error of a resource.
    pub(super) fn set_error(
        &mut self,
        of: ResourceType,
        name: &Arc<str>,
        kind: ResourceErrorKind,
        from: Received<'_>,
    ) {
        let authority = self.cache.get(of, name).map(|state| state.authority);
        let error = self.error(authority, of, name, kind);
        let Some(state) = self.cache.get_mut(of, name) else { return };
        let before = state.status();
        state.error = Some(Box::new(DataError {
            version: Arc::clone(from.version),
            time: from.time,
            error: error.clone(),
        }));
        // Once per change, not once per response. The log of the response lists the rejected resources.
        let status = state.status();
        if status != before && status != ResourceStatus::Nacked {
            let in_use = state.data.is_some();
            tracing::warn!(target: targets::XDS_CLIENT, in_use, "{error}");
        }
    }

    /// Notifies the watchers of a resource of changes.
    pub(super) fn tell(&mut self, now: Time, resource_type: ResourceType, name: &Arc<str>, cause: Cause) {
        let Some(authority) = self.cache.get(resource_type, name).map(|state| state.authority) else {
            return;
        };
        let unreachable = self.unreachable(authority, resource_type, name);
        let Some(state) = self.cache.get_mut(resource_type, name) else { return };
        for event in state.news(unreachable) {
            for &watch in state.watchers.keys() {
                let Some((token, effect)) = self.delivery.deliver(now, watch, event.clone()) else {
                    continue;
                };
                if let Cause::Response(ServerId(index)) = cause {
                    let server = self.servers.get_mut(index);
                    if let Some(stream) = server.and_then(|server| server.stream.as_mut()) {
                        stream.hold(token);
                    }
                }
                self.effects.push_back(effect);
            }
        }
    }

    /// Delivers an event that no response caused.
    fn deliver(&mut self, now: Time, watch: WatchKey, event: WatchEvent) {
        self.effects.extend(self.delivery.deliver(now, watch, event).map(|(_, effect)| effect));
    }

    fn stop_waiting(&mut self, token: ReadToken) {
        for stream in self.servers.iter_mut().filter_map(|server| server.stream.as_mut()) {
            stream.release(token);
        }
    }

    /// Notifies all watchers of changes whose authority fits.
    pub(super) fn tell_all(&mut self, now: Time, cause: Cause, fits: impl Fn(AuthorityId) -> bool) {
        let all = self.cache.iter().filter(|(_, _, state)| fits(state.authority));
        let all: Vec<_> = all.map(|(resource_type, name, _)| (resource_type, name.clone())).collect();
        for (resource_type, name) in all {
            self.tell(now, resource_type, &name, cause);
        }
    }

    fn unreachable(
        &self,
        authority: AuthorityId,
        resource_type: ResourceType,
        name: &Arc<str>,
    ) -> Option<Arc<ResourceError>> {
        // A71-12: not before the last server of the list has failed, too.
        let kind = self.active_server(authority)?.unreachable.clone()?;
        let failed =
            self.in_use(authority).filter_map(|server| Some((&server.uri, server.unreachable.as_ref()?)));
        let failed: Vec<_> = failed.map(|(uri, why)| format!("{uri}: {why}")).collect();
        let kind = if failed.len() > 1 { ResourceErrorKind::Transient(failed.join("; ")) } else { kind };
        Some(self.error(Some(authority), resource_type, name, kind))
    }

    fn error(
        &self,
        authority: Option<AuthorityId>,
        resource_type: ResourceType,
        name: &Arc<str>,
        kind: ResourceErrorKind,
    ) -> Arc<ResourceError> {
        let server = authority.and_then(|authority| self.active_server(authority));
        Arc::new(ResourceError {
            resource_type,
            name: name.clone(),
            server: server.map_or_else(|| "none".into(), |server| Arc::clone(&server.uri)),
            node: self.config.node_id.clone(),
            kind,
        })
    }

    /// Sends the next request and reads the next message of each stream, if allowed.
    fn send_and_read(&mut self, now: Time) {
        let Self { servers, authorities, cache, effects, config, .. } = self;
        for (id, server) in servers.iter_mut().enumerate().map(|(index, server)| (ServerId(index), server)) {
            let Some(stream) = &mut server.stream else { continue };
            let use_of = |authority| {
                if authorities.is_active(authority, id) {
                    Use::Active
                } else if authorities.uses(authority, id) {
                    Use::Waiting
                } else {
                    Use::None
                }
            };
            while let Some(pending) = stream.next_pending() {
                let resource_type = pending.resource_type;
                if stream.is_settled(now, resource_type) {
                    cache.forget_unsubscribed(resource_type, |authority, name| {
                        use_of(authority) == Use::Active && !stream.has_asked_for(resource_type, name)
                    });
                }
                let revision = cache.revision(resource_type) + authorities.revision();
                let names = stream.asked_at(resource_type, revision).cloned().unwrap_or_else(|| {
                    RequestedNames::new(cache.subscribe(resource_type, now, use_of), revision)
                });
                // A version implies that we hold its resources, and a server may leave out those that it believes we
                // have. So a type of which a resource is missing starts a stream without a version.
                let uses = |authority| use_of(authority) != Use::None;
                if !stream.has_asked(resource_type) && !cache.holds_all(resource_type, id, uses) {
                    server.versions.remove(&resource_type);
                }
                let version = server.versions.get(&resource_type).map_or("", |version| version);
                if let Some(request) = stream.request(pending, &names, version, &config.node) {
                    tracing::debug!(
                        target: targets::XDS_CLIENT, server = %server.uri, stream = %stream.id(),
                        type_url = request.type_url, names = ?names.names(),
                        version = request.version_info, nonce = request.response_nonce, "ADS request"
                    );
                    let head = request.encode_to_vec().into();
                    let request = EncodedRequest { head, names: names.encoded() };
                    effects.push_back(Effect::Send { stream: stream.id(), request });
                }
            }
            if stream.start_reading(now) {
                effects.push_back(Effect::ReadNext { stream: stream.id() });
            }
        }
    }
}

fn timeout_text(server: &Server, resource_type: ResourceType, now: Time, since: Time) -> String {
    let asked = format!("requested {:.1} s ago and not received", now.since(since).as_secs_f64());
    // The unreadable resource may have been this one.
    let unreadable = server.rejections.get(&resource_type).filter(|rejection| rejection.unnamed);
    if let Some(rejection) = unreadable {
        return format!("{asked} in a readable form: {}", rejection.text(resource_type));
    }
    match &server.last_stream_error {
        None => asked,
        Some((time, reason)) => {
            format!("{asked}; last ADS error {:.1} s ago: {reason}", now.since(*time).as_secs_f64())
        }
    }
}
