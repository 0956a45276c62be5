//! Weights: over many picks, each cluster of a route, each locality and each endpoint gets its share by the mesh.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use proxyless_balancer::api::{CallAttributes, ClusterId, PickResult};
use proxyless_mesh::channel_core::DataPlane;
use proxyless_sans_io::Rng;

use crate::clients::calls;
use crate::laws::expected::{self, Expected, Group, Targets};
use crate::laws::invariants::Violation;
use crate::script::config::{Policy, SMALL_SUBSET};
use crate::script::generate::PATHS;
use crate::world::World;

/// The number of picks per path, and per cluster.
pub(super) const PICKS: u32 = 1_000;
/// Deviations with a probability below 2 e^-25 (1e-10) are not random.
const SURPRISE: f64 = 25.0;

/// Whether `hits` of `picks` deviate too far from this share: by Chernoff's bound, the logarithm of the probability is
/// at most the divergence of the two shares, negated, times the picks.
pub(super) fn is_too_unlikely(hits: u32, picks: u32, share: f64) -> bool {
    if picks == 0 {
        return false;
    }
    let (observed, picks) = (f64::from(hits) / f64::from(picks), f64::from(picks));
    let term = |of: f64, to: f64| if of == 0.0 { 0.0 } else { of * (of / to).ln() };
    picks * (term(observed, share) + term(1.0 - observed, 1.0 - share)) > SURPRISE
}

/// Checks every channel of a world at rest.
pub(crate) fn check(world: &mut World) -> Result<(), Violation> {
    let mut rng = Rng::new(world.rng.next_u64());
    let channels: Vec<_> = world.channels().map(|channel| (channel.index, channel.epoch)).collect();
    for (index, epoch) in channels {
        let Some(plane) = world.by_epoch(epoch).and_then(|channel| channel.plane.clone()) else { continue };
        for path in PATHS {
            check_route(world, index, &plane, path, &mut rng)?;
        }
        let Ok(routes) = &plane.routes else { continue };
        for cluster in routes.clusters() {
            check_cluster(world, &plane, (cluster.id(), cluster.name()), &mut rng)?;
        }
    }
    Ok(())
}

fn check_route(
    world: &World,
    channel: usize,
    plane: &DataPlane,
    path: &str,
    rng: &mut Rng,
) -> Result<(), Violation> {
    let Targets(targets) = Targets::of(&world.control_plane().mesh, world.backends(), channel, path);
    if targets.len() < 2 {
        return Ok(());
    }
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..PICKS {
        if let Ok(cluster) = calls::route(plane, None, path, rng) {
            *found.entry(cluster.name().to_string()).or_default() += 1;
        }
    }
    for (cluster, (share, _)) in &targets {
        let hits = found.get(cluster).copied().unwrap_or_default();
        Violation::unless(!is_too_unlikely(hits, PICKS, *share), "clusters get RPCs by weight", || {
            format!("{path}, {cluster}: {hits} of {PICKS}, its share is {share}: {found:?}")
        })?;
    }
    Ok(())
}

fn check_cluster(
    world: &mut World,
    plane: &DataPlane,
    (id, name): (ClusterId, &str),
    rng: &mut Rng,
) -> Result<(), Violation> {
    let mesh = &world.control_plane().mesh;
    let Some((leaf, Expected::Served { endpoints, all })) =
        expected::serving_leaf(mesh, world.backends(), name)
    else {
        return Ok(());
    };
    let policy = mesh.clusters.get(&leaf).map(|cluster| cluster.policy);
    if policy == Some(Policy::SmallSubset) {
        return check_subset(plane, id, &endpoints, rng);
    }
    if !all {
        return Ok(());
    }
    let in_turn =
        matches!(policy, Some(Policy::RoundRobin | Policy::Nested | Policy::Subset | Policy::PickFirst));
    let Some(found) = pick(plane, id, &endpoints, rng) else { return Ok(()) };
    let detail = || format!("{name}: {found:?} of {PICKS} for {endpoints:?}");
    let mut zones: BTreeMap<&str, (f64, Vec<u32>)> = BTreeMap::new();
    for (group, hits) in endpoints.iter().zip(&found) {
        let (share, all) = zones.entry(&group.zone).or_default();
        *share += group.share;
        all.push(*hits);
    }
    for (share, hits) in zones.values() {
        let unlikely = is_too_unlikely(hits.iter().sum(), PICKS, share.min(1.0));
        Violation::unless(!unlikely, "localities get RPCs by weight", detail)?;
        // Round robin is exact, even for few endpoints.
        let (least, most) = (hits.iter().min(), hits.iter().max());
        let even = most.zip(least).is_none_or(|(most, least)| most - least <= 1);
        Violation::unless(even || !in_turn, "endpoints of a locality get equal numbers of RPCs", detail)?;
    }
    Ok(())
}

/// A68-01: no more endpoints than the subset has are used.
fn check_subset(
    plane: &DataPlane,
    id: ClusterId,
    endpoints: &[Group],
    rng: &mut Rng,
) -> Result<(), Violation> {
    let Some(found) = pick(plane, id, endpoints, rng) else { return Ok(()) };
    let used = found.iter().filter(|&&hits| hits > 0).count();
    Violation::unless((1..=SMALL_SUBSET as usize).contains(&used), "a subset has its size", || {
        format!("{found:?} of {PICKS} for {endpoints:?}")
    })
}

/// The number of picks per group; `None` if some fail, which other checks cover.
fn pick(plane: &DataPlane, cluster: ClusterId, groups: &[Group], rng: &mut Rng) -> Option<Vec<u32>> {
    let mut found = vec![0; groups.len()];
    let place = |address: &SocketAddr| groups.iter().position(|group| group.addresses.contains(address));
    for _ in 0..PICKS {
        let attributes = CallAttributes { cluster, hash: rng.next_u64(), ..CallAttributes::default() };
        let PickResult::Complete(pick) = calls::ask(plane, "/", attributes, rng).0 else { return None };
        *found.get_mut(place(&pick.target.address)?)? += 1;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fair_draw_is_likely_and_a_wrong_weight_is_not() {
        assert!(!is_too_unlikely(500, 1_000, 0.5));
        assert!(!is_too_unlikely(450, 1_000, 0.5));
        assert!(is_too_unlikely(380, 1_000, 0.5), "as if 3 to 2 were 1 to 1");
        assert!(is_too_unlikely(500, 1_000, 2.0 / 3.0));
        assert!(!is_too_unlikely(0, 1_000, 1e-9));
        assert!(is_too_unlikely(30, 1_000, 1e-9));
        assert!(is_too_unlikely(999, 1_000, 1.0), "nothing else has a share");
        assert!(!is_too_unlikely(1_000, 1_000, 1.0));
    }
}
