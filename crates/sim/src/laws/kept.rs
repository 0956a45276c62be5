//! What updates must not break: a cluster that serves goes on serving, unless the control plane says something about it.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_mesh::channel_core::ChannelInput;
use proxyless_mesh::xds_config::{ClusterChildren, ClusterEntry, EndpointsState, XdsConfig};
use proxyless_xds::client::WatchEvent;
use proxyless_xds::resource::{
    ClusterLoadAssignment, ClusterSpecifier, EndpointHealth, ResourceType, VirtualHost,
};

use crate::clients::sessions::completes;
use crate::laws::invariants::Violation;
use crate::world::World;

/// How a channel stood before it was told something.
pub(crate) struct Before {
    config: Arc<XdsConfig>,
    /// The clusters of which a pick led to a connection.
    served: BTreeSet<Arc<str>>,
    news: News,
    /// Clusters of which the channel was told that they are not there: they may go at any time.
    gone: BTreeSet<Arc<str>>,
}

/// What a channel was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// Only that the control plane cannot be reached.
    Unreachable,
    /// Something of a resource.
    Resources,
}

impl Before {
    /// Before an input; nothing if that has no news of resources, or there is nothing to lose.
    pub(crate) fn of(world: &mut World, epoch: u64, input: &ChannelInput) -> Option<Self> {
        let is_transient = |event: &WatchEvent| match event {
            WatchEvent::Changed(Err(error)) | WatchEvent::Ambient(Some(error)) => {
                error.kind.is_about_server()
            }
            WatchEvent::Changed(Ok(_)) | WatchEvent::Ambient(None) => false,
        };
        let unreachable = match input {
            ChannelInput::Resource { event, .. } => is_transient(event),
            ChannelInput::Resources { events } => events.iter().all(|(_, event)| is_transient(event)),
            _ => return None,
        };
        let news = if unreachable { News::Unreachable } else { News::Resources };
        let config = Arc::clone(world.by_epoch(epoch)?.core.xds_config()?);
        let watches = world.by_epoch(epoch)?.watches.values();
        let gone = watches.filter(|watched| {
            watched.resource_type == ResourceType::Cluster && matches!(watched.answer, Some(Err(_)))
        });
        let gone = gone.map(|watched| Arc::clone(&watched.name)).collect();
        Some(Self { config, served: served(world, epoch), news, gone })
    }

    /// After the input.
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

    /// A57: that the control plane cannot be reached says nothing of a resource.
    fn check_unreachable(&self, now: Option<&XdsConfig>) -> Result<(), Violation> {
        let routed = clusters_of(&self.config.virtual_host);
        let is_there = |name: &Arc<str>| serves(&self.config, name) && !self.gone.contains(name);
        let served: Vec<_> = routed.into_iter().filter(is_there).collect();
        if self.news != News::Unreachable || served.is_empty() {
            return Ok(());
        }
        let kept = now.is_some_and(|now| {
            Arc::ptr_eq(&now.virtual_host, &self.config.virtual_host)
                && served.iter().all(|name| serves(now, name))
        });
        Violation::unless(kept, "an unreachable control plane takes nothing away", || {
            let lost = served.iter().filter(|name| now.is_none_or(|now| !serves(now, name)));
            format!("{served:?} could serve, but no longer {:?}", lost.collect::<Vec<_>>())
        })
    }

    /// The same later on, when other news make the channel look again: for what RPCs use, or may use.
    fn check_blame(&self, now: &XdsConfig, in_use: &BTreeSet<Arc<str>>) -> Result<(), Violation> {
        let lost =
            now.clusters.iter().filter(|(name, _)| in_use.contains(*name)).find(|(name, entry)| {
                serves(&self.config, name) && !serves(now, name) && blames_the_way(entry)
            });
        Violation::unless(lost.is_none(), "an unreachable control plane takes nothing away", || {
            format!("{lost:?}")
        })
    }
}

/// The clusters of a channel's routes of which a pick leads to a connection.
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

/// Whether nothing of a cluster and its leaves has changed.
fn same(before: &XdsConfig, now: &XdsConfig, name: &Arc<str>) -> bool {
    let same_entry = |name: &Arc<str>| match (before.clusters.get(name), now.clusters.get(name)) {
        (Some(Ok(before)), Some(Ok(now))) => Arc::ptr_eq(before, now),
        _ => false,
    };
    same_entry(name) && leaves(now.clusters.get(name)).iter().all(same_entry)
}

/// Whether a cluster can serve, as far as its configuration says.
fn serves(config: &XdsConfig, name: &Arc<str>) -> bool {
    let entry = config.clusters.get(name);
    let leaf_serves = |entry: Option<&ClusterEntry>| match entry {
        Some(Ok(leaf)) => match &leaf.children {
            ClusterChildren::Endpoints { endpoints: EndpointsState::Known(known), .. } => {
                has_endpoints(known)
            }
            _ => false,
        },
        _ => false,
    };
    leaf_serves(entry) || leaves(entry).iter().any(|leaf| leaf_serves(config.clusters.get(leaf)))
}

fn has_endpoints(assignment: &ClusterLoadAssignment) -> bool {
    let localities = assignment.priorities.iter().flatten();
    let mut endpoints = localities.flat_map(|locality| &locality.endpoints);
    endpoints.any(|endpoint| endpoint.health != EndpointHealth::Draining)
}

fn leaves(entry: Option<&ClusterEntry>) -> &[Arc<str>] {
    match entry {
        Some(Ok(config)) => match &config.children {
            ClusterChildren::Aggregate { leaf_clusters, .. } => leaf_clusters,
            ClusterChildren::Endpoints { .. } => &[],
        },
        _ => &[],
    }
}

/// Whether the only reason why a cluster cannot be used is that the control plane cannot be reached.
fn blames_the_way(entry: &ClusterEntry) -> bool {
    let why = match entry {
        Err(why) => Some(why),
        Ok(config) => match &config.children {
            ClusterChildren::Endpoints { endpoints: EndpointsState::Missing, resolution_note } => {
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
