//! A request of a client in the log.

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::google::rpc::Status;

/// A received `DiscoveryRequest`.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    stream: u64,
    message: DiscoveryRequest,
}

impl Request {
    pub(crate) fn new(stream: u64, message: DiscoveryRequest) -> Self {
        Self { stream, message }
    }

    /// The number of its stream; the first one is 1.
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// The resource type.
    pub fn type_url(&self) -> &str {
        &self.message.type_url
    }

    /// The names that the client subscribes to, as received.
    pub fn names(&self) -> &[String] {
        &self.message.resource_names
    }

    /// The last version that the client accepted.
    pub fn version(&self) -> &str {
        &self.message.version_info
    }

    /// The nonce of the response that it answers; empty in the first request of a type on a stream.
    pub fn nonce(&self) -> &str {
        &self.message.response_nonce
    }

    /// The error of a NACK.
    pub fn error(&self) -> Option<&Status> {
        self.message.error_detail.as_ref()
    }

    /// Whether it rejects a response.
    pub fn is_nack(&self) -> bool {
        self.message.error_detail.is_some()
    }

    /// The complete message.
    pub fn message(&self) -> &DiscoveryRequest {
        &self.message
    }
}
