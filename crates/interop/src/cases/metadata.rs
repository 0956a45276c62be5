//! Metadata.

use proxyless::XdsChannel;
use tonic::Request;
use tonic::metadata::{MetadataMap, MetadataValue};

use super::unary::large_request;
use super::{Client, Failure, expect, streaming};
use crate::proto::SimpleRequest;

const INITIAL: (&str, &str) = ("x-grpc-test-echo-initial", "test_initial_metadata_value");
const TRAILING: (&str, &[u8]) = ("x-grpc-test-echo-trailing-bin", &[0xab, 0xab, 0xab]);

pub(super) async fn custom_metadata(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    // tonic merges the trailers of a unary response into its metadata.
    let response = client.unary_call(with_metadata(large_request())).await?;
    expect_initial(response.metadata())?;
    expect_trailing(response.metadata())?;

    let mut response =
        client.full_duplex_call(with_metadata(tokio_stream::iter([streaming::ping(0)]))).await?;
    expect_initial(response.metadata())?;
    while response.get_mut().message().await?.is_some() {}
    let trailers = response.get_mut().trailers().await?.unwrap_or_default();
    expect_trailing(&trailers)
}

/// Not one of gRPC's cases by name: metadata of 6 KiB in one value, within the 8 KiB that every implementation accepts.
pub(super) async fn large_metadata(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    let value = "v".repeat(6 * 1024);
    let mut request = Request::new(SimpleRequest::default());
    let parsed = value.parse().map_err(|error| Failure::Unexpected(format!("invalid metadata: {error}")))?;
    request.metadata_mut().insert(INITIAL.0, parsed);
    let response = client.unary_call(request).await?;
    let echoed = response.metadata().get(INITIAL.0).and_then(|value| value.to_str().ok());
    expect(echoed == Some(&value), || format!("{} bytes of metadata were echoed", echoed.map_or(0, str::len)))
}

fn with_metadata<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(INITIAL.0, MetadataValue::from_static(INITIAL.1));
    request.metadata_mut().insert_bin(TRAILING.0, MetadataValue::from_bytes(TRAILING.1));
    request
}

fn expect_initial(metadata: &MetadataMap) -> Result<(), Failure> {
    let value = metadata.get(INITIAL.0).and_then(|value| value.to_str().ok());
    expect(value == Some(INITIAL.1), || format!("{} is {value:?}", INITIAL.0))
}

fn expect_trailing(metadata: &MetadataMap) -> Result<(), Failure> {
    let value = metadata.get_bin(TRAILING.0).and_then(|value| value.to_bytes().ok());
    expect(value.as_deref() == Some(TRAILING.1), || format!("{} is {value:?}", TRAILING.0))
}
