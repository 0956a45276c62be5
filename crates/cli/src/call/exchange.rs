//! Sends the requests of a call and receives its responses.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::uri::PathAndQuery;
use prost_reflect::{DynamicMessage, MethodDescriptor, SerializeOptions};
use proxyless::{PeerAddress, XdsChannel};
use serde_json::Value;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Status};

use super::codec::DynamicCodec;

/// The end of a call.
pub(super) struct Answer {
    pub(super) responses: Vec<Value>,
    /// The status, unless it is OK.
    pub(super) status: Option<Status>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) time: Duration,
}

/// Runs the call; `show` gets each response when it arrives.
pub(super) async fn exchange(
    channel: &XdsChannel,
    method: &MethodDescriptor,
    requests: Vec<DynamicMessage>,
    headers: HeaderMap,
    deadline: Duration,
    mut show: impl FnMut(&Value) -> Result<(), Box<dyn Error>>,
) -> Result<Answer, Box<dyn Error>> {
    let started = Instant::now();
    let mut answer = Answer { responses: Vec::new(), status: None, peer: None, time: Duration::ZERO };
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let mut request = Request::new(tokio_stream::iter(requests));
    *request.metadata_mut() = MetadataMap::from_headers(headers);
    request.set_timeout(deadline);
    let mut grpc = Grpc::new(channel.clone());
    // A channel of proxyless is always ready.
    let Ok(()) = grpc.ready().await;
    let codec = DynamicCodec { response: method.output() };
    match grpc.streaming(request, PathAndQuery::try_from(path)?, codec).await {
        Ok(response) => {
            answer.peer = response.extensions().get::<PeerAddress>().map(|peer| peer.address());
            let mut messages = response.into_inner();
            loop {
                match messages.message().await {
                    Ok(Some(message)) => {
                        let value = to_json(&message)?;
                        show(&value)?;
                        answer.responses.push(value);
                    }
                    Ok(None) => break,
                    Err(status) => {
                        answer.status = Some(status);
                        break;
                    }
                }
            }
        }
        Err(status) => answer.status = Some(status),
    }
    answer.time = started.elapsed();
    if answer.status.is_none() && !method.is_server_streaming() && answer.responses.len() != 1 {
        let count = answer.responses.len();
        answer.status = Some(Status::internal(format!("the server sent {count} responses instead of one")));
    }
    Ok(answer)
}

/// All fields, also those with default values.
fn to_json(message: &DynamicMessage) -> Result<Value, serde_json::Error> {
    let options = SerializeOptions::new().skip_default_fields(false);
    message.serialize_with_options(serde_json::value::Serializer, &options)
}

/// The name of a status code, as in the gRPC specification.
pub(super) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
