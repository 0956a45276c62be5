//! What CSDS shows of a client (gRFC A40).

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use prost::{Message as _, Name as _};
use proxyless_sans_io::Time;

use super::core::Rejection;
use super::resource_state::{Data, ResourceState};
use super::wire::Any;
use crate::resource::ResourceType;

/// One resource that is watched.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceDump {
    /// Its type.
    pub resource_type: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// How it is.
    pub status: ResourceStatus,
    /// The version in use; empty if none is (A40-26).
    pub version: Arc<str>,
    /// When the resource in use came (A40-27).
    pub updated: Option<Time>,
    /// The resource in use (A40-06), as it was received (A40-34).
    pub raw: Option<RawResource>,
    /// What is wrong with the newest that the server said of it (A40-21 to A40-23). While nothing is known of it
    /// ([`ResourceStatus::Requested`]): why the last response of its type was rejected, if a resource of that response
    /// could not be named and so may have been this one.
    pub error: Option<ErrorDump>,
}

/// A resource's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawResource {
    /// The type URL, without the wrapper of X-06.
    pub type_url: String,
    /// The encoded resource, unknown fields included.
    pub value: Bytes,
}

/// An error that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorDump {
    /// The version that it is about; empty if no response caused it.
    pub version: Arc<str>,
    /// When it came up.
    pub time: Time,
    /// Why, for people.
    pub reason: String,
}

/// The states of envoy's `ClientResourceStatus` that a client can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceStatus {
    /// Asked for; nothing is known yet (A40-41).
    Requested,
    /// The timer fired, or it was deleted (A40-42).
    DoesNotExist,
    /// In use, and nothing is wrong (A40-43).
    Acked,
    /// The newest version was rejected (A40-44, A40-45).
    Nacked,
    /// The server said that it cannot send it (A40-46).
    ReceivedError,
    /// The timer fired, and that is no sign of absence with this server (A40-46).
    Timeout,
}

impl ResourceDump {
    pub(super) fn new(
        resource_type: ResourceType,
        name: &Arc<str>,
        state: &ResourceState,
        rejection: Option<&Rejection>,
    ) -> Self {
        let data = state.data.as_ref();
        let own_error = state.error.as_ref().map(|error| ErrorDump {
            version: error.version.clone(),
            time: error.time,
            reason: error.error.kind.to_string(),
        });
        // The status stays REQUESTED: it is not known that the resource was in that response.
        let unreadable = rejection.filter(|rejection| rejection.unnamed && data.is_none());
        let unreadable = unreadable.map(|rejection| ErrorDump {
            version: Arc::clone(&rejection.version),
            time: rejection.time,
            reason: rejection.text(resource_type),
        });
        Self {
            resource_type,
            name: name.clone(),
            status: state.status(),
            version: data.map(|data| data.version.clone()).unwrap_or_default(),
            updated: data.map(|data| data.updated),
            raw: data.map(|Data { raw, .. }| unwrapped(raw)),
            error: own_error.or(unreadable),
        }
    }
}

/// The resource itself, where it came in a discovery `Resource`.
fn unwrapped(raw: &Any) -> RawResource {
    let wrapped = raw.type_url.rsplit('/').next() == Some(&discovery::Resource::full_name());
    let inner = wrapped.then(|| discovery::Resource::decode(raw.value.clone()).ok()?.resource);
    match inner.flatten() {
        Some(inner) => RawResource { type_url: inner.type_url, value: inner.value.into() },
        None => RawResource { type_url: raw.type_url.clone(), value: raw.value.clone() },
    }
}

/// What came of one type since the client started, resource by resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateCounts {
    /// Good ones, unchanged ones included.
    pub valid: u64,
    /// Rejected ones.
    pub invalid: u64,
}
