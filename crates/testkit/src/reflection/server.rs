//! The service, in two versions.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use envoy_types::pb::google::protobuf::FileDescriptorProto;
use http::{Request, Response};
use prost::Message as _;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::{
    ErrorResponse, FileDescriptorResponse, ListServicesResponse, MessageRequest, MessageResponse,
    ReflectionRequest, ReflectionResponse, ServiceResponse, V1, V1_ALPHA,
};

/// Describes files, in version 1.
#[derive(Clone, Debug)]
pub struct ReflectionV1(Files);

/// Describes files, in version 1 alpha.
#[derive(Clone, Debug)]
pub struct ReflectionV1Alpha(Files);

impl ReflectionV1 {
    /// Describes the services of these files. What they import must be among them.
    pub fn new(files: impl IntoIterator<Item = FileDescriptorProto>) -> Self {
        Self(Files(files.into_iter().collect()))
    }
}

impl ReflectionV1Alpha {
    /// Describes the services of these files. What they import must be among them.
    pub fn new(files: impl IntoIterator<Item = FileDescriptorProto>) -> Self {
        Self(Files(files.into_iter().collect()))
    }
}

impl NamedService for ReflectionV1 {
    const NAME: &'static str = "grpc.reflection.v1.ServerReflection";
}

impl NamedService for ReflectionV1Alpha {
    const NAME: &'static str = "grpc.reflection.v1alpha.ServerReflection";
}

macro_rules! service {
    ($server:ty, $path:expr) => {
        impl<B> Service<Request<B>> for $server
        where
            B: http_body::Body + Send + 'static,
            B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
        {
            type Response = Response<Body>;
            type Error = Infallible;
            type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: Request<B>) -> Self::Future {
                let files = self.0.clone();
                Box::pin(async move {
                    Ok(match request.uri().path() == $path {
                        true => Grpc::new(ProstCodec::default()).streaming(files, request).await,
                        false => Status::unimplemented("server reflection has no such method").into_http(),
                    })
                })
            }
        }
    };
}

service!(ReflectionV1, V1);
service!(ReflectionV1Alpha, V1_ALPHA);

#[derive(Clone, Debug)]
struct Files(Arc<[FileDescriptorProto]>);

type Answers = Pin<Box<dyn Stream<Item = Result<ReflectionResponse, Status>> + Send>>;

impl StreamingService<ReflectionRequest> for Files {
    type Response = ReflectionResponse;
    type ResponseStream = Answers;
    type Future = Ready<Result<tonic::Response<Answers>, Status>>;

    fn call(&mut self, requests: tonic::Request<Streaming<ReflectionRequest>>) -> Self::Future {
        let files = self.clone();
        let answers = requests.into_inner().map(move |request| request.map(|request| files.answer(request)));
        ready(Ok(tonic::Response::new(Box::pin(answers))))
    }
}

impl Files {
    fn answer(&self, request: ReflectionRequest) -> ReflectionResponse {
        let answer = match &request.message_request {
            Some(MessageRequest::FileByFilename(name)) => self.file(name, |file| file.name() == name),
            Some(MessageRequest::FileContainingSymbol(symbol)) => {
                self.file(symbol, |file| symbols(file).any(|known| known == *symbol))
            }
            Some(MessageRequest::ListServices(_)) => {
                let names = self.0.iter().flat_map(services).map(|name| ServiceResponse { name });
                MessageResponse::Services(ListServicesResponse { service: names.collect() })
            }
            None => error(Code::Unimplemented, "only files and services are described".to_owned()),
        };
        ReflectionResponse {
            valid_host: request.host.clone(),
            original_request: Some(request),
            message_response: Some(answer),
        }
    }

    fn file(&self, name: &str, is_it: impl Fn(&FileDescriptorProto) -> bool) -> MessageResponse {
        match self.0.iter().find(|file| is_it(file)) {
            Some(file) => MessageResponse::FileDescriptors(FileDescriptorResponse {
                file_descriptor_proto: vec![file.encode_to_vec()],
            }),
            None => error(Code::NotFound, format!("{name} is not known")),
        }
    }
}

fn error(code: Code, error_message: String) -> MessageResponse {
    MessageResponse::Error(ErrorResponse { error_code: code.into(), error_message })
}

fn services(file: &FileDescriptorProto) -> impl Iterator<Item = String> {
    file.service.iter().map(|service| format!("{}.{}", file.package(), service.name()))
}

/// The services, methods and messages of a file.
fn symbols(file: &FileDescriptorProto) -> impl Iterator<Item = String> {
    let messages = file.message_type.iter().map(|message| format!("{}.{}", file.package(), message.name()));
    let methods = file.service.iter().flat_map(|service| {
        service.method.iter().map(|method| format!("{}.{}.{}", file.package(), service.name(), method.name()))
    });
    services(file).chain(messages).chain(methods)
}
