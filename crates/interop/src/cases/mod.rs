//! gRPC's standard interop cases, run through a channel against any server of `grpc.testing.TestService`.
//!
//! Each case is a function that fails with the first thing that was not as expected. The names and contents are those of gRPC's
//! interop test descriptions, so that any implementation's server will do.

mod compression;
mod metadata;
mod status;
mod streaming;
mod timing;
mod unary;

use std::pin::Pin;

use proxyless::XdsChannel;
use tonic::{Code, Status};

use crate::proto::Payload;
use crate::proto::test_service_client::TestServiceClient;

/// The client that a case uses.
type Client = TestServiceClient<XdsChannel>;
type Run = fn(Client, XdsChannel) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// One of gRPC's interop cases.
#[derive(Clone, Copy)]
pub struct Case {
    /// The name in gRPC's interop test descriptions.
    pub name: &'static str,
    run: Run,
}

impl Case {
    /// Runs the case.
    ///
    /// # Errors
    /// The first thing that was not as the case asks for.
    pub async fn run(&self, channel: &XdsChannel) -> Result<(), Failure> {
        // Streams of the cases have messages above tonic's limit of 4 MiB in none of them; the default limit stays.
        (self.run)(TestServiceClient::new(channel.clone()), channel.clone()).await
    }
}

/// What was not as a case asks for.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An RPC failed.
    #[error("{0}")]
    Rpc(#[from] Status),
    /// A result is not the expected one.
    #[error("{0}")]
    Unexpected(String),
}

macro_rules! cases {
    ($($name:literal => $function:path),* $(,)?) => {
        /// All cases, in the order of gRPC's descriptions.
        pub const CASES: &[Case] = &[$(Case { name: $name, run: |client, channel| Box::pin($function(client, channel)) }),*];
    };
}

cases! {
    "empty_unary" => unary::empty_unary,
    "large_unary" => unary::large_unary,
    "client_compressed_unary" => compression::client_compressed_unary,
    "server_compressed_unary" => compression::server_compressed_unary,
    "client_streaming" => streaming::client_streaming,
    "client_compressed_streaming" => compression::client_compressed_streaming,
    "server_streaming" => streaming::server_streaming,
    "server_compressed_streaming" => compression::server_compressed_streaming,
    "ping_pong" => streaming::ping_pong,
    "empty_stream" => streaming::empty_stream,
    "custom_metadata" => metadata::custom_metadata,
    "large_metadata" => metadata::large_metadata,
    "status_code_and_message" => status::status_code_and_message,
    "special_status_message" => status::special_status_message,
    "unimplemented_method" => status::unimplemented_method,
    "unimplemented_service" => status::unimplemented_service,
    "cancel_after_begin" => timing::cancel_after_begin,
    "cancel_after_first_response" => timing::cancel_after_first_response,
    "timeout_on_sleeping_server" => timing::timeout_on_sleeping_server,
}

/// A payload of zeros.
fn zeros(size: usize) -> Option<Payload> {
    Some(Payload { body: vec![0; size], ..Default::default() })
}

fn expect(condition: bool, message: impl FnOnce() -> String) -> Result<(), Failure> {
    if condition { Ok(()) } else { Err(Failure::Unexpected(message())) }
}

/// Checks that a payload consists of so many zeros.
fn expect_zeros(payload: Option<&Payload>, size: usize) -> Result<(), Failure> {
    let body = payload.map_or(&[][..], |payload| &payload.body);
    expect(body.len() == size, || format!("a payload of {} bytes instead of {size}", body.len()))?;
    expect(body.iter().all(|byte| *byte == 0), || "a payload that is not all zeros".to_owned())
}

/// Checks that an RPC failed with this code, and returns its status.
fn expect_code<T>(result: Result<T, Status>, code: Code) -> Result<Status, Failure> {
    match result {
        Ok(_) => Err(Failure::Unexpected(format!("OK instead of {code:?}"))),
        Err(status) if status.code() == code => Ok(status),
        Err(status) => Err(Failure::Unexpected(format!("{status} instead of {code:?}"))),
    }
}
