//! One RPC, over a channel of any kind.

use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::MetadataMap;
use tonic::{Code, GrpcMethod, Request, Status};
use tonic_prost::ProstCodec;

use super::plan::Method;
use crate::proto::{Empty, Payload as PayloadMessage, SimpleRequest, SimpleResponse};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A channel for RPCs: an xDS channel, or tonic's own.
pub trait Channel:
    GrpcService<
        Body,
        Future: Send,
        Error: Into<BoxError>,
        ResponseBody: http_body::Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    > + Clone
    + Send
    + 'static
{
}

impl<T> Channel for T
where
    T: GrpcService<Body> + Clone + Send + 'static,
    T::Future: Send,
    T::Error: Into<BoxError>,
    T::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<BoxError> + Send,
{
}

/// The number of bytes of payload in each direction of a UnaryCall.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    pub(super) request: usize,
    pub(super) response: i32,
}

/// The outcome of an RPC.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// OK, or the error.
    pub status: Status,
    /// The backend that answered; empty if none did.
    pub peer: String,
    pub(super) initial: MetadataMap,
    pub(super) trailing: MetadataMap,
}

impl Outcome {
    /// Whether the status is not OK.
    pub fn is_failure(&self) -> bool {
        self.status.code() != Code::Ok
    }
}

/// Calls a method once.
pub(super) async fn call<T: Channel>(
    channel: T,
    method: Method,
    metadata: MetadataMap,
    timeout: Duration,
    payload: Payload,
) -> Outcome {
    let begin = Instant::now();
    let mut outcome = send(channel, method, metadata, timeout, payload).await;
    outcome.status = as_grpc_says(outcome.status, begin.elapsed(), timeout);
    outcome
}

/// The status with the code of gRPC's other implementations, where tonic's differs.
pub(super) fn as_grpc_says(status: Status, waited: Duration, timeout: Duration) -> Status {
    match status.code() {
        // A server may report that its client has gone; at the deadline that is the case.
        Code::Cancelled if waited >= timeout => Status::deadline_exceeded(status.message()),
        // tonic's receive limit of 4 MiB. A server's OUT_OF_RANGE has a different text.
        Code::OutOfRange if status.message().starts_with("Error, decoded message length too large") => {
            Status::resource_exhausted(status.message())
        }
        _ => status,
    }
}

async fn send<T: Channel>(
    channel: T,
    method: Method,
    metadata: MetadataMap,
    timeout: Duration,
    payload: Payload,
) -> Outcome {
    match method {
        Method::Empty => {
            let request = request(Empty {}, method, metadata, timeout);
            exchange(channel, request, "/grpc.testing.TestService/EmptyCall", |_: &Empty| "").await
        }
        Method::Unary => {
            let body = PayloadMessage { body: vec![b'0'; payload.request], ..Default::default() };
            let message = SimpleRequest {
                response_size: payload.response,
                payload: Some(body),
                fill_server_id: true,
                ..Default::default()
            };
            let request = request(message, method, metadata, timeout);
            let hostname = |response: &SimpleResponse| response.hostname.clone();
            exchange(channel, request, "/grpc.testing.TestService/UnaryCall", hostname).await
        }
    }
}

fn request<M>(message: M, method: Method, metadata: MetadataMap, timeout: Duration) -> Request<M> {
    let mut request = Request::new(message);
    *request.metadata_mut() = metadata;
    request.set_timeout(timeout);
    request.extensions_mut().insert(GrpcMethod::new("grpc.testing.TestService", method.name()));
    request
}

async fn exchange<T, Q, A, H>(
    channel: T,
    request: Request<Q>,
    path: &'static str,
    hostname: impl FnOnce(&A) -> H,
) -> Outcome
where
    T: Channel,
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
    H: Into<String>,
{
    let mut outcome = Outcome {
        status: Status::new(Code::Ok, ""),
        peer: String::new(),
        initial: MetadataMap::new(),
        trailing: MetadataMap::new(),
    };
    match attempt(channel, request, path, &mut outcome).await {
        Ok(answer) => {
            let announced = outcome.initial.get("hostname").and_then(|name| name.to_str().ok());
            outcome.peer = announced.map_or_else(|| hostname(&answer).into(), String::from);
        }
        Err(status) => {
            outcome.trailing = status.metadata().clone();
            outcome.status = status;
        }
    }
    outcome
}

/// Reads a unary response as a stream of one message, because that keeps initial and trailing metadata separate.
async fn attempt<T, Q, A>(
    channel: T,
    request: Request<Q>,
    path: &'static str,
    outcome: &mut Outcome,
) -> Result<A, Status>
where
    T: Channel,
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let codec = ProstCodec::<Q, A>::default();
    let response = grpc.server_streaming(request, PathAndQuery::from_static(path), codec).await?;
    outcome.initial = response.metadata().clone();
    let mut stream = response.into_inner();
    let answer = stream.message().await?;
    outcome.trailing = stream.trailers().await?.unwrap_or_default();
    answer.ok_or_else(|| Status::internal("the response has no message"))
}
