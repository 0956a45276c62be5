//! The latest events of a channel: recorded as they occur, formatted on request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_balancer::api::{ConnectivityState, PolicyEvent};
use proxyless_balancer::tree::{ConnectionEvent, SubchannelId};
use proxyless_mesh::channel_core::ChannelInput;
use proxyless_mesh::dns::QueryId;
use proxyless_sans_io::{SmallMap, Time};
use proxyless_transport::panics::Panicked;
use proxyless_xds::client::{ResourceError, WatchEvent, WatchId};
use proxyless_xds::resource::ResourceType;

use crate::clock;
use crate::inspect::{Event, EventKind, Severity};

/// The number of events kept.
const KEPT: usize = 256;

type Resource = (ResourceType, Arc<str>);
type Host = (Arc<str>, u16);

#[derive(Default)]
pub(super) struct Trace {
    entries: VecDeque<(Time, Entry)>,
    total: u64,
    state: ConnectivityState,
    watches: SmallMap<WatchId, Resource>,
    queries: BTreeMap<QueryId, Host>,
}

/// An event. Small, because the list has room for more than there are: rare and large parts are boxed.
enum Entry {
    /// From one state to another.
    State(ConnectivityState, ConnectivityState),
    Watch(Resource),
    Used(Resource),
    Lost(Arc<ResourceError>),
    Ambient(Arc<ResourceError>),
    Fine(Resource),
    /// The number of addresses of a host, or the error.
    Resolved(Box<(Host, Result<usize, String>)>),
    Connection(Box<(SubchannelId, SocketAddr, Happened)>),
    Policy(Box<PolicyEvent>),
    ClientPanicked,
    Panicked(Panicked),
    Restarted(u64),
    /// An entry of an earlier driver, as text: the next driver reuses its ids.
    Past(Severity, EventKind, String),
}

/// An event of a connection.
enum Happened {
    Connecting,
    Connected,
    Failed(String),
    GoingAway(String),
    Lost(String),
}

impl Trace {
    pub(super) fn state(&mut self, to: ConnectivityState) {
        let from = std::mem::replace(&mut self.state, to);
        if from != to {
            self.push(Entry::State(from, to));
        }
    }

    /// The channel's state.
    pub(super) fn last_state(&self) -> ConnectivityState {
        self.state
    }

    pub(super) fn watch(&mut self, watch: WatchId, resource_type: ResourceType, name: &Arc<str>) {
        let resource = (resource_type, Arc::clone(name));
        self.watches.insert(watch, resource.clone());
        self.push(Entry::Watch(resource));
    }

    /// The resources that the channel watches.
    pub(super) fn watched(&self) -> Vec<(WatchId, ResourceType, Arc<str>)> {
        let watches = self.watches.iter();
        watches.map(|(&watch, (resource_type, name))| (watch, *resource_type, Arc::clone(name))).collect()
    }

    pub(super) fn unwatch(&mut self, watch: WatchId) {
        self.watches.remove(&watch);
    }

    pub(super) fn query(&mut self, query: QueryId, host: &Arc<str>, port: u16) {
        self.queries.insert(query, (Arc::clone(host), port));
    }

    pub(super) fn cancel_query(&mut self, query: QueryId) {
        self.queries.remove(&query);
    }

    pub(super) fn connecting(&mut self, subchannel: SubchannelId, address: SocketAddr) {
        self.push(Entry::Connection(Box::new((subchannel, address, Happened::Connecting))));
    }

    pub(super) fn connection(
        &mut self,
        subchannel: SubchannelId,
        address: SocketAddr,
        event: &ConnectionEvent,
    ) {
        let what = match event {
            ConnectionEvent::Ready(_) => Happened::Connected,
            ConnectionEvent::Failed(why) => Happened::Failed(why.to_string()),
            ConnectionEvent::GoAway(why) | ConnectionEvent::TooManyPings(why) => {
                Happened::GoingAway(why.text.clone())
            }
            ConnectionEvent::Closed(why) => Happened::Lost(why.text.clone()),
            // Reports are too many to be kept.
            ConnectionEvent::Load(..) => return,
        };
        self.push(Entry::Connection(Box::new((subchannel, address, what))));
    }

    pub(super) fn policy(&mut self, event: PolicyEvent) {
        self.push(Entry::Policy(Box::new(event)));
    }

    /// The xDS client panicked.
    pub(super) fn client_panicked(&mut self) {
        self.push(Entry::ClientPanicked);
    }

    /// The driver panicked: its watches, queries and connections are gone.
    pub(super) fn panicked(&mut self, panicked: &Panicked) {
        self.watches = SmallMap::new();
        self.queries.clear();
        let mut connected = BTreeSet::new();
        for (_, entry) in &mut self.entries {
            let (severity, _, what) = entry.describe(&mut connected);
            *entry = Entry::Past(severity, entry.kind(), what);
        }
        self.push(Entry::Panicked(panicked.clone()));
        self.state(ConnectivityState::TransientFailure);
    }

    /// A new driver took over; `times` counts the restarts.
    pub(super) fn restarted(&mut self, times: u64) {
        self.push(Entry::Restarted(times));
    }

    /// Records an input of the core.
    pub(super) fn input(&mut self, input: &ChannelInput) {
        match input {
            ChannelInput::Resources { events } => {
                events.iter().for_each(|(watch, event)| self.resource(watch, event));
            }
            ChannelInput::DnsAnswer { query, result } => {
                let Some(host) = self.queries.remove(query) else { return };
                let found = result.as_ref().map(|answer| answer.addresses.len());
                self.push(Entry::Resolved(Box::new((host, found.map_err(String::clone)))));
            }
            _ => {}
        }
    }

    fn resource(&mut self, watch: &WatchId, event: &WatchEvent) {
        let Some(resource) = self.watches.get(watch).cloned() else { return };
        self.push(match event {
            WatchEvent::Changed(Ok(_)) => Entry::Used(resource),
            WatchEvent::Changed(Err(error)) => Entry::Lost(Arc::clone(error)),
            WatchEvent::Ambient(Some(error)) => Entry::Ambient(Arc::clone(error)),
            WatchEvent::Ambient(None) => Entry::Fine(resource),
        });
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The events as text; `id` returns the id of a subchannel.
    pub(super) fn events(&self, mut id: impl FnMut(SubchannelId) -> Option<u64>) -> Vec<Event> {
        let mut connected = BTreeSet::new();
        let event = |(time, entry): &(Time, Entry)| {
            let (severity, subchannel, description) = entry.describe(&mut connected);
            let subchannel = subchannel.and_then(&mut id);
            Event { time: clock::wall_time(*time), severity, kind: entry.kind(), description, subchannel }
        };
        self.entries.iter().map(event).collect()
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back((clock::now(), entry));
        self.total += 1;
    }
}

impl Entry {
    fn kind(&self) -> EventKind {
        match self {
            Self::State(..) => EventKind::State,
            Self::Watch(_) => EventKind::Subscription,
            Self::Used(_) | Self::Lost(_) | Self::Ambient(_) | Self::Fine(_) => EventKind::Configuration,
            Self::Resolved(..) => EventKind::Dns,
            Self::Connection(event) => match **event {
                (_, _, Happened::Connecting) => EventKind::ConnectionAttempt,
                _ => EventKind::Connection,
            },
            Self::Policy(event) => match **event {
                PolicyEvent::FailedOver { .. } | PolicyEvent::MovedUp { .. } => EventKind::Failover,
                PolicyEvent::Ejected { .. } | PolicyEvent::Returned { .. } => EventKind::Ejection,
                _ => EventKind::Other,
            },
            Self::ClientPanicked | Self::Panicked(_) | Self::Restarted(_) => EventKind::Panic,
            Self::Past(_, kind, _) => *kind,
        }
    }

    /// `connected` has the connections established in earlier entries.
    fn describe(&self, connected: &mut BTreeSet<SubchannelId>) -> (Severity, Option<SubchannelId>, String) {
        let info = |what| (Severity::Info, None, what);
        match self {
            Self::State(from, to) => {
                let bad = *to == ConnectivityState::TransientFailure;
                (if bad { Severity::Error } else { Severity::Info }, None, format!("channel {from} → {to}"))
            }
            Self::Watch((resource_type, name)) => info(format!("asked for {} {name}", resource_type.name())),
            Self::Used((resource_type, name)) => info(format!("new {} {name} in use", resource_type.name())),
            Self::Lost(error) => (Severity::Error, None, error.to_string()),
            Self::Ambient(error) => {
                (Severity::Warning, None, format!("{error}; the last good one stays in use"))
            }
            Self::Fine((resource_type, name)) => {
                info(format!("{} {name} is fine again", resource_type.name()))
            }
            Self::Resolved(resolved) => match &**resolved {
                ((host, port), Ok(addresses)) => info(format!("{host}:{port} has {addresses} addresses")),
                ((host, port), Err(why)) => (Severity::Warning, None, format!("{host}:{port}: {why}")),
            },
            Self::Connection(event) => {
                let (subchannel, address, what) = &**event;
                let (severity, what) = match what {
                    Happened::Connecting if connected.contains(subchannel) => {
                        (Severity::Info, "reconnecting".into())
                    }
                    Happened::Connecting => (Severity::Info, "connecting".into()),
                    Happened::Connected if connected.insert(*subchannel) => {
                        (Severity::Info, "connected".into())
                    }
                    Happened::Connected => (Severity::Info, "reconnected".into()),
                    Happened::Failed(why) => (Severity::Warning, format!("cannot connect: {why}")),
                    Happened::GoingAway(why) => (Severity::Info, format!("going away: {why}")),
                    Happened::Lost(why) => (Severity::Warning, format!("connection lost: {why}")),
                };
                (severity, Some(*subchannel), format!("{address}: {what}"))
            }
            Self::ClientPanicked => {
                let what = "the xDS client panicked; its resources stay in use until another one answers";
                (Severity::Error, None, what.into())
            }
            Self::Panicked(why) => {
                (Severity::Error, None, format!("the task of the channel panicked: {why}"))
            }
            Self::Restarted(times) => info(format!("restarted after a panic (restart {times})")),
            Self::Past(severity, _, what) => (*severity, None, what.clone()),
            Self::Policy(event) => {
                let severity = if event.is_warning() { Severity::Warning } else { Severity::Info };
                (severity, None, event.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_events_are_kept_and_all_are_counted() {
        let mut trace = Trace::default();
        for i in 0..KEPT as u64 + 10 {
            trace.connecting(SubchannelId(i), "127.0.0.1:1".parse().unwrap());
        }
        let events = trace.events(|subchannel| Some(subchannel.0));
        assert_eq!((events.len(), trace.total()), (KEPT, KEPT as u64 + 10));
        assert_eq!((events[0].subchannel, events[KEPT - 1].subchannel), (Some(10), Some(KEPT as u64 + 9)));
    }

    #[test]
    fn a_second_connection_to_an_address_is_a_reconnect() {
        let (mut trace, id, address) = (Trace::default(), SubchannelId(1), "127.0.0.1:1".parse().unwrap());
        for _ in 0..2 {
            trace.connecting(id, address);
            trace.connection(id, address, &ConnectionEvent::Ready(Arc::new(())));
            trace.connection(id, address, &ConnectionEvent::Closed("reset".into()));
        }
        let events: Vec<String> = trace.events(|_| None).into_iter().map(|event| event.description).collect();
        let what = ["connecting", "connected", "connection lost: reset", "reconnecting", "reconnected"];
        assert_eq!(events[..5], what.map(|what| format!("127.0.0.1:1: {what}")));
    }

    #[test]
    fn connections_of_a_driver_that_panicked_are_not_those_of_the_next() {
        let (mut trace, id, address) = (Trace::default(), SubchannelId(1), "127.0.0.1:1".parse().unwrap());
        let connect = |trace: &mut Trace| {
            trace.connecting(id, address);
            trace.connection(id, address, &ConnectionEvent::Ready(Arc::new(())));
        };
        connect(&mut trace);
        trace.panicked(&proxyless_transport::panics::contain(|| panic!("oh")).unwrap_err());
        trace.restarted(1);
        connect(&mut trace);
        let events = trace.events(|subchannel| Some(subchannel.0));
        let events: Vec<_> =
            events.iter().map(|event| (event.subchannel, event.description.as_str())).collect();
        let expected = [
            (None, "127.0.0.1:1: connecting"),
            (None, "127.0.0.1:1: connected"),
            (None, "the task of the channel panicked: oh"),
            (None, "channel IDLE → TRANSIENT_FAILURE"),
            (None, "restarted after a panic (restart 1)"),
            (Some(1), "127.0.0.1:1: connecting"),
            (Some(1), "127.0.0.1:1: connected"),
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn decisions_of_policies_are_events() {
        let mut trace = Trace::default();
        trace.policy(PolicyEvent::FailedOver { cluster: "c".into(), from: "eu".into(), to: "us".into() });
        let events = trace.events(|_| None);
        assert_eq!(
            (events[0].severity, events[0].kind, events[0].description.as_str()),
            (Severity::Warning, EventKind::Failover, "c: failed over from eu to us")
        );
    }

    #[test]
    fn an_unchanged_state_is_not_an_event() {
        let mut trace = Trace::default();
        trace.state(ConnectivityState::Connecting);
        trace.state(ConnectivityState::Connecting);
        trace.state(ConnectivityState::TransientFailure);
        let events = trace.events(|_| None);
        assert_eq!(events.len(), 2);
        assert_eq!(
            (events[1].severity, events[1].description.as_str()),
            (Severity::Error, "channel CONNECTING → TRANSIENT_FAILURE")
        );
    }
}
