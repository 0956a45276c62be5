//! The service that all contestants call, written out by hand.
//!
//! ```proto
//! package bench;
//!
//! service Bench {
//!   rpc Unary(google.protobuf.BytesValue) returns (google.protobuf.BytesValue);
//!   rpc Stream(stream google.protobuf.BytesValue) returns (stream google.protobuf.BytesValue);
//!   rpc Sink(stream google.protobuf.BytesValue) returns (google.protobuf.BytesValue);
//!   rpc Source(google.protobuf.BytesValue) returns (stream google.protobuf.BytesValue);
//! }
//! ```
//!
//! A response is as long as its request and begins with the backend's name, terminated by a NUL byte. `Sink` reads all
//! requests before its response, which is empty. `Source` sends until it is cancelled; its request is the length of the
//! responses as decimal text.

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{GrpcMethod, IntoRequest, IntoStreamingRequest, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

pub(crate) const UNARY: &str = "/bench.Bench/Unary";
pub(crate) const STREAM: &str = "/bench.Bench/Stream";
pub(crate) const SINK: &str = "/bench.Bench/Sink";
pub(crate) const SOURCE: &str = "/bench.Bench/Source";

/// The message of both methods.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Payload {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) value: Bytes,
}

impl Payload {
    pub(crate) fn of_length(length: usize) -> Self {
        Self { value: vec![b'x'; length].into() }
    }

    pub(crate) fn text(text: &str) -> Self {
        Self { value: Bytes::copy_from_slice(text.as_bytes()) }
    }

    /// The backend that answered.
    pub(crate) fn backend(&self) -> &str {
        let name = self.value.split(|byte| *byte == 0).next().unwrap_or_default();
        std::str::from_utf8(name).unwrap_or("?")
    }
}

/// The channel of the client below, with the same bounds as in clients that tonic generates.
pub(crate) trait Channel:
    GrpcService<Body, Error: Into<BoxError>, ResponseBody = Self::AnswerBody, Future: Send>
    + Clone
    + Send
    + 'static
{
    type AnswerBody: http_body::Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static;
}

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<T, B> Channel for T
where
    T: GrpcService<Body, ResponseBody = B> + Clone + Send + 'static,
    T::Error: Into<BoxError>,
    T::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    type AnswerBody = B;
}

/// Shaped like a client that tonic generates.
#[derive(Clone)]
pub(crate) struct BenchClient<T>(Grpc<T>);

impl<T: Channel> BenchClient<T> {
    pub(crate) fn new(channel: T) -> Self {
        Self(Grpc::new(channel))
    }

    pub(crate) async fn unary(
        &mut self,
        request: impl IntoRequest<Payload>,
    ) -> Result<Response<Payload>, Status> {
        self.ready().await?;
        let request = named(request.into_request(), "Unary");
        self.0.unary(request, PathAndQuery::from_static(UNARY), ProstCodec::default()).await
    }

    pub(crate) async fn stream(
        &mut self,
        requests: impl IntoStreamingRequest<Message = Payload>,
    ) -> Result<Response<Streaming<Payload>>, Status> {
        self.ready().await?;
        let requests = named(requests.into_streaming_request(), "Stream");
        self.0.streaming(requests, PathAndQuery::from_static(STREAM), ProstCodec::default()).await
    }

    pub(crate) async fn sink(
        &mut self,
        requests: impl IntoStreamingRequest<Message = Payload>,
    ) -> Result<Response<Payload>, Status> {
        self.ready().await?;
        let requests = named(requests.into_streaming_request(), "Sink");
        self.0.client_streaming(requests, PathAndQuery::from_static(SINK), ProstCodec::default()).await
    }

    pub(crate) async fn source(
        &mut self,
        request: impl IntoRequest<Payload>,
    ) -> Result<Response<Streaming<Payload>>, Status> {
        self.ready().await?;
        let request = named(request.into_request(), "Source");
        self.0.server_streaming(request, PathAndQuery::from_static(SOURCE), ProstCodec::default()).await
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(error.into().to_string()))
    }
}

/// Names the method of a request, as generated clients do: telemetry of proxyless records these names alone (gRFC A66).
fn named<T>(mut request: Request<T>, method: &'static str) -> Request<T> {
    request.extensions_mut().insert(GrpcMethod::new("bench.Bench", method));
    request
}
