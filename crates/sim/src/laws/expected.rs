//! The expected destination of RPCs at rest: a plain reading of the mesh, without any code of the cores.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::clients::endpoints::Backends;
use crate::script::config::{
    Assignment, ClusterKind, Health, Listener, Locality, Mesh, Policy, Route, SMALL_SUBSET,
};

/// A37-17: the maximum number of levels in a cluster tree, including the leaf.
const MAX_LEVELS: usize = 16;
/// A smaller share of RPCs may not be observed in a check.
const RARE: f64 = 0.01;

/// The expected outcome of a cluster's RPCs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expected {
    /// They fail.
    Failure,
    /// They are dropped.
    Drop,
    /// They reach endpoints of this cluster or fail: it depends on a random choice.
    Unsure,
    /// They reach endpoints.
    Served {
        /// The endpoints; or the localities, where each has a ring.
        endpoints: Vec<Group>,
        /// Whether all of them are reached, or only some.
        all: bool,
    },
}

/// Addresses that share RPCs in an unknown way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// The addresses that accept connections, at least one.
    pub(crate) addresses: BTreeSet<SocketAddr>,
    /// The locality.
    pub(crate) zone: String,
    /// Their share of the cluster's RPCs, where the policy picks by weight.
    pub(crate) share: f64,
}

/// The clusters that the RPCs of one path go to, each with its share and expectation. Empty if no route matches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets(pub(crate) BTreeMap<String, (f64, Expected)>);

impl Targets {
    /// The targets of a path of a channel.
    pub(crate) fn of(mesh: &Mesh, backends: &Backends, channel: usize, path: &str) -> Self {
        let routes = routes(mesh, channel);
        let route = routes.and_then(|routes| routes.iter().find(|route| path.starts_with(&route.prefix)));
        let clusters = route.map_or(&[][..], |route| &route.clusters);
        let total: f64 = clusters.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let mut targets = BTreeMap::new();
        for (name, weight) in clusters {
            // The weight of a single cluster is ignored.
            let share = if clusters.len() == 1 { 1.0 } else { f64::from(*weight) / total };
            let (sum, _) =
                targets.entry(name.clone()).or_insert_with(|| (0.0, expected_of(mesh, backends, name)));
            *sum += share;
        }
        Self(targets)
    }

    /// Whether an endpoint's share of the path's RPCs is large enough to be observed.
    pub(crate) fn is_frequent(cluster_share: f64, share: f64) -> bool {
        cluster_share * share >= RARE
    }
}

/// The routes of a channel.
pub(crate) fn routes(mesh: &Mesh, channel: usize) -> Option<&Vec<Route>> {
    match mesh.listeners.get(&format!("l{channel}"))?.kind() {
        Listener::Rds(name) => mesh.routes.get(name),
        Listener::Inline(routes) => Some(routes),
        Listener::Socket | Listener::WithoutSessions(_) | Listener::WithFaults(..) => None,
    }
}

/// The tree below a cluster.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Its leaves in order of preference; the cluster itself if it is a leaf.
    pub(crate) leaves: Vec<String>,
    /// Every cluster that was looked up.
    pub(crate) visited: BTreeSet<String>,
    /// The number of levels.
    pub(crate) levels: usize,
    /// Whether it has too many levels, so that nothing of it is used.
    pub(crate) too_deep: bool,
}

impl Walk {
    /// A37: depth first, each cluster once; missing clusters are skipped (A74).
    pub(crate) fn from(mesh: &Mesh, root: &str) -> Self {
        let mut walk = Self::default();
        walk.visit(mesh, root, 1);
        if walk.too_deep {
            walk.leaves.clear();
        }
        walk
    }

    fn visit(&mut self, mesh: &Mesh, cluster: &str, level: usize) {
        if self.too_deep || self.visited.contains(cluster) {
            return;
        }
        if level > MAX_LEVELS {
            self.too_deep = true;
            return;
        }
        self.levels = self.levels.max(level);
        self.visited.insert(cluster.to_owned());
        let children = match mesh.clusters.get(cluster).map(|cluster| &cluster.kind) {
            None => return,
            Some(ClusterKind::Eds(_) | ClusterKind::Dns(_)) => return self.leaves.push(cluster.to_owned()),
            Some(ClusterKind::Aggregate(children)) => Some(children),
            Some(ClusterKind::List(list)) => mesh.lists.get(list),
        };
        for child in children.into_iter().flatten() {
            self.visit(mesh, child, level + 1);
        }
    }
}

/// The expectation of a cluster: that of the first leaf that can serve.
pub(crate) fn expected_of(mesh: &Mesh, backends: &Backends, cluster: &str) -> Expected {
    serving_leaf(mesh, backends, cluster).map_or(Expected::Failure, |(_, expected)| expected)
}

/// The first leaf of a cluster that does not fail, and its expectation.
pub(crate) fn serving_leaf(mesh: &Mesh, backends: &Backends, cluster: &str) -> Option<(String, Expected)> {
    let leaves = Walk::from(mesh, cluster).leaves.into_iter();
    let mut outcomes = leaves.map(|leaf| {
        let expected = expected_of_leaf(mesh, backends, &leaf);
        (leaf, expected)
    });
    outcomes.find(|(_, expected)| *expected != Expected::Failure)
}

/// The expectation of a leaf.
pub(crate) fn expected_of_leaf(mesh: &Mesh, backends: &Backends, name: &str) -> Expected {
    let Some(cluster) = mesh.clusters.get(name) else { return Expected::Failure };
    let served = match &cluster.kind {
        ClusterKind::Eds(eds) => match mesh.assignments.get(eds) {
            None => return Expected::Failure,
            Some(assignment) if assignment.drop_all => return Expected::Drop,
            Some(assignment) if is_unsure(assignment, cluster.policy, backends) => return Expected::Unsure,
            Some(assignment) => {
                let live = assignment.priorities.iter().map(|zones| groups(zones, cluster.policy, backends));
                live.into_iter().find(|groups| !groups.is_empty())
            }
        },
        ClusterKind::Dns(host) => mesh.hosts.get(host).map(|addresses| {
            let group = Group { addresses: accepting(addresses, backends), zone: String::new(), share: 1.0 };
            Vec::from_iter((!group.addresses.is_empty()).then_some(group))
        }),
        ClusterKind::Aggregate(_) | ClusterKind::List(_) => return Expected::Failure,
    };
    let all = !matches!(cluster.policy, Policy::RingHash | Policy::PickFirst | Policy::SmallSubset);
    match served {
        Some(endpoints) if !endpoints.is_empty() => Expected::Served { endpoints, all },
        _ => Expected::Failure,
    }
}

/// Whether a small subset of the first priority that may serve contains an endpoint that accepts connections, or not.
fn is_unsure(assignment: &Assignment, policy: Policy, backends: &Backends) -> bool {
    let accepts = |addresses: &&&[SocketAddr]| addresses.iter().any(|&address| backends.accepts(address));
    let first =
        priorities(assignment).into_iter().find(|endpoints| endpoints.iter().any(|all| accepts(&all)));
    policy == Policy::SmallSubset
        && first.is_some_and(|endpoints| {
            let lost = endpoints.iter().filter(|addresses| !accepts(addresses)).count();
            lost >= SMALL_SUBSET as usize
        })
}

/// The largest ring of a simulated cluster.
const MAX_RING_SIZE: f64 = 64.0;

/// Whether the serving endpoints of a cluster may have no entry in its ring (A42): a ring has at most 64 entries, and
/// an endpoint with a small share may get none. RPCs then fail although it is connected.
pub(crate) fn may_be_off_ring(mesh: &Mesh, backends: &Backends, cluster: &str) -> bool {
    let Some((leaf, Expected::Served { endpoints: serving, .. })) = serving_leaf(mesh, backends, cluster)
    else {
        return false;
    };
    let Some(cluster) = mesh.clusters.get(&leaf).filter(|cluster| cluster.policy == Policy::RingHash) else {
        return false;
    };
    let ClusterKind::Eds(eds) = &cluster.kind else { return false };
    let Some(assignment) = mesh.assignments.get(eds) else { return false };
    let is_light = |address: &SocketAddr| {
        assignment.priorities.iter().any(|localities| {
            let total: f64 = localities.iter().map(|locality| f64::from(locality.weight)).sum();
            localities.iter().any(|locality| {
                let count = locality.endpoints.len().max(1) as f64;
                let has = locality.endpoints.iter().any(|endpoint| endpoint.addresses.contains(address));
                has && f64::from(locality.weight) / total / count < 1.0 / MAX_RING_SIZE
            })
        })
    };
    serving.iter().all(|group| group.addresses.iter().all(is_light))
}

/// The endpoints of a priority that can serve. The localities among them have shares by weight, and the endpoints of a
/// locality equal shares.
fn groups(localities: &[Locality], policy: Policy, backends: &Backends) -> Vec<Group> {
    let mut live = Vec::new();
    for locality in localities {
        let endpoints = endpoints(std::slice::from_ref(locality)).into_iter();
        let mut sets: Vec<_> = endpoints.map(|addresses| accepting(addresses, backends)).collect();
        sets.retain(|addresses| !addresses.is_empty());
        // A ring has an entry for at least one endpoint; nothing more is known.
        if policy == Policy::LocalRings && !sets.is_empty() {
            sets = vec![sets.into_iter().flatten().collect()];
        }
        if !sets.is_empty() {
            live.push((locality, sets));
        }
    }
    let total: f64 = live.iter().map(|(locality, _)| f64::from(locality.weight)).sum();
    let groups = live.into_iter().flat_map(|(locality, sets)| {
        let share = f64::from(locality.weight) / total / sets.len() as f64;
        let zone = locality.zone.clone();
        sets.into_iter().map(move |addresses| Group { addresses, zone: zone.clone(), share })
    });
    groups.collect()
}

fn accepting(addresses: &[SocketAddr], backends: &Backends) -> BTreeSet<SocketAddr> {
    addresses.iter().copied().filter(|address| backends.accepts(*address)).collect()
}

/// The usable endpoints, by priority.
pub(crate) fn priorities(assignment: &Assignment) -> Vec<Vec<&[SocketAddr]>> {
    assignment.priorities.iter().map(|localities| endpoints(localities)).collect()
}

fn endpoints(localities: &[Locality]) -> Vec<&[SocketAddr]> {
    let weighted = localities.iter().filter(|locality| locality.weight > 0);
    let usable = weighted.flat_map(|locality| &locality.endpoints).filter(|e| e.health == Health::Healthy);
    usable.map(|endpoint| endpoint.addresses.as_slice()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::config::Cluster;

    /// A chain of this many clusters that ends in a leaf.
    fn chain(levels: usize) -> Mesh {
        let mut mesh = Mesh::default();
        for level in 1..levels {
            let child = format!("n{}", level + 1);
            mesh.clusters.insert(format!("n{level}"), Cluster::aggregate(&[&child]));
        }
        mesh.clusters.insert(format!("n{levels}"), Cluster::eds("e"));
        mesh
    }

    #[test]
    fn a37_17_trees_have_sixteen_levels() {
        let walk = Walk::from(&chain(16), "n1");
        assert_eq!((walk.leaves, walk.too_deep), (vec!["n16".to_owned()], false));
        let walk = Walk::from(&chain(17), "n1");
        assert_eq!((walk.leaves.len(), walk.too_deep, walk.visited.len()), (0, true, 16));
    }

    #[test]
    fn shares_follow_the_weights_of_the_localities_that_can_serve() {
        let mut assignment = Assignment::of(&[&[1, 2]]);
        let mut zones = assignment.priorities.remove(0);
        zones.push(Locality {
            zone: "y".into(),
            weight: 3,
            ..Assignment::of(&[&[3]]).priorities[0][0].clone()
        });
        let backends = Backends::default();
        let shares = |policy| groups(&zones, policy, &backends).iter().map(|g| g.share).collect::<Vec<_>>();
        assert_eq!(shares(Policy::RoundRobin), [0.125, 0.125, 0.75]);
        assert_eq!(shares(Policy::LocalRings), [0.25, 0.75]);
    }
}
