//! Sequences of events for the ADS state machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use proxyless_sans_io::Time;
use proxyless_sans_io::values::Code;
use proxyless_xds::bootstrap::Bootstrap;
use proxyless_xds::client::{
    Effect, Input as Event, NackMode, ReadToken, ResourceDump, WatchEvent, WatchId, WatchKey, WatcherId,
    XdsCore, XdsCoreConfig,
};
use proxyless_xds::resource::{DecodeContext, Resource, ResourceType, decode};
use proxyless_xds::{Gates, StreamId};

use crate::input::Input;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Valid resources named `a`, from which responses are built.
const RESOURCES: [&[u8]; 5] = [
    include_bytes!("../corpus/listener/inline"),
    include_bytes!("../corpus/route_configuration/simple"),
    include_bytes!("../corpus/cluster/eds"),
    include_bytes!("../corpus/endpoints/priorities"),
    include_bytes!("../corpus/aggregate_cluster/two"),
];

/// The longest sequence of events: later events add little coverage.
const STEPS: usize = 200;

/// Watches, streams that open and end, responses (of valid resources, modified ones and raw bytes), and time.
///
/// The driver follows the contract: it answers each `Send` and each token once, and delivers a message only on request.
/// Properties: no panic; the effects of one event are bounded by the number of watches; there is one stream at a time,
/// with one request in transit and one read at a time; requests decode and have a known type, and only the first has
/// the node; only existing watches are notified; the dump lists exactly the watched resources, and the bytes in the
/// dump decode to the resource in use; time advances at every deadline; when everything is answered the next message is
/// read, and without watches the stream ends.
pub fn ads(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.settle();
}

struct World {
    core: XdsCore,
    now: Time,
    watches: BTreeMap<WatchKey, (ResourceType, &'static str)>,
    /// The resource in use of each watch.
    told: BTreeMap<WatchKey, Resource>,
    cx: DecodeContext,
    last_watch: u64,
    /// The open stream of the core.
    stream: Option<Stream>,
    last_stream: StreamId,
    /// Tokens to release, one entry for each event.
    tokens: Vec<ReadToken>,
}

const WATCHER: WatcherId = WatcherId(0);

fn watch_key(watch: u64) -> WatchKey {
    WatchKey { watcher: WATCHER, watch: WatchId(watch) }
}

struct Stream {
    id: StreamId,
    up: bool,
    sending: bool,
    reading: bool,
    requests: usize,
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let mode = input.byte();
        let open = mode & 1 != 0;
        let gates = Gates::from_variables(|_| open.then(|| "true".to_owned()));
        let mut config = XdsCoreConfig::new(&bootstrap(), gates, u64::from(mode));
        let features = &mut config.servers[0].features;
        features.ignore_resource_deletion = mode & 2 != 0;
        features.fail_on_data_errors = mode & 4 != 0;
        features.resource_timer_is_transient_error = mode & 8 != 0;
        let trusted_xds_server = features.trusted_xds_server;
        config.nack_mode = if mode & 16 != 0 { NackMode::WholeResponse } else { NackMode::PerResource };
        let limits = config.limits;
        let cx = DecodeContext { gates, trusted_xds_server, limits, ..DecodeContext::default() };
        Self {
            core: XdsCore::new(config),
            now: Time::ZERO,
            watches: BTreeMap::new(),
            told: BTreeMap::new(),
            cx,
            last_watch: 0,
            stream: None,
            last_stream: StreamId::default(),
            tokens: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0 | 1 => {
                self.last_watch += 1;
                let watch = watch_key(self.last_watch);
                let resource_type = ResourceType::ALL[input.below(ResourceType::ALL.len())];
                let name = NAMES[input.below(NAMES.len())];
                self.watches.insert(watch, (resource_type, name));
                self.handle(Event::Watch { watch, resource_type, name: name.into() });
            }
            2 => {
                // Includes watches that have ended or never existed.
                self.unwatch(watch_key(input.below(self.last_watch as usize + 2) as u64));
            }
            3 | 4 => self.stream_up(),
            5 => self.send_done(),
            6 => self.pump(),
            7..=9 => {
                let bytes = self.response(input);
                self.message(bytes);
            }
            10 => self.message(input.block().to_vec()),
            11 => {
                let code = i32::from(input.byte());
                let code = (code < 17).then(|| Code::from_i32(code));
                self.stream_down(code);
            }
            12 | 13 => self.release(input.byte().into()),
            14 => {
                self.now = self.core.next_deadline().unwrap_or(self.now);
                self.handle(Event::Tick);
            }
            _ => self.stale(input),
        }
    }

    fn unwatch(&mut self, watch: WatchKey) {
        self.watches.remove(&watch);
        self.told.remove(&watch);
        self.handle(Event::Unwatch { watch });
    }

    fn stream_up(&mut self) {
        let Some(stream) = self.stream.as_mut().filter(|stream| !stream.up) else { return };
        stream.up = true;
        let stream = stream.id;
        self.handle(Event::StreamUp { stream });
    }

    fn send_done(&mut self) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.sending) else { return };
        stream.sending = false;
        let stream = stream.id;
        self.handle(Event::SendDone { stream });
    }

    fn message(&mut self, bytes: Vec<u8>) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.reading) else { return };
        stream.reading = false;
        let stream = stream.id;
        self.handle(Event::Message { stream, bytes: bytes.into() });
    }

    fn stream_down(&mut self, code: Option<Code>) {
        let Some(stream) = self.stream.take() else { return };
        self.handle(Event::StreamDown { stream: stream.id, code, reason: "ended".into() });
    }

    fn release(&mut self, which: usize) {
        if !self.tokens.is_empty() {
            let token = self.tokens.remove(which % self.tokens.len());
            self.handle(Event::TokenReleased { token });
        }
    }

    /// A fast driver: everything in transit arrives.
    fn pump(&mut self) {
        self.stream_up();
        for _ in 0..2 * ResourceType::ALL.len() {
            self.send_done();
        }
        while !self.tokens.is_empty() {
            self.release(0);
        }
    }

    /// A DiscoveryResponse of a watched type with valid resources, modified ones and ones of other types.
    fn response(&self, input: &mut Input<'_>) -> Vec<u8> {
        let watched: BTreeSet<_> = self.watches.values().map(|(kind, _)| *kind).collect();
        let choice = usize::from(input.byte());
        let kind = if choice < 250 { watched.iter().nth(choice % watched.len().max(1)) } else { None };
        let kind = kind.copied().unwrap_or(ResourceType::ALL[choice % ResourceType::ALL.len()]);
        let version = input.byte().to_string();
        let resources = (0..input.below(5)).map(|_| resource(kind, input)).collect();
        let nonce = version.clone();
        let type_url = kind.type_url().to_owned();
        DiscoveryResponse { nonce, version_info: version, resources, type_url, ..Default::default() }
            .encode_to_vec()
    }

    /// Late events of ended streams, and some time.
    fn stale(&mut self, input: &mut Input<'_>) {
        let stream = StreamId(self.last_stream.0.wrapping_sub(1 + input.below(3) as u64));
        let event = match input.below(5) {
            0 => Event::StreamUp { stream },
            1 => Event::SendDone { stream },
            2 => Event::Message { stream, bytes: self.response(input).into() },
            3 => Event::StreamDown { stream, code: None, reason: "late".into() },
            _ => {
                self.now = self.now + Duration::from_millis(input.u16().into());
                Event::Tick
            }
        };
        self.handle(event);
    }

    /// Hands the core an event, and checks its effects.
    fn handle(&mut self, event: Event) {
        self.core.handle(self.now, event);
        let mut left = 16 + 4 * self.watches.len();
        let mut told = false;
        while let Some(effect) = self.core.poll_effect() {
            assert!(left > 0, "too many effects of one event");
            left -= 1;
            told |= matches!(effect, Effect::Notify { .. });
            self.effect(effect);
        }
        let deadline = self.core.next_deadline();
        assert!(deadline.is_none_or(|at| at > self.now), "{deadline:?} is due at {:?}", self.now);
        let dump = self.core.dump();
        let shown = dump.iter().map(|dump| (dump.resource_type, &*dump.name)).collect::<BTreeSet<_>>();
        assert_eq!(shown, self.watches.values().copied().collect(), "the dump lists what is watched");
        // A slow watcher hears of changes when it has caught up.
        if told && !self.core.is_slow(WATCHER) {
            self.check_told(dump);
        }
    }

    /// Watchers use the resources in the dump.
    fn check_told(&self, dump: Vec<ResourceDump>) {
        for shown in dump {
            let key = (shown.resource_type, &*shown.name);
            let watches = self.watches.iter().filter(|(_, watched)| **watched == key);
            let fresh = shown
                .raw
                .map(|raw| decode(shown.resource_type, &raw.type_url, &raw.value, &self.cx).resource);
            for (id, _) in watches {
                let told = self.told.get(id);
                assert_eq!(told.is_some(), fresh.is_some(), "{key:?}");
                // The dump has no wrapper, which has the name of resources of this type.
                if shown.resource_type != ResourceType::AggregateClusterConfig
                    && told != fresh.as_ref().and_then(|fresh| fresh.as_ref().ok())
                {
                    assert_eq!(
                        format!("{told:?}"),
                        format!("{:?}", fresh.as_ref().map(|fresh| fresh.as_ref().ok()))
                    );
                }
            }
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::OpenStream { stream, .. } => {
                assert!(self.stream.is_none(), "a second stream");
                assert!(stream > self.last_stream, "an attempt's number is used twice");
                self.last_stream = stream;
                self.stream =
                    Some(Stream { id: stream, up: false, sending: false, reading: false, requests: 0 });
            }
            Effect::CloseStream { stream } => {
                let closed = self.stream.take().expect("closes a stream that is open");
                assert_eq!(closed.id, stream);
            }
            Effect::Disconnect { .. } => assert!(self.stream.is_none(), "disconnects under a stream"),
            Effect::Send { stream, request } => {
                let open = self.open(stream);
                assert!(!std::mem::replace(&mut open.sending, true), "two requests at once");
                open.requests += 1;
                let first = open.requests == 1;
                let request = DiscoveryRequest::decode(request.into_buf()).expect("a request decodes");
                assert!(ResourceType::from_type_url(&request.type_url).is_some(), "{request:?}");
                assert_eq!(request.node.is_some(), first, "the node is in the first request");
            }
            Effect::ReadNext { stream } => {
                let open = self.open(stream);
                assert!(!std::mem::replace(&mut open.reading, true), "two reads at once");
            }
            Effect::Notify { watch, event, token } => {
                assert!(self.watches.contains_key(&watch), "an event for a watch that is over");
                match event {
                    WatchEvent::Changed(Ok(resource)) => drop(self.told.insert(watch, resource)),
                    WatchEvent::Changed(Err(_)) => drop(self.told.remove(&watch)),
                    WatchEvent::Ambient(_) => assert!(self.told.contains_key(&watch), "ambient to nothing"),
                }
                self.tokens.push(token);
            }
            Effect::MoveLoad => panic!("there is one server"),
        }
    }

    fn open(&mut self, id: StreamId) -> &mut Stream {
        let stream = self.stream.as_mut().expect("a stream is open");
        assert!(stream.id == id && stream.up, "the stream can be used");
        stream
    }

    /// A good server, and time: the core must not be stuck.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if !self.tokens.is_empty() {
                self.release(0);
            } else if self.stream.as_ref().is_some_and(|stream| !stream.up) {
                self.stream_up();
            } else if self.stream.as_ref().is_some_and(|stream| stream.sending) {
                self.send_done();
            } else if let Some(at) = self.core.next_deadline() {
                self.now = at;
                self.handle(Event::Tick);
            } else if self.watches.is_empty() {
                assert!(self.stream.is_none(), "a stream that nobody needs");
                return;
            } else {
                let stream = self.stream.as_ref().expect("a stream while something is watched");
                assert!(stream.reading, "the next message is awaited");
                let ids: Vec<_> = self.watches.keys().copied().collect();
                ids.into_iter().for_each(|id| self.unwatch(id));
            }
        }
        panic!("it never comes to rest");
    }
}

fn resource(kind: ResourceType, input: &mut Input<'_>) -> Any {
    let how = input.byte();
    let name = NAMES[usize::from(how & 3) % NAMES.len()];
    // One in sixteen has a different type than the response.
    let other = how & 0x3c == 0x3c;
    let kind = if other { ResourceType::ALL[input.below(ResourceType::ALL.len())] } else { kind };
    let mut value =
        RESOURCES[ResourceType::ALL.iter().position(|&known| known == kind).unwrap_or(0)].to_vec();
    // The name is the first field of a resource (the first child of an aggregate cluster): the third byte.
    if let Some(place) = value.get_mut(2) {
        *place = name.as_bytes()[0];
    }
    if how & 0x40 != 0 {
        for _ in 0..1 + (how >> 7) {
            let at = usize::from(input.u16()) % value.len().max(1);
            let bits = input.byte();
            if let Some(byte) = value.get_mut(at) {
                *byte ^= bits;
            }
        }
    }
    let resource = Any { type_url: kind.type_url().to_owned(), value };
    if kind == ResourceType::AggregateClusterConfig {
        crate::resources::wrap(name, resource)
    } else {
        resource
    }
}

const BOOTSTRAP: &str = r#"{
    "xds_servers": [{"server_uri": "xds.example:1", "channel_creds": [{"type": "insecure"}]}],
    "node": {"id": "fuzz"}
}"#;

/// The bootstrap of the fuzzed cores.
pub(crate) fn bootstrap() -> Bootstrap {
    Bootstrap::from_json(BOOTSTRAP).expect("a valid bootstrap")
}
