//! The world: virtual time, the cores, their drivers and the network.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proxyless_mesh::channel_core::ChannelInput;
use proxyless_mesh::policies::cluster_impl::CircuitRegistry;
use proxyless_mesh::route_table::ActiveFaults;
use proxyless_sans_io::{Rng, Time};
use proxyless_xds::bootstrap::ServerFeatures;
use proxyless_xds::client::{
    Input, NackMode, ReadToken, ServerId, WatchKey, WatcherId, XdsCore, XdsCoreConfig, XdsServer,
};
use proxyless_xds::resource::ResourceType;
use proxyless_xds::{Gates, lrs};

use crate::clients::calls::Calls;
use crate::clients::channel::SimChannel;
use crate::clients::endpoints::{Backends, Connection, Phase, longest_backoff};
use crate::clients::sessions::Sessions;
use crate::laws::invariants::{self, Violation};
use crate::laws::outliers::Limits;
use crate::script::config::Key;
use crate::script::{Script, Settings, Step};
use crate::servers::ads_model::{AdsModel, Response};
use crate::servers::control_plane::ControlPlane;
use crate::servers::encode;
use crate::world::queue::{Event, Queue};

mod actions;
mod channels;
mod client;
mod data_path;
mod load;
mod log;
pub(crate) mod queue;
mod slow;
mod streams;

pub use self::data_path::Outcome;
pub(crate) use self::data_path::{Cookie, Request};
use self::load::LoadReports;
pub(crate) use self::log::Log;
use self::slow::Slow;
use self::streams::StreamLimits;

/// The longest time that a stream takes to open.
const SLOWEST_OPEN: Duration = Duration::from_secs(31);
/// Half of the longest delay of a message.
const SLOWEST_MESSAGE: Duration = Duration::from_millis(500);
/// A core that is due this often at one time is in an endless loop.
const MAX_TICKS_AT_ONE_TIME: u32 = 100;

/// A simulated world.
pub struct World {
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    pub(crate) queue: Queue,
    pub(crate) steps: Vec<Step>,
    pub(crate) settings: Settings,
    pub(crate) control_plane: ControlPlane,
    pub(crate) backends: Backends,
    pub(crate) broken_hosts: BTreeSet<String>,
    pub(crate) channels: Vec<Option<SimChannel>>,
    pub(crate) calls: Calls,
    pub(crate) circuits: CircuitRegistry,
    pub(crate) sessions: Sessions,
    pub(crate) limits: Limits,
    pub(crate) stream_limits: StreamLimits,
    active_faults: Arc<ActiveFaults>,
    pub(crate) loads: LoadReports,
    pub(crate) log: Log,
    pub(crate) background: Background,
    slow: Slow,
    xds: XdsCore,
    model: AdsModel,
    link: Link,
    /// The number of consecutive streams that ended without a response.
    stream_failures: u32,
    stream_heard: Time,
    /// The client's watches, by its own ids.
    watches: BTreeMap<WatchKey, Key>,
    last_token: ReadToken,
    epochs: u64,
    ticks: (Time, u32),
    seed: u64,
}

/// The use of channels apart from the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Background {
    /// Nothing.
    Silent,
    /// A long-lived stream, which keeps each channel from going IDLE.
    Streams,
}

/// A core with deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Core {
    Xds,
    Loads,
    Channel(u64),
}

/// The client's side of the ADS stream.
#[derive(Debug, Default)]
struct Link {
    /// The latest stream that the client opened.
    stream: u64,
    /// When an attempt to open it ends.
    opens_at: Option<Time>,
    is_up: bool,
    sending: bool,
    reading: bool,
    inbox: VecDeque<Bytes>,
    /// The responses sent, by nonce.
    responses: BTreeMap<String, Response>,
    /// The events of responses that watchers still process, and the time of each.
    tokens: BTreeMap<ReadToken, Time>,
}

impl World {
    /// A world before its first event.
    #[must_use]
    pub fn new(script: &Script) -> Self {
        let Script { seed, settings, mesh, steps } = script.clone();
        let mut queue = Queue::default();
        for (i, step) in steps.iter().enumerate() {
            queue.push(step.at, Event::Step(i));
        }
        Self {
            slow: Slow::default(),
            now: Time::ZERO,
            rng: Rng::new(seed),
            queue,
            steps,
            settings,
            control_plane: ControlPlane::new(mesh, settings.server),
            backends: Backends::default(),
            broken_hosts: BTreeSet::new(),
            channels: Vec::new(),
            calls: Calls::default(),
            circuits: CircuitRegistry::default(),
            sessions: Sessions::default(),
            limits: Limits::default(),
            stream_limits: StreamLimits::default(),
            active_faults: Arc::default(),
            loads: LoadReports::new(seed),
            log: Log::default(),
            background: Background::Silent,
            xds: XdsCore::new(xds_config(&settings, seed)),
            model: AdsModel::default(),
            link: Link::default(),
            stream_failures: 0,
            stream_heard: Time::ZERO,
            watches: BTreeMap::new(),
            last_token: ReadToken::default(),
            epochs: 0,
            ticks: (Time::ZERO, 0),
            seed,
        }
    }

    /// Keeps every line of the log.
    #[must_use]
    pub fn with_trace(mut self) -> Self {
        self.log.keep_lines();
        self
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// The log.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// The channels that run.
    pub fn channels(&self) -> impl Iterator<Item = &SimChannel> {
        self.channels.iter().flatten()
    }

    /// A channel, if it runs.
    #[must_use]
    pub fn channel(&self, index: usize) -> Option<&SimChannel> {
        self.channels.get(index)?.as_ref()
    }

    /// The calls.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The number of connections to a backend that take calls, of all channels.
    #[must_use]
    pub fn connections_to(&self, address: SocketAddr) -> usize {
        let ready = |found: &Connection| found.phase == Phase::Ready && found.address == address;
        let of_channel = |channel: &SimChannel| channel.connections.iter().filter(|(_, c)| ready(c)).count();
        self.channels().map(of_channel).sum()
    }

    /// The management server.
    pub(crate) fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The backends.
    pub(crate) fn backends(&self) -> &Backends {
        &self.backends
    }

    /// The model of the ADS protocol.
    #[must_use]
    pub fn model(&self) -> &AdsModel {
        &self.model
    }

    /// The real xDS client.
    #[must_use]
    pub fn xds(&self) -> &XdsCore {
        &self.xds
    }

    /// The number of ADS streams that the client has opened.
    #[must_use]
    pub fn streams(&self) -> u64 {
        self.link.stream
    }

    /// The longest time until there is an ADS stream, if the control plane accepts from now on.
    pub(crate) fn ads_bound(&self) -> Duration {
        let is_open = self.control_plane.stream().is_some();
        let opening = self.link.opens_at.map_or(Duration::ZERO, |at| at.since(self.now));
        match (is_open, self.link.is_up) {
            (true, true) => Duration::ZERO,
            (true, false) => opening,
            // A stream that is about to end is followed by a longer backoff.
            (false, true) => longest_backoff(self.stream_failures + 1) + SLOWEST_MESSAGE,
            (false, false) if self.link.opens_at.is_some() => {
                opening + longest_backoff(self.stream_failures + 1) + SLOWEST_MESSAGE
            }
            (false, false) => longest_backoff(self.stream_failures) + SLOWEST_MESSAGE,
        }
    }

    /// The time of the last event of the ADS stream.
    pub(crate) fn ads_heard(&self) -> Time {
        self.stream_heard
    }

    /// The longest time that a channel may wait for data after an event of the ADS stream.
    pub(crate) fn data_patience(&self) -> Duration {
        let away = if self.link.is_up {
            Duration::ZERO
        } else {
            SLOWEST_OPEN + longest_backoff(self.stream_failures + 1)
        };
        away + self.resource_timeout() + SLOWEST_MESSAGE * 10
    }

    /// The client's timeout of a missing resource.
    pub(crate) fn resource_timeout(&self) -> Duration {
        resource_timeout(&self.settings)
    }

    /// The resources that the xDS client watches.
    #[must_use]
    pub fn watched(&self) -> BTreeSet<(ResourceType, String)> {
        self.watches.values().cloned().collect()
    }

    /// Whether an event is on its way to a channel.
    pub(crate) fn is_to_hear(&self, epoch: u64) -> bool {
        self.slow.is_stalled(epoch)
            || self.xds.is_slow(WatcherId(epoch))
            || self.queue.iter().any(|event| match event {
                Event::Channel { epoch: whose, .. } | Event::Resolve { epoch: whose, .. } => *whose == epoch,
                _ => false,
            })
    }

    /// Runs for this long.
    ///
    /// # Errors
    /// If an invariant breaks.
    pub fn run_for(&mut self, span: Duration) -> Result<(), Violation> {
        let end = self.now + span;
        // For calls that began outside of a step.
        self.report_demand();
        if self.channels().any(|channel| !channel.demands.is_empty()) {
            self.wake_channels();
        }
        while self.step(end)? {}
        self.now = self.now.max(end);
        Ok(())
    }

    /// Runs all steps of the script.
    ///
    /// # Errors
    /// If an invariant breaks.
    pub(crate) fn run_script(&mut self) -> Result<(), Violation> {
        let end = self.steps.last().map_or(Time::ZERO, |step| step.at);
        self.run_for(end.since(self.now))
    }

    /// Executes the next event; returns false if there is none until `end`.
    fn step(&mut self, end: Time) -> Result<bool, Violation> {
        let ticks = self
            .channels()
            .filter(|channel| !self.slow.is_stalled(channel.epoch))
            .map(|channel| (channel.core.next_deadline(), Core::Channel(channel.epoch)));
        let ticks = ticks
            .chain([(self.xds.next_deadline(), Core::Xds), (self.loads.core.next_deadline(), Core::Loads)]);
        let tick = ticks.filter_map(|(at, whose)| Some((at?, whose))).min();
        let event = self.queue.next_time();
        let tick_first = tick.is_some_and(|(at, _)| event.is_none_or(|event| at <= event));
        let Some(at) = tick.map(|(at, _)| at).into_iter().chain(event).min().filter(|&at| at <= end) else {
            return Ok(false);
        };
        self.now = self.now.max(at);
        if let Some((_, whose)) = tick.filter(|_| tick_first) {
            self.tick(whose)?;
        } else if let Some(event) = self.queue.pop() {
            self.happen(event)?;
        }
        self.report_demand();
        self.wake_channels();
        invariants::after_event(self)?;
        self.check_lines()?;
        Ok(true)
    }

    fn tick(&mut self, whose: Core) -> Result<(), Violation> {
        if self.ticks.0 != self.now {
            self.ticks = (self.now, 0);
        }
        self.ticks.1 += 1;
        Violation::unless(self.ticks.1 < MAX_TICKS_AT_ONE_TIME, "a handled deadline is over", || {
            format!("still due at {:?}: {whose:?}", self.now)
        })?;
        match whose {
            Core::Channel(epoch) => self.tell_channel(epoch, ChannelInput::Tick),
            Core::Xds => self.tell_xds(Input::Tick),
            Core::Loads => self.tell_loads(lrs::Input::Tick),
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        let Some(event) = self.slow.hold_back(event) else { return Ok(()) };
        match event {
            Event::Resume { epoch } => {
                self.resume(epoch);
                Ok(())
            }
            Event::Step(i) => match self.steps.get(i).cloned() {
                Some(step) => self.act(step.action),
                None => Ok(()),
            },
            Event::Xds(input) => self.tell_xds(input),
            Event::Channel { epoch, input: ChannelInput::Resources { events }, token } => {
                self.on_resources(epoch, events, token)
            }
            Event::Channel { epoch, input, token } => {
                let told = self.tell_channel(epoch, input);
                self.release(epoch, token);
                told
            }
            Event::Request { stream, bytes } => {
                self.request_arrives(stream, &bytes);
                Ok(())
            }
            Event::Push { stream, resource_type } => {
                self.push(stream, resource_type);
                Ok(())
            }
            Event::Arrive { stream, bytes } => {
                self.arrive(stream, bytes);
                Ok(())
            }
            Event::Message { stream, bytes } => self.message(stream, bytes),
            Event::Resolve { epoch, query } => self.resolve(epoch, query),
            Event::Connection { epoch, attempt, happening } => self.on_connection(epoch, attempt, happening),
            Event::Load(input) => self.tell_loads(input),
            Event::LoadRequest { stream, bytes } => {
                self.load_request_arrives(stream, bytes);
                Ok(())
            }
            Event::CallEnds { id, run } => {
                self.call_ends(id, run);
                Ok(())
            }
            Event::CallWakes(id) => self.call_wakes(id),
            Event::FaultEnds(id) => self.fault_ends(id),
            Event::CallTimesOut(id) => self.time_out(id),
        }
    }

    /// The delay of a message inside the process, mostly close to zero.
    fn local_delay(&mut self) -> Duration {
        let most = if self.rng.below(20) == 0 { 50_000 } else { 100 };
        Duration::from_micros(self.rng.below(most))
    }

    /// The delay of a message on the network.
    fn network_delay(&mut self) -> Duration {
        let most = if self.rng.below(20) == 0 { 300_000 } else { 5_000 };
        Duration::from_micros(self.rng.below(most))
    }
}

/// The gates of these settings.
pub(crate) fn gates(settings: &Settings) -> Gates {
    let mut gates = Gates::default();
    gates.aggregate_cluster_resource = settings.aggregate_resources;
    gates.data_error_handling = settings.data_errors;
    gates.connection_scaling = true;
    gates
}

fn resource_timeout(settings: &Settings) -> Duration {
    let slow_timer = settings.data_errors && settings.transient_timer;
    Duration::from_secs(if slow_timer { 30 } else { 15 })
}

fn xds_config(settings: &Settings, seed: u64) -> XdsCoreConfig {
    let mut features = ServerFeatures::default();
    features.fail_on_data_errors = settings.data_errors;
    features.resource_timer_is_transient_error = settings.transient_timer;
    XdsCoreConfig {
        servers: vec![XdsServer { uri: "sim:///server".into(), features }],
        default_servers: vec![ServerId(0)],
        authorities: BTreeMap::new(),
        node: encode::node(),
        node_id: "sim".into(),
        nack_mode: if settings.whole_response_nacks {
            NackMode::WholeResponse
        } else {
            NackMode::PerResource
        },
        gates: gates(settings),
        certificate_providers: None,
        policies: None,
        limits: proxyless_xds::Limits::default(),
        resource_timeout: Some(resource_timeout(settings)),
        seed,
    }
}
