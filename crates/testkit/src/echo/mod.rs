//! A small hand-written service for tests: unary, client, server and bidirectional streaming.
//!
//! ```proto
//! package proxyless.testkit;
//!
//! service Echo {
//!   rpc Unary(EchoRequest) returns (EchoResponse);
//!   rpc Repeat(EchoRequest) returns (stream EchoResponse);
//!   rpc Collect(stream EchoRequest) returns (EchoResponse);
//!   rpc Chat(stream EchoRequest) returns (stream EchoResponse);
//! }
//! ```

mod client;
mod descriptor;
mod server;

pub use client::EchoClient;
pub use descriptor::{descriptor, descriptor_set};
pub use server::EchoServer;

const UNARY: &str = "/proxyless.testkit.Echo/Unary";
const REPEAT: &str = "/proxyless.testkit.Echo/Repeat";
const COLLECT: &str = "/proxyless.testkit.Echo/Collect";
const CHAT: &str = "/proxyless.testkit.Echo/Chat";

/// The request of the echo service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EchoRequest {
    /// Returned in the response.
    #[prost(string, tag = "1")]
    pub message: String,
    /// The number of responses of `Repeat`.
    #[prost(uint32, tag = "2")]
    pub repeat: u32,
}

impl EchoRequest {
    /// Creates a request with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), repeat: 0 }
    }
}

/// The response of the echo service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EchoResponse {
    /// The message of the request.
    #[prost(string, tag = "1")]
    pub message: String,
    /// The name of the backend.
    #[prost(string, tag = "2")]
    pub backend: String,
}
