//! The resources of all clients in short, for the page.

use std::time::{SystemTime, UNIX_EPOCH};

use envoy_types::pb::envoy::config::core::v3::Node;
use prost::Message as _;
use proxyless::inspect::{ClientDump, ResourceDump, ResourceType, UpdateCounts};
use serde::{Deserialize, Serialize};

use crate::csds;

/// One xDS client and its resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientResources {
    /// The target that the client is for; empty if channels share it.
    pub scope: String,
    /// The management server.
    pub server: String,
    /// The id of the node as which the client presents itself.
    pub node: String,
    /// Its resources.
    pub resources: Vec<ResourceLine>,
    /// How many resources of each type came, and how many of them were rejected.
    #[serde(default)]
    pub updates: Vec<UpdateLine>,
}

/// What came of one type since the client started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateLine {
    /// The type, in one word.
    #[serde(rename = "type")]
    pub kind: String,
    /// Good resources, unchanged ones included.
    pub valid: u64,
    /// Rejected ones, also those whose name cannot be read.
    pub invalid: u64,
}

/// One resource, without its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceLine {
    /// Its type, in one word.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its status, by the name that CSDS has for it.
    pub status: String,
    /// The version in use.
    pub version: String,
    /// When that came, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<f64>,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResourceFault>,
}

/// What is wrong with a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceFault {
    /// The version that was rejected.
    pub version: String,
    /// When, in seconds since 1970.
    pub time: f64,
    /// Why.
    pub reason: String,
}

impl ClientResources {
    pub(crate) fn new(dump: &ClientDump) -> Self {
        let node = Node::decode(dump.node.clone()).unwrap_or_default();
        Self {
            scope: dump.scope.as_deref().unwrap_or_default().to_owned(),
            server: dump.server_uri.as_ref().to_owned(),
            node: node.id,
            resources: dump.resources.iter().map(|resource| ResourceLine::new(resource, dump)).collect(),
            updates: dump.updates.iter().map(UpdateLine::new).collect(),
        }
    }
}

impl UpdateLine {
    fn new((kind, counts): (&ResourceType, &UpdateCounts)) -> Self {
        Self { kind: kind.name().to_owned(), valid: counts.valid, invalid: counts.invalid }
    }
}

impl ResourceLine {
    fn new(resource: &ResourceDump, dump: &ClientDump) -> Self {
        Self {
            kind: resource.resource_type.name().to_owned(),
            name: resource.name.as_ref().to_owned(),
            status: csds::status(resource.status).as_str_name().to_owned(),
            version: resource.version.to_string(),
            updated: resource.updated.map(|time| unix_seconds(dump.wall_time(time))),
            error: resource.error.as_ref().map(|error| ResourceFault {
                version: error.version.to_string(),
                time: unix_seconds(dump.wall_time(error.time)),
                reason: error.reason.clone(),
            }),
        }
    }
}

pub(crate) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
