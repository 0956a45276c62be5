//! The rules of a world at rest: the watches of channels, the configuration in use, and the destination of every RPC.
//! All are compared with a plain reading of the control plane's mesh.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use proxyless_mesh::xds_config::ClusterState;
use proxyless_xds::resource::ResourceType;

use crate::clients::channel::SimChannel;
use crate::clients::endpoints::Behaviour;
use crate::laws::expected::{Expected, Targets, Walk, may_be_off_ring, routes};
use crate::laws::invariants::Violation;
use crate::laws::liveness::is_tempted;
use crate::script::config::{ClusterKind, Key, Listener, Mesh};
use crate::script::generate::PATHS;
use crate::world::{Outcome, World};

/// An RPC may find a connection that is still being made.
const MAX_WAITS: u32 = 60;
/// This many RPCs reach every endpoint, regardless of weights.
const MAX_PROBES: u32 = 3_000;

/// Checks every channel of a world at rest.
pub(crate) fn check(world: &mut World) -> Result<(), Violation> {
    let channels: Vec<usize> = world.channels().map(|channel| channel.index).collect();
    for index in channels {
        if let Some(channel) = world.channel(index) {
            check_config(&world.control_plane().mesh, channel)?;
            check_watches(&world.control_plane().mesh, channel)?;
        }
        for path in PATHS {
            check_path(world, index, path)?;
        }
    }
    Ok(())
}

fn check_path(world: &mut World, channel: usize, path: &str) -> Result<(), Violation> {
    let place = format!("channel {channel}, {path}");
    let Targets(expected) = Targets::of(&world.control_plane().mesh, world.backends(), channel, path);
    let mut found = Found::default();
    for _ in 0..MAX_PROBES {
        let (cluster, outcome) = world.probe(channel, path)?;
        let Some(cluster) = cluster.map(|cluster| cluster.name().to_string()) else {
            let fine = expected.is_empty() && matches!(outcome, Outcome::Failed(_));
            return Violation::unless(fine, "RPCs without a route fail", || format!("{place}: {outcome:?}"));
        };
        match expected.get(&cluster) {
            Some((_, expected)) => found.add(world, &place, cluster, expected, outcome)?,
            None => {
                return Err(Violation::new(
                    "RPCs go to the clusters of their route",
                    format!("{place}: {cluster}"),
                ));
            }
        }
        if found.is_complete(&expected) {
            return Ok(());
        }
    }
    let detail = format!("{place}: expected {expected:?}, found {found:?}");
    Err(Violation::new("RPCs reach every endpoint of the priority in use", detail))
}

/// The outcomes of RPCs, by cluster.
#[derive(Debug, Default)]
struct Found {
    reached: BTreeMap<String, BTreeSet<SocketAddr>>,
    waits: u32,
}

impl Found {
    fn add(
        &mut self,
        world: &mut World,
        place: &str,
        cluster: String,
        expected: &Expected,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        let fine = match (&outcome, expected) {
            // Some endpoints are always connecting.
            (Outcome::Waits, Expected::Failure) if is_tempted(world, &cluster) => {
                self.reached.entry(cluster).or_default();
                return world.run_for(Duration::from_secs(1));
            }
            (_, Expected::Unsure) => true,
            (Outcome::Waits, _) => {
                self.waits += 1;
                world.run_for(Duration::from_secs(1))?;
                return Violation::unless(self.waits < MAX_WAITS, "RPCs do not wait in a calm world", || {
                    format!("{place}, cluster {cluster}: expected {expected:?}")
                });
            }
            (Outcome::Failed(_), Expected::Failure) | (Outcome::Dropped(_), Expected::Drop) => true,
            // It is connected for short times, repeatedly.
            (Outcome::Reached(address), _) if world.backends().behaviour(*address) == Behaviour::HangsUp => {
                return Ok(());
            }
            (Outcome::Reached(address), Expected::Served { endpoints, .. }) => {
                endpoints.iter().any(|endpoint| endpoint.addresses.contains(address))
            }
            (Outcome::Failed(_), Expected::Served { .. }) => {
                may_be_off_ring(&world.control_plane().mesh, world.backends(), &cluster)
            }
            _ => false,
        };
        Violation::unless(fine, "RPCs go where the configuration says", || {
            format!("{place}, cluster {cluster}: expected {expected:?}, found {outcome:?}")
        })?;
        let reached = self.reached.entry(cluster).or_default();
        if let Outcome::Reached(address) = outcome {
            reached.insert(address);
        }
        Ok(())
    }

    fn is_complete(&self, expected: &BTreeMap<String, (f64, Expected)>) -> bool {
        expected.iter().all(|(cluster, (share, expected))| {
            let reached = self.reached.get(cluster);
            match expected {
                Expected::Served { endpoints, all: true } => {
                    let mut frequent =
                        endpoints.iter().filter(|group| Targets::is_frequent(*share, group.share));
                    frequent.all(|group| reached.is_some_and(|reached| !group.addresses.is_disjoint(reached)))
                }
                _ => reached.is_some() || !Targets::is_frequent(*share, 1.0),
            }
        })
    }
}

/// The resources that the configuration of a channel needs.
pub(crate) fn needed(mesh: &Mesh, channel: usize) -> BTreeSet<Key> {
    let listener = format!("l{channel}");
    let mut wanted = BTreeSet::new();
    if let Some(Listener::Rds(name)) = mesh.listeners.get(&listener).map(Listener::kind) {
        wanted.insert((ResourceType::RouteConfiguration, name.clone()));
    }
    wanted.insert((ResourceType::Listener, listener));
    let routes = routes(mesh, channel).into_iter().flatten();
    for (root, _) in routes.flat_map(|route| &route.clusters) {
        for name in Walk::from(mesh, root).visited {
            match mesh.clusters.get(&name).map(|cluster| &cluster.kind) {
                Some(ClusterKind::Eds(eds)) => {
                    wanted.insert((ResourceType::ClusterLoadAssignment, eds.clone()));
                }
                Some(ClusterKind::List(list)) => {
                    wanted.insert((ResourceType::AggregateClusterConfig, list.clone()));
                }
                Some(ClusterKind::Aggregate(_) | ClusterKind::Dns(_)) | None => {}
            }
            wanted.insert((ResourceType::Cluster, name));
        }
    }
    wanted
}

/// A channel without calls watches exactly the resources that its configuration needs.
fn check_watches(mesh: &Mesh, channel: &SimChannel) -> Result<(), Violation> {
    let wanted = needed(mesh, channel.index);
    let watched: BTreeSet<Key> =
        channel.watches.values().map(|watched| (watched.resource_type, watched.name.to_string())).collect();
    Violation::unless(watched == wanted, "exactly the needed resources are watched", || {
        let (extra, missing) = (watched.difference(&wanted), wanted.difference(&watched));
        format!("extra {:?}, missing {:?}", extra.collect::<Vec<_>>(), missing.collect::<Vec<_>>())
    })
}

/// The configuration in use has the leaves found by a walk through the mesh.
fn check_config(mesh: &Mesh, channel: &SimChannel) -> Result<(), Violation> {
    let (Some(config), Some(Ok(routes))) =
        (channel.core.xds_config(), channel.plane.as_ref().map(|p| &p.routes))
    else {
        return Ok(());
    };
    for root in routes.clusters().iter().map(|cluster| cluster.name()) {
        let (walk, entry) = (Walk::from(mesh, root), config.clusters.get(root));
        let is_leaf = *walk.leaves == [root.to_string()];
        let same = match entry.map(|entry| entry.as_ref().map(|config| &config.state)) {
            Some(Err(_)) => walk.leaves.is_empty(),
            Some(Ok(ClusterState::Pending | ClusterState::Leaf { .. })) => is_leaf,
            Some(Ok(ClusterState::Aggregate { leaf_clusters, .. })) => {
                !is_leaf
                    && leaf_clusters.iter().map(|name| &**name).eq(walk.leaves.iter().map(|name| &**name))
            }
            None => false,
        };
        Violation::unless(same, "the configuration follows from the resources", || {
            format!("{root}: {walk:?}, but {entry:?} is in use")
        })?;
    }
    Ok(())
}
