//! Resources through the decoder into a channel: its configuration, its policy tree, and picks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use prost::encoding::decode_varint;
use proxyless_balancer::api::{CallAttributes, CallTicket, Code, OverrideHost, PickArgs, PickResult};
use proxyless_balancer::testing::NoWake;
use proxyless_balancer::tree::{AttemptId, ConnectionEvent, SubchannelId, TreeConfig, TreeEffect, TreeStats};
use proxyless_mesh::channel_core::{
    Activity, ChannelConfig, ChannelCore, ChannelEffect, ChannelInput, DataPlane,
};
use proxyless_mesh::cluster_claim::TableClaim;
use proxyless_mesh::dns::{DnsAnswer, DnsConfig, QueryId};
use proxyless_mesh::policies::cluster_impl::CircuitRegistry;
use proxyless_mesh::security::ClusterTls;
use proxyless_sans_io::metrics::Meter;
use proxyless_sans_io::{Rng, Time};
use proxyless_xds::Gates;
use proxyless_xds::client::{WatchEvent, WatchId};
use proxyless_xds::resource::{DecodeContext, ResourceType, decode};

/// The maximum number of effects of an input, with resources as short as these.
const MAX_EFFECTS: usize = 20_000;
/// A core that is due this often at one time is in an endless loop.
const MAX_TICKS: usize = 100;
/// The maximum number of concurrent RPCs.
const MAX_CALLS: usize = 200;

/// The events of a channel, as the fields of a message: bytes in 1 to 5 are a resource of that type for the watches of
/// its name; numbers in 6 complete a connection attempt or end its connection, in 7 advance the time, in 8 begin RPCs,
/// in 9 answer DNS queries, in 10 end RPCs, and in 11 are the driver's other inputs.
///
/// Properties: no panic; few effects of one input, and at most one snapshot; every RPC goes to a READY connection; time
/// advances at every deadline; nothing is left after the shutdown.
pub fn channel(mut data: &[u8]) {
    let mut world = World::new();
    world.handle(ChannelInput::ExitIdle);
    while let Some((number, value)) = field(&mut data) {
        match (number, value) {
            (1..=5, Value::Bytes(bytes)) => world.resource(ResourceType::ALL[number as usize - 1], bytes),
            (6, Value::Number(choice)) => world.connection(choice),
            (7, Value::Number(millis)) => world.pass(Duration::from_millis(millis.min(3_600_000))),
            (8, Value::Number(choice)) => world.calls(choice),
            (9, Value::Number(choice)) => world.dns(choice),
            (10, Value::Number(choice)) => world.end_calls(choice),
            (11, Value::Number(choice)) => world.handle(match choice % 4 {
                0 => ChannelInput::ExitIdle,
                1 => ChannelInput::ResetBackoff,
                2 => ChannelInput::Activity(Activity::Unused),
                _ => ChannelInput::Wake,
            }),
            _ => {}
        }
    }
    world.end();
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The next field, by its number; `None` at the end, or if the input is not a message.
fn field<'a>(data: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let key = decode_varint(data).ok()?;
    let value = decode_varint(data).ok()?;
    let value = match key & 7 {
        0 => Value::Number(value),
        2 => {
            let (bytes, rest) = data.split_at_checked(value.try_into().ok()?)?;
            *data = rest;
            Value::Bytes(bytes)
        }
        _ => return None,
    };
    Some((key >> 3, value))
}

struct World {
    core: ChannelCore,
    cx: DecodeContext,
    now: Time,
    rng: Rng,
    watches: BTreeMap<WatchId, (ResourceType, Arc<str>)>,
    /// The address of each attempt, and whether it succeeded.
    attempts: BTreeMap<(SubchannelId, AttemptId), (SocketAddr, bool)>,
    queries: BTreeMap<QueryId, u16>,
    plane: Option<DataPlane>,
    calls: Vec<(Arc<TableClaim>, CallTicket)>,
}

impl World {
    fn new() -> Self {
        let gates = Gates::from_variables(|_| Some("true".to_owned()));
        let config = ChannelConfig {
            meter: Meter::default(),
            listener_name: "a".into(),
            authority: "a.example".into(),
            tree: TreeConfig::default(),
            failover_timeout: Duration::from_secs(10),
            dns: DnsConfig::default(),
            gates,
            circuits: CircuitRegistry::default(),
            cluster_tls: ClusterTls::default(),
            idle_timeout: Some(Duration::from_secs(60)),
            seed: 1,
        };
        Self {
            core: ChannelCore::new(config, Arc::new(NoWake)),
            cx: DecodeContext { gates, trusted_xds_server: true, ..DecodeContext::default() },
            now: Time::ZERO,
            rng: Rng::new(1),
            watches: BTreeMap::new(),
            attempts: BTreeMap::new(),
            queries: BTreeMap::new(),
            plane: None,
            calls: Vec::new(),
        }
    }

    fn handle(&mut self, input: ChannelInput) {
        self.core.handle(self.now, input);
        let (mut effects, mut published) = (0, 0);
        while let Some(effect) = self.core.poll_effect() {
            effects += 1;
            assert!(effects < MAX_EFFECTS, "effects without end");
            match effect {
                ChannelEffect::Watch { watch, resource_type, name } => {
                    assert!(
                        self.watches.insert(watch, (resource_type, name)).is_none(),
                        "{watch:?} is in use"
                    );
                }
                ChannelEffect::Unwatch { watch } => {
                    assert!(self.watches.remove(&watch).is_some(), "{watch:?} does not exist");
                }
                ChannelEffect::DnsQuery { query, port, .. } => drop(self.queries.insert(query, port)),
                ChannelEffect::DnsCancel { query } => {
                    assert!(self.queries.remove(&query).is_some(), "{query:?} is over");
                }
                ChannelEffect::Connection(TreeEffect::Connect {
                    subchannel: connection,
                    attempt,
                    address,
                    ..
                }) => {
                    self.attempts.insert((connection, attempt), (address, false));
                }
                ChannelEffect::Connection(
                    TreeEffect::CancelConnect { subchannel: connection, attempt }
                    | TreeEffect::CloseGracefully { subchannel: connection, attempt },
                ) => {
                    self.attempts.remove(&(connection, attempt));
                }
                ChannelEffect::Connection(
                    TreeEffect::OpenLoadStream { .. }
                    | TreeEffect::CloseLoadStream { .. }
                    | TreeEffect::ReportDemand { .. },
                ) => {}
                ChannelEffect::EnterIdle => self.plane = None,
                ChannelEffect::Publish(plane) => {
                    published += 1;
                    self.plane = Some(plane);
                }
                ChannelEffect::CheckActivity
                | ChannelEffect::RegisterLoad { .. }
                | ChannelEffect::UnregisterLoad { .. } => {}
            }
        }
        // A31, A74: one consistent snapshot per input.
        assert!(published <= 1, "{published} snapshots of one input");
    }

    /// A resource arrives for the watches of its name.
    fn resource(&mut self, resource_type: ResourceType, bytes: &[u8]) {
        let decoded = decode(resource_type, resource_type.type_url(), bytes, &self.cx);
        let (Ok(resource), Some(name)) = (decoded.resource, decoded.name) else { return };
        let of = |(_, watched): &(&WatchId, &(ResourceType, Arc<str>))| {
            watched.0 == resource_type && *watched.1 == *name
        };
        let watches: Vec<WatchId> = self.watches.iter().filter(of).map(|(&watch, _)| watch).collect();
        let events = watches.into_iter().map(|watch| (watch, WatchEvent::Changed(Ok(resource.clone()))));
        self.handle(ChannelInput::Resources { events: events.collect() });
        let _ = self.core.describe(self.now).lines();
    }

    /// An event of one or all attempts.
    fn connection(&mut self, choice: u64) {
        let count = self.attempts.len() as u64;
        let all = choice % 16 < 8;
        let chosen = (0..count).filter(|&i| all || choice / 16 % count == i);
        let keys: Vec<_> = chosen.filter_map(|i| self.attempts.keys().nth(i as usize).copied()).collect();
        let mut events = Vec::new();
        for key in keys {
            let Some((_, ready)) = self.attempts.get_mut(&key) else { continue };
            let event = match (*ready, choice % 4) {
                (false, 0..=2) => {
                    *ready = true;
                    ConnectionEvent::Ready(Arc::new(()))
                }
                (false, _) => ConnectionEvent::Failed("refused".into()),
                (true, 0) => ConnectionEvent::GoAway("going away".into()),
                (true, 1) => ConnectionEvent::Closed("gone".into()),
                (true, _) => continue,
            };
            if !matches!(event, ConnectionEvent::Ready(_)) {
                self.attempts.remove(&key);
            }
            events.push((key.0, key.1, event));
        }
        self.handle(ChannelInput::Connections { events });
    }

    /// Time passes, with every deadline on the way; at least the next one.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for tick in 0..MAX_TICKS {
            let Some(at) = self.core.next_deadline().filter(|at| tick == 0 || *at <= end) else { break };
            let before = (self.now, at);
            self.now = self.now.max(at);
            self.handle(ChannelInput::Tick);
            let next = self.core.next_deadline();
            assert!(next.is_none_or(|next| next > before.1 || before.0 < before.1), "still due at {at:?}");
        }
        self.now = self.now.max(end);
    }

    fn calls(&mut self, choice: u64) {
        let Some(plane) = self.plane.clone() else { return self.handle(ChannelInput::ExitIdle) };
        let Ok(routes) = &plane.routes else { return };
        let headers = HeaderMap::new();
        for i in 0..=choice % 20 {
            let path = ["/service/method", "/s", "/p/q", "/"][(choice / 20 + i) as usize % 4];
            let Ok(selection) = routes.select(path, &headers, &mut self.rng) else { continue };
            let cluster = Arc::clone(selection.cluster);
            let host = self.attempts.values().nth(i as usize).map(|(address, _)| *address);
            let override_host =
                selection.session.map(|_| OverrideHost::new(host.into_iter().collect(), self.now));
            let hash = self.rng.next_u64();
            let attributes =
                CallAttributes { cluster: cluster.id(), hash, override_host, ..CallAttributes::default() };
            let mut args = PickArgs { path, headers: &headers, attributes, rng: &mut self.rng };
            if let PickResult::Complete(pick) = plane.picker.pick(&mut args) {
                let address = pick.target.address;
                let ready = self.attempts.values().any(|attempt| *attempt == (address, true));
                assert_eq!(pick.target.slot.is_connected(), ready, "a pick of {address}");
                if self.calls.len() < MAX_CALLS {
                    self.calls.push((cluster, CallTicket::start(pick)));
                }
            }
        }
        self.handle(ChannelInput::Wake);
    }

    fn end_calls(&mut self, choice: u64) {
        for (cluster, ticket) in self.calls.drain(..).collect::<Vec<_>>() {
            match self.rng.next_u64() % 4 {
                0 => self.calls.push((cluster, ticket)),
                1 if choice % 2 == 1 => ticket.finish(Code::Unavailable),
                2 => drop(ticket),
                _ => ticket.finish(Code::Ok),
            }
        }
        self.handle(ChannelInput::Wake);
    }

    fn dns(&mut self, choice: u64) {
        let Some((query, port)) = self.queries.pop_first() else { return };
        let address = |i| SocketAddr::from(([10, 0, 1, i], port));
        let result = match choice % 4 {
            0 => Err("no such name".to_owned()),
            more => Ok(DnsAnswer {
                addresses: (0..more as u8).map(address).collect(),
                ttl: (choice > 50).then(|| Duration::from_secs(choice)),
            }),
        };
        self.handle(ChannelInput::DnsAnswer { query, result });
    }

    fn end(mut self) {
        self.calls.clear();
        self.plane = None;
        self.handle(ChannelInput::Shutdown);
        assert!(self.watches.is_empty() && self.queries.is_empty(), "{:?}", self.watches);
        assert!(self.attempts.is_empty(), "{:?}", self.attempts);
        assert_eq!((self.core.stats(), self.core.next_deadline()), (TreeStats::default(), None));
        assert!(self.core.is_drained());
    }
}
