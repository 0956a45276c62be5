//! The limit of streams on each connection (SETTINGS_MAX_CONCURRENT_STREAMS), and the calls that wait for one.
//!
//! A call whose connection has no free stream keeps its pick, which counts in the circuit breaker, but is not sent: no
//! load is counted. It gets a stream in order, or picks again when its connection takes no more calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::World;
use crate::clients::calls::{Calls, Flight, Held, Running};
use crate::laws::invariants::Violation;
use crate::laws::ledger::{self, Counted};
use crate::world::queue::Event;

/// The limits that servers have set, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct StreamLimits(BTreeMap<SocketAddr, usize>);

impl StreamLimits {
    /// Whether a connection has room for one more stream.
    pub(crate) fn has_room(&self, calls: &Calls, epoch: u64, attempt: u64, address: SocketAddr) -> bool {
        self.0.get(&address).is_none_or(|&limit| calls.on_connection(epoch, attempt).len() < limit)
    }
}

impl World {
    /// A server changes its limit of streams; `None` removes it.
    pub(super) fn limit_streams(&mut self, address: SocketAddr, limit: Option<u32>) {
        match limit {
            Some(limit) => self.stream_limits.0.insert(address, limit as usize),
            None => self.stream_limits.0.remove(&address),
        };
        self.serve_lines();
    }

    /// Removes all limits.
    pub(super) fn lift_stream_limits(&mut self) {
        self.stream_limits.0.clear();
        self.serve_lines();
    }

    fn serve_lines(&mut self) {
        for (_, epoch, attempt, address) in self.calls.held() {
            self.serve_line(epoch, attempt, address);
        }
    }

    /// Gives the free streams of a connection to the waiting calls, in order.
    pub(super) fn serve_line(&mut self, epoch: u64, attempt: u64, address: SocketAddr) {
        while self.stream_limits.has_room(&self.calls, epoch, attempt, address) {
            let mut line = self.calls.held().into_iter();
            let Some((id, ..)) = line.find(|(_, of, on, _)| (*of, *on) == (epoch, attempt)) else { return };
            self.gets_stream(id);
        }
    }

    fn gets_stream(&mut self, id: u64) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let epoch = call.epoch;
        let Some(Held { pick, attempt, address, loads, .. }) = call.held.take() else { return };
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

    /// A connection takes no more calls: those that wait for a stream of it pick again.
    pub(super) fn dissolve_line(&mut self, epoch: u64, attempt: u64) {
        for (id, of, on, _) in self.calls.held() {
            if (of, on) != (epoch, attempt) {
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

    /// No call waits for a stream of a connection that has room or is gone.
    pub(super) fn check_lines(&self) -> Result<(), Violation> {
        for (id, epoch, attempt, address) in self.calls.held() {
            let full = !self.stream_limits.has_room(&self.calls, epoch, attempt, address);
            let channel = self.channels.iter().flatten().find(|channel| channel.epoch == epoch);
            let there = channel.is_some_and(|channel| channel.connections.get(attempt).is_some());
            Violation::unless(full && there, "calls wait for a stream only while none is free", || {
                format!("call {id}, {address}, full: {full}, connected: {there}")
            })?;
        }
        Ok(())
    }
}
