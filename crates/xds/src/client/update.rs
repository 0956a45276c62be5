//! Applying a response to the cache, and answering it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use proxyless_sans_io::Time;
use proxyless_sans_io::values::Code;

use super::ads_stream::{Ack, AdsStream, Rejected};
use super::api::{Effect, ResourceErrorKind};
use super::core::{Cause, Rejection, XdsCore, shown};
use super::faults::MAX_ERROR_BYTES;
use super::ids::ServerId;
use super::messages::{DiscoveryResponse, ResponseHead};
use super::resource_state::{Received, ResourceState, Standing};
use super::response::{Judge, Judged, ResourceOutcome, Verdict};
use super::server::Server;
use crate::resource::{DecodeContext, ResourceType, cut, has_more_resources};
use crate::targets;

/// The codes by which a server reports a resource as unavailable (gRFC A88).
const DATA_ERROR_CODES: [Code; 2] = [Code::NotFound, Code::PermissionDenied];

/// A response, decoded as far as the limits allow.
enum Response {
    Whole(DiscoveryResponse),
    /// Has more resources than the limit.
    TooLarge(ResponseHead),
}

impl XdsCore {
    pub(super) fn message(&mut self, now: Time, server: ServerId, bytes: Bytes) {
        if let Some(stream) = self.stream_mut(server) {
            stream.read_done(now);
        }
        // A40-09: ignores messages that are not a DiscoveryResponse, and responses of unknown types, for which there is
        // no subscription to ACK. The next message may be valid.
        let response = match self.decode(bytes) {
            Ok(response) => response,
            Err(why) => return self.ignored(server, format_args!("not a DiscoveryResponse: {why}")),
        };
        let type_url = match &response {
            Response::Whole(response) => &response.type_url,
            Response::TooLarge(head) => &head.type_url,
        };
        match ResourceType::from_type_url(type_url) {
            Some(resource_type) => self.response(now, server, resource_type, response),
            None => {
                let type_url = shown(&type_url.as_str().into());
                self.ignored(server, format_args!("response of the unknown type {type_url:?}"));
            }
        }
    }

    /// Logs an ignored message: as a warning once per stream, since a server may send any number of them.
    fn ignored(&mut self, server: ServerId, why: std::fmt::Arguments<'_>) {
        let first = self.stream_mut(server).is_some_and(AdsStream::garbage_seen);
        let server = self.uri(server);
        if first {
            tracing::warn!(target: targets::XDS_CLIENT, %server, "a message is ignored: {why}");
        } else {
            tracing::debug!(target: targets::XDS_CLIENT, %server, "a message is ignored: {why}");
        }
    }

    fn uri(&self, server: ServerId) -> Arc<str> {
        self.server(server).map(|server| Arc::clone(&server.uri)).unwrap_or_default()
    }

    /// A response with too many resources is not decoded: each may take a hundred times its encoded size in memory.
    fn decode(&self, bytes: Bytes) -> Result<Response, String> {
        if has_more_resources(&bytes, self.config.limits.resources_per_response) {
            let head = ResponseHead::decode(bytes).map_err(|error| error.to_string())?;
            return Ok(Response::TooLarge(head));
        }
        DiscoveryResponse::read(bytes).map(Response::Whole)
    }

    fn response(&mut self, now: Time, server: ServerId, resource_type: ResourceType, response: Response) {
        let (version, nonce) = self.log_response(server, resource_type, &response);
        // A71-13: any response, even one that is rejected, shows that the server can be reached.
        self.fall_forward(now, server);
        let was_unreachable = self.reached(server);
        let verdict = self.validate(server, resource_type, response);
        self.count_updates(server, resource_type, &verdict);
        let deleted = self.deleted(server, resource_type, &verdict);
        let Verdict { unchanged, outcomes, faults, unnamed, .. } = verdict;
        self.crossed(now, server, resource_type);
        let from = Received { server, version: &version, time: now };
        let mut touched = self.apply_all(resource_type, unchanged, outcomes, from);
        for name in deleted {
            self.delete(resource_type, &name, from);
            touched.push(name);
        }
        if let Some(stream) = self.stream_mut(server) {
            stream.response_seen();
        }
        let cause = Cause::Response(server);
        if was_unreachable {
            let affected: Vec<_> =
                self.authorities.ids().filter(|&of| self.authorities.is_active(of, server)).collect();
            self.tell_all(now, cause, |of| affected.contains(&of));
        } else {
            touched.iter().for_each(|name| self.tell(now, resource_type, name, cause));
        }
        let rejection = (!faults.is_empty()).then(|| Rejection {
            version: Arc::clone(&version),
            time: now,
            why: faults.text(),
            unnamed,
        });
        self.answer(resource_type, nonce, rejection, from);
    }

    /// Logs a response. Returns its version and nonce.
    fn log_response(&self, server: ServerId, of: ResourceType, response: &Response) -> (Arc<str>, String) {
        let (version, nonce, count) = match response {
            Response::Whole(response) => {
                (&response.version_info, &response.nonce, Some(response.resources.len()))
            }
            Response::TooLarge(head) => (&head.version_info, &head.nonce, None),
        };
        tracing::debug!(
            target: targets::XDS_CLIENT, server = %self.uri(server), type_url = of.type_url(),
            version, nonce, count, "ADS response"
        );
        (version.as_str().into(), nonce.clone())
    }

    fn validate(&self, server: ServerId, resource_type: ResourceType, response: Response) -> Verdict {
        let features = self.server(server).map(|server| server.features).unwrap_or_default();
        let cx = DecodeContext {
            gates: self.config.gates,
            trusted_xds_server: features.trusted_xds_server,
            limits: self.config.limits,
            certificate_providers: self.config.certificate_providers.clone(),
            policies: self.config.policies.clone(),
            localities: self.localities.clone(),
        };
        let serves = |authority| self.authorities.is_active(authority, server);
        // A81: a trusted server may rewrite the authority, so its bytes mean more than those of others.
        let trusted = features.trusted_xds_server;
        let decodes_alike = |source| {
            let is_trusted = |source: &Server| source.features.trusted_xds_server;
            !cx.gates.authority_rewrite || self.server(source).is_some_and(is_trusted) == trusted
        };
        let judge = Judge {
            resource_type,
            cached: self.cache.of_type(resource_type),
            serves: &serves,
            decodes_alike: &decodes_alike,
            cx: &cx,
            nack_mode: self.config.nack_mode,
        };
        match response {
            Response::Whole(response) => judge.judge(response),
            Response::TooLarge(_) => {
                let limit = cx.limits.resources_per_response;
                Verdict::unread(&format!("more than {limit} resources, the limit"))
            }
        }
    }

    /// The names of the cached resources that the response deletes by their absence.
    fn deleted(&self, server: ServerId, of: ResourceType, verdict: &Verdict) -> Vec<Arc<str>> {
        if !verdict.absence_is_deletion {
            return Vec::new();
        }
        let names = self.cache.names(of, |authority| self.authorities.is_active(authority, server));
        // Those that are unchanged are among these names, and in the same order.
        let mut present = verdict.unchanged.iter().peekable();
        let mut is_present =
            |name: &Arc<str>| present.next_if_eq(&name).is_some() || verdict.outcomes.contains_key(name);
        names.filter(|name| !is_present(name)).cloned().collect()
    }

    /// A response has arrived, which may have crossed an unsubscription.
    fn crossed(&mut self, now: Time, server: ServerId, of: ResourceType) {
        let stream = self.server(server).and_then(|server| server.stream.as_ref());
        let Some(listened) = stream.map(|stream| stream.listened(now)) else { return };
        let authorities = &self.authorities;
        self.cache.crossed(of, listened, |authority| authorities.is_active(authority, server));
    }

    /// Applies the resources of a response. Returns the names of those that have news, in order.
    fn apply_all(
        &mut self,
        of: ResourceType,
        unchanged: Vec<Arc<str>>,
        outcomes: BTreeMap<Arc<str>, Judged>,
        from: Received<'_>,
    ) -> Vec<Arc<str>> {
        let mut touched = self.cache.confirm(of, unchanged, from);
        let mut moved = false;
        for name in &touched {
            let source = self.cache.get(of, name).and_then(ResourceState::source);
            moved |= of == ResourceType::Cluster && source != Some(from.server);
            self.confirm(of, name, from);
        }
        for (name, judged) in outcomes {
            // A27-64, A27-73, A27-83: resources that were not requested are ignored.
            // A47-20: as are those of an authority that does not use this server.
            let Some(state) = self.cache.get_mut(of, &name) else { continue };
            if !self.authorities.is_active(state.authority, from.server) {
                continue;
            }
            // A47-25: load is reported to the server that sent the Cluster.
            moved |= of == ResourceType::Cluster && state.source() != Some(from.server);
            self.apply(of, &name, judged, from);
            touched.push(name);
        }
        if moved && self.servers.len() > 1 {
            self.effects.push_back(Effect::MoveLoad);
        }
        // Watchers are notified in the order of names.
        touched.sort_unstable();
        touched
    }

    fn apply(&mut self, of: ResourceType, name: &Arc<str>, judged: Judged, from: Received<'_>) {
        let Judged { outcome, raw } = judged;
        // A heartbeat of a missing resource does not end the wait for it.
        if !matches!(outcome, ResourceOutcome::Heartbeat) {
            self.cache.seen(of, name);
        }
        if matches!(outcome, ResourceOutcome::Valid(_)) {
            self.log_return(of, name, from);
        }
        match outcome {
            ResourceOutcome::Heartbeat | ResourceOutcome::Unasked => {}
            ResourceOutcome::Valid(resource) => self.cache.store(of, name, (resource, raw), from),
            // A88: an invalid update leaves the last valid one in use, unless the server's feature says otherwise.
            ResourceOutcome::Invalid(why) => {
                if self.fails_on_data_errors(from.server) {
                    self.cache.drop_data(of, name);
                }
                let kind = ResourceErrorKind::Invalid { version: shown(from.version), why };
                self.set_error(of, name, kind, from);
            }
            ResourceOutcome::Reported { code, message } => {
                if self.fails_on_data_errors(from.server) && DATA_ERROR_CODES.contains(&code) {
                    self.cache.drop_data(of, name);
                }
                let kind = ResourceErrorKind::Reported { code, message: cut(message, MAX_ERROR_BYTES) };
                self.set_error(of, name, kind, from);
            }
        }
    }

    /// The server sent the same bytes again.
    fn confirm(&mut self, of: ResourceType, name: &Arc<str>, from: Received<'_>) {
        self.cache.seen(of, name);
        self.log_return(of, name, from);
        if let Some(state) = self.cache.get_mut(of, name) {
            state.confirm(from);
        }
    }

    /// A53: the end of an ignored deletion is logged, too.
    fn log_return(&self, of: ResourceType, name: &Arc<str>, from: Received<'_>) {
        if self.cache.get(of, name).is_some_and(ResourceState::is_deletion_ignored) {
            tracing::info!(
                target: targets::XDS_CLIENT, server = %self.uri(from.server), %name, version = &*shown(from.version),
                "deleted {} is back", of.name()
            );
        }
    }

    /// a Listener or Cluster that is missing from a response is deleted.
    fn delete(&mut self, of: ResourceType, name: &Arc<str>, from: Received<'_>) {
        let Some(state) = self.cache.get_mut(of, name) else { return };
        // It is unwatched, and the server has deleted it or seen the unsubscription. It stays in limbo: a server that
        // has not seen that would send it once, when it comes back, and not again for a new subscription.
        if state.watchers.is_empty() && state.limbo.is_some() {
            return self.cache.drop_data(of, name);
        }
        // It was subscribed again a moment ago, perhaps after the server built this response: the timer decides.
        if state.standing != Standing::Sure {
            state.standing = Standing::Absent;
            return;
        }
        // A resource that was never received may be absent because the server has not seen our request yet: its timer
        // decides. An ongoing absence is not reported again.
        if state.data.is_none() || state.is_deletion_ignored() {
            return;
        }
        let features = self.server(from.server).map(|server| server.features).unwrap_or_default();
        let keep = if self.config.gates.data_error_handling {
            !features.fail_on_data_errors
        } else {
            features.ignore_resource_deletion
        };
        if !keep {
            self.cache.drop_data(of, name);
        }
        // A53: an ignored deletion is logged.
        let why = format!("deleted by the server: version {:?} no longer contains it", shown(from.version));
        self.set_error(of, name, ResourceErrorKind::DoesNotExist(why), from);
    }

    fn fails_on_data_errors(&self, server: ServerId) -> bool {
        let fails = self.server(server).is_some_and(|server| server.features.fail_on_data_errors);
        self.config.gates.data_error_handling && fails
    }

    /// answers for every type that was ever requested on the stream, and only for those: an answer without names
    /// would subscribe to all resources.
    fn answer(
        &mut self,
        resource_type: ResourceType,
        nonce: String,
        rejection: Option<Rejection>,
        from: Received<'_>,
    ) {
        let Received { server: id, version, time: now } = from;
        let uses = |authority| self.authorities.uses(authority, id);
        let has_names = self.cache.names(resource_type, uses).next().is_some();
        let ServerId(index) = id;
        let Some(server) = self.servers.get_mut(index) else { return };
        let asked = server.stream.as_ref().is_some_and(|stream| stream.has_asked(resource_type));
        if !asked && !has_names {
            let server = &server.uri;
            tracing::debug!(target: targets::XDS_CLIENT, %server, "{} was never requested", resource_type.name());
            return;
        }
        let rejected = rejection
            .as_ref()
            .map(|Rejection { why, .. }| Rejected { version: Arc::clone(version), why: why.clone() });
        match rejection {
            None => {
                server.rejections.remove(&resource_type);
                server.log.rejected.remove(&resource_type);
                server.versions.insert(resource_type, Arc::clone(version));
            }
            // A NACK repeats the last accepted version.
            Some(rejection) => {
                let error = &rejection.why;
                let lines = server.log.rejected.entry(resource_type).or_default();
                if let Some(repeated) = lines.note(&format!("{version} {error}")) {
                    tracing::warn!(
                        target: targets::XDS_CLIENT, server = %server.uri, version = &*shown(version),
                        nonce = &*shown(&nonce.as_str().into()), error, repeated,
                        "{} response rejected", resource_type.name()
                    );
                }
                server.rejections.insert(resource_type, rejection);
            }
        }
        let version = server.versions.get(&resource_type).cloned().unwrap_or_default();
        if let Some(stream) = &mut server.stream {
            stream.answer(now, resource_type, Ack { version, nonce, rejected });
        }
    }
}
