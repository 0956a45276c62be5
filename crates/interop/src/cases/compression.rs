//! Messages compressed by gzip.

use proxyless::XdsChannel;
use tonic::Code;
use tonic::codec::CompressionEncoding::Gzip;

use super::streaming::parameters;
use super::unary::{LARGE_RESPONSE, large_request};
use super::{Client, Failure, expect, expect_code, expect_zeros, zeros};
use crate::compression_flags::{CompressionFlags, WatchResponses};
use crate::proto::test_service_client::TestServiceClient;
use crate::proto::{
    BoolValue, ResponseParameters, SimpleRequest, StreamingInputCallRequest, StreamingOutputCallRequest,
};

pub(super) async fn client_compressed_unary(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    let request = |compressed| SimpleRequest { expect_compressed: flag(compressed), ..large_request() };
    // A server that cannot tell would accept this one.
    expect_code(client.unary_call(request(true)).await, Code::InvalidArgument)?;
    let response = client.clone().send_compressed(Gzip).unary_call(request(true)).await?.into_inner();
    expect_zeros(response.payload.as_ref(), LARGE_RESPONSE)?;
    let response = client.unary_call(request(false)).await?.into_inner();
    expect_zeros(response.payload.as_ref(), LARGE_RESPONSE)
}

pub(super) async fn client_compressed_streaming(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    let request = |size, compressed| StreamingInputCallRequest {
        payload: zeros(size),
        expect_compressed: flag(compressed),
    };
    let probe = client.streaming_input_call(tokio_stream::iter([request(27_182, true)])).await;
    expect_code(probe, Code::InvalidArgument)?;
    // tonic compresses all messages of a stream or none, so the two of gRPC's case are streams of their own.
    for (size, compressed) in [(27_182, true), (45_904, false)] {
        let mut client = if compressed { client.clone().send_compressed(Gzip) } else { client.clone() };
        let requests = tokio_stream::iter([request(size, compressed)]);
        let total = client.streaming_input_call(requests).await?.into_inner().aggregated_payload_size;
        expect(total as usize == size, || format!("the server received {total} bytes instead of {size}"))?;
    }
    Ok(())
}

pub(super) async fn server_compressed_unary(_: Client, channel: XdsChannel) -> Result<(), Failure> {
    for compressed in [true, false] {
        let (mut client, flags) = watching(channel.clone());
        let request = SimpleRequest { response_compressed: flag(compressed), ..large_request() };
        let response = client.unary_call(request).await?.into_inner();
        expect_zeros(response.payload.as_ref(), LARGE_RESPONSE)?;
        expect_flag(&flags, 0, compressed)?;
    }
    Ok(())
}

pub(super) async fn server_compressed_streaming(_: Client, channel: XdsChannel) -> Result<(), Failure> {
    let (mut client, flags) = watching(channel);
    let wanted = [(31_415, true), (92_653, false)];
    let response_parameters = wanted
        .map(|(size, compressed)| ResponseParameters { compressed: flag(compressed), ..parameters(size) })
        .to_vec();
    let request = StreamingOutputCallRequest { response_parameters, ..Default::default() };
    let mut responses = client.streaming_output_call(request).await?.into_inner();
    for (index, (size, compressed)) in wanted.into_iter().enumerate() {
        let response = responses.message().await?;
        expect_zeros(response.and_then(|response| response.payload).as_ref(), size)?;
        expect_flag(&flags, index, compressed)?;
    }
    expect(responses.message().await?.is_none(), || "more than two responses".to_owned())
}

/// A client that accepts compressed responses, and the flags of their messages.
fn watching(inner: XdsChannel) -> (TestServiceClient<WatchResponses<XdsChannel>>, CompressionFlags) {
    let flags = CompressionFlags::default();
    let channel = WatchResponses { inner, flags: flags.clone() };
    (TestServiceClient::new(channel).accept_compressed(Gzip), flags)
}

fn flag(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}

fn expect_flag(flags: &CompressionFlags, index: usize, compressed: bool) -> Result<(), Failure> {
    let seen = flags.nth(index);
    expect(seen == Some(compressed), || {
        format!("compressed: {seen:?} of response {index} instead of {compressed}")
    })
}
