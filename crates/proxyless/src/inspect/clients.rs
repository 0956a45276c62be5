//! xDS clients and their resources.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use proxyless_xds::client::{ErrorDump, RawResource, ResourceDump, ResourceStatus, UpdateCounts};
use proxyless_xds::resource::ResourceType;

use crate::clock;

/// The resources of one target; see [`ClientPool::clients`](crate::ClientPool::clients).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientView {
    /// The target that uses the resources. Targets may share a client.
    pub scope: Option<Arc<str>>,
    /// The URIs of the management servers that the resources are requested from, separated by commas.
    pub server_uri: Arc<str>,
    /// The encoded `envoy.config.core.v3.Node`, as sent to the management server (A40-29 to A40-31).
    pub node: Bytes,
    /// The resources that the target uses, by type and name.
    pub resources: Vec<ResourceView>,
    /// The numbers of resources that the client has received and rejected, by type.
    pub updates: Vec<UpdatesView>,
}

/// One watched resource (gRFC A40).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ResourceView {
    /// The short name of the type, such as `Listener`.
    pub type_name: &'static str,
    /// The URL of the type.
    pub type_url: &'static str,
    /// The resource's name.
    pub name: Arc<str>,
    /// The resource's status.
    pub status: ResourceStatus,
    /// The version in use; empty if none is.
    pub version: Arc<str>,
    /// The time at which the resource in use was received.
    pub updated: Option<SystemTime>,
    /// The resource in use, as it was received.
    pub raw: Option<RawResource>,
    /// The latest error of the resource. While it is [`ResourceStatus::Requested`]: the violations of the latest
    /// response of its type, if that contained a resource without a readable name, which may have been this one.
    pub error: Option<ResourceErrorView>,
}

/// The current error of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceErrorView {
    /// The version that caused the error; empty if no response did.
    pub version: Arc<str>,
    /// The time at which the error occurred.
    pub time: SystemTime,
    /// The reason, human-readable.
    pub reason: String,
}

/// The numbers of resources of one type received since the client started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdatesView {
    /// The short name of the type, such as `Listener`.
    pub type_name: &'static str,
    /// Valid resources, unchanged ones included.
    pub valid: u64,
    /// Rejected resources, including those without a readable name.
    pub invalid: u64,
}

impl ResourceView {
    pub(crate) fn new(resource: ResourceDump) -> Self {
        let ResourceDump { resource_type, name, status, version, updated, raw, error, .. } = resource;
        Self {
            type_name: resource_type.name(),
            type_url: resource_type.type_url(),
            name,
            status,
            version,
            updated: updated.map(clock::wall_time),
            raw,
            error: error.map(ResourceErrorView::new),
        }
    }
}

impl ResourceErrorView {
    fn new(error: ErrorDump) -> Self {
        let ErrorDump { version, time, reason } = error;
        Self { version, time: clock::wall_time(time), reason }
    }
}

impl UpdatesView {
    pub(crate) fn new(resource_type: ResourceType, counts: UpdateCounts) -> Self {
        Self { type_name: resource_type.name(), valid: counts.valid, invalid: counts.invalid }
    }
}
