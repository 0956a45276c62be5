//! xDS clients and their resources.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use proxyless_sans_io::Time;
use proxyless_xds::client::{ResourceDump, UpdateCounts};
use proxyless_xds::resource::ResourceType;

use crate::clock;
use crate::drive::xds::XdsClient;

/// One xDS client and its resources; see [`ClientPool::dump`](crate::ClientPool::dump).
#[derive(Clone, Debug)]
pub struct ClientDump {
    /// The target of the client; `None` if channels share it.
    pub scope: Option<Arc<str>>,
    /// The URI of the management server.
    pub server_uri: Arc<str>,
    /// The encoded `envoy.config.core.v3.Node`, as sent to the management server (A40-29 to A40-31).
    pub node: Bytes,
    /// All watched resources, by type and name.
    pub resources: Vec<ResourceDump>,
    /// The numbers of received and rejected resources of each type.
    pub updates: BTreeMap<ResourceType, UpdateCounts>,
    epoch: SystemTime,
}

impl ClientDump {
    pub(crate) fn new(scope: Option<Arc<str>>, client: &XdsClient) -> Self {
        Self {
            scope,
            server_uri: Arc::clone(client.server_uri()),
            node: client.node().clone(),
            resources: Vec::new(),
            updates: BTreeMap::new(),
            epoch: clock::wall_epoch(),
        }
    }

    /// A time in the dump as wall-clock time.
    #[must_use]
    pub fn wall_time(&self, time: Time) -> SystemTime {
        self.epoch.checked_add(time.since_epoch()).unwrap_or(self.epoch)
    }
}
