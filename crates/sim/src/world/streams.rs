//! The limit of streams on each connection (SETTINGS_MAX_CONCURRENT_STREAMS), and the calls that wait for one.
//!
//! A call whose subchannel has no free stream keeps its pick, which counts in the circuit breaker, but is not sent: no
//! load is counted. It gets a stream of any of the subchannel's connections in order, or picks again when none of them
//! takes calls. The tree is told how many calls wait (gRFC A105).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use proxyless_balancer::tree::SubchannelId;
use proxyless_sans_io::Time;

use super::World;
use crate::clients::calls::{Calls, Flight, Held, Running};
use crate::laws::invariants::Violation;
use crate::laws::ledger::{self, Counted};
use crate::world::queue::Event;

/// The limits that servers have set, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct StreamLimits {
    limits: BTreeMap<SocketAddr, usize>,
    /// Since when calls wait for a stream of a subchannel that could have another connection.
    starving: BTreeMap<(u64, SubchannelId), Time>,
}

/// The time in which the tree must attempt another connection for calls that wait. A driver may be late, and a
/// subchannel without owners lingers for five seconds.
const PATIENCE: Duration = Duration::from_secs(10);

impl StreamLimits {
    /// Whether a connection has room for one more stream.
    pub(crate) fn has_room(&self, calls: &Calls, epoch: u64, attempt: u64, address: SocketAddr) -> bool {
        self.limits.get(&address).is_none_or(|&limit| calls.on_connection(epoch, attempt).len() < limit)
    }
}

impl World {
    /// A server changes its limit of streams; `None` removes it.
    pub(super) fn limit_streams(&mut self, address: SocketAddr, limit: Option<u32>) {
        match limit {
            Some(limit) => self.stream_limits.limits.insert(address, limit as usize),
            None => self.stream_limits.limits.remove(&address),
        };
        self.serve_lines();
    }

    /// Removes all limits.
    pub(super) fn lift_stream_limits(&mut self) {
        self.stream_limits.limits.clear();
        self.serve_lines();
    }

    fn serve_lines(&mut self) {
        for (_, epoch, subchannel, address) in self.calls.held() {
            self.serve_line(epoch, subchannel, address);
        }
    }

    /// A call has ended on a connection.
    pub(super) fn stream_ends(&mut self, epoch: u64, attempt: u64) {
        let found = self.by_epoch(epoch).and_then(|channel| channel.connections.get(attempt));
        if let Some((subchannel, address)) = found.map(|found| (found.id, found.address)) {
            self.serve_line(epoch, subchannel, address);
        }
    }

    /// Gives the free streams of a subchannel to the waiting calls, in order.
    pub(super) fn serve_line(&mut self, epoch: u64, subchannel: SubchannelId, address: SocketAddr) {
        while let Some(attempt) = self.free_connection(epoch, subchannel, address) {
            let mut line = self.calls.held().into_iter();
            let first = line.find(|(_, of, on, _)| (*of, *on) == (epoch, subchannel));
            let Some((id, ..)) = first else { return };
            self.gets_stream(id, attempt);
        }
    }

    /// The oldest connection of a subchannel that has a free stream.
    fn free_connection(&self, epoch: u64, subchannel: SubchannelId, address: SocketAddr) -> Option<u64> {
        let channel = self.channels.iter().flatten().find(|channel| channel.epoch == epoch)?;
        let mut open = channel.connections.open(subchannel);
        open.find(|&attempt| self.stream_limits.has_room(&self.calls, epoch, attempt, address))
    }

    fn gets_stream(&mut self, id: u64, attempt: u64) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let epoch = call.epoch;
        let Some(Held { pick, address, loads, .. }) = call.held.take() else { return };
        self.log.line(self.now, format_args!("call {id}: gets a stream to {address}"));
        let before = ledger::views(&loads);
        let mut flight = Flight::start(pick);
        for counted in ledger::changes(&loads, &before) {
            if let Counted::Issued(place) = counted {
                flight.count_in(place, &mut self.calls.ledger);
            }
        }
        if let Some(channel) = self.by_epoch(epoch) {
            channel.connections.used(attempt);
        }
        if let Some(call) = self.calls.get_mut(id) {
            call.running = Some(Running { flight, attempt, address });
            call.sent += 1;
        }
        self.runs(id);
    }

    /// A connection of a subchannel takes no more calls: those that wait for a stream pick again, unless it has another
    /// one (A105-13).
    pub(super) fn dissolve_line(&mut self, epoch: u64, subchannel: SubchannelId) {
        let others = self.by_epoch(epoch).is_some_and(|c| c.connections.open(subchannel).next().is_some());
        for (id, of, on, address) in self.calls.held() {
            if (of, on) != (epoch, subchannel) {
                continue;
            }
            if others {
                self.serve_line(epoch, subchannel, address);
                continue;
            }
            if let Some(call) = self.calls.get_mut(id) {
                call.held = None;
                call.woken = true;
            }
            let at = self.now + self.local_delay();
            self.queue.push(at, Event::CallWakes(id));
        }
    }

    /// Tells the trees how many calls wait for a stream of each subchannel.
    pub(super) fn report_demand(&self) {
        if self.channels().all(|channel| channel.demands.is_empty()) {
            return;
        }
        let held = self.calls.held();
        for channel in self.channels() {
            for (subchannel, demand) in &channel.demands {
                let waits = |(_, of, on, _): &&(_, _, _, _)| (*of, *on) == (channel.epoch, *subchannel);
                demand.set_queued(held.iter().filter(waits).count());
            }
        }
    }

    /// No call waits for a stream of a subchannel that has a free one or no connection.
    pub(super) fn check_lines(&mut self) -> Result<(), Violation> {
        let held = self.calls.held();
        for &(id, epoch, subchannel, address) in &held {
            let full = self.free_connection(epoch, subchannel, address).is_none();
            let channel = self.channels.iter().flatten().find(|channel| channel.epoch == epoch);
            let there = channel.is_some_and(|channel| channel.connections.is_connected(subchannel));
            Violation::unless(full && there, "calls wait for a stream only while none is free", || {
                format!("call {id}, {address}, full: {full}, connected: {there}")
            })?;
        }
        self.check_starving(&held)
    }

    /// A105-07: while calls wait for a stream of a subchannel that may have another connection, one is attempted.
    fn check_starving(&mut self, held: &[(u64, u64, SubchannelId, SocketAddr)]) -> Result<(), Violation> {
        let now = self.now;
        let starves = |&&(_, epoch, subchannel, address): &&(u64, u64, SubchannelId, SocketAddr)| {
            let channel = self.channels.iter().flatten().find(|channel| channel.epoch == epoch);
            channel.is_some_and(|channel| {
                channel.demands.contains_key(&subchannel)
                    && !self.slow.is_stalled(epoch)
                    && channel.resumed + PATIENCE <= now
                    && !channel.connections.is_troubled(subchannel, address)
                    && channel.core.subchannels().iter().any(|node| {
                        node.subchannel == subchannel
                            && node.connections.len() < node.max_connections as usize
                    })
            })
        };
        let starving: Vec<_> =
            held.iter().filter(starves).map(|(_, epoch, subchannel, _)| (*epoch, *subchannel)).collect();
        let since = &mut self.stream_limits.starving;
        since.retain(|key, _| starving.contains(key));
        for key in starving {
            let since = *since.entry(key).or_insert(now);
            Violation::unless(
                now.since(since) <= PATIENCE,
                "another connection is attempted while calls wait for a stream",
                || format!("{key:?} since {since:?}"),
            )?;
        }
        Ok(())
    }
}
