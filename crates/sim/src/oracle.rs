//! What must be when all is calm, from the configuration alone.
//!
//! Two independent accounts: the configuration that each channel uses equals a resolution from scratch of what it was
//! told; and every RPC goes where a plain reading of the control plane's mesh says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_mesh::graph::{self, LeafData, Node, Root};
use proxyless_mesh::xds_config::ClusterChildren;
use proxyless_xds::resource as xds;
use proxyless_xds::resource::{Resource, ResourceType};

use crate::channel::SimChannel;
use crate::config::{Assignment, ClusterKind, Health, Key, Listener, Locality, Mesh, Policy, Route};
use crate::endpoints::Backends;
use crate::generate::PATHS;
use crate::invariants::Violation;
use crate::world::{Outcome, World};

/// An RPC may find a connection that is only just being made.
const MAX_WAITS: u32 = 60;
/// So many RPCs reach every endpoint, whatever the weights.
const MAX_PROBES: u32 = 3_000;

/// Where the RPCs of one cluster go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// They fail.
    Failure,
    /// They are dropped.
    Drop,
    /// They reach endpoints: each is the set of its addresses that accept.
    Served {
        /// The endpoints; where each locality has a ring, the localities.
        endpoints: Vec<BTreeSet<SocketAddr>>,
        /// Whether all of them are reached, or only some.
        all: bool,
    },
}

/// Checks every channel of a world at rest.
pub(crate) fn check(world: &mut World) -> Result<(), Violation> {
    let channels: Vec<usize> = world.channels().map(|channel| channel.index).collect();
    for index in channels {
        if let Some(channel) = world.channel(index) {
            check_config(channel)?;
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
    let mesh = &world.control_plane().mesh;
    let route =
        routes(mesh, channel).and_then(|routes| routes.iter().find(|route| path.starts_with(&route.prefix)));
    let expected: BTreeMap<String, Expected> = route.map_or_else(BTreeMap::new, |route| {
        let names = route.clusters.iter().map(|(name, _)| name);
        names.map(|name| (name.clone(), expected_of(mesh, world.backends(), name))).collect()
    });
    let mut found = Found::default();
    for _ in 0..MAX_PROBES {
        let (cluster, outcome) = world.probe(channel, path)?;
        let Some(cluster) = cluster.map(|cluster| cluster.name().to_string()) else {
            let fine = expected.is_empty() && matches!(outcome, Outcome::Failed(_));
            return Violation::unless(fine, "RPCs without route fail", || format!("{place}: {outcome:?}"));
        };
        match expected.get(&cluster) {
            Some(expected) => found.add(world, &place, cluster, expected, outcome)?,
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

/// What RPCs of each cluster came to.
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
            (Outcome::Waits, _) => {
                self.waits += 1;
                world.run_for(Duration::from_secs(1))?;
                return Violation::unless(
                    self.waits < MAX_WAITS,
                    "RPCs do not wait when all is calm",
                    || format!("{place}, cluster {cluster}: expected {expected:?}"),
                );
            }
            (Outcome::Failed(_), Expected::Failure) | (Outcome::Dropped(_), Expected::Drop) => true,
            (Outcome::Reached(address), Expected::Served { endpoints, .. }) => {
                endpoints.iter().any(|endpoint| endpoint.contains(address))
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

    fn is_complete(&self, expected: &BTreeMap<String, Expected>) -> bool {
        expected.iter().all(|(cluster, expected)| {
            let reached = self.reached.get(cluster);
            match expected {
                Expected::Served { endpoints, all: true } => reached
                    .is_some_and(|reached| endpoints.iter().all(|endpoint| !endpoint.is_disjoint(reached))),
                _ => reached.is_some(),
            }
        })
    }
}

fn routes(mesh: &Mesh, channel: usize) -> Option<&Vec<Route>> {
    match mesh.listeners.get(&format!("l{channel}"))?.kind() {
        Listener::Rds(name) => mesh.routes.get(name),
        Listener::Inline(routes) => Some(routes),
        Listener::Socket | Listener::WithoutSessions(_) => None,
    }
}

/// Where the RPCs of a cluster go: to the first of its leaves that can serve.
fn expected_of(mesh: &Mesh, backends: &Backends, cluster: &str) -> Expected {
    let mut leaves = Vec::new();
    collect_leaves(mesh, cluster, &mut BTreeSet::new(), &mut leaves);
    let outcomes = leaves.into_iter().map(|leaf| expected_of_leaf(mesh, backends, &leaf));
    outcomes.into_iter().find(|outcome| *outcome != Expected::Failure).unwrap_or(Expected::Failure)
}

/// A37: depth first, each cluster once; what does not exist is passed over (A74).
pub(crate) fn collect_leaves(
    mesh: &Mesh,
    cluster: &str,
    seen: &mut BTreeSet<String>,
    leaves: &mut Vec<String>,
) {
    if !seen.insert(cluster.to_owned()) {
        return;
    }
    let children = match mesh.clusters.get(cluster).map(|cluster| &cluster.kind) {
        None => return,
        Some(ClusterKind::Eds(_) | ClusterKind::Dns(_)) => return leaves.push(cluster.to_owned()),
        Some(ClusterKind::Aggregate(children)) => Some(children),
        Some(ClusterKind::List(list)) => mesh.lists.get(list),
    };
    for child in children.into_iter().flatten() {
        collect_leaves(mesh, child, seen, leaves);
    }
}

pub(crate) fn expected_of_leaf(mesh: &Mesh, backends: &Backends, name: &str) -> Expected {
    let Some(cluster) = mesh.clusters.get(name) else { return Expected::Failure };
    let (priorities, drop_all): (Vec<Vec<Vec<SocketAddr>>>, bool) = match &cluster.kind {
        ClusterKind::Eds(eds) => match mesh.assignments.get(eds) {
            None => return Expected::Failure,
            Some(assignment) => {
                let together = |localities: &Vec<Locality>| match cluster.policy {
                    // No more is known of a ring than that it has a place for some endpoint.
                    Policy::LocalRings => {
                        let alone = |locality| endpoints(std::slice::from_ref(locality)).concat();
                        localities.iter().map(alone).collect()
                    }
                    _ => endpoints(localities).into_iter().map(<[_]>::to_vec).collect(),
                };
                (assignment.priorities.iter().map(together).collect(), assignment.drop_all)
            }
        },
        ClusterKind::Dns(host) => match mesh.hosts.get(host) {
            None => return Expected::Failure,
            Some(addresses) => (vec![vec![addresses.clone()]], false),
        },
        ClusterKind::Aggregate(_) | ClusterKind::List(_) => return Expected::Failure,
    };
    if drop_all {
        return Expected::Drop;
    }
    let accepting = |endpoints: Vec<Vec<SocketAddr>>| {
        let accepting = |addresses: Vec<_>| addresses.into_iter().filter(|a| backends.accepts(*a)).collect();
        let endpoints: Vec<BTreeSet<_>> = endpoints.into_iter().map(accepting).collect();
        endpoints.into_iter().filter(|endpoint| !endpoint.is_empty()).collect::<Vec<_>>()
    };
    let first = priorities.into_iter().map(accepting).find(|endpoints| !endpoints.is_empty());
    let all = matches!(cluster.policy, Policy::RoundRobin | Policy::Nested | Policy::LocalRings);
    first.map_or(Expected::Failure, |endpoints| Expected::Served { endpoints, all })
}

/// The endpoints to be used, by priority.
pub(crate) fn priorities(assignment: &Assignment) -> Vec<Vec<&[SocketAddr]>> {
    assignment.priorities.iter().map(|localities| endpoints(localities)).collect()
}

fn endpoints(localities: &[Locality]) -> Vec<&[SocketAddr]> {
    let weighted = localities.iter().filter(|locality| locality.weight > 0);
    let usable = weighted.flat_map(|locality| &locality.endpoints).filter(|e| e.health == Health::Healthy);
    usable.map(|endpoint| endpoint.addresses.as_slice()).collect()
}

/// A channel without calls watches what its configuration needs, and nothing else.
fn check_watches(mesh: &Mesh, channel: &SimChannel) -> Result<(), Violation> {
    let listener = format!("l{}", channel.index);
    let mut wanted = BTreeSet::new();
    if let Some(Listener::Rds(name)) = mesh.listeners.get(&listener).map(Listener::kind) {
        wanted.insert((ResourceType::RouteConfiguration, name.clone()));
    }
    wanted.insert((ResourceType::Listener, listener));
    let mut clusters: Vec<&String> = routes(mesh, channel.index)
        .into_iter()
        .flatten()
        .flat_map(|route| &route.clusters)
        .map(|(name, _)| name)
        .collect();
    while let Some(name) = clusters.pop() {
        if !wanted.insert((ResourceType::Cluster, name.clone())) {
            continue;
        }
        match mesh.clusters.get(name).map(|cluster| &cluster.kind) {
            Some(ClusterKind::Eds(eds)) => {
                wanted.insert((ResourceType::ClusterLoadAssignment, eds.clone()));
            }
            Some(ClusterKind::Aggregate(children)) => clusters.extend(children),
            Some(ClusterKind::List(list)) => {
                wanted.insert((ResourceType::AggregateClusterConfig, list.clone()));
                clusters.extend(mesh.lists.get(list).into_iter().flatten());
            }
            Some(ClusterKind::Dns(_)) | None => {}
        }
    }
    let watched: BTreeSet<Key> =
        channel.watches.values().map(|watched| (watched.resource_type, watched.name.to_string())).collect();
    Violation::unless(watched == wanted, "what is needed is watched, and nothing else", || {
        let (extra, missing) = (watched.difference(&wanted), wanted.difference(&watched));
        format!("extra {:?}, missing {:?}", extra.collect::<Vec<_>>(), missing.collect::<Vec<_>>())
    })
}

/// The configuration in use is the one that follows from what the channel was told.
fn check_config(channel: &SimChannel) -> Result<(), Violation> {
    let (Some(config), Some(Ok(routes))) =
        (channel.core.xds_config(), channel.plane.as_ref().map(|p| &p.routes))
    else {
        return Ok(());
    };
    let roots: Vec<Arc<str>> = routes.clusters().iter().map(|cluster| Arc::clone(cluster.name())).collect();
    let resolution = graph::resolve(&roots, |name| node(channel, name));
    for (name, root) in &resolution.roots {
        let entry = config.clusters.get(name);
        let same = match (root, entry) {
            (Root::Failed(_), Some(Err(_))) => true,
            (Root::Leaf(_), Some(Ok(config))) => matches!(config.children, ClusterChildren::Endpoints { .. }),
            (Root::Aggregate(new), Some(Ok(config))) => match &config.children {
                ClusterChildren::Aggregate { leaf_clusters, .. } => {
                    leaf_clusters.iter().eq(new.leaves.iter().map(|(name, _)| name))
                }
                ClusterChildren::Endpoints { .. } => false,
            },
            _ => false,
        };
        Violation::unless(same, "the configuration follows from the resources", || {
            format!("{name}: {root:?}, but {entry:?} is in use")
        })?;
    }
    Ok(())
}

fn node(channel: &SimChannel, name: &Arc<str>) -> Node {
    let cluster = match channel.answer(ResourceType::Cluster, name) {
        None => return Node::Loading,
        Some(Ok(Resource::Cluster(cluster))) => cluster,
        Some(_) => return Node::Missing("bad".into()),
    };
    match &cluster.kind {
        xds::ClusterKind::Aggregate(children) => {
            Node::Aggregate { children: Arc::clone(children), note: None }
        }
        xds::ClusterKind::AggregateResource { name } => {
            match channel.answer(ResourceType::AggregateClusterConfig, name) {
                None => Node::Loading,
                Some(Ok(Resource::AggregateClusterConfig(children))) => {
                    Node::Aggregate { children: Arc::clone(children), note: None }
                }
                Some(_) => Node::Missing("bad".into()),
            }
        }
        xds::ClusterKind::Eds { service_name } => {
            let eds = service_name.as_ref().unwrap_or(name);
            Node::Leaf(match channel.answer(ResourceType::ClusterLoadAssignment, eds) {
                None => LeafData::Loading,
                Some(Ok(_)) => LeafData::Usable,
                Some(Err(_)) => LeafData::Empty,
            })
        }
        xds::ClusterKind::LogicalDns { host, .. } => {
            Node::Leaf(if channel.resolved.contains_key(host) { LeafData::Usable } else { LeafData::Empty })
        }
    }
}
