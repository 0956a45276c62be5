//! Applies changes to a mesh.

use proxyless_xds::resource::ResourceType;

use crate::script::Change;
use crate::script::config::{Key, Mesh};

impl Change {
    /// The resource that changes; `None` for a DNS record.
    pub(crate) fn key(&self) -> Option<Key> {
        Some(match self {
            Self::Listener(name, _) => (ResourceType::Listener, name.clone()),
            Self::Routes(name, _) => (ResourceType::RouteConfiguration, name.clone()),
            Self::Cluster(name, _) => (ResourceType::Cluster, name.clone()),
            Self::Assignment(name, _) => (ResourceType::ClusterLoadAssignment, name.clone()),
            Self::List(name, _) => (ResourceType::AggregateClusterConfig, name.clone()),
            Self::Host(..) => return None,
        })
    }
}

impl Mesh {
    /// Applies a change.
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Listener(name, listener) => drop(self.listeners.insert(name, listener)),
            Change::Routes(name, routes) => drop(self.routes.insert(name, routes)),
            Change::Cluster(name, cluster) => drop(self.clusters.insert(name, cluster)),
            Change::Assignment(name, assignment) => drop(self.assignments.insert(name, assignment)),
            Change::List(name, list) => drop(self.lists.insert(name, list)),
            Change::Host(name, addresses) => drop(self.hosts.insert(name, addresses)),
        }
    }

    /// Removes a Listener or a Cluster.
    pub(crate) fn remove(&mut self, (resource_type, name): &Key) {
        match resource_type {
            ResourceType::Listener => drop(self.listeners.remove(name)),
            ResourceType::Cluster => drop(self.clusters.remove(name)),
            // A client keeps resources of the other types: its final state would depend on its history.
            ResourceType::RouteConfiguration
            | ResourceType::ClusterLoadAssignment
            | ResourceType::AggregateClusterConfig => {}
        }
    }
}
