//! Future events, in order of time.

use std::collections::BTreeMap;

use bytes::Bytes;
use proxyless_mesh::channel_core::ChannelInput;
use proxyless_mesh::dns::QueryId;
use proxyless_sans_io::Time;
use proxyless_xds::StreamId;
use proxyless_xds::client::{Input, ReadToken};
use proxyless_xds::lrs;
use proxyless_xds::resource::ResourceType;

use crate::clients::endpoints::Happening;

/// An event. Channels are identified by their epoch: each start has its own.
#[derive(Debug)]
pub(crate) enum Event {
    /// A step of the script.
    Step(usize),
    /// An input of the xDS client.
    Xds(Input),
    /// An input of a channel; afterwards the token is released.
    Channel { epoch: u64, input: ChannelInput, token: Option<ReadToken> },
    /// A channel's driver resumes.
    Resume { epoch: u64 },
    /// A request arrives at the management server.
    Request { stream: u64, bytes: Bytes },
    /// The management server has a response ready.
    Push { stream: u64, resource_type: ResourceType },
    /// A response arrives at the client, to be read.
    Arrive { stream: u64, bytes: Bytes },
    /// The client has read a message.
    Message { stream: u64, bytes: Bytes },
    /// The resolver has an answer.
    Resolve { epoch: u64, query: QueryId },
    /// An event of a connection.
    Connection { epoch: u64, attempt: u64, happening: Happening },
    /// An input of the LRS core.
    Load(lrs::Input),
    /// A response of the load reporting server arrives at the client, to be read.
    LoadRequest { stream: StreamId, bytes: Bytes },
    /// A call ends, in its `run`-th attempt.
    CallEnds { id: u64, run: u32 },
    /// A woken call sees the latest snapshot.
    CallWakes(u64),
    /// The injected delay of a call ends.
    FaultEnds(u64),
    /// The deadline of a call.
    CallTimesOut(u64),
}

/// A sequence of events that cannot overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    ToXds(u64),
    ToChannel(u64),
    ToServer(u64),
    ToClient(u64),
    Stream(u64),
    Connection(u64, u64),
    ToLoads(u64),
    LoadsToClient(u64),
    LoadStream(u64),
}

/// Future events.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    events: BTreeMap<(Time, u64), Event>,
    lanes: BTreeMap<Lane, Time>,
    pushed: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Time, event: Event) {
        self.pushed += 1;
        self.events.insert((at, self.pushed), event);
    }

    /// Adds an event after those of its lane.
    pub(crate) fn push_in(&mut self, lane: Lane, at: Time, event: Event) {
        let last = self.lanes.entry(lane).or_default();
        *last = at.max(*last);
        let at = *last;
        self.push(at, event);
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.events.pop_first().map(|(_, event)| event)
    }

    /// Takes the next event if it matches and is due by `end`.
    pub(crate) fn pop_if(&mut self, end: Time, which: impl FnOnce(&Event) -> bool) -> Option<Event> {
        let first = self.events.first_entry().filter(|first| first.key().0 <= end && which(first.get()))?;
        Some(first.remove())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.values()
    }
}
