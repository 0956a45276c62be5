//! The two messages of state-of-the-world ADS, in the form that the core needs.
//!
//! The fields are those of Envoy's `DiscoveryRequest` and `DiscoveryResponse`, with two differences: resources and their
//! type URLs are slices of the message that contains them, so that an unchanged one costs a comparison and no copy; and
//! the node is bytes, sent as given (bytes, text and messages have the same encoding).

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::google::rpc::Status;
use prost::Message as _;

use crate::resource::ResourceType;

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
    /// Text, after [`DiscoveryResponse::read`].
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) type_url: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

impl DiscoveryResponse {
    /// Decodes a response.
    ///
    /// # Errors
    /// If it is malformed: the reason.
    pub(super) fn read(bytes: Bytes) -> Result<Self, String> {
        let response = Self::decode(bytes).map_err(|error| error.to_string())?;
        let usual = response.type_url.as_bytes();
        let is_text = |any: &Any| any.type_url == usual || std::str::from_utf8(&any.type_url).is_ok();
        match response.resources.iter().position(|any| !is_text(any)) {
            None => Ok(response),
            Some(i) => Err(format!("resources[{i}].type_url: not UTF-8")),
        }
    }
}

impl Any {
    pub(super) fn type_url(&self) -> &str {
        // The default never applies: a response with such a resource is not read.
        std::str::from_utf8(&self.type_url).unwrap_or_default()
    }
}

/// A copy of an [`Any`] that does not keep the response in memory.
#[derive(Clone, Debug)]
pub(super) struct DetachedAny {
    pub(super) type_url: Cow<'static, str>,
    pub(super) value: Arc<[u8]>,
}

impl DetachedAny {
    /// A copy of a resource whose type URL usually is that of `usual`.
    pub(super) fn new(any: &Any, usual: ResourceType) -> Self {
        let usual = usual.type_url();
        let type_url = match any.type_url() {
            same if same == usual => Cow::Borrowed(usual),
            other => Cow::Owned(other.to_owned()),
        };
        Self { type_url, value: Arc::from(&*any.value) }
    }
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
