//! The number of subchannels that a channel may hold at rest.

use std::time::Duration;

use crate::clients::channel::SimChannel;
use crate::clients::endpoints::Backends;
use crate::laws::expected::{self, Expected, Walk};
use crate::laws::invariants::Violation;
use crate::script::config::{ClusterKind, Mesh};
use crate::world::World;

/// Longer than the priority policy keeps deactivated children (15 minutes).
const QUIET: Duration = Duration::from_secs(16 * 60);

/// Without calls, subchannels are held only for the priorities in use and those above them: sessions and former
/// priorities have released theirs.
pub(crate) fn check(world: &mut World) -> Result<(), Violation> {
    world.run_for(QUIET)?;
    for channel in world.channels() {
        let (held, needed) = (channel.core.stats().owners, needed(world, channel));
        Violation::unless(held <= needed, "subchannels are held only for priorities in use", || {
            format!("channel {}: {held} held, at most {needed} needed", channel.index)
        })?;
    }
    Ok(())
}

fn needed(world: &World, channel: &SimChannel) -> usize {
    let routes = channel.plane.as_ref().and_then(|plane| plane.routes.as_ref().ok());
    let clusters = routes.into_iter().flat_map(|routes| routes.clusters());
    let (mesh, backends) = (&world.control_plane().mesh, world.backends());
    clusters.map(|cluster| of_cluster(mesh, backends, cluster.name())).sum()
}

/// The leaves up to the first that serves.
fn of_cluster(mesh: &Mesh, backends: &Backends, cluster: &str) -> usize {
    let mut sum = 0;
    for leaf in Walk::from(mesh, cluster).leaves {
        sum += of_leaf(mesh, backends, &leaf);
        if !matches!(expected::expected_of_leaf(mesh, backends, &leaf), Expected::Failure | Expected::Unsure)
        {
            break;
        }
    }
    sum
}

/// The priorities up to the first that serves; all, if the leaf drops everything and so never fails over.
fn of_leaf(mesh: &Mesh, backends: &Backends, leaf: &str) -> usize {
    let assignment = match mesh.clusters.get(leaf).map(|cluster| &cluster.kind) {
        Some(ClusterKind::Eds(eds)) => mesh.assignments.get(eds),
        Some(ClusterKind::Dns(host)) => return mesh.hosts.get(host).map_or(0, Vec::len),
        _ => None,
    };
    let Some(assignment) = assignment else { return 0 };
    let mut sum = 0;
    for endpoints in expected::priorities(assignment) {
        sum += endpoints.iter().map(|addresses| addresses.len()).sum::<usize>();
        let serves = endpoints.iter().any(|addresses| addresses.iter().any(|&a| backends.accepts(a)));
        let unsure = expected::expected_of_leaf(mesh, backends, leaf) == Expected::Unsure;
        if serves && !unsure && !assignment.drop_all {
            break;
        }
    }
    sum
}
