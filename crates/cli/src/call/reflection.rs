//! The types of a service from the server itself: server reflection, version 1, or 1 alpha where that is missing. The
//! RPCs go through the same channel as the call.

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use prost::Message as _;
use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use proxyless::XdsChannel;
use proxyless_testkit::reflection::{
    MessageRequest, MessageResponse, ReflectionRequest, ReflectionResponse, V1, V1_ALPHA,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::Streaming;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::exchange::code_name;

/// The files that define a service.
pub(super) async fn files(
    channel: &XdsChannel,
    service: &str,
    deadline: Duration,
) -> Result<DescriptorPool, Box<dyn Error>> {
    let mut missing = None;
    for path in [V1, V1_ALPHA] {
        match Conversation::start(channel, path, deadline).await {
            Ok(mut conversation) => match conversation.pool(service).await {
                Err(Failure::Rpc(status)) if status.code() == Code::Unimplemented => missing = Some(status),
                other => return other.map_err(|failure| failure.describe(service).into()),
            },
            Err(status) if status.code() == Code::Unimplemented => missing = Some(status),
            Err(status) => return Err(Failure::Rpc(status).describe(service).into()),
        }
    }
    let said = missing.map(|status| status.message().to_owned()).filter(|said| !said.is_empty());
    let said = said.map(|said| format!(" ({said})")).unwrap_or_default();
    Err(format!(
        "the server has no reflection{said}; pass the types with --descriptor-set FILE, or --proto FILE -I DIR"
    )
    .into())
}

enum Failure {
    Rpc(Status),
    /// The server does not know the symbol or file; the answer, and the services that it has.
    Unknown(String, Vec<String>),
    Answer(String),
}

impl Failure {
    fn describe(self, service: &str) -> String {
        match self {
            Self::Rpc(status) => format!(
                "cannot get the types of {service} by server reflection: {}: {}",
                code_name(status.code()),
                status.message()
            ),
            Self::Unknown(why, services) if services.is_empty() => {
                format!("the server does not describe {service}: {why}")
            }
            Self::Unknown(_, services) => {
                format!("the server has no service {service}; it has {}", services.join(", "))
            }
            Self::Answer(why) => format!("the server's description of {service} is invalid: {why}"),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Rpc(status)
    }
}

/// A stream of questions and answers, in order.
struct Conversation {
    questions: mpsc::Sender<ReflectionRequest>,
    answers: Streaming<ReflectionResponse>,
}

impl Conversation {
    async fn start(channel: &XdsChannel, path: &'static str, deadline: Duration) -> Result<Self, Status> {
        let (questions, receiver) = mpsc::channel(1);
        let mut request = Request::new(ReceiverStream::new(receiver));
        request.set_timeout(deadline);
        let mut grpc = Grpc::new(channel.clone());
        // A channel of proxyless is always ready.
        let Ok(()) = grpc.ready().await;
        let path = http::uri::PathAndQuery::from_static(path);
        let response = grpc.streaming(request, path, ProstCodec::default()).await?;
        Ok(Self { questions, answers: response.into_inner() })
    }

    /// The file of a service and all that it imports.
    async fn pool(&mut self, service: &str) -> Result<DescriptorPool, Failure> {
        let mut files = Vec::new();
        let first = self.ask(MessageRequest::FileContainingSymbol(service.to_owned())).await;
        let mut new = match first {
            Ok(new) => new,
            Err(Failure::Unknown(why, _)) => return Err(Failure::Unknown(why, self.services().await)),
            Err(failure) => return Err(failure),
        };
        let mut known = BTreeSet::new();
        while let Some(file) = new.pop() {
            if !known.insert(file.name().to_owned()) {
                continue;
            }
            for import in &file.dependency {
                let sent = new.iter().any(|file| file.name() == import);
                if !known.contains(import) && !sent {
                    new.extend(self.ask(MessageRequest::FileByFilename(import.clone())).await?);
                }
            }
            files.push(file);
        }
        let set = FileDescriptorSet { file: files };
        DescriptorPool::from_file_descriptor_set(set).map_err(|error| Failure::Answer(error.to_string()))
    }

    async fn ask(&mut self, question: MessageRequest) -> Result<Vec<FileDescriptorProto>, Failure> {
        let files = match self.exchange(question).await? {
            Some(MessageResponse::FileDescriptors(files)) => files.file_descriptor_proto,
            Some(MessageResponse::Error(error)) => {
                return Err(Failure::Unknown(error.error_message, Vec::new()));
            }
            _ => return Err(Failure::Answer("there are no files in it".to_owned())),
        };
        let decode = |bytes: &Vec<u8>| FileDescriptorProto::decode(bytes.as_slice());
        let decoded: Result<Vec<_>, _> = files.iter().map(decode).collect();
        decoded.map_err(|error| Failure::Answer(error.to_string()))
    }

    /// The services of the server, as far as it says.
    async fn services(&mut self) -> Vec<String> {
        match self.exchange(MessageRequest::ListServices(String::new())).await {
            Ok(Some(MessageResponse::Services(list))) => {
                list.service.into_iter().map(|service| service.name).collect()
            }
            _ => Vec::new(),
        }
    }

    async fn exchange(&mut self, question: MessageRequest) -> Result<Option<MessageResponse>, Status> {
        let request = ReflectionRequest { host: String::new(), message_request: Some(question) };
        // If the stream has ended, its status says why.
        let _ = self.questions.send(request).await;
        let answer = self.answers.message().await?;
        Ok(answer.and_then(|answer| answer.message_response))
    }
}
