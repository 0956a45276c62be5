//! Updates keep service: a serving cluster keeps serving unless the control plane says otherwise.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_mesh::channel_core::ChannelInput;
use proxyless_mesh::xds_config::{ClusterEntry, ClusterState, EndpointsState, XdsConfig};
use proxyless_xds::client::WatchEvent;
use proxyless_xds::resource::{
    ClusterKind, ClusterLoadAssignment, ClusterSpecifier, EndpointHealth, Resource, ResourceType, VirtualHost,
};

use crate::clients::channel::{SimChannel, Watched};
use crate::clients::sessions::completes;
use crate::laws::invariants::Violation;
use crate::world::World;

/// The state of a channel before an input.
pub(crate) struct Before {
    config: Arc<XdsConfig>,
    /// The clusters with a pick that led to a connection.
    served: BTreeSet<Arc<str>>,
    news: News,
    /// The clusters that the control plane has removed, or left without endpoints. The channel may have kept them until
    /// now, because other parts of its next configuration are loading.
    gone: BTreeSet<Arc<str>>,
}

/// The input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// The control plane is unreachable.
    Unreachable,
    /// An event of a resource.
    Resources,
}

impl Before {
    /// Records the state before an input; `None` if the input has no resource event or nothing serves.
    pub(crate) fn of(world: &mut World, epoch: u64, input: &ChannelInput) -> Option<Self> {
        let is_transient = |event: &WatchEvent| match event {
            WatchEvent::Changed(Err(error)) | WatchEvent::Ambient(Some(error)) => {
                error.kind.is_about_server()
            }
            WatchEvent::Changed(Ok(_)) | WatchEvent::Ambient(None) => false,
        };
        let unreachable = match input {
            ChannelInput::Resources { events } => events.iter().all(|(_, event)| is_transient(event)),
            _ => return None,
        };
        let news = if unreachable { News::Unreachable } else { News::Resources };
        let config = Arc::clone(world.by_epoch(epoch)?.core.xds_config()?);
        let channel = world.by_epoch(epoch)?;
        let clusters =
            channel.watches.values().filter(|watched| watched.resource_type == ResourceType::Cluster);
        let gone = clusters.filter(|watched| is_gone(channel, watched));
        let gone = gone.map(|watched| Arc::clone(&watched.name)).collect();
        Some(Self { config, served: served(world, epoch), news, gone })
    }

    /// Checks the state after the input.
    pub(crate) fn check(&self, world: &mut World, epoch: u64) -> Result<(), Violation> {
        let Some(channel) = world.by_epoch(epoch) else { return Ok(()) };
        let config = channel.core.xds_config().map(Arc::clone);
        let names =
            config.iter().flat_map(|config| config.clusters.keys().filter(|name| serves(config, name)));
        channel.served.extend(names.cloned());
        self.check_unreachable(config.as_deref())?;
        let Some(config) = config else { return Ok(()) };
        let mut in_use = clusters_of(&config.virtual_host);
        in_use.extend(world.calls().clusters(epoch));
        self.check_blame(&config, &in_use)?;
        let unchanged = |name: &Arc<str>| same(&self.config, &config, name);
        let mut wanted: BTreeSet<_> = self.served.iter().filter(|name| unchanged(name)).cloned().collect();
        wanted.retain(|name| clusters_of(&config.virtual_host).contains(name));
        let served = served(world, epoch);
        Violation::unless(wanted.is_subset(&served), "an unchanged cluster keeps serving", || {
            format!("{:?} do not", wanted.difference(&served).collect::<Vec<_>>())
        })
    }

    /// A57: an unreachable control plane says nothing about a resource.
    fn check_unreachable(&self, now: Option<&XdsConfig>) -> Result<(), Violation> {
        let routed = clusters_of(&self.config.virtual_host);
        let remains =
            |name: &Arc<str>| !self.gone.contains(name) && serves_with(&self.config, name, &self.gone);
        let served: Vec<_> = routed.into_iter().filter(remains).collect();
        if self.news != News::Unreachable || served.is_empty() {
            return Ok(());
        }
        let kept = now.is_some_and(|now| {
            Arc::ptr_eq(&now.virtual_host, &self.config.virtual_host)
                && served.iter().all(|name| serves(now, name))
        });
        Violation::unless(kept, "an unreachable control plane changes nothing", || {
            let lost = served.iter().filter(|name| now.is_none_or(|now| !serves(now, name)));
            format!("{served:?} could serve, but no longer {:?}", lost.collect::<Vec<_>>())
        })
    }

    /// The same later on, when other events make the channel look again: for clusters that RPCs use or may use.
    fn check_blame(&self, now: &XdsConfig, in_use: &BTreeSet<Arc<str>>) -> Result<(), Violation> {
        let lost =
            now.clusters.iter().filter(|(name, _)| in_use.contains(*name)).find(|(name, entry)| {
                serves(&self.config, name) && !serves(now, name) && blames_the_way(entry)
            });
        Violation::unless(lost.is_none(), "an unreachable control plane changes nothing", || {
            format!("{lost:?}")
        })
    }
}

/// The clusters of a channel's routes with a pick that leads to a connection.
fn served(world: &mut World, epoch: u64) -> BTreeSet<Arc<str>> {
    let routes = world.by_epoch(epoch).and_then(|channel| channel.plane.clone()).map(|plane| plane.routes);
    let Some(Ok(routes)) = routes else { return BTreeSet::new() };
    let clusters = routes.clusters().iter();
    let served = clusters.filter(|cluster| completes(world.peek(epoch, cluster.id(), 1)));
    served.map(|cluster| Arc::clone(cluster.name())).collect()
}

/// Every cluster that a route names.
fn clusters_of(host: &VirtualHost) -> BTreeSet<Arc<str>> {
    let actions = host.routes.iter().filter_map(|route| route.action.as_ref());
    let names = actions.flat_map(|action| match &action.cluster {
        ClusterSpecifier::Cluster(name) => vec![Arc::clone(name)],
        ClusterSpecifier::Weighted(weighted) => weighted.iter().map(|c| Arc::clone(&c.name)).collect(),
    });
    names.collect()
}

/// Whether a cluster and its leaves are unchanged.
fn same(before: &XdsConfig, now: &XdsConfig, name: &Arc<str>) -> bool {
    let same_entry = |name: &Arc<str>| match (before.clusters.get(name), now.clusters.get(name)) {
        (Some(Ok(before)), Some(Ok(now))) => Arc::ptr_eq(before, now),
        _ => false,
    };
    same_entry(name) && leaves(now.clusters.get(name)).iter().all(same_entry)
}

/// Whether a cluster cannot serve according to the latest resources.
fn is_gone(channel: &SimChannel, watched: &Watched) -> bool {
    let cluster = match &watched.answer {
        Some(Ok(Resource::Cluster(cluster))) => cluster,
        answer => return matches!(answer, Some(Err(_))),
    };
    let ClusterKind::Eds { service_name } = &cluster.kind else { return false };
    let name = service_name.as_ref().unwrap_or(&watched.name);
    channel.watches.values().filter(|watched| watched.name == *name).any(|watched| match &watched.answer {
        Some(Ok(Resource::ClusterLoadAssignment(assignment))) => !has_endpoints(assignment),
        _ => false,
    })
}

/// Whether the configuration of a cluster lets it serve.
fn serves(config: &XdsConfig, name: &Arc<str>) -> bool {
    serves_with(config, name, &BTreeSet::new())
}

/// The same without the leaves in `gone`.
fn serves_with(config: &XdsConfig, name: &Arc<str>, gone: &BTreeSet<Arc<str>>) -> bool {
    let leaf_serves = |name: &Arc<str>| match config.clusters.get(name) {
        Some(Ok(leaf)) if !gone.contains(name) => match &leaf.state {
            ClusterState::Leaf { endpoints: EndpointsState::Known(known), .. } => has_endpoints(known),
            _ => false,
        },
        _ => false,
    };
    leaf_serves(name) || leaves(config.clusters.get(name)).iter().any(leaf_serves)
}

fn has_endpoints(assignment: &ClusterLoadAssignment) -> bool {
    let localities = assignment.priorities.iter().flatten();
    let mut endpoints = localities.flat_map(|locality| &locality.endpoints);
    endpoints.any(|endpoint| endpoint.health != EndpointHealth::Draining)
}

fn leaves(entry: Option<&ClusterEntry>) -> &[Arc<str>] {
    match entry {
        Some(Ok(config)) => match &config.state {
            ClusterState::Aggregate { leaf_clusters, .. } => leaf_clusters,
            ClusterState::Pending | ClusterState::Leaf { .. } => &[],
        },
        _ => &[],
    }
}

/// Whether a cluster is unusable only because the control plane is unreachable.
fn blames_the_way(entry: &ClusterEntry) -> bool {
    let why = match entry {
        Err(why) => Some(why),
        Ok(config) => match &config.state {
            ClusterState::Leaf { endpoints: EndpointsState::Missing, resolution_note, .. } => {
                resolution_note.as_ref()
            }
            _ => None,
        },
    };
    why.is_some_and(|why| {
        ["management server unreachable", "has no ADS service"].iter().any(|blame| why.contains(blame))
            && !["does not exist", "rejected", "reports status", "no answer in time", "DNS"]
                .iter()
                .any(|statement| why.contains(statement))
    })
}
