//! The driver of the xDS client, and the network between it and the management server.

use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use prost::Message as _;
use proxyless_mesh::channel_core::ChannelInput;
use proxyless_sans_io::Time;
use proxyless_sans_io::values::Code;
use proxyless_xds::StreamId;
use proxyless_xds::client::{
    Effect, EncodedRequest, Input, ReadToken, WatchEvent, WatchId, WatchKey, WatcherId,
};
use proxyless_xds::resource::ResourceType;

use super::World;
use crate::laws::invariants::Violation;
use crate::script::Loss;
use crate::servers::ads_model;
use crate::servers::control_plane::Welcome;
use crate::world::queue::{Event, Lane};

/// How long the client waits for a channel to handle an event.
const PATIENCE: Duration = Duration::from_secs(5);

impl World {
    /// The client's id of a channel's watch.
    pub(super) fn client_watch(epoch: u64, watch: WatchId) -> WatchKey {
        WatchKey { watcher: WatcherId(epoch), watch }
    }

    /// Hands the client an input, and executes its effects.
    pub(super) fn tell_xds(&mut self, input: Input) -> Result<(), Violation> {
        if !matches!(input, Input::Tick | Input::TokenReleased { .. }) {
            self.stream_heard = self.now;
        }
        match &input {
            Input::Watch { watch, resource_type, name } => {
                self.watches.insert(*watch, (*resource_type, name.to_string()));
            }
            Input::Unwatch { watch } => drop(self.watches.remove(watch)),
            Input::SendDone { stream } if stream.0 == self.link.stream => self.link.sending = false,
            Input::StreamUp { stream } if stream.0 == self.link.stream => {
                (self.link.is_up, self.link.opens_at) = (true, None);
            }
            Input::StreamDown { stream, .. } if stream.0 == self.link.stream => {
                (self.link.is_up, self.link.opens_at) = (false, None);
                self.stream_failures += 1;
            }
            Input::TokenReleased { token } => drop(self.link.tokens.remove(token)),
            _ => {}
        }
        // Events of a timer that runs out at the same moment are not of the response.
        let is_due = self.xds.next_deadline().is_some_and(|deadline| deadline <= self.now);
        let of_response = matches!(input, Input::Message { .. }) && !is_due;
        self.xds.handle(self.now, input);
        while let Some(effect) = self.xds.poll_effect() {
            if let (true, Effect::Notify { token, .. }) = (of_response, &effect) {
                self.link.tokens.insert(*token, self.now);
            }
            self.do_for_client(effect)?;
        }
        Ok(())
    }

    fn do_for_client(&mut self, effect: Effect) -> Result<(), Violation> {
        match effect {
            Effect::OpenStream { stream: StreamId(stream), .. } => {
                self.log.line(self.now, format_args!("xds: open stream {stream}"));
                self.open_stream(stream)
            }
            Effect::CloseStream { stream: StreamId(stream) } => {
                self.log.line(self.now, format_args!("xds: close stream {stream}"));
                let open = self.link.stream == stream;
                Violation::unless(open, "only the open stream is closed", || format!("stream {stream}"))?;
                self.control_plane.close();
                self.model.closed();
                self.stream_failures = 0;
                self.link = super::Link { stream, ..Default::default() };
                Ok(())
            }
            Effect::Disconnect { server } => {
                let closed = self.control_plane.stream().is_none();
                Violation::unless(closed, "a connection is closed after its stream", || format!("{server:?}"))
            }
            Effect::MoveLoad => Err(Violation::new("load moves between servers only", "there is one")),
            Effect::Send { stream: StreamId(stream), request } => self.send(stream, request),
            Effect::ReadNext { stream: StreamId(stream) } => {
                let waited = |told: &Time| self.now.since(*told) >= PATIENCE;
                let is_done = self.link.tokens.values().all(waited);
                let at_ease = self.link.stream == stream && !self.link.reading && is_done;
                Violation::unless(at_ease, "a message is read when the last one is processed", || {
                    format!("stream {stream}: {:?}", self.link)
                })?;
                self.link.reading = true;
                self.deliver();
                Ok(())
            }
            Effect::Notify { watch, event, token } => {
                let known = self.watches.contains_key(&watch);
                Violation::unless(known, "only existing watches are notified", || format!("{watch:?}"))?;
                let (epoch, local) = (watch.watcher.0, watch.watch);
                let what = match &event {
                    WatchEvent::Changed(Ok(_)) => "changed".to_owned(),
                    other => format!("{other:?}"),
                };
                let key = self.watches.get(&watch);
                self.log.line(
                    self.now,
                    format_args!("xds: tell {epoch}/{} {key:?} {what} token {token:?}", local.0),
                );
                let new = token > std::mem::replace(&mut self.last_token, token);
                Violation::unless(new, "tokens are unique", || format!("{token:?}"))?;
                let at = self.now + self.local_delay();
                let input = ChannelInput::Resources { events: vec![(local, event)] };
                self.queue.push_in(
                    Lane::ToChannel(epoch),
                    at,
                    Event::Channel { epoch, input, token: Some(token) },
                );
                Ok(())
            }
        }
    }

    /// A channel is done with an event, or is gone.
    pub(super) fn release(&mut self, epoch: u64, token: Option<ReadToken>) {
        let Some(token) = token else { return };
        let at = self.now + self.local_delay();
        self.queue.push_in(Lane::ToXds(epoch), at, Event::Xds(Input::TokenReleased { token }));
    }

    fn open_stream(&mut self, stream: u64) -> Result<(), Violation> {
        let newer = stream > self.link.stream && self.control_plane.stream().is_none();
        Violation::unless(newer, "there is one stream at a time", || format!("stream {stream}"))?;
        self.link = super::Link { stream, ..Default::default() };
        let at = self.now + self.control_plane.open_delay + self.network_delay();
        self.link.opens_at = Some(at);
        let id = StreamId(stream);
        let input = match self.control_plane.welcome {
            Welcome::Refused => {
                Input::StreamDown { stream: id, code: None, reason: "UNAVAILABLE: connection refused".into() }
            }
            Welcome::NoService => Input::StreamDown {
                stream: id,
                code: Some(Code::Unimplemented),
                reason: "UNIMPLEMENTED: unknown service".into(),
            },
            Welcome::Accepted => {
                self.control_plane.open(stream);
                self.model.opened();
                Input::StreamUp { stream: id }
            }
        };
        self.queue.push_in(Lane::Stream(stream), at, Event::Xds(input));
        Ok(())
    }

    fn send(&mut self, stream: u64, request: EncodedRequest) -> Result<(), Violation> {
        let alone = self.link.stream == stream && !std::mem::replace(&mut self.link.sending, true);
        Violation::unless(alone, "requests are sent one at a time", || format!("stream {stream}"))?;
        let bytes = Bytes::from([&*request.head, &*request.names].concat());
        let request = DiscoveryRequest::decode(bytes.clone())
            .map_err(|error| Violation::new("requests are DiscoveryRequests", error.to_string()))?;
        self.log.line(self.now, format_args!("xds: send {}", ads_model::describe(&request)));
        self.model.written(&request)?;
        let left = self.now + self.control_plane.write_delay + self.local_delay();
        let arrives = left + self.network_delay();
        let done = Event::Xds(Input::SendDone { stream: StreamId(stream) });
        if self.control_plane.write_delay.is_zero() {
            self.queue.push_in(Lane::Stream(stream), left, done);
        } else {
            // Messages and the end of the stream are read even if nothing can be sent.
            self.queue.push(left, done);
        }
        self.queue.push_in(Lane::ToServer(stream), arrives, Event::Request { stream, bytes });
        Ok(())
    }

    pub(super) fn request_arrives(&mut self, stream: u64, bytes: &Bytes) {
        if let Ok(request) = DiscoveryRequest::decode(bytes.clone()) {
            let due = self.control_plane.request(stream, &request);
            self.prepare(due);
        }
    }

    /// The server begins to prepare a response.
    pub(super) fn prepare(&mut self, due: Option<ResourceType>) {
        if let (Some(resource_type), Some(stream)) = (due, self.control_plane.stream()) {
            let at = self.now + self.control_plane.delay + self.local_delay();
            self.queue.push(at, Event::Push { stream, resource_type });
        }
    }

    pub(super) fn push(&mut self, stream: u64, resource_type: ResourceType) {
        let Some(pushed) = self.control_plane.push(stream, resource_type) else { return };
        let response = &pushed.response;
        self.log.line(self.now, format_args!("server: {response:?}"));
        self.link.responses.insert(response.nonce.clone(), response.clone());
        self.transmit(stream, pushed.bytes);
    }

    /// Sends bytes to the client.
    pub(super) fn transmit(&mut self, stream: u64, bytes: Bytes) {
        let at = self.now + self.network_delay();
        self.queue.push_in(Lane::ToClient(stream), at, Event::Arrive { stream, bytes });
    }

    pub(super) fn arrive(&mut self, stream: u64, bytes: Bytes) {
        if self.link.stream == stream && self.control_plane.stream() == Some(stream) {
            self.link.inbox.push_back(bytes);
            self.deliver();
        }
    }

    /// Gives the client the next message, if it reads and there is one.
    fn deliver(&mut self) {
        if !self.link.reading {
            return;
        }
        let Some(bytes) = self.link.inbox.pop_front() else { return };
        self.link.reading = false;
        let stream = self.link.stream;
        let at = self.now + self.local_delay();
        self.queue.push_in(Lane::Stream(stream), at, Event::Message { stream, bytes });
    }

    /// The client has received a message.
    pub(super) fn message(&mut self, stream: u64, bytes: Bytes) -> Result<(), Violation> {
        let response =
            envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse::decode(bytes.clone());
        let sent = response.ok().and_then(|response| self.link.responses.get(&response.nonce).cloned());
        // Nothing arrives after the end of a stream.
        if self.link.stream == stream
            && self.link.is_up
            && let Some(sent) = sent
        {
            self.model.read(sent)?;
            self.stream_failures = 0;
        }
        self.tell_xds(Input::Message { stream: StreamId(stream), bytes })
    }

    /// The stream breaks, if there is one.
    pub(super) fn cut_stream(&mut self, loss: Loss) {
        let Some(stream) = self.control_plane.close() else { return };
        if loss == Loss::Everything {
            self.link.inbox.clear();
        }
        let at = self.now + self.network_delay();
        let reason = "UNAVAILABLE: connection reset".into();
        self.queue.push_in(
            Lane::Stream(stream),
            at,
            Event::Xds(Input::StreamDown { stream: StreamId(stream), code: None, reason }),
        );
    }
}
