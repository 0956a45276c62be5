//! The streams of an [`XdsCore`]: when they open and close, and which server each authority uses (gRFC A71).

use std::time::Duration;

use proxyless_sans_io::Time;
use proxyless_sans_io::values::Code;

use super::ads_stream::AdsStream;
use super::api::{Effect, ResourceErrorKind};
use super::authorities::AuthorityId;
use super::core::{Cause, XdsCore};
use super::ids::ServerId;
use super::server::Server;
use crate::StreamId;
use crate::resource::ResourceType;
use crate::targets;

/// A stream that received a response but lived shorter than this is reopened after a delay, so that a server that keeps
/// closing its streams (or crashes on a request) is not flooded. After a longer life the stream is reopened at once.
const SHORT_STREAM: Duration = Duration::from_secs(10);

impl XdsCore {
    pub(super) fn server(&self, ServerId(index): ServerId) -> Option<&Server> {
        self.servers.get(index)
    }

    fn server_mut(&mut self, ServerId(index): ServerId) -> Option<&mut Server> {
        self.servers.get_mut(index)
    }

    pub(super) fn stream_mut(&mut self, server: ServerId) -> Option<&mut AdsStream> {
        self.server_mut(server)?.stream.as_mut()
    }

    /// The server whose current stream this is.
    pub(super) fn server_of(&self, stream: StreamId) -> Option<ServerId> {
        let is_current =
            |server: &Server| server.stream.as_ref().is_some_and(|current| current.id() == stream);
        self.servers.iter().position(is_current).map(ServerId)
    }

    /// The server whose resources an authority uses.
    pub(super) fn active_server(&self, authority: AuthorityId) -> Option<&Server> {
        self.server(self.authorities.active(authority)?)
    }

    /// The servers that an authority has streams to, by priority.
    pub(super) fn in_use(&self, authority: AuthorityId) -> impl Iterator<Item = &Server> {
        let ids = self.authorities.get(authority).into_iter().flat_map(|authority| authority.in_use());
        ids.filter_map(|&server| self.server(server))
    }

    /// The names of a type changed: requests them from the servers of their authority.
    pub(super) fn want(&mut self, now: Time, authority: AuthorityId, resource_type: ResourceType) {
        let Some(authority) = self.authorities.get(authority) else { return };
        for &ServerId(index) in authority.in_use() {
            if let Some(server) = self.servers.get_mut(index) {
                server.want(now, resource_type);
            }
        }
    }

    /// Opens the streams that an authority needs.
    pub(super) fn use_servers(&mut self, authority: AuthorityId) {
        let servers = self.authorities.get(authority).map(|authority| authority.in_use().to_vec());
        for server in servers.unwrap_or_default() {
            if self.server(server).is_some_and(|server| !server.is_in_use()) {
                self.open_stream(server);
            }
        }
    }

    /// A71-08, A71-10: takes servers of lower priority into use while the active one is unreachable and a resource is
    /// missing. Returns whether the active server changed, which its watchers have not been told.
    pub(super) fn settle_fallback(&mut self, now: Time, authority: AuthorityId) -> bool {
        let before = self.authorities.active(authority);
        loop {
            let settled = self
                .active_server(authority)
                .is_some_and(|server| server.unreachable.is_none() || !self.cache.misses(authority));
            if settled {
                break;
            }
            let Some(next) = self.authorities.get_mut(authority).and_then(|authority| authority.fall_back())
            else {
                break;
            };
            if before.is_some() {
                let server = self.server(next).map(|server| &*server.uri).unwrap_or_default();
                tracing::warn!(target: targets::XDS_CLIENT, server, "falling back to another management server");
            }
        }
        let active = self.authorities.active(authority);
        if active == before {
            return false;
        }
        // Its resources are requested from the beginning: on a new stream, or on one that other authorities use.
        if let (Some(_), Some(active)) = (before, active) {
            self.adopt(now, authority, active);
        }
        self.use_servers(authority);
        true
    }

    /// The authority uses the resources of this server from now on.
    fn adopt(&mut self, now: Time, authority: AuthorityId, ServerId(index): ServerId) {
        let Some(server) = self.servers.get_mut(index) else { return };
        match &server.stream {
            Some(stream) => self.cache.adopt(authority, stream, now, server.resource_timeout),
            None => self.cache.stream_ended(|of| of == authority),
        }
        server.want_all(now);
    }

    /// A71-13, A71-14: a server has answered, so authorities that used a server of lower priority use this one again,
    /// and streams to the lower ones are closed.
    pub(super) fn fall_forward(&mut self, now: Time, server: ServerId) {
        for id in self.authorities.ids() {
            let Some(authority) = self.authorities.get_mut(id) else { continue };
            let before = authority.in_use().to_vec();
            if !authority.fall_forward(server) {
                continue;
            }
            let uri = self.server(server).map(|server| &*server.uri).unwrap_or_default();
            tracing::info!(target: targets::XDS_CLIENT, server = uri, "back to the preferred management server");
            self.adopt(now, id, server);
            // Where other authorities keep the stream open, the names of this one are unsubscribed.
            for ServerId(index) in before {
                if let Some(server) = self.servers.get_mut(index) {
                    server.want_all(now);
                }
            }
        }
        self.close_unused();
    }

    /// Closes the streams and connections to servers that no watched authority uses.
    pub(super) fn close_unused(&mut self) {
        for index in 0..self.servers.len() {
            let id = ServerId(index);
            let needed = self.authorities.need(id);
            let Some(server) = self.servers.get_mut(index).filter(|server| !needed && server.is_in_use())
            else {
                continue;
            };
            if let Some(stream) = server.close() {
                let (server, stream) = (&server.uri, stream.id());
                tracing::debug!(target: targets::XDS_CLIENT, %server, %stream, "closing the ADS stream");
                self.effects.push_back(Effect::CloseStream { stream });
            }
            self.effects.push_back(Effect::Disconnect { server: id });
        }
        for id in self.authorities.ids() {
            let unused = self.authorities.active(id).is_some_and(|active| !self.authorities.need(active));
            if let Some(authority) = self.authorities.get_mut(id).filter(|_| unused) {
                authority.leave();
                self.cache.forget(id);
            }
        }
    }

    /// An authority whose last watch ended stays with its server while resources are in limbo on a stream that others
    /// use. After that it leaves, so that its next watch begins with the first server of its list (A71-06).
    pub(super) fn leave_servers(&mut self) {
        for id in self.authorities.ids() {
            let Some(authority) = self.authorities.get_mut(id) else { continue };
            if authority.watches == 0 && authority.active().is_some() && !self.cache.knows(id) {
                authority.leave();
            }
        }
    }

    pub(super) fn open_stream(&mut self, id: ServerId) {
        self.last_stream_id = self.last_stream_id.next();
        let stream = self.last_stream_id;
        let Some(server) = self.server_mut(id) else { return };
        server.retry_at = None;
        server.stream = Some(AdsStream::new(stream));
        self.effects.push_back(Effect::OpenStream { stream, server: id });
    }

    pub(super) fn stream_up(&mut self, now: Time, server: ServerId) {
        let Some(server) = self.server_mut(server) else { return };
        let Some(stream) = &mut server.stream else { return };
        tracing::debug!(target: targets::XDS_CLIENT, server = %server.uri, stream = %stream.id(), "the ADS stream is up");
        stream.up(now, ResourceType::ALL.into_iter());
    }

    pub(super) fn send_done(&mut self, now: Time, id: ServerId) {
        let sent = self.stream_mut(id).and_then(|stream| stream.send_done(now));
        let timeout = self.server(id).map(|server| server.resource_timeout);
        if let (Some(resource_type), Some(timeout)) = (sent, timeout) {
            let authorities = &self.authorities;
            self.cache.start_timers(resource_type, now, timeout, |of| authorities.is_active(of, id));
        }
    }

    pub(super) fn stream_down(&mut self, now: Time, id: ServerId, code: Option<Code>, reason: String) {
        let Self { servers, authorities, cache, rng, .. } = self;
        let ServerId(index) = id;
        let Some(server) = servers.get_mut(index) else { return };
        let Some(stream) = server.stream.take() else { return };
        cache.stream_ended(|of| authorities.is_active(of, id));
        server.last_stream_error = Some((now, reason.clone()));
        // a stream that ends after a response is normal, and not reported to watchers.
        if stream.seen_response() {
            if let Some(repeated) = server.log.ended.note(&reason) {
                tracing::info!(
                    target: targets::XDS_CLIENT, server = %server.uri, reason, repeated, "the ADS stream ended"
                );
            }
            if stream.age(now) >= SHORT_STREAM {
                return self.open_stream(id);
            }
        }
        // A57: the first response of a stream resets the backoff, so the delay after a short stream is the initial one.
        server.retry_at = Some(now + server.backoff.next_delay(rng));
        if stream.seen_response() {
            return;
        }
        let unreachable = match code {
            // The status of a gRPC server without ADS.
            Some(Code::Unimplemented) => ResourceErrorKind::NoAdsService(reason),
            _ => ResourceErrorKind::Transient(format!("the ADS stream failed without a response: {reason}")),
        };
        if let Some(repeated) = server.log.unreachable.note(&unreachable.to_string()) {
            tracing::warn!(target: targets::XDS_CLIENT, server = %server.uri, repeated, "{unreachable}");
        }
        let was_healthy = server.unreachable.replace(unreachable).is_none();
        // A71-12: the errors of watchers have the reasons of all servers that are in use.
        let affected: Vec<_> = authorities.ids().filter(|&of| authorities.uses(of, id)).collect();
        if was_healthy {
            self.count_failure(id);
        }
        for authority in affected {
            let was_active = self.authorities.is_active(authority, id);
            // Another server replaces its resources, so its versions say nothing about the cache.
            if was_active
                && self.settle_fallback(now, authority)
                && let Some(server) = self.server_mut(id)
            {
                server.versions.clear();
            }
            self.tell_all(now, Cause::Other, |of| of == authority);
        }
    }

    /// A response was received, so the backoff is reset (A57). Returns true if the server was unreachable until now.
    pub(super) fn reached(&mut self, server: ServerId) -> bool {
        self.server_mut(server).is_some_and(|server| {
            server.backoff.reset();
            let was_unreachable = server.unreachable.take().is_some();
            if was_unreachable {
                let repeated = server.log.unreachable.end();
                tracing::info!(
                    target: targets::XDS_CLIENT, server = %server.uri, repeated, "the management server answers again"
                );
            }
            was_unreachable
        })
    }
}
