//! A summary of the resources of all clients, for the page.

use std::time::{SystemTime, UNIX_EPOCH};

use envoy_types::pb::envoy::config::core::v3::Node;
use prost::Message as _;
use proxyless::inspect::{ClientView, ResourceView, UpdatesView};
use serde::{Deserialize, Serialize};

use crate::csds;

/// The resources of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientResources {
    /// The target that uses the resources.
    pub scope: String,
    /// The URI of the management server.
    pub server: String,
    /// The client's node id.
    pub node: String,
    /// The watched resources, by type and name.
    pub resources: Vec<ResourceLine>,
    /// The numbers of received and rejected resources of each type.
    #[serde(default)]
    pub updates: Vec<UpdateLine>,
}

/// The numbers of resources of one type received since the client started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateLine {
    /// The type, in one word.
    #[serde(rename = "type")]
    pub kind: String,
    /// Valid resources, unchanged ones included.
    pub valid: u64,
    /// Rejected resources, including those without a readable name.
    pub invalid: u64,
}

/// One resource, without its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceLine {
    /// The type, in one word.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the resource.
    pub name: String,
    /// The status, by its name in CSDS.
    pub status: String,
    /// The version in use.
    pub version: String,
    /// The time at which that version was received, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<f64>,
    /// The error, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResourceFault>,
}

/// The error of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceFault {
    /// The rejected version.
    pub version: String,
    /// The time of the error, in seconds since 1970.
    pub time: f64,
    /// The reason, human-readable.
    pub reason: String,
}

impl ClientResources {
    pub(crate) fn new(client: &ClientView) -> Self {
        let node = Node::decode(client.node.clone()).unwrap_or_default();
        Self {
            scope: client.scope.as_deref().unwrap_or_default().to_owned(),
            server: client.server_uri.as_ref().to_owned(),
            node: node.id,
            resources: client.resources.iter().map(ResourceLine::new).collect(),
            updates: client.updates.iter().map(UpdateLine::new).collect(),
        }
    }
}

impl UpdateLine {
    fn new(updates: &UpdatesView) -> Self {
        Self { kind: updates.type_name.to_owned(), valid: updates.valid, invalid: updates.invalid }
    }
}

impl ResourceLine {
    fn new(resource: &ResourceView) -> Self {
        Self {
            kind: resource.type_name.to_owned(),
            name: resource.name.as_ref().to_owned(),
            status: csds::status(resource.status).as_str_name().to_owned(),
            version: resource.version.to_string(),
            updated: resource.updated.map(unix_seconds),
            error: resource.error.as_ref().map(|error| ResourceFault {
                version: error.version.to_string(),
                time: unix_seconds(error.time),
                reason: error.reason.clone(),
            }),
        }
    }
}

pub(crate) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
