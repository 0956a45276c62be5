//! A world of several management servers: one real `XdsCore`, an authority with a list of servers for each kind of name,
//! outages, delays, and the laws of federation (gRFC A47) and fallback (gRFC A71).
//!
//! Every server has its own mesh, in which the endpoints of a resource tell which server sent it, and at which edit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use prost::Message as _;
use proxyless_sans_io::{Rng, Time};
use proxyless_xds::client::{
    Effect, EncodedRequest, Input, ServerId, WatchEvent, WatchId, WatchKey, WatcherId, XdsCore,
    XdsCoreConfig, XdsServer,
};
use proxyless_xds::resource::{ClusterLoadAssignment, Resource, ResourceType};
use proxyless_xds::{Gates, Limits, StreamId};

use crate::laws::invariants::Violation;
use crate::script::config::{Assignment, Mesh};
use crate::script::{Change, ServerHabits};
use crate::servers::control_plane::{ControlPlane, Welcome};
use crate::servers::encode;

const EDS: ResourceType = ResourceType::ClusterLoadAssignment;
const SERVERS: usize = 3;
/// The servers of each authority, by priority; the first one has the plain names.
const LISTS: [(&str, &[usize]); 3] = [("", &[0, 1]), ("a", &[1, 2]), ("b", &[2, 0, 1])];
const IDS: [&str; 3] = ["x", "y", "z"];
/// Longer than any backoff and the resource timer.
const REST: Duration = Duration::from_secs(400);

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Streams that were opened.
    pub streams: u64,
    /// Events with data of another server than the first of the list.
    pub fallbacks: u64,
}

/// Runs the world of a seed.
///
/// # Errors
/// If a law breaks.
pub fn run(seed: u64) -> Result<Seen, Violation> {
    let mut world = Planes::new(seed);
    for _ in 0..4 {
        for _ in 0..80 {
            world.act()?;
            let span = world.rng.below(2_000);
            world.run_for(Duration::from_millis(span))?;
        }
        world.at_rest()?;
    }
    Ok(world.seen)
}

struct Planes {
    core: XdsCore,
    rng: Rng,
    now: Time,
    queue: BTreeMap<(Time, u64), Event>,
    events: u64,
    servers: Vec<Plane>,
    /// The authority and the name of each watch.
    watches: BTreeMap<u64, (usize, String)>,
    /// The data of each watch: its server and edit.
    data: BTreeMap<u64, (usize, u8)>,
    last_watch: u64,
    seen: Seen,
}

struct Plane {
    server: ControlPlane,
    /// The client's stream, and whether the server has answered on it.
    stream: Option<(StreamId, bool)>,
    reading: bool,
    inbox: VecDeque<Bytes>,
    edit: u8,
}

enum Event {
    Input(Input),
    Request { server: usize, stream: StreamId, request: EncodedRequest },
    Push { server: usize, stream: StreamId, resource_type: ResourceType },
    Arrive { server: usize, stream: StreamId, bytes: Bytes },
}

fn name(authority: usize, id: &str) -> String {
    match LISTS[authority].0 {
        "" => id.to_owned(),
        name => format!("xdstp://{name}/envoy.config.endpoint.v3.ClusterLoadAssignment/{id}"),
    }
}

/// The contents of a server: every resource of every authority, even of those that do not use it.
fn mesh(server: usize, edit: u8) -> Mesh {
    let mut mesh = Mesh::default();
    for (authority, id) in (0..LISTS.len()).flat_map(|authority| IDS.map(|id| (authority, id))) {
        mesh.assignments.insert(name(authority, id), assignment(server, edit));
    }
    mesh
}

fn assignment(server: usize, edit: u8) -> Assignment {
    Assignment::of(&[&[server as u8 * 50 + edit % 50]])
}

impl Planes {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut habit = || rng.below(2) == 0;
        let mut plane = |server| Plane {
            server: ControlPlane::new(
                mesh(server, 0),
                ServerHabits {
                    trusts_versions: habit(),
                    sends_only_changes: habit(),
                    answers_with_nothing: habit(),
                    wraps_all: habit(),
                    resends_rejected: habit(),
                },
            ),
            stream: None,
            reading: false,
            inbox: VecDeque::new(),
            edit: 0,
        };
        let servers = (0..SERVERS).map(&mut plane).collect();
        let ids = |list: &[usize]| list.iter().copied().map(ServerId).collect();
        let uri = |i| XdsServer { uri: format!("sim:///{i}").into(), features: Default::default() };
        let config = XdsCoreConfig {
            servers: (0..SERVERS).map(uri).collect(),
            default_servers: ids(LISTS[0].1),
            authorities: LISTS[1..].iter().map(|(name, list)| ((*name).to_owned(), ids(list))).collect(),
            node: encode::node(),
            node_id: "sim".into(),
            nack_mode: Default::default(),
            gates: Gates::default(),
            limits: Limits::default(),
            certificate_providers: None,
            policies: None,
            resource_timeout: None,
            seed,
        };
        Self {
            core: XdsCore::new(config),
            rng,
            now: Time::ZERO,
            queue: BTreeMap::new(),
            events: 0,
            servers,
            watches: BTreeMap::new(),
            data: BTreeMap::new(),
            last_watch: 0,
            seen: Seen::default(),
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    /// A random external event.
    fn act(&mut self) -> Result<(), Violation> {
        let server = self.below(SERVERS);
        match self.below(10) {
            0..=2 => {
                let (authority, id) = (self.below(LISTS.len()), IDS[self.below(IDS.len())]);
                self.last_watch += 1;
                let name = name(authority, id);
                self.watches.insert(self.last_watch, (authority, name.clone()));
                let watch = key(self.last_watch);
                self.tell(Input::Watch { watch, resource_type: EDS, name: name.as_str().into() })
            }
            3 => {
                let ids: Vec<_> = self.watches.keys().copied().collect();
                if ids.is_empty() {
                    return Ok(());
                }
                let id = ids[self.below(ids.len())];
                self.watches.remove(&id);
                self.data.remove(&id);
                self.tell(Input::Unwatch { watch: key(id) })
            }
            4 | 5 => {
                self.edit(server);
                Ok(())
            }
            6 | 7 => {
                self.servers[server].server.welcome = Welcome::Refused;
                self.cut(server);
                Ok(())
            }
            8 => {
                self.cut(server);
                Ok(())
            }
            _ => {
                self.servers[server].server.welcome = Welcome::Accepted;
                Ok(())
            }
        }
    }

    fn edit(&mut self, server: usize) {
        self.servers[server].edit += 1;
        let edit = self.servers[server].edit;
        for name in mesh(server, edit).assignments.into_keys() {
            let due = self.servers[server].server.set(Change::Assignment(name, assignment(server, edit)));
            self.prepare(server, due);
        }
    }

    fn cut(&mut self, server: usize) {
        self.servers[server].server.close();
        if let Some((stream, _)) = self.servers[server].stream {
            let reason = "UNAVAILABLE: connection reset".into();
            self.later(Event::Input(Input::StreamDown { stream, code: None, reason }));
        }
    }

    fn later(&mut self, event: Event) {
        // Later events of a stream are never sooner: the time only grows with the number.
        let at = self.now + Duration::from_micros(self.rng.below(3_000));
        let at = self.queue.last_key_value().map_or(at, |((last, _), _)| at.max(*last));
        self.events += 1;
        self.queue.insert((at, self.events), event);
    }

    fn prepare(&mut self, server: usize, due: Option<ResourceType>) {
        if let (Some(resource_type), Some((stream, _))) = (due, self.servers[server].stream) {
            self.later(Event::Push { server, stream, resource_type });
        }
    }

    fn run_for(&mut self, span: Duration) -> Result<(), Violation> {
        let end = self.now + span;
        loop {
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            let deadline = self.core.next_deadline();
            let Some(at) = event.into_iter().chain(deadline).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            match self.queue.first_entry().filter(|_| event == Some(at)) {
                Some(entry) => {
                    let event = entry.remove();
                    self.happen(event)?;
                }
                None => self.tell(Input::Tick)?,
            }
        }
        self.now = end;
        Ok(())
    }

    fn current(&self, server: usize, stream: StreamId) -> bool {
        self.servers[server].stream.is_some_and(|(open, _)| open == stream)
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Input(input) => {
                if let Input::StreamDown { stream, .. } = &input {
                    for plane in &mut self.servers {
                        plane.stream.take_if(|(open, _)| open == stream);
                    }
                }
                self.tell(input)
            }
            Event::Request { server, stream, request } if self.current(server, stream) => {
                let request = DiscoveryRequest::decode(request.into_buf())
                    .map_err(|error| Violation::new("requests are DiscoveryRequests", error.to_string()))?;
                // A47-16: an authority's resources are requested from its servers only.
                for name in &request.resource_names {
                    let (_, list) = of(name);
                    Violation::unless(list.contains(&server), "each server is asked for its own", || {
                        format!("{name} at {server}")
                    })?;
                }
                let due = self.servers[server].server.request(stream.0, &request);
                self.prepare(server, due);
                Ok(())
            }
            Event::Push { server, stream, resource_type } => {
                if let Some(pushed) = self.servers[server].server.push(stream.0, resource_type) {
                    self.later(Event::Arrive { server, stream, bytes: pushed.bytes });
                }
                Ok(())
            }
            Event::Arrive { server, stream, bytes } if self.current(server, stream) => {
                self.servers[server].inbox.push_back(bytes);
                self.deliver(server)
            }
            Event::Request { .. } | Event::Arrive { .. } => Ok(()),
        }
    }

    fn deliver(&mut self, server: usize) -> Result<(), Violation> {
        let plane = &mut self.servers[server];
        let Some((stream, answered)) = plane.stream.as_mut().filter(|_| plane.reading) else { return Ok(()) };
        let Some(bytes) = plane.inbox.pop_front() else { return Ok(()) };
        (plane.reading, *answered) = (false, true);
        let stream = *stream;
        self.tell(Input::Message { stream, bytes })
    }

    fn tell(&mut self, input: Input) -> Result<(), Violation> {
        let mut inputs = VecDeque::from([input]);
        let mut reads = Vec::new();
        while let Some(input) = inputs.pop_front() {
            self.core.handle(self.now, input);
            while let Some(effect) = self.core.poll_effect() {
                match effect {
                    Effect::OpenStream { stream, server: ServerId(server) } => self.open(server, stream)?,
                    Effect::CloseStream { stream } => self.close(stream),
                    Effect::Disconnect { server: ServerId(server) } => self.disconnect(server)?,
                    Effect::Send { stream, request } => {
                        let server = self.server_of(stream)?;
                        self.later(Event::Input(Input::SendDone { stream }));
                        self.later(Event::Request { server, stream, request });
                    }
                    Effect::ReadNext { stream } => {
                        let server = self.server_of(stream)?;
                        self.servers[server].reading = true;
                        reads.push(server);
                    }
                    Effect::Notify { watch, event, token } => {
                        self.notified(watch, &event)?;
                        inputs.push_back(Input::TokenReleased { token });
                    }
                    Effect::MoveLoad => {}
                }
            }
        }
        self.check_streams()?;
        reads.into_iter().try_for_each(|server| self.deliver(server))
    }

    fn open(&mut self, server: usize, stream: StreamId) -> Result<(), Violation> {
        self.seen.streams += 1;
        let plane = &mut self.servers[server];
        // A47-08: authorities share the stream of a server.
        Violation::unless(plane.stream.is_none(), "there is one stream to a server", || format!("{server}"))?;
        plane.stream = Some((stream, false));
        plane.reading = false;
        plane.inbox.clear();
        let input = match plane.server.welcome {
            Welcome::Accepted => {
                plane.server.open(stream.0);
                Input::StreamUp { stream }
            }
            _ => Input::StreamDown { stream, code: None, reason: "UNAVAILABLE: connection refused".into() },
        };
        self.later(Event::Input(input));
        Ok(())
    }

    fn close(&mut self, stream: StreamId) {
        for plane in &mut self.servers {
            if plane.stream.take_if(|(open, _)| *open == stream).is_some() {
                plane.server.close();
            }
        }
    }

    /// A71-14: the connection to a server that is not used any more is closed.
    fn disconnect(&mut self, server: usize) -> Result<(), Violation> {
        let unused = self.servers[server].stream.is_none();
        Violation::unless(unused, "a connection is closed after its stream", || format!("server {server}"))
    }

    fn server_of(&self, stream: StreamId) -> Result<usize, Violation> {
        let found =
            self.servers.iter().position(|plane| plane.stream.is_some_and(|(open, _)| open == stream));
        found.ok_or_else(|| Violation::new("only open streams are used", stream.to_string()))
    }

    fn notified(&mut self, watch: WatchKey, event: &WatchEvent) -> Result<(), Violation> {
        let id = watch.watch.0;
        let Some((authority, name)) = self.watches.get(&id) else { return Ok(()) };
        let (_, list) = LISTS[*authority];
        match event {
            WatchEvent::Changed(Ok(Resource::ClusterLoadAssignment(assignment))) => {
                let origin = origin(assignment);
                // A47-20: the data of an authority comes from its servers.
                let own = origin.is_some_and(|(server, _)| list.contains(&server));
                Violation::unless(own, "data comes from the authority's servers", || {
                    format!("{name}: {origin:?}")
                })?;
                self.seen.fallbacks += u64::from(origin.is_some_and(|(server, _)| server != list[0]));
                self.data.extend(origin.map(|origin| (id, origin)));
            }
            // Cached data serves while servers are unreachable.
            WatchEvent::Changed(Err(error)) => {
                let lost = self.data.remove(&id);
                Violation::unless(lost.is_none(), "an outage takes no data away", || error.to_string())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A71-14: no stream is open that no watched authority needs.
    fn check_streams(&self) -> Result<(), Violation> {
        let answered = |server: usize| self.servers[server].stream.is_some_and(|(_, answered)| answered);
        let mut needed = BTreeSet::new();
        for (authority, (_, list)) in LISTS.iter().enumerate() {
            if self.watches.values().any(|(of, _)| *of == authority) {
                let best = list.iter().position(|&server| answered(server)).unwrap_or(list.len() - 1);
                needed.extend(&list[..=best]);
            }
        }
        let open = self.servers.iter().enumerate().filter(|(_, plane)| plane.stream.is_some());
        let open: BTreeSet<_> = open.map(|(server, _)| server).collect();
        Violation::unless(open.is_subset(&needed), "streams to worse servers are closed", || {
            format!("open {open:?}, needed {needed:?}")
        })
    }

    /// All servers are there: each resource is the latest of the first server, and no other has a stream.
    fn at_rest(&mut self) -> Result<(), Violation> {
        for plane in &mut self.servers {
            plane.server.welcome = Welcome::Accepted;
        }
        self.run_for(REST)?;
        let mut firsts = BTreeSet::new();
        for (id, (authority, name)) in &self.watches {
            let first = LISTS[*authority].1[0];
            firsts.insert(first);
            let wanted = Some((first, self.servers[first].edit % 50));
            let found = self.data.get(id).copied();
            Violation::unless(found == wanted, "at rest the first server's data is used", || {
                format!("{name}: {found:?}, wanted {wanted:?}")
            })?;
        }
        let open = self.servers.iter().enumerate().filter(|(_, plane)| plane.stream.is_some());
        let open: BTreeSet<_> = open.map(|(server, _)| server).collect();
        Violation::unless(open == firsts, "at rest only first servers have streams", || {
            format!("open {open:?}, wanted {firsts:?}")
        })
    }
}

fn key(id: u64) -> WatchKey {
    WatchKey { watcher: WatcherId(0), watch: WatchId(id) }
}

/// The authority of a name, and its servers.
fn of(resource: &str) -> (&'static str, &'static [usize]) {
    let named = LISTS[1..].iter().find(|(name, _)| resource.starts_with(&format!("xdstp://{name}/")));
    *named.unwrap_or(&LISTS[0])
}

/// The server of an assignment and its edit, by its only address.
fn origin(assignment: &ClusterLoadAssignment) -> Option<(usize, u8)> {
    let endpoint = assignment.priorities.first()?.first()?.endpoints.first()?;
    let IpAddr::V4(ip) = endpoint.addresses.first()?.ip() else { return None };
    let [.., n] = ip.octets();
    Some((usize::from(n / 50), n % 50))
}
