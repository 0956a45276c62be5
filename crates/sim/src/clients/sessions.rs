//! Sessions: their cookies, and the rule that they stay with their host as long as possible.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{ActualHost, PickResult, PolicyView};
use proxyless_mesh::cluster_claim::RpcClaim;
use proxyless_mesh::xds_config::ClusterConfig;
use proxyless_sans_io::Time;

use crate::clients::calls::Picked;
use crate::clients::channel::SimChannel;
use crate::clients::endpoints::{Behaviour, Phase};
use crate::laws::in_use::Leaf;
use crate::laws::invariants::{Violation, has_prospects};
use crate::script::generate::MAX_IDLE_TIMEOUT;
use crate::world::{Cookie, Outcome, Request, World};

/// RPCs that may go elsewhere while a host is in backoff.
const ROUNDS: u32 = 60;
/// The longest wait of an RPC of a session if every attempt is answered.
const WAIT: Duration = Duration::from_secs(30);
const BACKOFF: Duration = Duration::from_secs(8);
const CONNECTING: Duration = Duration::from_millis(500);
/// A75-40: the minimum interval of two sweeps; one second, because the last use is recorded to the second; the time
/// that connections without an owner linger; and a margin.
const SWEPT: Duration = Duration::from_secs(5 + 1 + 5 + 1);

type Key = (usize, u8, String);

/// The cookies of all sessions, by channel, session and cluster: an RPC that is routed to a different cluster does not
/// take its cookie there (gRFC A60).
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    cookies: BTreeMap<Key, Arc<[SocketAddr]>>,
    /// RPCs that went to the host in their cookie.
    pub(crate) kept: u64,
}

impl Sessions {
    pub(crate) fn cookie(&self, channel: usize, session: u8, cluster: &str) -> Arc<[SocketAddr]> {
        self.cookies.get(&(channel, session, cluster.to_owned())).cloned().unwrap_or_default()
    }

    /// The hosts of a session, one per cluster.
    pub(crate) fn hosts(&self, channel: usize, session: u8) -> Vec<SocketAddr> {
        let of_session = |(of, _): &(&Key, &Arc<[SocketAddr]>)| (of.0, of.1) == (channel, session);
        self.cookies.iter().filter(of_session).filter_map(|(_, cookie)| cookie.first().copied()).collect()
    }

    pub(crate) fn set(&mut self, channel: usize, session: u8, cluster: &str, actual: &ActualHost) {
        let key = (channel, session, cluster.to_owned());
        let addresses = actual.address_list().collect();
        let old = self.cookies.insert(key, addresses);
        self.kept += u64::from(old.is_some_and(|old| old.contains(&actual.address)));
    }
}

/// The addresses of a cookie that may serve, and those that the channel is connected to.
struct Hosts {
    usable: Vec<SocketAddr>,
    ready: Vec<SocketAddr>,
}

impl Hosts {
    fn of(channel: &SimChannel, cluster: &str, cookie: &[SocketAddr]) -> Option<Self> {
        let leaf = Leaf::of(channel, cluster)?;
        let usable: Vec<_> =
            cookie.iter().copied().filter(|&address| leaf.serves_sessions(address)).collect();
        let is_ready = |address: &SocketAddr| channel.connections.phase_of(*address) == Some(Phase::Ready);
        let ready = usable.iter().copied().filter(is_ready).collect();
        Some(Self { usable, ready })
    }
}

/// A75-44, A75-47: an RPC whose host is READY and may serve goes there or waits for it.
pub(crate) fn check_pick(
    channel: &SimChannel,
    cluster: &str,
    cookie: &[SocketAddr],
    picked: &Picked,
) -> Result<(), Violation> {
    let Some(Hosts { ready, .. }) = Hosts::of(channel, cluster, cookie) else { return Ok(()) };
    let fine = match picked {
        _ if ready.is_empty() => true,
        Picked::Started { address, .. } | Picked::Held { address, .. } => ready.contains(address),
        Picked::Fails(_) => false,
        Picked::Waits | Picked::Dropped(_) => true,
    };
    Violation::unless(fine, "a session never leaves a usable host", || {
        format!("{cluster}: the cookie has {cookie:?}, {ready:?} are READY: {picked:?}")
    })
}

/// The wait of a call while its cluster does not change.
#[derive(Debug)]
pub(crate) struct Wait {
    since: Time,
    config: Arc<ClusterConfig>,
}

/// The policy has a subchannel for a host this long after an RPC requested it, even if drivers are late.
const HEARD: Duration = Duration::from_secs(1);

/// A75-52: when every host of a session has failed since its call began to wait, the call goes to any other endpoint.
pub(crate) fn check_wait(world: &mut World, id: u64) -> Result<(), Violation> {
    let now = world.now();
    let Some(call) = world.calls.get_mut(id) else { return Ok(()) };
    let (Some(cookie), Some(cluster)) = (call.cookie.clone(), call.cluster.clone()) else { return Ok(()) };
    let (epoch, before) = (call.epoch, call.wait.take());
    let Some(channel) = world.channels().find(|channel| channel.epoch == epoch) else { return Ok(()) };
    let config = channel.core.xds_config().and_then(|xds| xds.clusters.get(cluster.name())?.as_ref().ok());
    let Some(config) = config.map(Arc::clone) else { return Ok(()) };
    let wait =
        before.filter(|wait| Arc::ptr_eq(&wait.config, &config)).unwrap_or(Wait { since: now, config });
    let hosts = Hosts::of(channel, cluster.name(), &cookie).map(|hosts| hosts.usable).unwrap_or_default();
    let since = wait.since.max(channel.resumed);
    // The next host is requested after the last one has failed.
    let mut heard = Some(since);
    for host in &hosts {
        heard = heard.and_then(|heard| channel.failed.get(host).copied().filter(|&at| at > heard + HEARD));
    }
    let all_failed = !hosts.is_empty() && heard.is_some();
    // In a ring it depends on the hash of the RPC whether an endpoint serves it.
    let others = if all_failed { world.peek(epoch, cluster.id(), 20) } else { Vec::new() };
    let serves = !others.is_empty() && others.into_iter().all(|result| completes(vec![result]));
    Violation::unless(!serves, "no RPC waits while an endpoint is available", || {
        format!("call {id} of {cluster:?} waits since {:?}: {hosts:?} have failed, others serve", wait.since)
    })?;
    if let Some(call) = world.calls.get_mut(id) {
        call.wait = Some(wait);
    }
    Ok(())
}

/// Whether a pick leads to a connection.
pub(crate) fn completes(results: Vec<PickResult>) -> bool {
    results
        .iter()
        .any(|result| matches!(result, PickResult::Complete(pick) if pick.target.slot.is_connected()))
}

/// A call of a session waits only for a pending event: for its host, or for the child policy.
pub(crate) fn check_waiting(world: &World, channel: &SimChannel) -> Result<(), Violation> {
    for (id, call) in world.calls().waiting_for_news(channel.epoch) {
        let (Some(cookie), Some(cluster)) = (&call.cookie, &call.cluster) else { continue };
        let Some(Hosts { usable, ready }) = Hosts::of(channel, cluster.name(), cookie) else {
            continue;
        };
        if call.out_of_luck || usable.is_empty() || world.is_to_hear(channel.epoch) {
            continue;
        }
        let is_dialed = |address: &SocketAddr| channel.connections.phase_of(*address) == Some(Phase::Dialing);
        // A75-49: a connection of a different cluster does not count for this one.
        let fine = usable.iter().any(is_dialed) || (ready.is_empty() && has_prospects(channel));
        Violation::unless(fine, "sessions wait only for pending events", || {
            format!("call {id} of {cluster:?}: {usable:?} may serve, {ready:?} are READY")
        })?;
    }
    Ok(())
}

/// At rest, every session reaches its host if that accepts connections, and stays there.
pub(crate) fn check(world: &mut World) -> Result<(), Violation> {
    let cookies: Vec<_> =
        world.sessions.cookies.iter().map(|(key, cookie)| (key.clone(), Arc::clone(cookie))).collect();
    for ((index, _, cluster), cookie) in cookies {
        let (mut elsewhere, mut since, mut waiting) = (0, world.now(), None);
        while let Some(usable) = within_reach(world, index, &cluster, &cookie) {
            let Some(routed) = routed(world, index, &cluster) else { break };
            // A75-50, A75-52: this is one RPC until it is served. It proceeds to the next host of its cookie when the
            // attempt to the previous one has failed, whereas a new RPC would wait for the next attempt to a silent
            // host.
            let request = Request {
                path: "/",
                cluster: Some(routed),
                cookie: Some(Cookie::Of(&cookie)),
                waiting: waiting.take(),
            };
            let probe = world.probe_with(index, request)?;
            let (in_time, pause) = match &probe.outcome {
                Outcome::Dropped(_) => break,
                Outcome::Reached(address) if usable.contains(address) => break,
                // A subchannel that is connecting must be used before it is idle again.
                Outcome::Waits => (world.now() <= since + longest_wait(world, index, &cluster), CONNECTING),
                Outcome::Reached(_) | Outcome::Failed(_) => {
                    elsewhere += 1;
                    since = world.now() + BACKOFF;
                    (elsewhere <= ROUNDS, BACKOFF)
                }
            };
            Violation::unless(in_time, "sessions return to their host", || {
                format!("channel {index}, {cluster}: {usable:?} accept, but {:?}", probe.outcome)
            })?;
            waiting = probe.waiting.filter(|_| probe.outcome == Outcome::Waits);
            world.run_for(pause)?;
        }
    }
    Ok(())
}

/// The longest wait of an RPC of a session: for attempts to its hosts and to those that the child policy tries, which
/// last as long as their backoff if they time out. It waits for each of them once.
fn longest_wait(world: &World, index: usize, cluster: &str) -> Duration {
    let Some(channel) = world.channel(index) else { return WAIT };
    let Some(leaf) = Leaf::of(channel, cluster) else { return WAIT };
    let endpoints = leaf.assignment.priorities.iter().flatten().flat_map(|locality| &locality.endpoints);
    let addresses = endpoints.flat_map(|endpoint| endpoint.addresses.iter().copied());
    let silent = addresses.filter(|address| world.backends().behaviour(*address) == Behaviour::Silent);
    WAIT + silent.map(|address| channel.connections.longest_attempt(address)).sum::<Duration>()
}

/// The addresses of a cookie that may serve and accept connections, unless one of them takes so long to connect that it
/// is dropped as idle before (A75-25).
fn within_reach(
    world: &World,
    index: usize,
    cluster: &str,
    cookie: &[SocketAddr],
) -> Option<Vec<SocketAddr>> {
    let channel = world.channel(index)?;
    let idle_timeout = Leaf::of(channel, cluster)?.cluster.idle_timeout;
    let mut usable = Hosts::of(channel, cluster, cookie)?.usable;
    usable.retain(|&address| world.backends().accepts(address));
    let is_slow = |address: &SocketAddr| match world.backends().behaviour(*address) {
        Behaviour::Accepts(delay) => delay + Duration::from_secs(1) > idle_timeout,
        Behaviour::Refuses | Behaviour::Silent | Behaviour::HangsUp => true,
    };
    (!usable.is_empty() && !usable.iter().any(is_slow)).then_some(usable)
}

fn routed(world: &World, index: usize, cluster: &str) -> Option<RpcClaim> {
    let routes = world.channel(index)?.plane.as_ref()?.routes.as_ref().ok()?;
    routes.clusters().iter().find(|routed| **routed.name() == *cluster).map(|routed| routed.hold())
}

/// A75-25: sessions leave no state after the idle timeout: nothing else connects to draining endpoints.
pub(crate) fn check_idle(world: &mut World) -> Result<(), Violation> {
    world.run_for(MAX_IDLE_TIMEOUT + SWEPT)?;
    for channel in world.channels() {
        let others = channel.addresses_not_draining();
        let kept = channel.connections.iter().map(|(_, found)| found.address);
        let kept: Vec<_> = kept.filter(|address| !others.contains(address)).collect();
        Violation::unless(kept.is_empty(), "no session state outlives the idle timeout", || {
            format!("channel {}: {kept:?}", channel.index)
        })?;
        let shown = channel.core.describe(world.now()).root.map_or(0, |root| kept_below(&root));
        Violation::unless(shown == 0, "no session state outlives the idle timeout", || {
            format!("channel {}: {shown} subchannels", channel.index)
        })?;
    }
    Ok(())
}

/// The number of subchannels that the policies below a node keep for sessions only.
fn kept_below(node: &PolicyView) -> u64 {
    let own = node.counters.get("kept_for_sessions").copied().unwrap_or_default();
    own + node.children.iter().map(|child| kept_below(&child.node)).sum::<u64>()
}
