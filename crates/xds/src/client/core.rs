//! [`XdsCore`]: watches, the stream's lifecycle, and timers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use proxyless_sans_io::values::Code;
use proxyless_sans_io::{Backoff, BackoffConfig, Rng, Time};

use super::ads_stream::AdsStream;
use super::api::{Effect, Input, ResourceError, ResourceErrorKind, WatchEvent, XdsCoreConfig};
use super::cache::Cache;
use super::delivery::Delivery;
use super::dump::{ResourceDump, ResourceStatus, UpdateCounts};
use super::ids::{ReadToken, WatchId, WatchKey, WatcherId};
use super::resource_state::{DataError, Received, Wait};
use crate::StreamId;
use crate::resource::{ResourceType, cut};
use crate::targets;

/// A stream that received a response but lived shorter than this is reopened after a delay, so that a server that keeps
/// closing its streams (or crashes on a request) is not flooded. After a longer life the stream is reopened at once.
const SHORT_STREAM: Duration = Duration::from_secs(10);

/// The xDS client of one management server: speaks ADS (state of the world, v3), caches resources and notifies
/// watchers.
///
/// Call [`Self::handle`] for each input, then [`Self::poll_effect`] until it returns `None`.
#[derive(Debug)]
pub struct XdsCore {
    pub(super) config: XdsCoreConfig,
    pub(super) cache: Cache,
    watches: BTreeMap<WatchKey, (ResourceType, Arc<str>)>,
    /// The last accepted version of each type. Unlike nonces it outlives the stream.
    pub(super) versions: BTreeMap<ResourceType, Arc<str>>,
    /// The violations in the latest response of each type, if it was rejected.
    pub(super) rejections: BTreeMap<ResourceType, Rejection>,
    pub(super) stream: Option<AdsStream>,
    last_stream_id: StreamId,
    retry_at: Option<Time>,
    backoff: Backoff,
    rng: Rng,
    /// The reason why the server is unreachable, from a stream's failure until the next response.
    unreachable: Option<ResourceErrorKind>,
    last_stream_error: Option<(Time, String)>,
    delivery: Delivery,
    pub(super) updates: BTreeMap<ResourceType, UpdateCounts>,
    effects: VecDeque<Effect>,
}

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
    Response,
    Other,
}

impl XdsCore {
    /// Creates a core that does nothing until the first watch (A27-35).
    #[must_use]
    pub fn new(config: XdsCoreConfig) -> Self {
        Self {
            rng: Rng::new(config.seed),
            config,
            cache: Cache::default(),
            watches: BTreeMap::new(),
            versions: BTreeMap::new(),
            rejections: BTreeMap::new(),
            stream: None,
            last_stream_id: StreamId::default(),
            retry_at: None,
            backoff: Backoff::new(BackoffConfig::default()),
            unreachable: None,
            last_stream_error: None,
            delivery: Delivery::default(),
            updates: BTreeMap::new(),
            effects: VecDeque::new(),
        }
    }

    /// Handles an input. Inputs about earlier streams are ignored.
    pub fn handle(&mut self, now: Time, input: Input) {
        let stream = self.stream.as_ref();
        self.cache.end_limbo(now, |of| stream.is_some_and(|stream| stream.has_unsent(of)));
        match input {
            Input::Watch { watch, resource_type, name } => self.watch(now, watch, resource_type, name),
            Input::Unwatch { watch } => self.unwatch(now, watch),
            Input::Leave { watcher } => {
                let key = |watch| WatchKey { watcher, watch: WatchId(watch) };
                let all: Vec<_> = self.watches.range(key(0)..=key(u64::MAX)).map(|(&key, _)| key).collect();
                all.into_iter().for_each(|watch| self.unwatch(now, watch));
            }
            Input::StreamUp { stream } if self.is_current(stream) => self.stream_up(now),
            Input::SendDone { stream } if self.is_current(stream) => {
                let sent = self.stream.as_mut().and_then(AdsStream::send_done);
                if let Some(resource_type) = sent {
                    self.cache.start_timers(resource_type, now, self.config.resource_timeout);
                }
            }
            Input::Message { stream, bytes } if self.is_current(stream) => self.message(now, bytes),
            Input::StreamDown { stream, code, reason } if self.is_current(stream) => {
                self.stream_down(now, code, reason);
            }
            Input::TokenReleased { token } => {
                self.stop_waiting(token);
                for (watch, event) in self.delivery.release(token) {
                    self.deliver(now, watch, event);
                }
            }
            Input::StreamUp { .. }
            | Input::SendDone { .. }
            | Input::Message { .. }
            | Input::StreamDown { .. }
            | Input::Tick => {}
        }
        // After the input: a resource that arrives at its deadline is in time.
        self.expire(now);
        self.send_and_read(now);
    }

    /// Returns the next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The time at which [`Input::Tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let next_nack = self.stream.as_ref().and_then(AdsStream::next_nack);
        let deadlines = [self.retry_at, self.cache.next_deadline(), next_nack, self.delivery.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// A40-28: all watched resources, by type and name. A40-35: and no others.
    #[must_use]
    pub fn dump(&self) -> Vec<ResourceDump> {
        let watched = self.cache.iter().filter(|(_, _, state)| !state.watchers.is_empty());
        let dump = |(resource_type, name, state)| {
            ResourceDump::new(resource_type, name, state, self.rejections.get(&resource_type))
        };
        watched.map(dump).collect()
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

    fn watch(&mut self, now: Time, watch: WatchKey, resource_type: ResourceType, name: Arc<str>) {
        if self.watches.contains_key(&watch) {
            tracing::warn!(target: targets::XDS_CLIENT, ?watch, "a watch with this id exists and is replaced");
            self.unwatch(now, watch);
        }
        self.watches.insert(watch, (resource_type, name.clone()));
        let unreachable = self.unreachable(resource_type, &name);
        let state = self.cache.get_or_insert(resource_type, &name);
        if state.watchers.is_empty() && state.limbo.is_some() {
            state.revive();
        }
        state.watchers.insert(watch);
        // For a new resource the only news is that the server is unreachable; for a known one it is what other watchers
        // know.
        let news = state.news(unreachable);
        let events = if news.is_empty() { state.replay() } else { news };
        let asked_for = state.wait != Wait::Unsent;
        for event in events {
            self.deliver(now, watch, event);
        }
        match &mut self.stream {
            Some(stream) if !asked_for => stream.want(now, resource_type),
            Some(_) => {}
            None if self.retry_at.is_none() => self.open_stream(),
            None => {}
        }
    }

    fn unwatch(&mut self, now: Time, watch: WatchKey) {
        let Some((resource_type, name)) = self.watches.remove(&watch) else { return };
        self.delivery.forget(watch);
        let Some(state) = self.cache.get_mut(resource_type, &name) else { return };
        state.watchers.remove(&watch);
        if self.watches.is_empty() {
            return self.close();
        }
        if !state.watchers.is_empty() {
            return;
        }
        if state.wait == Wait::Unsent && state.limbo.is_none() {
            self.cache.remove(resource_type, &name);
        } else if let Some(stream) = &mut self.stream {
            stream.want(now, resource_type);
        }
    }

    /// No watches are left: closes the stream, and forgets its errors.
    fn close(&mut self) {
        if let Some(stream) = self.stream.take() {
            let server = &self.config.server_uri;
            tracing::debug!(target: targets::XDS_CLIENT, %server, stream = %stream.id(), "closing the ADS stream");
            self.effects.push_back(Effect::CloseStream { stream: stream.id() });
        }
        self.retry_at = None;
        self.unreachable = None;
        self.rejections.clear();
        self.backoff.reset();
        self.cache.clear();
    }

    fn is_current(&self, stream: StreamId) -> bool {
        self.stream.as_ref().is_some_and(|current| current.id() == stream)
    }

    fn open_stream(&mut self) {
        self.retry_at = None;
        self.last_stream_id = self.last_stream_id.next();
        self.stream = Some(AdsStream::new(self.last_stream_id));
        self.effects.push_back(Effect::OpenStream { stream: self.last_stream_id });
    }

    fn stream_up(&mut self, now: Time) {
        let Some(stream) = &mut self.stream else { return };
        let server = &self.config.server_uri;
        tracing::debug!(target: targets::XDS_CLIENT, %server, stream = %stream.id(), "the ADS stream is up");
        stream.up(now, ResourceType::ALL.into_iter());
    }

    fn stream_down(&mut self, now: Time, code: Option<Code>, reason: String) {
        let Some(stream) = self.stream.take() else { return };
        self.cache.stream_ended();
        self.last_stream_error = Some((now, reason.clone()));
        // a stream that ends after a response is normal, and not reported to watchers.
        if stream.seen_response() {
            let server = &self.config.server_uri;
            tracing::info!(target: targets::XDS_CLIENT, %server, reason, "the ADS stream ended");
            if stream.age(now) >= SHORT_STREAM {
                return self.open_stream();
            }
        }
        // A57: the first response of a stream resets the backoff, so the delay after a short stream is the initial one.
        self.retry_at = Some(now + self.backoff.next_delay(&mut self.rng));
        if stream.seen_response() {
            return;
        }
        let unreachable = match code {
            // The status of a gRPC server without ADS.
            Some(Code::Unimplemented) => ResourceErrorKind::NoAdsService(reason),
            _ => ResourceErrorKind::Transient(format!("the ADS stream failed without a response: {reason}")),
        };
        tracing::warn!(target: targets::XDS_CLIENT, server = %self.config.server_uri, "{unreachable}");
        self.unreachable = Some(unreachable);
        self.tell_all(now, Cause::Other);
    }

    /// A response was received, so the backoff is reset (A57). Returns true if the server was unreachable until now.
    pub(super) fn reached(&mut self) -> bool {
        self.backoff.reset();
        self.unreachable.take().is_some()
    }

    fn expire(&mut self, now: Time) {
        if self.retry_at.is_some_and(|retry_at| retry_at <= now) {
            self.open_stream();
        }
        if let Some(stream) = &mut self.stream {
            stream.release_nacks(now);
        }
        while let Some(token) = self.delivery.expire(now) {
            self.stop_waiting(token);
        }
        while let Some((resource_type, name, since)) = self.cache.expire(now) {
            let why = self.timeout_text(resource_type, now, since);
            // gRFC A88: with this feature the timer indicates that the server is slow, not that the resource is absent.
            let transient = self.config.gates.data_error_handling
                && self.config.features.resource_timer_is_transient_error;
            let kind = if transient {
                ResourceErrorKind::Timeout(why)
            } else {
                ResourceErrorKind::DoesNotExist(why)
            };
            let no_response = Received { version: &Arc::default(), time: now };
            self.set_error(resource_type, &name, kind, no_response);
            self.tell(now, resource_type, &name, Cause::Other);
        }
    }

    fn timeout_text(&self, resource_type: ResourceType, now: Time, since: Time) -> String {
        let asked = format!("requested {:.1} s ago and not received", now.since(since).as_secs_f64());
        // The unreadable resource may have been this one.
        let unreadable = self.rejections.get(&resource_type).filter(|rejection| rejection.unnamed);
        if let Some(rejection) = unreadable {
            return format!("{asked} in a readable form: {}", rejection.text(resource_type));
        }
        match &self.last_stream_error {
            None => asked,
            Some((time, reason)) => {
                format!("{asked}; last ADS error {:.1} s ago: {reason}", now.since(*time).as_secs_f64())
            }
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
        let error = self.error(of, name, kind);
        let Some(state) = self.cache.get_mut(of, name) else { return };
        let before = state.status();
        state.error =
            Some(DataError { version: Arc::clone(from.version), time: from.time, error: error.clone() });
        // Once per change, not once per response. The log of the response lists the rejected resources.
        let status = state.status();
        if status != before && status != ResourceStatus::Nacked {
            let in_use = state.data.is_some();
            tracing::warn!(target: targets::XDS_CLIENT, in_use, "{error}");
        }
    }

    /// Notifies the watchers of a resource of changes.
    pub(super) fn tell(&mut self, now: Time, resource_type: ResourceType, name: &Arc<str>, cause: Cause) {
        let unreachable = self.unreachable(resource_type, name);
        let Some(state) = self.cache.get_mut(resource_type, name) else { return };
        for event in state.news(unreachable) {
            for &watch in &state.watchers {
                let Some((token, effect)) = self.delivery.deliver(now, watch, event.clone()) else {
                    continue;
                };
                if let Some(stream) = self.stream.as_mut().filter(|_| cause == Cause::Response) {
                    stream.hold(token);
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
        if let Some(stream) = &mut self.stream {
            stream.release(token);
        }
    }

    /// Notifies all watchers of changes.
    pub(super) fn tell_all(&mut self, now: Time, cause: Cause) {
        let all: Vec<_> =
            self.cache.iter().map(|(resource_type, name, _)| (resource_type, name.clone())).collect();
        for (resource_type, name) in all {
            self.tell(now, resource_type, &name, cause);
        }
    }

    fn unreachable(&self, resource_type: ResourceType, name: &Arc<str>) -> Option<Arc<ResourceError>> {
        Some(self.error(resource_type, name, self.unreachable.clone()?))
    }

    fn error(
        &self,
        resource_type: ResourceType,
        name: &Arc<str>,
        kind: ResourceErrorKind,
    ) -> Arc<ResourceError> {
        Arc::new(ResourceError {
            resource_type,
            name: name.clone(),
            server: self.config.server_uri.clone(),
            node: self.config.node_id.clone(),
            kind,
        })
    }

    /// Sends the next request and reads the next message, if allowed.
    fn send_and_read(&mut self, now: Time) {
        let Some(stream) = &mut self.stream else { return };
        while let Some(pending) = stream.next_pending() {
            let resource_type = pending.resource_type;
            let names = self.cache.subscribe(resource_type, now);
            // A version implies that we hold its resources, and a server may leave out those that it believes we have.
            // So a type of which a resource is missing starts a stream without a version.
            if !stream.has_asked(resource_type) && !self.cache.holds_all(resource_type) {
                self.versions.remove(&resource_type);
            }
            let version = self.versions.get(&resource_type).map_or("", |version| version);
            if let Some(request) = stream.request(pending, names, version, &self.config.node) {
                tracing::debug!(
                    target: targets::XDS_CLIENT, stream = %stream.id(), type_url = request.type_url,
                    names = ?request.resource_names, version = request.version_info,
                    nonce = request.response_nonce, "ADS request"
                );
                let bytes = request.encode_to_vec().into();
                self.effects.push_back(Effect::Send { stream: stream.id(), bytes });
            }
        }
        if stream.start_reading() {
            self.effects.push_back(Effect::ReadNext { stream: stream.id() });
        }
    }
}
