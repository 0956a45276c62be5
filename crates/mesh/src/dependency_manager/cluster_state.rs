//! The state of one cluster, and the resources that it requires.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_xds::resource::{
    Cluster, ClusterKind, ClusterLoadAssignment, EndpointHealth, MILLION, ResourceType,
};

use super::resources::{Key, ResourceResult, Wanted};
use super::{DependencyManager, DnsName, notes};
use crate::graph::{LeafData, Node};
use crate::xds_config::{ClusterConfig, ClusterState, EndpointsState, XdsConfig};

/// The source of a leaf's endpoints.
enum Source {
    Eds(Arc<str>),
    Dns(DnsName),
}

impl Source {
    /// `None` for aggregates.
    fn of(name: &Arc<str>, cluster: &Cluster) -> Option<Self> {
        match &cluster.kind {
            // A27-88, A27-89
            ClusterKind::Eds { service_name } => {
                Some(Self::Eds(Arc::clone(service_name.as_ref().unwrap_or(name))))
            }
            // A37-29
            ClusterKind::LogicalDns { host, port } => {
                Some(Self::Dns(DnsName { host: Arc::clone(host), port: *port }))
            }
            ClusterKind::Aggregate(_) | ClusterKind::AggregateResource { .. } => None,
        }
    }
}

/// Whether the dependencies of a root that an unreachable control plane cannot deliver count as loading.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// They do: something old serves meanwhile.
    Patient,
    /// They count as missing.
    Exhausted,
}

/// The resource that a cluster of this name requires, other than clusters: its endpoints, or its list of leaves.
pub(super) fn required_resource(name: &Arc<str>, cluster: &Cluster) -> Option<Key> {
    match (Source::of(name, cluster), &cluster.kind) {
        (Some(Source::Eds(eds)), _) => Some((ResourceType::ClusterLoadAssignment, eds)),
        // A99-09
        (None, ClusterKind::AggregateResource { name }) => {
            Some((ResourceType::AggregateClusterConfig, Arc::clone(name)))
        }
        _ => None,
    }
}

impl DependencyManager {
    /// The cluster's node in the graph of a root.
    pub(super) fn node(&self, patience: Patience, name: &Arc<str>) -> Node {
        let is_patient = patience == Patience::Patient;
        let waits = |of, name| self.resources.is_unreachable(of, name) && is_patient;
        let cluster = match self.resources.cluster(name) {
            None => return Node::Loading,
            Some(Err(_)) if waits(ResourceType::Cluster, name) => return Node::Loading,
            Some(Err(why)) => return Node::Missing(why),
            Some(Ok(cluster)) => cluster,
        };
        let ambient = self.resources.ambient(ResourceType::Cluster, name);
        match &cluster.kind {
            ClusterKind::Aggregate(children) => {
                Node::Aggregate { children: Arc::clone(children), note: ambient.cloned() }
            }
            // A99-10: as with an inline list.
            ClusterKind::AggregateResource { name: list } => match self.resources.aggregate(list) {
                None => Node::Loading,
                // A99-26: the old leaves stay in use.
                Some(Err(_)) if waits(ResourceType::AggregateClusterConfig, list) => Node::Loading,
                // A99-22
                Some(Err(why)) => Node::Missing(format!("aggregate cluster {name}: {why}").into()),
                Some(Ok(children)) => {
                    let of_list = self.resources.ambient(ResourceType::AggregateClusterConfig, list);
                    let note = notes::join(ambient.into_iter().chain(of_list));
                    Node::Aggregate { children: Arc::clone(children), note }
                }
            },
            ClusterKind::Eds { .. } | ClusterKind::LogicalDns { .. } => {
                let source = Source::of(name, cluster);
                // A27-88: a different EDS resource than before, or the first of a new leaf.
                if source.as_ref().is_some_and(|source| self.is_unreachable(source))
                    && (self.serves(name) || is_patient)
                {
                    return Node::Leaf(LeafData::Loading);
                }
                Node::Leaf(match source.and_then(|source| self.endpoints(&source).0) {
                    None => LeafData::Loading,
                    Some(Ok(assignment)) if decides(assignment) => LeafData::Usable,
                    Some(_) => LeafData::Empty,
                })
            }
        }
    }

    /// A27-02: records the resources that the cluster requires, as far as they are known.
    pub(super) fn want_cluster(&self, name: &Arc<str>, wanted: &mut Wanted) {
        // A27-82 to A27-84: exactly this cluster.
        wanted.resource(ResourceType::Cluster, name);
        let Some(Ok(cluster)) = self.resources.cluster(name) else { return };
        wanted.resources.extend(required_resource(name, cluster));
        if let Some(Source::Dns(dns)) = Source::of(name, cluster) {
            wanted.dns.extend([dns]);
        }
    }

    /// The configuration of a leaf; `None` while the cluster or its endpoints are loading, after an error, or if it is
    /// not a leaf.
    pub(super) fn leaf(&self, name: &Arc<str>, routing_note: Option<&Arc<str>>) -> Option<ClusterConfig> {
        let cluster = self.resources.cluster(name)?.ok()?;
        let source = Source::of(name, cluster)?;
        if self.is_unreachable(&source) && self.serves(name) {
            return None;
        }
        let (result, trouble) = self.endpoints(&source);
        let (endpoints, own) = match result? {
            Ok(assignment) => {
                let odd = match (&source, &trouble) {
                    (Source::Eds(eds), None) => notes::about_assignment(eds, assignment),
                    _ => None,
                };
                (EndpointsState::Known(Arc::clone(assignment)), odd)
            }
            // A37-36 to A37-38
            Err(why) => (EndpointsState::Missing, Some(why)),
        };
        let ambient = self.resources.ambient(ResourceType::Cluster, name);
        let resolution_note =
            notes::join([routing_note, ambient, trouble, own.as_ref()].into_iter().flatten());
        let state = ClusterState::Leaf { cluster: Arc::clone(cluster), endpoints, resolution_note };
        Some(ClusterConfig { name: Arc::clone(name), state })
    }

    /// The clusters of a configuration by EDS resource.
    pub(super) fn clusters_by_eds(&self, config: &XdsConfig) -> BTreeMap<Arc<str>, Vec<Arc<str>>> {
        let mut by_eds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for name in config.clusters.keys() {
            let Some(Ok(cluster)) = self.resources.cluster(name) else { continue };
            if let Some(Source::Eds(eds)) = Source::of(name, cluster) {
                by_eds.entry(eds).or_default().push(Arc::clone(name));
            }
        }
        by_eds
    }

    /// Whether the only result about the endpoints is that the control plane is unreachable.
    fn is_unreachable(&self, source: &Source) -> bool {
        match source {
            Source::Eds(name) => self.resources.is_unreachable(ResourceType::ClusterLoadAssignment, name),
            Source::Dns(_) => false,
        }
    }

    fn endpoints(
        &self,
        source: &Source,
    ) -> (Option<ResourceResult<&Arc<ClusterLoadAssignment>>>, Option<&Arc<str>>) {
        match source {
            Source::Eds(name) => {
                let ambient = self.resources.ambient(ResourceType::ClusterLoadAssignment, name);
                (self.resources.endpoints(name), ambient)
            }
            Source::Dns(name) => {
                let (result, note) = self.dns.state(name);
                (result.map(|result| result.as_ref().map_err(Arc::clone)), note)
            }
        }
    }
}

/// Whether the assignment decides RPCs: an endpoint could serve them (draining ones serve only their sessions), or all
/// RPCs are dropped, which requires no endpoint (A37-49).
pub(super) fn decides(assignment: &ClusterLoadAssignment) -> bool {
    let localities = assignment.priorities.iter().flatten();
    let mut endpoints = localities.flat_map(|locality| &locality.endpoints);
    endpoints.any(|endpoint| endpoint.health != EndpointHealth::Draining)
        || assignment.drops.iter().any(|drop| drop.per_million >= MILLION)
}
