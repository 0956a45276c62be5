//! A caller: one RPC after the other, with a record of each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proxyless::{WaitForReady, XdsChannel};
use proxyless_sans_io::Rng;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

use super::tracked::{Peer, Tracked};
use super::{Load, builder};
use crate::clock::now;
use crate::topology::{COOKIE, Channel, STREAM_DEADLINE, UNARY_DEADLINE};
use crate::wire::{ClientEvent, Kind, Rpc};

/// A session: its cookie and its backend.
type Session = (String, u8);

pub(super) struct Caller {
    load: Arc<Load>,
    channel: Channel,
    client: EchoClient<Tracked>,
    rng: Rng,
    session: Option<Session>,
}

/// Creates a channel for a few RPCs, repeatedly.
pub(super) async fn short_lived(
    load: Arc<Load>,
    channel: Channel,
    mut rng: Rng,
    stopped: watch::Receiver<()>,
) {
    while !stopped.has_changed().unwrap_or(true) {
        let built = match builder(&load, channel).and_then(|builder| Ok(builder.build()?)) {
            Ok(built) => built,
            Err(error) => {
                return load.say(&ClientEvent::Problem(format!("building a channel failed: {error}")));
            }
        };
        let seed = rng.next_u64();
        let mut caller = Caller::new(load.clone(), channel, built, Rng::new(seed));
        for _ in 0..1 + rng.below(10) {
            caller.unary().await;
        }
        if rng.below(4) == 0 {
            caller.chat().await;
        }
        drop(caller);
        sleep(Duration::from_millis(100 + rng.below(400))).await;
    }
}

impl Caller {
    pub(super) fn new(load: Arc<Load>, channel: Channel, xds: XdsChannel, rng: Rng) -> Self {
        Self { load, channel, client: EchoClient::new(Tracked(xds)), rng, session: None }
    }

    pub(super) async fn unary_until(mut self, stopped: watch::Receiver<()>) {
        while !stopped.has_changed().unwrap_or(true) {
            if self.rng.below(50) == 0 {
                self.cancelled().await;
            } else {
                self.unary().await;
            }
            self.pause(20, 60).await;
        }
    }

    pub(super) async fn stream_until(mut self, stopped: watch::Receiver<()>) {
        while !stopped.has_changed().unwrap_or(true) {
            if self.rng.below(3) == 0 {
                self.repeat().await
            } else {
                self.chat().await
            }
            self.pause(20, 200).await;
        }
    }

    async fn pause(&mut self, least: u64, most: u64) {
        sleep(Duration::from_millis(least + self.rng.below(most - least))).await;
    }

    /// A request with a message of random size.
    fn message(&mut self) -> EchoRequest {
        let size = if self.rng.below(20) == 0 { 40_000 } else { 32 };
        EchoRequest::new("x".repeat(size))
    }

    fn request<M>(&self, message: M, deadline: Duration) -> (Request<M>, Peer) {
        let mut request = Request::new(message);
        request.set_timeout(deadline);
        let peer = Peer::default();
        request.extensions_mut().insert(peer.clone());
        if let Some(cookie) =
            self.session.as_ref().and_then(|(cookie, _)| MetadataValue::try_from(cookie).ok())
        {
            request.metadata_mut().insert("cookie", cookie);
        }
        (request, peer)
    }

    /// Starts, continues or forgets a session, depending on the response and chance.
    fn keep_session(&mut self, metadata: &tonic::metadata::MetadataMap, backend: Option<u8>) {
        if self.channel != Channel::Session {
            return;
        }
        let set = metadata.get("set-cookie").and_then(|value| value.to_str().ok());
        let cookie = set.and_then(|set| set.split(';').next()).filter(|set| set.starts_with(COOKIE));
        if let (Some(cookie), Some(backend)) = (cookie, backend) {
            self.session = Some((cookie.to_owned(), backend));
        }
        if self.rng.below(20) == 0 {
            self.session = None;
        }
    }

    pub(super) async fn unary(&mut self) {
        let message = self.message();
        let size = message.message.len();
        let (mut request, peer) = self.request(message, UNARY_DEADLINE);
        if self.rng.below(10) == 0 {
            request.extensions_mut().insert(WaitForReady);
        }
        let running = self.begin(Kind::Unary, peer);
        let result = self.client.unary(request).await;
        let result = result.and_then(|response| {
            let (metadata, answer, _) = response.into_parts();
            if answer.message.len() != size {
                return Err(Status::data_loss(format!("{} bytes, not {size}", answer.message.len())));
            }
            Ok((metadata, number(&answer.backend)))
        });
        match result {
            Ok((metadata, backend)) => {
                running.end(&self.load, Ok(backend));
                self.keep_session(&metadata, backend);
            }
            Err(status) => running.end(&self.load, Err((None, status))),
        }
    }

    /// Cancels an RPC early. Its result is unknown, so there is no record.
    async fn cancelled(&mut self) {
        let message = self.message();
        let (request, _) = self.request(message, UNARY_DEADLINE);
        let patience = Duration::from_micros(self.rng.below(3_000));
        let _ = tokio::time::timeout(patience, self.client.unary(request)).await;
    }

    async fn repeat(&mut self) {
        let wanted = 1 + self.rng.below(50) as u32;
        let message = EchoRequest { repeat: wanted, ..self.message() };
        let (request, peer) = self.request(message, STREAM_DEADLINE);
        let running = self.begin(Kind::Repeat, peer);
        let mut backend = None;
        let received = async {
            let mut answers = self.client.repeat(request).await?.into_inner();
            let mut count = 0;
            while let Some(answer) = answers.message().await? {
                backend = number(&answer.backend);
                count += 1;
            }
            if count == wanted {
                Ok(())
            } else {
                Err(Status::data_loss(format!("{count} of {wanted} answers")))
            }
        };
        let received = received.await;
        running.end(&self.load, received.map(|()| backend).map_err(|status| (backend, status)));
    }

    pub(super) async fn chat(&mut self) {
        let (sender, requests) = mpsc::channel(1);
        let (request, peer) = self.request(ReceiverStream::new(requests), STREAM_DEADLINE);
        let running = self.begin(Kind::Chat, peer);
        let rounds = 1 + self.rng.below(12);
        let mut backend = None;
        let Self { client, rng, .. } = self;
        let talked = async {
            // Sending to a lost server fails; the response has the reason.
            let _ = sender.send(EchoRequest::new("0")).await;
            let mut answers = client.chat(request).await?.into_inner();
            for round in 0..rounds {
                let answer = answers.message().await?;
                let Some(answer) = answer.filter(|answer| answer.message == round.to_string()) else {
                    return Err(Status::data_loss(format!("no response to message {round}")));
                };
                backend = number(&answer.backend);
                if round + 1 < rounds {
                    sleep(Duration::from_millis(20 + rng.below(150))).await;
                    let _ = sender.send(EchoRequest::new((round + 1).to_string())).await;
                }
            }
            drop(sender);
            match answers.message().await? {
                None => Ok(()),
                Some(_) => Err(Status::data_loss("unexpected extra response")),
            }
        };
        let talked = talked.await;
        running.end(&self.load, talked.map(|()| backend).map_err(|status| (backend, status)));
    }

    fn begin(&self, kind: Kind, peer: Peer) -> Running {
        self.load.in_flight.fetch_add(1, Ordering::Relaxed);
        let channel = self.channel.number() as u8;
        Running {
            channel,
            kind,
            start: now(),
            peer,
            pinned: self.session.as_ref().map(|(_, backend)| *backend),
        }
    }
}

/// An RPC in flight.
struct Running {
    channel: u8,
    kind: Kind,
    start: u64,
    peer: Peer,
    pinned: Option<u8>,
}

impl Running {
    fn end(self, load: &Load, result: Result<Option<u8>, (Option<u8>, Status)>) {
        let (code, backend, message) = match result {
            Ok(backend) => (Code::Ok, backend, None),
            Err((backend, status)) => (status.code(), backend, Some(status.message().into())),
        };
        let record = Rpc {
            channel: self.channel,
            kind: self.kind,
            start: self.start,
            end: now(),
            code: code as u8,
            port: self.peer.port(),
            backend,
            pinned: self.pinned,
            message,
        };
        load.in_flight.fetch_sub(1, Ordering::Relaxed);
        let _ = load.out.send(record.to_line());
    }
}

/// The number of a backend, from its name.
fn number(name: &str) -> Option<u8> {
    name.strip_prefix('b')?.parse().ok()
}
