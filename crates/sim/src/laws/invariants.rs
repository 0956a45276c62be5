//! The rules that hold after every event.

use std::collections::BTreeSet;
use std::time::Duration;

use proxyless_balancer::api::ConnectivityState;
use proxyless_balancer::tree::TreeStats;

use crate::clients::channel::SimChannel;
use crate::clients::endpoints::Phase;
use crate::clients::sessions;
use crate::laws::in_use;
use crate::world::World;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {detail}")]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// The details.
    pub detail: String,
}

impl Violation {
    /// A violation of this rule.
    pub fn new(rule: &'static str, detail: impl Into<String>) -> Self {
        Self { rule, detail: detail.into() }
    }

    /// An error unless `holds`.
    pub(crate) fn unless(
        holds: bool,
        rule: &'static str,
        detail: impl FnOnce() -> String,
    ) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(rule, detail())) }
    }
}

/// Covers late timers, messages and drivers.
const SLACK: Duration = Duration::from_secs(2);

/// Checks the rules after an event.
pub(crate) fn after_event(world: &World) -> Result<(), Violation> {
    for channel in world.channels() {
        connections_are_wanted(channel)?;
        keeps_trying(channel)?;
        calls_have_prospects(world, channel)?;
        sessions::check_waiting(world, channel)?;
    }
    Ok(())
}

/// A call waits only for a pending event that may end its wait, and that arrives in time.
fn calls_have_prospects(world: &World, channel: &SimChannel) -> Result<(), Violation> {
    let waiting = world.calls().waiting_for_news(channel.epoch).filter(|(_, call)| !call.out_of_luck);
    let Some(since) = waiting.map(|(_, call)| call.waits_since).min() else { return Ok(()) };
    let since = since.max(channel.heard).max(channel.resumed);
    let (since, patience) = match channel.waits_for_data() {
        true => (since.max(world.ads_heard()), world.data_patience()),
        false => (since, channel.connections.longest_dialing() + SLACK),
    };
    let in_time = has_prospects(channel) && world.now().since(since) <= patience;
    Violation::unless(
        in_time || world.is_to_hear(channel.epoch),
        "calls wait only for pending events",
        || format!("channel {}: nothing since {since:?}, for more than {patience:?}", channel.index),
    )
}

pub(crate) fn has_prospects(channel: &SimChannel) -> bool {
    channel.core.next_deadline().is_some()
        || channel.connections.count(Phase::Dialing) > 0
        || channel.waits_for_data()
}

/// The pool knows every connection that there is.
fn connections_are_wanted(channel: &SimChannel) -> Result<(), Violation> {
    let unwanted = channel.connections.count(Phase::Unwanted);
    Violation::unless(unwanted == 0, "unwanted connections are closed", || format!("{unwanted} are open"))?;
    let live: BTreeSet<_> = channel.connections.iter().map(|(_, found)| found.id).collect();
    let (stats, live) = (channel.core.stats(), live.len());
    Violation::unless(live <= stats.subchannels, "the pool has every connection", || {
        format!("{live}, {stats:?}")
    })
}

/// A channel that is not READY and has endpoints waits for a pending event.
fn keeps_trying(channel: &SimChannel) -> Result<(), Violation> {
    let state = channel.plane.as_ref().map(|plane| plane.state);
    let troubled = matches!(state, Some(ConnectivityState::Connecting | ConnectivityState::TransientFailure));
    let stats = channel.core.stats();
    if !troubled || stats.owners == 0 {
        return Ok(());
    }
    Violation::unless(has_prospects(channel), "a channel in trouble keeps trying", || {
        format!("{state:?}, {stats:?}, no deadline")
    })
}

/// Checks a world at rest.
pub(crate) fn at_rest(world: &World) -> Result<(), Violation> {
    world.model().at_rest(&world.watched())?;
    for channel in world.channels() {
        if world.calls().is_empty() {
            in_use::check_no_flights(channel, &world.circuits)?;
        }
        let allowed = channel.addresses();
        let ready = channel.connections.iter().filter(|(_, found)| found.phase == Phase::Ready);
        let ready: BTreeSet<_> = ready.map(|(_, found)| found.address).collect();
        Violation::unless(ready.is_subset(&allowed), "connections are to configured endpoints", || {
            format!("{ready:?} are connected, {allowed:?} are configured")
        })?;
    }
    Ok(())
}

/// Checks a channel after its shutdown.
pub(crate) fn after_shutdown(channel: &SimChannel) -> Result<(), Violation> {
    has_nothing(channel)?;
    Violation::unless(channel.core.is_drained(), "a closed channel is drained", String::new)
}

/// Checks a channel that went IDLE.
pub(crate) fn after_idle(channel: &SimChannel) -> Result<(), Violation> {
    has_nothing(channel)?;
    let loads = channel.loads.len();
    Violation::unless(loads == 0, "an IDLE channel reports no load", || format!("{loads} stores are left"))?;
    Violation::unless(channel.core.is_idle(), "a channel that goes IDLE is idle", String::new)
}

fn has_nothing(channel: &SimChannel) -> Result<(), Violation> {
    let (watches, queries) = (channel.watches.len(), channel.resolver.under_way());
    Violation::unless(watches == 0, "no watch outlives its channel", || format!("{watches} are left"))?;
    Violation::unless(queries == 0, "no DNS query outlives its channel", || format!("{queries} are left"))?;
    let live: Vec<_> = channel.connections.iter().collect();
    Violation::unless(live.is_empty(), "no connection outlives its channel", || format!("{live:?}"))?;
    let (stats, deadline) = (channel.core.stats(), channel.core.next_deadline());
    Violation::unless(stats == TreeStats::default(), "nothing outlives its channel", || {
        format!("{stats:?}")
    })?;
    Violation::unless(deadline.is_none(), "no timer outlives its channel", || format!("{deadline:?}"))
}
