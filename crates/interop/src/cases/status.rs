//! Status codes and messages.

use http::uri::PathAndQuery;
use proxyless::XdsChannel;
use tonic::client::Grpc;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::{Client, Failure, expect, expect_code};
use crate::proto::{EchoStatus, Empty, SimpleRequest, StreamingOutputCallRequest};

pub(super) async fn status_code_and_message(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    const MESSAGE: &str = "test status message";
    let wanted = || Some(EchoStatus { code: Code::Unknown as i32, message: MESSAGE.to_owned() });
    let request = SimpleRequest { response_status: wanted(), ..Default::default() };
    let status = expect_code(client.unary_call(request).await, Code::Unknown)?;
    expect(status.message() == MESSAGE, || format!("the message is {:?}", status.message()))?;

    let request = StreamingOutputCallRequest { response_status: wanted(), ..Default::default() };
    let status = match client.full_duplex_call(tokio_stream::iter([request])).await {
        Err(status) => status,
        Ok(mut response) => expect_code(response.get_mut().message().await, Code::Unknown)?,
    };
    expect(status.code() == Code::Unknown, || format!("{status} instead of Unknown"))?;
    expect(status.message() == MESSAGE, || format!("the message of the stream is {:?}", status.message()))
}

pub(super) async fn special_status_message(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    const MESSAGE: &str = "\t\ntest with whitespace\r\nand Unicode BMP \u{263a} and non-BMP \u{1f608}\t\n";
    let response_status = Some(EchoStatus { code: Code::Unknown as i32, message: MESSAGE.to_owned() });
    let request = SimpleRequest { response_status, ..Default::default() };
    let status = expect_code(client.unary_call(request).await, Code::Unknown)?;
    expect(status.message() == MESSAGE, || format!("the message is {:?}", status.message()))
}

pub(super) async fn unimplemented_method(_: Client, channel: XdsChannel) -> Result<(), Failure> {
    expect_unimplemented(channel, "/grpc.testing.TestService/UnimplementedCall").await
}

pub(super) async fn unimplemented_service(_: Client, channel: XdsChannel) -> Result<(), Failure> {
    expect_unimplemented(channel, "/grpc.testing.UnimplementedService/UnimplementedCall").await
}

async fn expect_unimplemented(channel: XdsChannel, path: &'static str) -> Result<(), Failure> {
    let mut client = Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|error| Failure::Unexpected(format!("the channel is not ready: {error}")))?;
    let codec = ProstCodec::<Empty, Empty>::default();
    let result = client.unary(Request::new(Empty {}), PathAndQuery::from_static(path), codec).await;
    expect_code(result, Code::Unimplemented)?;
    Ok(())
}
