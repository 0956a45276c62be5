//! The view of a client that CSDS reports (gRFC A40).

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use prost::{Message as _, Name as _};
use proxyless_sans_io::Time;

use super::ids::WatcherId;
use super::messages::DetachedAny;
use super::resource_state::{Data, ResourceState};
use super::server::Server;
use crate::resource::ResourceType;

/// One watched resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceDump {
    /// The resource's type.
    pub resource_type: ResourceType,
    /// The resource's name.
    pub name: Arc<str>,
    /// The URI of the server that it is requested from.
    pub server: Arc<str>,
    /// The watchers, each once.
    pub watchers: Vec<WatcherId>,
    /// The resource's status.
    pub status: ResourceStatus,
    /// The version in use; empty if none is (A40-26).
    pub version: Arc<str>,
    /// The time at which the resource in use was received (A40-27).
    pub updated: Option<Time>,
    /// The resource in use (A40-06), as it was received (A40-34).
    pub raw: Option<RawResource>,
    /// The latest error of the resource (A40-21 to A40-23). While it is [`ResourceStatus::Requested`]: the violations
    /// of the latest response of its type, if that contained a resource without a readable name, which may have been
    /// this one.
    pub error: Option<ErrorDump>,
}

/// A resource's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawResource {
    /// The type URL, without the wrapper of X-06.
    pub type_url: String,
    /// The encoded resource, unknown fields included.
    pub value: Bytes,
}

/// The current error of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorDump {
    /// The version that caused the error; empty if no response did.
    pub version: Arc<str>,
    /// The time at which the error occurred.
    pub time: Time,
    /// The reason, human-readable.
    pub reason: String,
}

/// The values of Envoy's `ClientResourceStatus` that occur in a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceStatus {
    /// Requested, but nothing was received yet (A40-41).
    Requested,
    /// The timer expired, or the resource was deleted (A40-42).
    DoesNotExist,
    /// In use, without an error (A40-43).
    Acked,
    /// The latest version was rejected (A40-44, A40-45).
    Nacked,
    /// The server reported that it cannot send the resource (A40-46).
    ReceivedError,
    /// The timer expired, which with this server does not indicate absence (A40-46).
    Timeout,
}

impl ResourceDump {
    pub(super) fn new(
        resource_type: ResourceType,
        name: &Arc<str>,
        state: &ResourceState,
        server: Option<&Server>,
    ) -> Self {
        let rejection = server.and_then(|server| server.rejections.get(&resource_type));
        let mut watchers: Vec<_> = state.watchers.keys().map(|watch| watch.watcher).collect();
        watchers.dedup();
        let data = state.data.as_ref();
        let own_error = state.error.as_ref().map(|error| ErrorDump {
            version: error.version.clone(),
            time: error.time,
            reason: error.error.kind.to_string(),
        });
        // The status stays REQUESTED: the response may not have contained this resource.
        let unreadable = rejection.filter(|rejection| rejection.unnamed && data.is_none());
        let unreadable = unreadable.map(|rejection| ErrorDump {
            version: Arc::clone(&rejection.version),
            time: rejection.time,
            reason: rejection.text(resource_type),
        });
        Self {
            resource_type,
            name: name.clone(),
            server: server.map(|server| Arc::clone(&server.uri)).unwrap_or_default(),
            watchers,
            status: state.status(),
            version: data.map(|data| data.version.clone()).unwrap_or_default(),
            updated: data.map(|data| data.updated),
            raw: data.map(|Data { raw, .. }| unwrapped(raw)),
            error: own_error.or(unreadable),
        }
    }
}

/// The resource itself, if it was wrapped in a discovery `Resource`.
fn unwrapped(raw: &DetachedAny) -> RawResource {
    let wrapped = raw.type_url.rsplit('/').next() == Some(&discovery::Resource::full_name());
    let inner = wrapped.then(|| discovery::Resource::decode(&*raw.value).ok()?.resource);
    match inner.flatten() {
        Some(inner) => RawResource { type_url: inner.type_url, value: inner.value.into() },
        None => RawResource {
            type_url: raw.type_url.clone().into_owned(),
            value: Bytes::from_owner(Arc::clone(&raw.value)),
        },
    }
}

/// The numbers of resources of one type received since the client started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateCounts {
    /// Valid resources, unchanged ones included.
    pub valid: u64,
    /// Rejected resources.
    pub invalid: u64,
}

impl std::ops::AddAssign for UpdateCounts {
    fn add_assign(&mut self, other: Self) {
        self.valid += other.valid;
        self.invalid += other.invalid;
    }
}
