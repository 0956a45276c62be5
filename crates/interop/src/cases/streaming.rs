//! Streaming RPCs.

use proxyless::XdsChannel;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{Client, Failure, expect, expect_zeros, zeros};
use crate::proto::{ResponseParameters, StreamingInputCallRequest, StreamingOutputCallRequest};

pub(super) const REQUEST_SIZES: [usize; 4] = [27_182, 8, 1_828, 45_904];
pub(super) const RESPONSE_SIZES: [usize; 4] = [31_415, 9, 2_653, 58_979];

pub(super) async fn client_streaming(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    let requests =
        REQUEST_SIZES.map(|size| StreamingInputCallRequest { payload: zeros(size), ..Default::default() });
    let response = client.streaming_input_call(tokio_stream::iter(requests)).await?.into_inner();
    let total = response.aggregated_payload_size;
    expect(total == 74_922, || format!("the server received {total} bytes instead of 74922"))
}

pub(super) async fn server_streaming(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    let response_parameters = RESPONSE_SIZES.map(parameters).to_vec();
    let request = StreamingOutputCallRequest { response_parameters, ..Default::default() };
    let mut responses = client.streaming_output_call(request).await?.into_inner();
    for size in RESPONSE_SIZES {
        let response = responses.message().await?;
        expect(response.is_some(), || format!("the stream ended before the response of {size} bytes"))?;
        expect_zeros(response.and_then(|response| response.payload).as_ref(), size)?;
    }
    expect(responses.message().await?.is_none(), || "more than four responses".to_owned())
}

pub(super) async fn ping_pong(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    let (sender, requests) = mpsc::channel(1);
    let first = send(&sender, 0);
    let (sent, response) = tokio::join!(first, client.full_duplex_call(ReceiverStream::new(requests)));
    sent?;
    let mut responses = response?.into_inner();
    for (index, size) in RESPONSE_SIZES.into_iter().enumerate() {
        if index > 0 {
            send(&sender, index).await?;
        }
        let response = responses.message().await?;
        expect(response.is_some(), || format!("the stream ended before response {index}"))?;
        expect_zeros(response.and_then(|response| response.payload).as_ref(), size)?;
    }
    drop(sender);
    expect(responses.message().await?.is_none(), || "a response that was not asked for".to_owned())
}

pub(super) async fn empty_stream(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    let mut responses = client.full_duplex_call(tokio_stream::empty()).await?.into_inner();
    expect(responses.message().await?.is_none(), || "a response that was not asked for".to_owned())
}

/// Asks for a response of this size.
pub(super) fn parameters(size: usize) -> ResponseParameters {
    ResponseParameters { size: size as i32, ..Default::default() }
}

/// A request for one of the responses of `ping_pong`.
pub(super) fn ping(index: usize) -> StreamingOutputCallRequest {
    StreamingOutputCallRequest {
        response_parameters: vec![parameters(RESPONSE_SIZES[index])],
        payload: zeros(REQUEST_SIZES[index]),
        ..Default::default()
    }
}

async fn send(sender: &mpsc::Sender<StreamingOutputCallRequest>, index: usize) -> Result<(), Failure> {
    sender
        .send(ping(index))
        .await
        .map_err(|_| Failure::Unexpected("the stream of requests was dropped".to_owned()))
}
