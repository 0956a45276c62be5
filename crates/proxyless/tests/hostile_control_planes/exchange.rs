//! One stream of a client to a hostile server, over valid HTTP/2.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf as _, Bytes, BytesMut};
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::protobuf::Any;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use prost::Message;
use proxyless_testkit::Resource;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::hostile::{Log, Scripted};

/// The SETTINGS of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerLimits {
    pub(crate) max_concurrent_streams: Option<u32>,
}

const ADS: &str = "/StreamAggregatedResources";

pub(crate) struct Exchange {
    path: String,
    pub(crate) log: Log,
    /// Counted from 1 on each connection.
    pub(crate) number: usize,
    respond: SendResponse<Bytes>,
    out: Option<SendStream<Bytes>>,
    /// `None` while they are read in the background.
    requests: Option<Requests>,
}

/// The requests of a stream.
struct Requests {
    body: RecvStream,
    buffer: BytesMut,
    log: Log,
    /// Load reports are counted, and not decoded.
    ads: bool,
}

impl Exchange {
    /// Serves a connection: each of its streams gets a script.
    pub(crate) async fn serve(
        io: TcpStream,
        limits: ServerLimits,
        script: Arc<dyn Fn(Self) -> Scripted + Send + Sync>,
        log: Log,
        stop: CancellationToken,
        tasks: TaskTracker,
    ) {
        let mut builder = h2::server::Builder::new();
        if let Some(limit) = limits.max_concurrent_streams {
            builder.max_concurrent_streams(limit);
        }
        let Ok(mut connection) = builder.handshake::<_, Bytes>(io).await else { return };
        let mut number = 0;
        while let Some(Ok((request, respond))) = connection.accept().await {
            number += 1;
            let exchange = Self::new(request, respond, number, log.clone());
            let script = script(exchange);
            tasks.spawn(stop.clone().run_until_cancelled_owned(script));
        }
    }

    fn new(request: Request<RecvStream>, respond: SendResponse<Bytes>, number: usize, log: Log) -> Self {
        log.note(|seen| {
            seen.streams += 1;
            seen.opened.push(Instant::now());
        });
        let path = request.uri().path().to_owned();
        let ads = path.ends_with(ADS);
        let requests = Requests { body: request.into_body(), buffer: BytesMut::new(), log: log.clone(), ads };
        Self { path, log, number, respond, out: None, requests: Some(requests) }
    }

    pub(crate) fn is_ads(&self) -> bool {
        self.path.ends_with(ADS)
    }

    /// Sends gRPC response headers and these. Fails if the client is gone.
    pub(crate) fn begin(&mut self, extra: &[(&'static str, &'static str)]) -> bool {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        for (name, value) in extra {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        self.out = self.respond.send_response(response, false).ok();
        self.out.is_some()
    }

    /// Sends bytes as fast as the client reads them; returns whether it read all.
    pub(crate) async fn send(&mut self, bytes: impl Into<Bytes>) -> bool {
        let mut bytes = bytes.into();
        let Some(out) = &mut self.out else { return false };
        while !bytes.is_empty() {
            out.reserve_capacity(bytes.len().min(1 << 18));
            let Some(Ok(free)) = std::future::poll_fn(|cx| out.poll_capacity(cx)).await else { return false };
            let part = bytes.split_to(free.min(bytes.len()));
            if out.send_data(part, false).is_err() {
                return false;
            }
        }
        true
    }

    /// Sends one message.
    pub(crate) async fn message(&mut self, message: &[u8]) -> bool {
        self.send(framed(message)).await
    }

    pub(crate) async fn respond(&mut self, response: &DiscoveryResponse) -> bool {
        self.message(&response.encode_to_vec()).await
    }

    /// Ends the stream with a status.
    pub(crate) fn end(&mut self, status: &'static str) {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static(status));
        if let Some(out) = &mut self.out {
            // The client may be gone.
            let _ = out.send_trailers(trailers);
        }
    }

    pub(crate) fn reset(&mut self, reason: Reason) {
        self.respond.send_reset(reason);
    }

    /// Waits until the client has reset the stream.
    pub(crate) async fn given_up(&mut self) {
        if let Some(out) = &mut self.out {
            // Either way it is over.
            let _ = std::future::poll_fn(|cx| out.poll_reset(cx)).await;
        }
    }

    /// The next request, which is recorded; `None` when there are no more.
    pub(crate) async fn request(&mut self) -> Option<DiscoveryRequest> {
        self.requests.as_mut()?.next().await
    }

    /// The request that answers the response with this nonce.
    pub(crate) async fn answer_to(&mut self, nonce: &str) -> Option<DiscoveryRequest> {
        loop {
            let request = self.request().await?;
            if request.response_nonce == nonce {
                return Some(request);
            }
        }
    }

    /// Reads and records requests in the background from now on.
    pub(crate) fn read_on(&mut self) {
        if let Some(mut requests) = self.requests.take() {
            tokio::spawn(async move { while requests.next().await.is_some() {} });
        }
    }

    /// Responds like a good control plane with these resources, until the stream ends.
    pub(crate) async fn serve_well(mut self, resources: &[Resource]) {
        self.begin(&[]);
        let (mut served, mut version) = (BTreeMap::new(), 0);
        while let Some(request) = self.request().await {
            let known = served.insert(request.type_url.clone(), request.resource_names.clone());
            if known.as_ref() == Some(&request.resource_names) {
                continue;
            }
            version += 1;
            let wanted = |resource: &&Resource| {
                resource.type_url() == request.type_url
                    && request.resource_names.iter().any(|name| name == resource.name())
            };
            let resources = resources.iter().filter(wanted).map(|resource| resource.value().clone());
            let response = response(&request.type_url, &version.to_string(), resources.collect());
            self.respond(&response).await;
        }
    }
}

impl Requests {
    async fn next(&mut self) -> Option<DiscoveryRequest> {
        let bytes = self.bytes().await?;
        if !self.ads {
            self.log.note(|seen| seen.reports += 1);
            return Some(DiscoveryRequest::default());
        }
        let request = DiscoveryRequest::decode(bytes).ok()?;
        self.log.note(|seen| {
            seen.requests += 1;
            match &request.error_detail {
                Some(error) => seen.nacked(&error.message),
                None if !request.response_nonce.is_empty() => seen.acks += 1,
                None => {}
            }
        });
        Some(request)
    }

    async fn bytes(&mut self) -> Option<Bytes> {
        loop {
            if let Some((&[_, a, b, c, d], _)) = self.buffer.split_first_chunk() {
                let length = u32::from_be_bytes([a, b, c, d]) as usize;
                if self.buffer.len() >= 5 + length {
                    self.buffer.advance(5);
                    return Some(self.buffer.split_to(length).freeze());
                }
            }
            let data = self.body.data().await?.ok()?;
            self.body.flow_control().release_capacity(data.len()).ok()?;
            self.buffer.extend_from_slice(&data);
        }
    }
}

/// A message with its prefix.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a length of four bytes").to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

/// A response whose nonce is its version.
pub(crate) fn response(type_url: &str, version: &str, resources: Vec<Any>) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: version.into(),
        nonce: version.into(),
        type_url: type_url.into(),
        resources,
        ..Default::default()
    }
}
