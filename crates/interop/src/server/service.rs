//! TestService.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Request, Response, Status, Streaming};

use super::behavior;
use crate::compression_flags::CompressionFlags;
use crate::proto::test_service_server::TestService;
use crate::proto::{
    BoolValue, EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingInputCallRequest, StreamingInputCallResponse, StreamingOutputCallRequest,
    StreamingOutputCallResponse,
};

type Answers = Pin<Box<dyn Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send>>;

/// The identity of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `server_id` in responses.
    pub server_id: String,
    /// `hostname` in responses and in their metadata.
    pub hostname: String,
}

#[derive(Debug)]
pub(super) struct TestServer {
    identity: Arc<Identity>,
}

impl TestServer {
    pub(super) fn new(identity: Arc<Identity>) -> Self {
        Self { identity }
    }

    /// Applies the behaviors that the request asks for.
    async fn behave(&self, metadata: &MetadataMap) -> Result<(), Status> {
        behavior::apply(metadata, &self.identity.hostname).await
    }

    fn respond<T>(&self, message: T) -> Response<T> {
        let mut response = Response::new(message);
        // A name that is an invalid header value is still in the message.
        if let Ok(name) = self.identity.hostname.parse() {
            response.metadata_mut().insert("hostname", name);
        }
        response
    }
}

#[tonic::async_trait]
impl TestService for TestServer {
    async fn empty_call(&self, request: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.behave(request.metadata()).await?;
        Ok(self.respond(Empty {}))
    }

    async fn unary_call(&self, request: Request<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
        self.behave(request.metadata()).await?;
        check_compressed(request.extensions(), 0, request.get_ref().expect_compressed)?;
        let request = request.into_inner();
        check(request.response_status.as_ref())?;
        let mut response = self.respond(SimpleResponse {
            payload: Some(payload(request.response_size)?),
            server_id: self.identity.server_id.clone(),
            hostname: self.identity.hostname.clone(),
            ..Default::default()
        });
        if !request.response_compressed.is_some_and(|wanted| wanted.value) {
            response.disable_compression();
        }
        Ok(response)
    }

    type StreamingOutputCallStream = Answers;

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Answers>, Status> {
        self.behave(request.metadata()).await?;
        Ok(self.respond(answers(request.into_inner())))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        self.behave(request.metadata()).await?;
        let extensions = request.extensions().clone();
        let mut requests = request.into_inner();
        let mut size = 0_usize;
        let mut index = 0;
        while let Some(request) = requests.message().await? {
            check_compressed(&extensions, index, request.expect_compressed)?;
            index += 1;
            size = size.saturating_add(request.payload.map_or(0, |payload| payload.body.len()));
        }
        let aggregated_payload_size = i32::try_from(size).unwrap_or(i32::MAX);
        Ok(self.respond(StreamingInputCallResponse { aggregated_payload_size }))
    }

    type FullDuplexCallStream = Answers;

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Answers>, Status> {
        self.behave(request.metadata()).await?;
        Ok(self.respond(Box::pin(Duplex { requests: request.into_inner(), current: None })))
    }
}

/// Checks that a message of the request is compressed, or is not, as the message itself says.
fn check_compressed(
    extensions: &Extensions,
    index: usize,
    expected: Option<BoolValue>,
) -> Result<(), Status> {
    let Some(expected) = expected else { return Ok(()) };
    let compressed = extensions.get::<CompressionFlags>().and_then(|flags| flags.nth(index));
    if compressed == Some(expected.value) {
        return Ok(());
    }
    let expected = expected.value;
    Err(Status::invalid_argument(format!(
        "message {index}: compressed: {compressed:?}, expected: {expected}"
    )))
}

/// The requested responses, each after its interval, followed by the status.
fn answers(request: StreamingOutputCallRequest) -> Answers {
    let status = request.response_status;
    let end = tokio_stream::iter(check(status.as_ref()).err().map(Err));
    Box::pin(tokio_stream::iter(request.response_parameters).then(answer).chain(end))
}

async fn answer(parameters: ResponseParameters) -> Result<StreamingOutputCallResponse, Status> {
    if let Some(interval) = u64::try_from(parameters.interval_us).ok().filter(|interval| *interval > 0) {
        tokio::time::sleep(Duration::from_micros(interval)).await;
    }
    let payload = Some(payload(parameters.size)?);
    Ok(StreamingOutputCallResponse { payload, ..Default::default() })
}

/// Answers each request of a stream in order.
struct Duplex {
    requests: Streaming<StreamingOutputCallRequest>,
    current: Option<Answers>,
}

impl Stream for Duplex {
    type Item = Result<StreamingOutputCallResponse, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        use std::task::{Poll, ready};
        loop {
            if let Some(current) = &mut self.current {
                match ready!(current.as_mut().poll_next(cx)) {
                    Some(answer) => return Poll::Ready(Some(answer)),
                    None => self.current = None,
                }
            }
            match ready!(Pin::new(&mut self.requests).poll_next(cx)) {
                Some(Ok(request)) => self.current = Some(answers(request)),
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                None => return Poll::Ready(None),
            }
        }
    }
}

fn check(status: Option<&EchoStatus>) -> Result<(), Status> {
    match status.map(|status| (Code::from_i32(status.code), &status.message)) {
        None | Some((Code::Ok, _)) => Ok(()),
        Some((code, message)) => Err(Status::new(code, message.clone())),
    }
}

fn payload(size: i32) -> Result<Payload, Status> {
    let size = usize::try_from(size).map_err(|_| Status::invalid_argument("a size is negative"))?;
    Ok(Payload { body: vec![0; size], ..Default::default() })
}
