//! A harness with several management servers.

use std::collections::BTreeSet;

use super::*;
use serde_json::{Value, json};

/// Drives a core with several servers. Requests count as sent, and tokens as released, at once.
pub(super) struct Planes {
    pub(super) core: XdsCore,
    pub(super) now: Time,
    /// The open stream to each server.
    pub(super) streams: BTreeMap<usize, StreamId>,
    /// All servers to which a stream was ever opened.
    pub(super) contacted: BTreeSet<usize>,
    pub(super) requests: Vec<(usize, DiscoveryRequest)>,
    /// The names of each type in the last request of the open stream to each server.
    pub(super) subscribed: BTreeMap<(usize, ResourceType), Vec<String>>,
    pub(super) events: Vec<(u64, WatchEvent)>,
    pub(super) moves: usize,
    /// The servers that the core has used and not disconnected from.
    pub(super) connected: BTreeSet<usize>,
    nonces: u64,
}

/// A bootstrap of servers `s0:1` and so on: the top-level list, and that of each authority.
pub(super) fn bootstrap(top: &[usize], authorities: &[(&str, &[usize])]) -> Bootstrap {
    let list = |servers: &[usize]| -> Value {
        let server = |i| json!({"server_uri": format!("s{i}:1"), "channel_creds": [{"type": "insecure"}]});
        servers.iter().map(server).collect()
    };
    let authorities: serde_json::Map<_, _> = authorities
        .iter()
        .map(|(name, servers)| ((*name).to_owned(), json!({"xds_servers": list(servers)})))
        .collect();
    let json = json!({"xds_servers": list(top), "authorities": authorities, "node": {"id": "n"}});
    Bootstrap::from_json(&json.to_string()).unwrap()
}

impl Planes {
    /// The servers of the bootstrap must occur in the order of their numbers.
    pub(super) fn new(top: &[usize], authorities: &[(&str, &[usize])]) -> Self {
        Self::of(XdsCoreConfig::new(&bootstrap(top, authorities), Gates::default(), 1))
    }

    pub(super) fn of(config: XdsCoreConfig) -> Self {
        Self {
            core: XdsCore::new(config),
            now: Time::ZERO,
            streams: BTreeMap::new(),
            contacted: BTreeSet::new(),
            requests: Vec::new(),
            subscribed: BTreeMap::new(),
            events: Vec::new(),
            moves: 0,
            connected: BTreeSet::new(),
            nonces: 0,
        }
    }

    pub(super) fn input(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.core.handle(self.now, input);
            while let Some(effect) = self.core.poll_effect() {
                inputs.extend(self.effect(effect));
            }
        }
    }

    fn effect(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::OpenStream { stream, server: ServerId(server) } => {
                assert!(self.streams.insert(server, stream).is_none(), "one stream per server");
                self.contacted.insert(server);
                self.connected.insert(server);
                None
            }
            Effect::CloseStream { stream } => {
                let server = self.server(stream);
                self.ended(server);
                None
            }
            Effect::Disconnect { server: ServerId(server) } => {
                assert!(!self.streams.contains_key(&server), "its stream is closed before");
                assert!(self.connected.remove(&server), "once");
                None
            }
            Effect::Send { stream, request } => {
                let server = self.server(stream);
                let request = DiscoveryRequest::decode(request.into_buf()).unwrap();
                let kind = ResourceType::from_type_url(&request.type_url).unwrap();
                self.subscribed.insert((server, kind), request.resource_names.clone());
                self.requests.push((server, request));
                Some(Input::SendDone { stream })
            }
            Effect::ReadNext { .. } => None,
            Effect::Notify { watch, event, token } => {
                self.events.push((watch.watch.0, event));
                Some(Input::TokenReleased { token })
            }
            Effect::MoveLoad => {
                self.moves += 1;
                None
            }
        }
    }

    fn server(&self, stream: StreamId) -> usize {
        *self.streams.iter().find(|(_, open)| **open == stream).expect("the stream is open").0
    }

    fn ended(&mut self, server: usize) -> StreamId {
        self.subscribed.retain(|(of, _), _| *of != server);
        self.streams.remove(&server).expect("a stream is open")
    }

    pub(super) fn watch(&mut self, id: u64, resource_type: ResourceType, name: &str) {
        let watch = WatchKey { watcher: WATCHER, watch: WatchId(id) };
        self.input(Input::Watch { watch, resource_type, name: name.into() });
    }

    pub(super) fn unwatch(&mut self, id: u64) {
        self.input(Input::Unwatch { watch: WatchKey { watcher: WATCHER, watch: WatchId(id) } });
    }

    pub(super) fn up(&mut self, server: usize) {
        self.input(Input::StreamUp { stream: self.streams[&server] });
    }

    pub(super) fn down(&mut self, server: usize) {
        self.down_for(server, &format!("UNAVAILABLE: s{server} is away"));
    }

    pub(super) fn down_for(&mut self, server: usize, reason: &str) {
        let stream = self.ended(server);
        self.input(Input::StreamDown { stream, code: None, reason: reason.into() });
    }

    pub(super) fn respond(&mut self, server: usize, kind: ResourceType, version: &str, resources: &[Any]) {
        self.nonces += 1;
        let response = response(kind, version, &self.nonces.to_string(), resources);
        self.input(Input::Message { stream: self.streams[&server], bytes: response.encode_to_vec().into() });
    }

    /// Moves time on, with a tick at each deadline on the way.
    pub(super) fn advance(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(deadline) = self.core.next_deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.input(Input::Tick);
        }
        self.now = end;
    }

    /// The servers with a stream.
    pub(super) fn open(&self) -> Vec<usize> {
        self.streams.keys().copied().collect()
    }

    pub(super) fn names(&self, server: usize, kind: ResourceType) -> Vec<&str> {
        let names = self.subscribed.get(&(server, kind));
        names.map(|names| names.iter().map(String::as_str).collect()).unwrap_or_default()
    }

    /// What watchers were told since the last look.
    pub(super) fn told(&mut self) -> Vec<String> {
        let describe = |(id, event): (u64, WatchEvent)| match event {
            WatchEvent::Changed(Ok(_)) => format!("{id}: ok"),
            WatchEvent::Changed(Err(error)) => format!("{id}: err {error}"),
            WatchEvent::Ambient(Some(error)) => format!("{id}: ambient {error}"),
            WatchEvent::Ambient(None) => format!("{id}: fine"),
        };
        std::mem::take(&mut self.events).into_iter().map(describe).collect()
    }

    /// The port of the endpoint in use, or 0.
    pub(super) fn port(&self, name: &str) -> u16 {
        self.ports()[name]
    }

    /// The port of each ClusterLoadAssignment, or 0.
    pub(super) fn ports(&self) -> BTreeMap<String, u16> {
        let dump = self.core.dump().into_iter().filter(|dump| dump.resource_type == EDS);
        dump.map(|dump| (dump.name.to_string(), Self::port_of(dump))).collect()
    }

    fn port_of(dump: ResourceDump) -> u16 {
        let Some(raw) = dump.raw else { return 0 };
        let assignment = endpoint::ClusterLoadAssignment::decode(raw.value).unwrap();
        let [locality] = &assignment.endpoints[..] else { return 0 };
        let endpoint::lb_endpoint::HostIdentifier::Endpoint(host) =
            locality.lb_endpoints[0].host_identifier.clone().unwrap()
        else {
            return 0;
        };
        let Some(envoy_core::address::Address::SocketAddress(address)) = host.address.unwrap().address else {
            return 0;
        };
        match address.port_specifier {
            Some(envoy_core::socket_address::PortSpecifier::PortValue(port)) => port as u16,
            _ => 0,
        }
    }
}
