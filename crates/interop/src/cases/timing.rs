//! Cancellation and deadlines.

use std::future::pending;
use std::time::Duration;

use proxyless::XdsChannel;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};

use super::{Client, Failure, expect_code, expect_zeros, streaming, zeros};
use crate::proto::{StreamingInputCallRequest, StreamingOutputCallRequest};

/// In Rust a call is cancelled by dropping it. That the server is told is seen by the next call, which the connection carries.
pub(super) async fn cancel_after_begin(mut client: Client, channel: XdsChannel) -> Result<(), Failure> {
    let (sender, requests) = mpsc::channel::<StreamingInputCallRequest>(1);
    {
        let call = client.streaming_input_call(ReceiverStream::new(requests));
        tokio::select! {
            biased;
            response = call => return Err(Failure::Unexpected(format!("a response before the end: {response:?}"))),
            () = sent_headers() => {}
        }
    }
    // The stream of requests is dropped with the call.
    sender.closed().await;
    super::unary::empty_unary(client, channel).await
}

pub(super) async fn cancel_after_first_response(
    mut client: Client,
    channel: XdsChannel,
) -> Result<(), Failure> {
    let (sender, requests) = mpsc::channel(1);
    let first = sender.send(streaming::ping(0));
    let (_, response) = tokio::join!(first, client.full_duplex_call(ReceiverStream::new(requests)));
    let mut responses = response?.into_inner();
    let response = responses.message().await?;
    expect_zeros(response.and_then(|response| response.payload).as_ref(), streaming::RESPONSE_SIZES[0])?;
    drop(responses);
    // The stream of requests is dropped with the call.
    sender.closed().await;
    super::unary::empty_unary(client, channel).await
}

pub(super) async fn timeout_on_sleeping_server(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    let (sender, requests) = mpsc::channel(1);
    let request = StreamingOutputCallRequest { payload: zeros(27_182), ..Default::default() };
    let mut call = Request::new(ReceiverStream::new(requests));
    call.set_timeout(Duration::from_millis(1));
    let call = async {
        // The server may answer before the deadline, and then says nothing more.
        let mut responses = client.full_duplex_call(call).await?.into_inner();
        responses.message().await
    };
    let keep_open = async {
        let _ = sender.send(request).await;
        pending::<()>().await;
    };
    tokio::select! {
        result = call => expect_code(result, Code::DeadlineExceeded).map(|_| ()),
        () = keep_open => Ok(()),
    }
}

/// Long enough for the call to be polled once, which sends its headers.
async fn sent_headers() {
    tokio::task::yield_now().await;
}
