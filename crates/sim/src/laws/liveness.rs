//! Recovery takes no longer than a bound that follows from the faults.
//!
//! A [`Bound`] sums up the longest time that each cause may take, from the state of the world and its mesh alone. After
//! that time every RPC must go where the mesh says. Worlds at rest are also disturbed once more in a known way
//! ([`drill`]), with the bound of that one cause.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::clients::channel::SimChannel;
use crate::clients::endpoints::{Backends, Behaviour};
use crate::laws::expected::{self, Expected, Targets, Walk};
use crate::laws::invariants::Violation;
use crate::laws::oracle;
use crate::script::config::{Assignment, ClusterKind, Mesh, Policy};
use crate::script::generate::{MAX_EJECTION_TIME, MAX_SWEEP_INTERVAL, PATHS};
use crate::script::{Action, Change, Loss};
use crate::world::{Outcome, World};

/// A56: a priority that has not connected by then is skipped.
const FAILOVER: Duration = Duration::from_secs(10);
/// The longest interval of DNS queries, also after a failed one.
const DNS: Duration = Duration::from_secs(25);
/// A request to the control plane and its response, including all delays on both sides.
const HOP: Duration = Duration::from_secs(1);
/// The longest delay of a response that was being prepared when the world became calm.
const SLOW_ANSWER: Duration = Duration::from_secs(4);
/// Covers broken connections, wake-ups of pickers and late drivers.
const REACTION: Duration = Duration::from_secs(2);
/// A61: the delay between the attempts to the addresses of one endpoint.
const STAGGER: Duration = Duration::from_millis(250);
/// The interval of test RPCs.
const STEP: Duration = Duration::from_millis(500);
/// The length of a control plane outage in a drill.
const OUTAGE: Duration = Duration::from_secs(20);

/// The longest time until every RPC goes where it must, by cause.
#[derive(Debug, Default)]
pub(crate) struct Bound(Vec<(&'static str, Duration)>);

impl Bound {
    /// The bound for a world that has just become calm.
    pub(crate) fn when_calm(world: &World) -> Self {
        let mut bound = Self::of_connections(world);
        let mesh = &world.control_plane().mesh;
        let channels = || world.channels().map(|channel| channel.index);
        let levels = |channel| {
            let routes = expected::routes(mesh, channel).into_iter().flatten();
            let roots = routes.flat_map(|route| &route.clusters);
            roots.map(|(name, _)| Walk::from(mesh, name).levels).max().unwrap_or_default()
        };
        // The listener, routes, endpoints, and the cluster and list of each level. Earlier requests of the client are
        // answered first.
        let hops = channels().map(|channel| 5 + 2 * levels(channel) as u32).max().unwrap_or_default();
        bound.0.push(("control plane", world.ads_bound()));
        bound.0.push(("answers", SLOW_ANSWER + HOP * hops));
        if channels().any(|channel| oracle::needed(mesh, channel).iter().any(|key| !mesh.has(key))) {
            bound.0.push(("resource timer", world.resource_timeout()));
        }
        if channels().any(|channel| uses_dns(mesh, channel)) {
            bound.0.push(("DNS", DNS));
        }
        if world.settings.outliers {
            bound.0.push(("ejections", MAX_EJECTION_TIME + MAX_SWEEP_INTERVAL * 2));
        }
        bound
    }

    /// The bound for a world in which only backends have changed.
    pub(crate) fn of_connections(world: &World) -> Self {
        let (mesh, backends) = (&world.control_plane().mesh, world.backends());
        let (mut failover, mut backoff) = (Duration::ZERO, Duration::ZERO);
        for channel in world.channels() {
            let routes = expected::routes(mesh, channel.index).into_iter().flatten();
            for (cluster, _) in routes.flat_map(|route| &route.clusters) {
                failover = failover.max(passed_over(mesh, backends, channel, cluster));
                backoff = backoff.max(connecting(mesh, backends, channel, cluster));
            }
        }
        Self(vec![("failover", failover), ("backoff and connecting", backoff), ("reaction", REACTION)])
    }

    /// The sum of all causes.
    pub(crate) fn total(&self) -> Duration {
        self.0.iter().map(|(_, time)| *time).sum()
    }
}

fn uses_dns(mesh: &Mesh, channel: usize) -> bool {
    let routes = expected::routes(mesh, channel).into_iter().flatten();
    let is_dns = |name: &String| {
        mesh.clusters.get(name).is_some_and(|cluster| matches!(cluster.kind, ClusterKind::Dns(_)))
    };
    routes.flat_map(|route| &route.clusters).any(|(name, _)| Walk::from(mesh, name).leaves.iter().any(is_dns))
}

/// A failover timer for every priority before the one that serves.
fn passed_over(mesh: &Mesh, backends: &Backends, channel: &SimChannel, cluster: &str) -> Duration {
    let leaves = Walk::from(mesh, cluster).leaves;
    let mut time = Duration::ZERO;
    for leaf in &leaves {
        time += FAILOVER * (priorities_tried(mesh, backends, leaf) as u32);
        if expected::expected_of_leaf(mesh, backends, leaf) != Expected::Failure {
            return time;
        }
    }
    // The last leaf is not skipped: its attempts end.
    time + leaves.iter().map(|leaf| all_attempts(mesh, channel, leaf)).max().unwrap_or_default()
}

/// The longest time until every endpoint of a leaf has failed.
fn all_attempts(mesh: &Mesh, channel: &SimChannel, leaf: &str) -> Duration {
    let longest = |addresses: &[SocketAddr]| {
        let attempts = addresses.iter().map(|&address| channel.connections.longest_attempt(address));
        attempts.max().unwrap_or_default()
    };
    let cluster = mesh.clusters.get(leaf);
    match cluster.map(|cluster| (&cluster.kind, cluster.policy)) {
        // A42: a ring connects to an endpoint when an RPC hashes to it, and to the next one when that has failed; the
        // ring of another locality gets RPCs when the previous ring has failed as a whole.
        Some((ClusterKind::Eds(eds), Policy::RingHash | Policy::LocalRings)) => {
            let endpoints = mesh.assignments.get(eds).into_iter().flat_map(Assignment::endpoints);
            endpoints
                .map(|endpoint| longest(&endpoint.addresses) + STAGGER * endpoint.addresses.len() as u32)
                .sum()
        }
        _ => longest(&mesh.addresses(leaf)),
    }
}

/// The number of priorities of a leaf that time out before one serves.
fn priorities_tried(mesh: &Mesh, backends: &Backends, leaf: &str) -> usize {
    let Some(ClusterKind::Eds(eds)) = mesh.clusters.get(leaf).map(|cluster| &cluster.kind) else { return 1 };
    let Some(assignment) = mesh.assignments.get(eds) else { return 1 };
    let priorities = expected::priorities(assignment);
    let serves = |endpoints: &Vec<&[SocketAddr]>| {
        endpoints.iter().any(|addresses| addresses.iter().any(|&address| backends.accepts(address)))
    };
    priorities.iter().position(serves).unwrap_or(priorities.len())
}

/// A serving endpoint may be in backoff, or an attempt that began before it answered may have to time out first. An
/// endpoint with several addresses may be busy with the others.
fn connecting(mesh: &Mesh, backends: &Backends, channel: &SimChannel, cluster: &str) -> Duration {
    let Some((leaf, Expected::Served { endpoints, .. })) = expected::serving_leaf(mesh, backends, cluster)
    else {
        return Duration::ZERO;
    };
    let one = |address: &SocketAddr| {
        let siblings = mesh.siblings(&leaf, *address);
        let others = siblings.iter().map(|sibling| channel.connections.longest_attempt(*sibling));
        // A ring without RPCs tries its endpoints one after the other.
        let ring = if is_ring(mesh, backends, cluster) {
            all_attempts(mesh, channel, &leaf)
        } else {
            Duration::ZERO
        };
        let wait = match backends.behaviour(*address) {
            Behaviour::Accepts(delay) => channel.connections.longest_wait(*address, delay),
            Behaviour::Refuses | Behaviour::Silent | Behaviour::HangsUp => Duration::ZERO,
        };
        wait + others.max().unwrap_or_default() + ring
    };
    endpoints.iter().flat_map(|group| &group.addresses).map(one).max().unwrap_or_default()
}

/// The expected destinations of every channel and path.
pub(crate) struct Plan {
    /// The mesh when the plan was made: the control plane may have a newer one that no client has seen.
    mesh: Mesh,
    paths: Vec<(usize, &'static str, Targets)>,
}

impl Plan {
    pub(crate) fn of(world: &World) -> Self {
        let (mesh, backends) = (&world.control_plane().mesh, world.backends());
        let channels = world.channels().map(|channel| channel.index);
        let paths = channels.flat_map(|channel| PATHS.map(|path| (channel, path)));
        let plan = paths.map(|(channel, path)| (channel, path, Targets::of(mesh, backends, channel, path)));
        Self { mesh: mesh.clone(), paths: plan.collect() }
    }

    /// Tries every path twice. Returns the last wrong outcome.
    pub(crate) fn attempt(&self, world: &mut World) -> Result<Option<String>, Violation> {
        let mut wrong = None;
        for (channel, path, Targets(targets)) in &self.paths {
            for _ in 0..2 {
                let (cluster, outcome) = world.probe(*channel, path)?;
                let cluster = cluster.map(|cluster| cluster.name().to_string());
                if !is_right(&self.mesh, world.backends(), targets, cluster.as_deref(), &outcome) {
                    let expected = cluster.as_ref().and_then(|cluster| targets.get(cluster));
                    wrong = Some(format!(
                        "channel {channel}, {path}, {cluster:?}: {outcome:?}, expected {expected:?}"
                    ));
                }
            }
        }
        Ok(wrong)
    }
}

fn is_right(
    mesh: &Mesh,
    backends: &Backends,
    targets: &BTreeMap<String, (f64, Expected)>,
    cluster: Option<&str>,
    outcome: &Outcome,
) -> bool {
    let Some(cluster) = cluster else {
        return targets.is_empty() && matches!(outcome, Outcome::Failed(_));
    };
    let Some((_, expected)) = targets.get(cluster) else { return false };
    match (outcome, expected) {
        // Other calls of the cluster are in flight.
        (Outcome::Dropped(why), _) if why.starts_with("circuit breaker") => true,
        // It is connected for short times, repeatedly.
        (Outcome::Reached(address), _) if backends.behaviour(*address) == Behaviour::HangsUp => true,
        (Outcome::Reached(address), Expected::Served { endpoints, .. }) => {
            endpoints.iter().any(|group| group.addresses.contains(address))
        }
        // A ring connects to an endpoint when an RPC hashes to it.
        // Failing over may take its time.
        (_, Expected::Unsure) => true,
        (Outcome::Waits, Expected::Served { .. }) if is_ring(mesh, backends, cluster) => true,
        (Outcome::Waits, _) => is_tempted_in(mesh, backends, cluster),
        (Outcome::Failed(_), Expected::Served { .. }) => expected::may_be_off_ring(mesh, backends, cluster),
        (Outcome::Failed(_), Expected::Failure) | (Outcome::Dropped(_), Expected::Drop) => true,
        _ => false,
    }
}

/// Whether a backend of a cluster hangs up. Each time that it becomes READY, the other endpoints of its priority are
/// tried again from the start.
pub(crate) fn is_tempted(world: &World, cluster: &str) -> bool {
    is_tempted_in(&world.control_plane().mesh, world.backends(), cluster)
}

fn is_tempted_in(mesh: &Mesh, backends: &Backends, cluster: &str) -> bool {
    let hangs_up = |address: &SocketAddr| backends.behaviour(*address) == Behaviour::HangsUp;
    Walk::from(mesh, cluster).leaves.iter().any(|leaf| mesh.addresses(leaf).iter().any(hangs_up))
}

fn is_ring(mesh: &Mesh, backends: &Backends, cluster: &str) -> bool {
    let leaf = expected::serving_leaf(mesh, backends, cluster).map(|(leaf, _)| leaf);
    let policy = leaf.and_then(|leaf| mesh.clusters.get(&leaf)).map(|cluster| cluster.policy);
    matches!(policy, Some(Policy::RingHash | Policy::LocalRings))
}

/// Runs a world until every RPC goes where it must.
fn converge(world: &mut World, bound: &Bound, rule: &'static str) -> Result<(), Violation> {
    let (plan, end) = (Plan::of(world), world.now() + bound.total());
    let mut right = 0;
    while right < 2 {
        match plan.attempt(world)? {
            None => right += 1,
            Some(wrong) => {
                right = 0;
                Violation::unless(world.now() <= end, rule, || format!("{wrong}, after {bound:?}"))?;
            }
        }
        world.run_for(STEP)?;
    }
    Ok(())
}

/// Disturbs a world at rest in one random way.
pub(crate) fn drill(world: &mut World) -> Result<(), Violation> {
    match world.rng.below(2) {
        0 => lose_backends(world),
        _ => lose_control_plane(world),
    }
}

/// The backends that serve a cluster are lost: the others serve in time. They recover: RPCs return to them in time.
fn lose_backends(world: &mut World) -> Result<(), Violation> {
    let mut served: Vec<Vec<SocketAddr>> = Vec::new();
    for (_, _, Targets(targets)) in Plan::of(world).paths {
        for (_, expected) in targets.into_values() {
            if let Expected::Served { endpoints, .. } = expected {
                served.push(endpoints.into_iter().flat_map(|group| group.addresses).collect());
            }
        }
    }
    let Some(lost) = choose(world, &served) else { return Ok(()) };
    let how = choose(world, &[Behaviour::Refuses, Behaviour::Silent, Behaviour::HangsUp]);
    let before: Vec<_> = lost.iter().map(|&address| (address, world.backends().behaviour(address))).collect();
    for &address in &lost {
        world.act(Action::Backend(address, how.unwrap_or(Behaviour::Refuses)))?;
    }
    let bound = Bound::of_connections(world);
    converge(world, &bound, "RPCs leave lost backends in time")?;
    for (address, behaviour) in before {
        world.act(Action::Backend(address, behaviour))?;
    }
    let bound = Bound::of_connections(world);
    come_to_rest(world, &bound, "RPCs return to recovered backends in time")
}

/// The control plane is unreachable, and has changed when it returns. Until then RPCs are served as before.
fn lose_control_plane(world: &mut World) -> Result<(), Violation> {
    let refusal = if world.rng.below(2) == 0 { Action::RefuseStreams } else { Action::NoAdsService };
    world.act(refusal)?;
    world.act(Action::CutStream(Loss::Everything))?;
    let plan = Plan::of(world);
    let end = world.now() + OUTAGE;
    let names: Vec<String> = world.control_plane().mesh.assignments.keys().cloned().collect();
    let changed = choose(world, &names).zip(choose(world, &names));
    if let Some((to, from)) = changed
        && let Some(assignment) = world.control_plane().mesh.assignments.get(&from).cloned()
    {
        world.act(Action::Set(Change::Assignment(to, assignment)))?;
    }
    while world.now() < end {
        if let Some(wrong) = plan.attempt(world)? {
            return Err(Violation::new("an unreachable control plane changes nothing", wrong));
        }
        world.run_for(STEP * 5)?;
    }
    world.act(Action::AcceptStreams)?;
    let bound = Bound::when_calm(world);
    come_to_rest(world, &bound, "changes arrive in time after a control plane outage")
}

/// The same, and lets the whole bound pass: not every cluster and change affects the RPCs that were tried.
fn come_to_rest(world: &mut World, bound: &Bound, rule: &'static str) -> Result<(), Violation> {
    let end = world.now() + bound.total();
    converge(world, bound, rule)?;
    world.run_for(end.since(world.now()))
}

fn choose<T: Clone>(world: &mut World, from: &[T]) -> Option<T> {
    if from.is_empty() {
        return None;
    }
    from.get(world.rng.below(from.len() as u64) as usize).cloned()
}
