//! Unary RPCs.

use proxyless::XdsChannel;

use super::{Client, Failure, expect_zeros, zeros};
use crate::proto::{Empty, SimpleRequest};

pub(super) const LARGE_REQUEST: usize = 271_828;
pub(super) const LARGE_RESPONSE: usize = 314_159;

pub(super) async fn empty_unary(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    client.empty_call(Empty {}).await?;
    Ok(())
}

pub(super) async fn large_unary(mut client: Client, _: XdsChannel) -> Result<(), Failure> {
    let response = client.unary_call(large_request()).await?.into_inner();
    expect_zeros(response.payload.as_ref(), LARGE_RESPONSE)
}

/// The request of `large_unary`, and of others that build on it.
pub(super) fn large_request() -> SimpleRequest {
    SimpleRequest {
        response_size: LARGE_RESPONSE as i32,
        payload: zeros(LARGE_REQUEST),
        ..Default::default()
    }
}
