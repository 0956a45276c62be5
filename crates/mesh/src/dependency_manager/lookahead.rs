//! The resources that a channel will need next, so that the xDS client can request them before the channel does.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_xds::resource::{
    AggregateClusterConfig, ClusterKind, ListenerKind, Resource, ResourceType, RouteConfiguration,
    RouteSource,
};

use super::cluster_state::required_resource;
use super::resources::Key;
use super::routing::clusters;
use crate::virtual_host::find_virtual_host;

/// The resources that the channel of this authority will watch when it has received `resource`, which it watches by
/// `name`. It may watch fewer: an aggregate may be too deep, or the channel may just have ended its watch.
#[must_use]
pub fn next_resources(authority: &str, name: &Arc<str>, resource: &Resource) -> BTreeSet<Key> {
    let of_routes = |routes: &RouteConfiguration| {
        let host = find_virtual_host(routes, authority);
        host.map(|host| as_keys(clusters(host))).unwrap_or_default()
    };
    let of_list = |list: &AggregateClusterConfig| as_keys(list.clusters.iter().cloned());
    match resource {
        Resource::Listener(listener) => match &listener.kind {
            ListenerKind::Socket => BTreeSet::new(),
            ListenerKind::Api(manager) => match &manager.routes {
                RouteSource::Inline(routes) => of_routes(routes),
                RouteSource::Rds(name) => {
                    BTreeSet::from([(ResourceType::RouteConfiguration, Arc::clone(name))])
                }
            },
        },
        Resource::RouteConfiguration(routes) => of_routes(routes),
        Resource::Cluster(cluster) => match &cluster.kind {
            ClusterKind::Aggregate(list) => of_list(list),
            _ => required_resource(name, cluster).into_iter().collect(),
        },
        Resource::AggregateClusterConfig(list) => of_list(list),
        Resource::ClusterLoadAssignment(_) => BTreeSet::new(),
    }
}

fn as_keys(clusters: impl IntoIterator<Item = Arc<str>>) -> BTreeSet<Key> {
    clusters.into_iter().map(|name| (ResourceType::Cluster, name)).collect()
}
