//! The two messages of state-of-the-world ADS, in the form that the core needs.
//!
//! The fields are those of Envoy's `DiscoveryRequest` and `DiscoveryResponse`, with two differences: resources are
//! slices of the message that contains them, so that an unchanged one costs a comparison and no copy; and the node is
//! bytes, sent as given (a bytes field and a message field have the same encoding).

use bytes::Bytes;
use envoy_types::pb::google::rpc::Status;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DiscoveryRequest {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) node: Option<Bytes>,
    #[prost(string, repeated, tag = "3")]
    pub(super) resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub(super) error_detail: Option<Status>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) resources: Vec<Any>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
    #[prost(message, repeated, tag = "7")]
    pub(super) resource_errors: Vec<ReportedError>,
}

/// A `DiscoveryResponse` without its resources.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResponseHead {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

/// Envoy's `ResourceError` (xRFC TP3).
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReportedError {
    #[prost(message, optional, tag = "1")]
    pub(super) resource_name: Option<ResourceName>,
    #[prost(message, optional, tag = "2")]
    pub(super) error_detail: Option<Status>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResourceName {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}
