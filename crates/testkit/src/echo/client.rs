//! The client of the echo service.

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{GrpcMethod, IntoRequest, IntoStreamingRequest, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{CHAT, EchoRequest, EchoResponse, REPEAT, UNARY};

/// A client of the echo service over any channel.
#[derive(Clone, Debug)]
pub struct EchoClient<T> {
    grpc: Grpc<T>,
}

impl<T> EchoClient<T>
where
    T: GrpcService<Body>,
    T::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    T::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    /// Creates a client over this channel.
    pub fn new(channel: T) -> Self {
        Self { grpc: Grpc::new(channel) }
    }

    /// Sends one request and receives one response.
    ///
    /// # Errors
    /// If the RPC fails.
    pub async fn unary(
        &mut self,
        request: impl IntoRequest<EchoRequest>,
    ) -> Result<Response<EchoResponse>, Status> {
        self.ready().await?;
        let request = with_method(request.into_request(), "Unary");
        self.grpc.unary(request, PathAndQuery::from_static(UNARY), ProstCodec::default()).await
    }

    /// Sends one request and receives [`EchoRequest::repeat`] responses.
    ///
    /// # Errors
    /// If the RPC fails before the first response.
    pub async fn repeat(
        &mut self,
        request: impl IntoRequest<EchoRequest>,
    ) -> Result<Response<Streaming<EchoResponse>>, Status> {
        self.ready().await?;
        let request = with_method(request.into_request(), "Repeat");
        self.grpc.server_streaming(request, PathAndQuery::from_static(REPEAT), ProstCodec::default()).await
    }

    /// Receives a response for each request.
    ///
    /// # Errors
    /// If the RPC fails before the first response.
    pub async fn chat(
        &mut self,
        requests: impl IntoStreamingRequest<Message = EchoRequest>,
    ) -> Result<Response<Streaming<EchoResponse>>, Status> {
        self.ready().await?;
        let requests = with_method(requests.into_streaming_request(), "Chat");
        self.grpc.streaming(requests, PathAndQuery::from_static(CHAT), ProstCodec::default()).await
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.grpc.ready().await.map_err(|error| {
            let error: Box<dyn std::error::Error + Send + Sync> = error.into();
            Status::unknown(format!("the channel is not ready: {error}"))
        })
    }
}

fn with_method<M>(mut request: Request<M>, method: &'static str) -> Request<M> {
    request.extensions_mut().insert(GrpcMethod::new("proxyless.testkit.Echo", method));
    request
}
