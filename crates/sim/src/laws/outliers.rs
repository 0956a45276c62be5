//! Outlier detection (gRFC A50): the number and duration of ejections, and their effect on RPCs.
//!
//! The policy shows its ejections. They are also observed from outside: a connected endpoint of a priority in use that
//! gets no RPC is ejected. Both must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::PickResult;
use proxyless_mesh::cluster_claim::TableClaim;
use proxyless_sans_io::Time;
use proxyless_xds::resource::{EjectionSettings, EndpointHealth, LbPolicy};

use crate::clients::channel::SimChannel;
use crate::clients::endpoints::Phase;
use crate::laws::in_use::Leaf;
use crate::laws::invariants::Violation;
use crate::script::generate::{BACKENDS, MAX_EJECTION_TIME, MAX_SWEEP_INTERVAL, PATHS};
use crate::world::World;

/// This many picks find every endpoint, regardless of weights.
const PICKS: usize = 200;
const STORM_ROUNDS: u32 = 12;
const CALLS_PER_ROUND: u32 = 15;
const ROUND: Duration = Duration::from_secs(1);

/// The maximum number of concurrent ejections allowed so far, by channel and cluster. Ejections outlast the removal of
/// other endpoints and a lower limit.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    highest: BTreeMap<(u64, Arc<str>), usize>,
    /// Times that an ejected endpoint was observed.
    pub(crate) ejections: u64,
}

impl Limits {
    /// Records the limits of the configuration in use.
    pub(crate) fn note(&mut self, channel: &SimChannel) {
        let Some(config) = channel.core.xds_config() else { return };
        for name in config.clusters.keys() {
            let Some(leaf) = Leaf::of(channel, name) else { continue };
            let Some(detection) = &leaf.cluster.outlier_detection else { continue };
            let limit = self.highest.entry((channel.epoch, Arc::clone(name))).or_default();
            *limit = limit_of(detection, &leaf).max(*limit);
        }
    }
}

/// A50: the percentage is checked before each ejection; one endpoint may always be ejected.
fn limit_of(detection: &EjectionSettings, leaf: &Leaf<'_>) -> usize {
    let localities = leaf.assignment.priorities.iter().flatten();
    let total: usize = localities.map(|locality| locality.endpoints.len()).sum();
    (total * detection.max_ejection_percent as usize).div_ceil(100).max(1)
}

/// The observed state of a cluster.
struct Sight {
    /// The ejections that the policy shows, in any priority: the addresses of each endpoint, as text.
    shown: BTreeSet<String>,
    /// Connected endpoints of the priorities in use.
    connected: BTreeSet<SocketAddr>,
    limit: usize,
}

/// Whether the policy sends RPCs to every endpoint.
fn reaches_all(policy: &LbPolicy) -> bool {
    match policy {
        LbPolicy::WrrLocality(child) => matches!(**child, LbPolicy::RoundRobin) || reaches_all(child),
        _ => false,
    }
}

/// Observes a cluster; `None` if its state is unclear.
fn look(world: &mut World, epoch: u64, cluster: &TableClaim) -> Result<Option<Sight>, Violation> {
    let is_watched = |leaf: &Leaf<'_>| {
        let policy = leaf.cluster.lb_policy.as_ref();
        leaf.cluster.outlier_detection.is_some() && policy.is_some_and(reaches_all)
    };
    let Some(place) = world.channels().position(|channel| channel.epoch == epoch) else { return Ok(None) };
    let channel = world.channels().nth(place);
    if !channel.and_then(|channel| Leaf::of(channel, cluster.name())).is_some_and(|leaf| is_watched(&leaf)) {
        return Ok(None);
    }
    let mut reached = BTreeSet::new();
    for result in world.peek(epoch, cluster.id(), PICKS) {
        match result {
            PickResult::Complete(pick) => drop(reached.insert(pick.target.address)),
            PickResult::Fail(_) => {}
            // The state is unclear while it connects or drops.
            PickResult::Queue | PickResult::Drop(_) => return Ok(None),
        }
    }
    let channel = world.channels().nth(place);
    let leaf = channel.and_then(|channel| Leaf::of(channel, cluster.name()));
    let (Some(channel), Some(leaf)) = (channel, leaf) else { return Ok(None) };
    let Some(detection) = &leaf.cluster.outlier_detection else { return Ok(None) };
    let shown = shown(channel, cluster.name(), world.now())?;
    let mut sight = Sight { shown, connected: BTreeSet::new(), limit: limit_of(detection, &leaf) };
    for localities in &leaf.assignment.priorities {
        let endpoints = localities.iter().flat_map(|locality| &locality.endpoints);
        let mut in_use = false;
        for endpoint in endpoints.filter(|endpoint| endpoint.health != EndpointHealth::Draining) {
            in_use |= endpoint.addresses.iter().any(|address| reached.contains(address));
            // With several addresses, the one in use is unknown.
            let [address] = *endpoint.addresses else { continue };
            // A backend that hangs up is connected for a moment only.
            let stays = world.backends().accepts(address);
            if stays && channel.connections.phase_of(address) == Some(Phase::Ready) {
                sight.connected.insert(address);
                let ejected = sight.shown.contains(&address.to_string());
                Violation::unless(
                    ejected != reached.contains(&address),
                    "RPCs avoid ejected endpoints",
                    || format!("{cluster:?}: {address}, ejected: {ejected}, {reached:?} were reached"),
                )?;
            }
        }
        // Lower priorities are not in use, and may not even exist.
        if in_use {
            break;
        }
    }
    world.limits.ejections += sight.shown.len() as u64;
    Ok(Some(sight))
}

/// The ejections that the policy of a cluster shows.
fn shown(channel: &SimChannel, cluster: &str, now: Time) -> Result<BTreeSet<String>, Violation> {
    let tree = channel.core.describe(now);
    let clusters = tree.root.into_iter().flat_map(|root| root.children);
    let below = clusters.filter(|child| child.name == cluster).flat_map(|child| child.node.children);
    let mut ejected = BTreeSet::new();
    for detail in below.flat_map(|child| child.node.details).filter(|detail| detail.kind == "ejected") {
        let seconds = detail.fields.get("for_seconds").and_then(|value| value.as_f64()).unwrap_or(f64::MAX);
        // The shown values are rounded.
        let longest = (MAX_EJECTION_TIME + MAX_SWEEP_INTERVAL).as_secs_f64() + 0.1;
        Violation::unless(seconds <= longest, "every ejection ends", || {
            format!("{cluster}: {} is ejected for {seconds} s", detail.subject)
        })?;
        ejected.insert(detail.subject);
    }
    Ok(ejected)
}

fn routed(world: &World) -> Vec<(u64, Arc<TableClaim>)> {
    let mut all = Vec::new();
    for channel in world.channels() {
        let routes = channel.plane.as_ref().and_then(|plane| plane.routes.as_ref().ok());
        let clusters = routes.into_iter().flat_map(|routes| routes.clusters());
        all.extend(clusters.map(|cluster| (channel.epoch, Arc::clone(cluster))));
    }
    all
}

/// At any time: the number of ejections does not exceed the largest limit so far.
pub(crate) fn check_limits(world: &mut World) -> Result<(), Violation> {
    for (epoch, cluster) in routed(world) {
        let Some(sight) = look(world, epoch, &cluster)? else { continue };
        let limit =
            world.limits.highest.get(&(epoch, Arc::clone(cluster.name()))).copied().unwrap_or_default();
        Violation::unless(sight.shown.len() <= limit, "ejections stay below their limit", || {
            format!("{cluster:?}: {:?} with a limit of {limit}", sight.shown)
        })?;
    }
    Ok(())
}

/// In a world at rest, backends begin to fail and recover: checks the number and duration of ejections, and that
/// ejected endpoints stay connected.
pub(crate) fn storm(world: &mut World) -> Result<(), Violation> {
    let mut before = BTreeMap::new();
    for (epoch, cluster) in routed(world) {
        if let Some(sight) = look(world, epoch, &cluster)? {
            // The calm phase lasted longer than any ejection.
            are_back(&cluster, &sight)?;
            before.insert((epoch, cluster.id()), sight.connected);
        }
    }
    if before.is_empty() {
        return Ok(());
    }
    for n in 1..=BACKENDS {
        let percent = [0, 0, 30, 60, 100][world.rng.below(5) as usize];
        world.backends.set_failing(crate::script::config::backend(n), percent);
    }
    for _ in 0..STORM_ROUNDS {
        calls(world, CALLS_PER_ROUND)?;
        world.run_for(ROUND)?;
        for (epoch, cluster) in routed(world) {
            let Some(sight) = look(world, epoch, &cluster)? else { continue };
            Violation::unless(sight.shown.len() <= sight.limit, "ejections stay below their limit", || {
                format!("{cluster:?}: {:?} with a limit of {}", sight.shown, sight.limit)
            })?;
            // A61: ejection affects health only. Connections stay.
            let lost = before.get(&(epoch, cluster.id())).map(|before| before - &sight.connected);
            let lost = lost.unwrap_or_default();
            Violation::unless(lost.is_empty(), "ejection does not disconnect", || {
                format!("{cluster:?}: {lost:?}")
            })?;
        }
    }
    world.backends.stop_failing();
    // The sweep that ejects for the last failures, the ejection, and the first sweep after it.
    world.run_for(MAX_EJECTION_TIME + MAX_SWEEP_INTERVAL * 2 + ROUND)?;
    // RPCs that failed over have to return.
    calls(world, 1)?;
    for (epoch, cluster) in routed(world) {
        if let Some(sight) = look(world, epoch, &cluster)? {
            are_back(&cluster, &sight)?;
        }
    }
    Ok(())
}

fn are_back(cluster: &TableClaim, sight: &Sight) -> Result<(), Violation> {
    Violation::unless(sight.shown.is_empty(), "every ejection ends", || {
        format!("{cluster:?}: {:?}", sight.shown)
    })
}

fn calls(world: &mut World, count: u32) -> Result<(), Violation> {
    let channels: Vec<usize> = world.channels().map(|channel| channel.index).collect();
    for channel in channels {
        for path in PATHS {
            for _ in 0..count {
                world.probe(channel, path)?;
            }
        }
    }
    Ok(())
}
