//! A small service for tests, written out by hand: unary, server streaming and both ways.
//!
//! ```proto
//! package proxyless.testkit;
//!
//! service Echo {
//!   rpc Unary(EchoRequest) returns (EchoResponse);
//!   rpc Repeat(EchoRequest) returns (stream EchoResponse);
//!   rpc Chat(stream EchoRequest) returns (stream EchoResponse);
//! }
//! ```

mod client;
mod server;

pub use client::EchoClient;
pub use server::EchoServer;

const UNARY: &str = "/proxyless.testkit.Echo/Unary";
const REPEAT: &str = "/proxyless.testkit.Echo/Repeat";
const CHAT: &str = "/proxyless.testkit.Echo/Chat";

/// What the echo service is asked.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EchoRequest {
    /// Comes back in the answer.
    #[prost(string, tag = "1")]
    pub message: String,
    /// How many answers `Repeat` sends.
    #[prost(uint32, tag = "2")]
    pub repeat: u32,
}

impl EchoRequest {
    /// A request with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), repeat: 0 }
    }
}

/// What the echo service answers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EchoResponse {
    /// The message of the request.
    #[prost(string, tag = "1")]
    pub message: String,
    /// The name of the backend that answers.
    #[prost(string, tag = "2")]
    pub backend: String,
}
