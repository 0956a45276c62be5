//! The echo service.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::server::{
    ClientStreamingService, Grpc, NamedService, ServerStreamingService, StreamingService, UnaryService,
};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::{CHAT, COLLECT, EchoRequest, EchoResponse, REPEAT, UNARY};

type Answers = Pin<Box<dyn Stream<Item = Result<EchoResponse, Status>> + Send>>;

/// The echo service, for any tonic server.
#[derive(Clone, Debug)]
pub struct EchoServer {
    backend: Arc<str>,
}

impl EchoServer {
    /// Creates a service with this backend name.
    pub fn new(backend: &str) -> Self {
        Self { backend: backend.into() }
    }

    fn answer(&self, request: EchoRequest) -> EchoResponse {
        EchoResponse { message: request.message, backend: self.backend.to_string() }
    }
}

impl NamedService for EchoServer {
    const NAME: &'static str = "proxyless.testkit.Echo";
}

impl<B> Service<Request<B>> for EchoServer
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::default());
            Ok(match request.uri().path() {
                UNARY => grpc.unary(Unary(service), request).await,
                REPEAT => grpc.server_streaming(Repeat(service), request).await,
                COLLECT => grpc.client_streaming(Collect(service), request).await,
                CHAT => grpc.streaming(Chat(service), request).await,
                _ => Status::unimplemented("the echo service has no such method").into_http(),
            })
        })
    }
}

struct Unary(EchoServer);

impl UnaryService<EchoRequest> for Unary {
    type Response = EchoResponse;
    type Future = Ready<Result<tonic::Response<EchoResponse>, Status>>;

    fn call(&mut self, request: tonic::Request<EchoRequest>) -> Self::Future {
        ready(Ok(tonic::Response::new(self.0.answer(request.into_inner()))))
    }
}

struct Repeat(EchoServer);

impl ServerStreamingService<EchoRequest> for Repeat {
    type Response = EchoResponse;
    type ResponseStream = Answers;
    type Future = Ready<Result<tonic::Response<Answers>, Status>>;

    fn call(&mut self, request: tonic::Request<EchoRequest>) -> Self::Future {
        let request = request.into_inner();
        let repeat = request.repeat;
        let answer = self.0.answer(request);
        let answers = (0..repeat).map(move |_| Ok(answer.clone()));
        ready(Ok(tonic::Response::new(Box::pin(tokio_stream::iter(answers)))))
    }
}

/// Joins the messages of all requests.
struct Collect(EchoServer);

impl ClientStreamingService<EchoRequest> for Collect {
    type Response = EchoResponse;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<EchoResponse>, Status>> + Send>>;

    fn call(&mut self, requests: tonic::Request<Streaming<EchoRequest>>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move {
            let (mut requests, mut messages) = (requests.into_inner(), Vec::new());
            while let Some(request) = requests.message().await? {
                messages.push(request.message);
            }
            Ok(tonic::Response::new(service.answer(EchoRequest::new(messages.join(" ")))))
        })
    }
}

struct Chat(EchoServer);

impl StreamingService<EchoRequest> for Chat {
    type Response = EchoResponse;
    type ResponseStream = Answers;
    type Future = Ready<Result<tonic::Response<Answers>, Status>>;

    fn call(&mut self, requests: tonic::Request<Streaming<EchoRequest>>) -> Self::Future {
        let service = self.0.clone();
        let answers = requests.into_inner().map(move |request| request.map(|r| service.answer(r)));
        ready(Ok(tonic::Response::new(Box::pin(answers))))
    }
}
