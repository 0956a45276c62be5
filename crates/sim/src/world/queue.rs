//! What is going to happen, in order of time.

use std::collections::BTreeMap;

use bytes::Bytes;
use proxyless_mesh::channel_core::ChannelInput;
use proxyless_sans_io::Time;
use proxyless_xds::client::Input;
use proxyless_xds::lrs;
use proxyless_xds::resource::ResourceType;

use crate::clients::endpoints::Happening;

/// Something that happens at a time. Channels are named by their epoch: each start of one has its own.
#[derive(Debug)]
pub(crate) enum Event {
    /// A step of the script.
    Step(usize),
    /// The xDS client gets an input.
    Xds(Input),
    /// A channel gets an input; then the token is given back.
    Channel { epoch: u64, input: ChannelInput, token: Option<u64> },
    /// A channel is run again.
    Resume { epoch: u64 },
    /// The client has waited long enough for a channel to act on an event.
    OutOfPatience { token: u64 },
    /// A request comes to the management server.
    Request { stream: u64, bytes: Bytes },
    /// The management server has a response ready.
    Push { stream: u64, resource_type: ResourceType },
    /// A response comes to the client's side, to be read.
    Arrive { stream: u64, bytes: Bytes },
    /// The client has read a message.
    Message { stream: u64, bytes: Bytes },
    /// The resolver has an answer.
    Resolve { epoch: u64, query: u64 },
    /// A connection gets somewhere.
    Connection { epoch: u64, attempt: u64, happening: Happening },
    /// The load report core gets an input.
    Load(lrs::Input),
    /// A response of the load reporting server comes to the client's side, to be read.
    Wish { stream: u64, bytes: Bytes },
    /// A call has run to its end, in its so-and-so-many-th attempt.
    CallEnds { id: u64, run: u32 },
    /// A call that was woken comes to look at the newest snapshot.
    CallWakes(u64),
    /// A call's deadline is there.
    CallTimesOut(u64),
}

/// Where messages cannot overtake each other.
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

/// The events to come.
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

    /// Adds an event that comes after those of its lane.
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

    /// The next event, if it is one of these and comes until `end`.
    pub(crate) fn pop_if(&mut self, end: Time, which: impl FnOnce(&Event) -> bool) -> Option<Event> {
        let first = self.events.first_entry().filter(|first| first.key().0 <= end && which(first.get()))?;
        Some(first.remove())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.values()
    }
}
