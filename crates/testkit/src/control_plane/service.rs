//! The services of the server, and the ADS service: maps streams to inputs of [`State`] and its outboxes to streams.

use std::future::{Future, Ready, ready};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready as ready_or_pending};

use bytes::{BufMut, Bytes};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use prost::Message;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::server::{Grpc, StreamingService};
use tonic::{Status, Streaming};
use tonic_prost::ProstDecoder;

use super::load_service::{Lrs, STREAM_LOAD_STATS};
use super::state::{Outgoing, State};
use crate::observed::Observed;
use crate::server::{Handler, Peer};

const STATE_OF_THE_WORLD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// All services of the server.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    pub(super) ads: Ads,
    pub(super) lrs: Lrs,
    pub(super) headers: StreamHeaders,
}

/// The method and the headers of every stream.
pub(super) type StreamHeaders = Arc<Mutex<Vec<(String, HeaderMap)>>>;

impl Handler for Services {
    async fn handle(&self, _peer: Peer, request: Request<Incoming>) -> Response<Body> {
        let opened = (request.uri().path().to_owned(), request.headers().clone());
        self.headers.lock().unwrap_or_else(PoisonError::into_inner).push(opened);
        match request.uri().path() {
            STATE_OF_THE_WORLD => grpc().streaming(self.ads.clone(), request).await,
            STREAM_LOAD_STATS => grpc().streaming(self.lrs.clone(), request).await,
            path => Status::unimplemented(format!("{path} is not served here")).into_http(),
        }
    }
}

fn grpc<M: Message + Default + 'static>() -> Grpc<RawCodec<M>> {
    Grpc::new(RawCodec(PhantomData)).apply_max_message_size_config(Some(usize::MAX), Some(usize::MAX))
}

#[derive(Clone, Debug)]
pub(crate) struct Ads(pub(crate) Arc<Observed<State>>);

impl StreamingService<DiscoveryRequest> for Ads {
    type Response = Bytes;
    type ResponseStream = AdsStream;
    type Future = Ready<Result<tonic::Response<AdsStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<DiscoveryRequest>>) -> Self::Future {
        let opened = self.0.update(State::open);
        ready(opened.map(|(number, outbox)| {
            let state = self.0.clone();
            let reader = tokio::spawn(read(request.into_inner(), number, state.clone()));
            tonic::Response::new(AdsStream { number, state, reader, outbox })
        }))
    }
}

/// Handles requests until the stream ends. A separate task: requests of a client that does not read must be handled, or
/// both sides could wait for each other for ever.
async fn read(
    mut requests: Streaming<DiscoveryRequest>,
    number: u64,
    state: Arc<Observed<State>>,
) -> Result<(), Status> {
    while let Some(request) = requests.message().await? {
        state.update(|s| s.on_request(number, request));
    }
    Ok(())
}

/// The responses of one stream.
#[derive(Debug)]
pub(crate) struct AdsStream {
    number: u64,
    state: Arc<Observed<State>>,
    reader: JoinHandle<Result<(), Status>>,
    outbox: mpsc::UnboundedReceiver<Outgoing>,
}

impl Stream for AdsStream {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.outbox.poll_recv(cx) {
            Poll::Ready(Some(Ok(Some(response)))) => return Poll::Ready(Some(Ok(response))),
            Poll::Ready(Some(Err(status))) => return Poll::Ready(Some(Err(status))),
            Poll::Ready(Some(Ok(None)) | None) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        // Not polled again after the end or an error.
        let ended = ready_or_pending!(Pin::new(&mut self.reader).poll(cx));
        Poll::Ready(ended.ok().and_then(Result::err).map(Err))
    }
}

impl Drop for AdsStream {
    fn drop(&mut self) {
        self.reader.abort();
        self.state.update(|s| s.close(self.number));
    }
}

/// Decodes requests but passes responses through, so that they can be arbitrary bytes.
#[derive(Debug)]
struct RawCodec<M>(PhantomData<fn() -> M>);

impl<M: Message + Default + 'static> Codec for RawCodec<M> {
    type Encode = Bytes;
    type Decode = M;
    type Encoder = RawEncoder;
    type Decoder = ProstDecoder<M>;

    fn encoder(&mut self) -> RawEncoder {
        RawEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

#[derive(Clone, Copy, Debug)]
struct RawEncoder;

impl Encoder for RawEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}
