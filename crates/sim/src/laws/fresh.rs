//! The final state of a client does not depend on its history: at rest, it has the same configuration as a fresh
//! client, and its RPCs reach the same endpoints.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{ClusterId, PickResult};
use proxyless_mesh::xds_config::{ClusterEntry, ClusterState, EndpointsState, XdsConfig};
use proxyless_xds::resource::{ClusterKind, ClusterLoadAssignment};

use crate::laws::expected::{Expected, expected_of};
use crate::laws::invariants::Violation;
use crate::laws::liveness::is_tempted;
use crate::script::config::Mesh;
use crate::script::{Action, Script};
use crate::world::{Background, World};

/// The longest resource timer, and as much again for everything else.
const SETTLED: Duration = Duration::from_secs(60);
/// This many picks reach every endpoint with a relevant share.
const PICKS: usize = 200;

/// Compares a world at rest with a fresh one that has the same channels.
pub(crate) fn check(world: &mut World) -> Result<(), Violation> {
    let mut fresh = start(world)?;
    let channels: Vec<_> = world.channels().map(|channel| (channel.index, channel.epoch)).collect();
    for (index, epoch) in channels {
        let (old, new) = (world.channel(index), fresh.channel(index));
        let config = old.and_then(|channel| channel.core.xds_config()).map(Arc::clone);
        let wanted = new.and_then(|channel| channel.core.xds_config()).map(Arc::clone);
        let differs = match (&config, &wanted) {
            (Some(config), Some(wanted)) => difference(config, wanted),
            (None, None) => None,
            _ => Some("one of the clients has no configuration".into()),
        };
        Violation::unless(
            differs.is_none(),
            "the configuration does not depend on the client's history",
            || format!("channel {index}: {}", differs.unwrap_or_default()),
        )?;
        let new_epoch = fresh.channel(index).map_or(0, |channel| channel.epoch);
        same_endpoints(world, epoch, &mut fresh, new_epoch)?;
    }
    Ok(())
}

/// A fresh world with the same mesh, backends and channels.
fn start(world: &World) -> Result<World, Violation> {
    let script = Script {
        seed: world.log().hash(),
        settings: world.settings,
        mesh: world.control_plane().mesh.clone(),
        steps: Vec::new(),
    };
    let mut fresh = World::new(&script);
    fresh.backends = world.backends().clone();
    fresh.background = Background::Streams;
    for channel in world.channels() {
        fresh.act(Action::Start(channel.index))?;
    }
    fresh.run_for(SETTLED)?;
    Ok(fresh)
}

fn difference(config: &XdsConfig, wanted: &XdsConfig) -> Option<String> {
    if config.listener != wanted.listener {
        return Some(format!("the listener is {:?}, not {:?}", config.listener, wanted.listener));
    }
    if config.virtual_host != wanted.virtual_host {
        return Some(format!("the routes are {:?}, not {:?}", config.virtual_host, wanted.virtual_host));
    }
    let (names, wanted_names): (Vec<_>, Vec<_>) =
        (config.clusters.keys().collect(), wanted.clusters.keys().collect());
    if names != wanted_names {
        return Some(format!("the clusters are {names:?}, not {wanted_names:?}"));
    }
    let mut entries = config.clusters.iter().zip(wanted.clusters.values());
    let (_, other) = entries.find(|((_, entry), wanted)| !same(entry, wanted)).map(|(a, b)| (b, (a, b)))?;
    Some(format!("a cluster is {:?}, not {:?}", other.0, other.1))
}

/// Whether two entries are equivalent; the texts of errors may differ.
fn same(entry: &ClusterEntry, wanted: &ClusterEntry) -> bool {
    let (Ok(entry), Ok(wanted)) = (entry, wanted) else { return entry.is_err() == wanted.is_err() };
    let same = match (&entry.state, &wanted.state) {
        (ClusterState::Leaf { cluster, endpoints, .. }, ClusterState::Leaf { endpoints: wanted, .. }) => {
            match (endpoints, wanted) {
                // A37-29: servers rotate their answers, so a new order of the same addresses is ignored.
                (EndpointsState::Known(endpoints), EndpointsState::Known(wanted))
                    if matches!(cluster.kind, ClusterKind::LogicalDns { .. }) =>
                {
                    addresses(endpoints) == addresses(wanted)
                }
                (EndpointsState::Known(endpoints), EndpointsState::Known(wanted)) => endpoints == wanted,
                (EndpointsState::Missing, EndpointsState::Missing) => true,
                _ => false,
            }
        }
        (
            ClusterState::Aggregate { leaf_clusters, .. },
            ClusterState::Aggregate { leaf_clusters: wanted, .. },
        ) => leaf_clusters == wanted,
        _ => false,
    };
    entry.cluster() == wanted.cluster() && same
}

fn addresses(assignment: &ClusterLoadAssignment) -> BTreeSet<SocketAddr> {
    let endpoints = assignment.priorities.iter().flatten().flat_map(|locality| locality.endpoints.iter());
    endpoints.flat_map(|endpoint| endpoint.addresses.iter().copied()).collect()
}

/// Both worlds reach the same endpoints, where all of them must be reached.
fn same_endpoints(world: &mut World, epoch: u64, fresh: &mut World, new: u64) -> Result<(), Violation> {
    let routes = world.by_epoch(epoch).and_then(|channel| channel.plane.clone()).map(|plane| plane.routes);
    let new_routes = fresh.by_epoch(new).and_then(|channel| channel.plane.clone()).map(|plane| plane.routes);
    let (Some(Ok(routes)), Some(Ok(new_routes))) = (routes, new_routes) else { return Ok(()) };
    for (cluster, new_cluster) in routes.clusters().iter().zip(new_routes.clusters()) {
        // A backend that hangs up makes RPCs wait sometimes.
        if !is_definite(&world.control_plane().mesh, world, cluster.name())
            || is_tempted(world, cluster.name())
        {
            continue;
        }
        let (old, new) = (reached(world, epoch, cluster.id()), reached(fresh, new, new_cluster.id()));
        Violation::unless(old == new, "the endpoints reached do not depend on the client's history", || {
            format!("{cluster:?}: {old:?}, not {new:?}")
        })?;
    }
    Ok(())
}

/// Whether the reached addresses of a cluster are predictable.
fn is_definite(mesh: &Mesh, world: &World, cluster: &str) -> bool {
    match expected_of(mesh, world.backends(), cluster) {
        Expected::Served { endpoints, all: true } => {
            endpoints.iter().all(|group| group.addresses.len() == 1 && group.share > 0.1)
        }
        _ => false,
    }
}

fn reached(world: &mut World, epoch: u64, cluster: ClusterId) -> BTreeSet<SocketAddr> {
    let mut reached = BTreeSet::new();
    for _ in 0..PICKS {
        for result in world.peek(epoch, cluster, 1) {
            if let PickResult::Complete(pick) = result {
                reached.insert(pick.target.address);
            }
        }
    }
    reached
}
