//! A script: all external events of a world, as a list of steps that can be minimised.

use std::net::SocketAddr;
use std::time::Duration;

use proxyless_sans_io::Time;
use proxyless_xds::resource::ResourceType;

use crate::clients::endpoints::Behaviour;
use crate::script::config::{Assignment, Cluster, Key, Listener, Mesh, Route};
use crate::servers::load_server::LoadReportRequest;

pub mod config;
pub(crate) mod generate;

/// The input of a run.
#[derive(Clone, Debug)]
pub struct Script {
    /// Seeds the delays and the cores.
    pub seed: u64,
    /// The settings of the world.
    pub settings: Settings,
    /// The initial contents of the control plane.
    pub mesh: Mesh,
    /// The steps, in order of time.
    pub steps: Vec<Step>,
}

/// The constant settings of a world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The limits on the steps.
    pub mood: Mood,
    /// Whether gRFC A99 is enabled; meshes use its resources only then.
    pub aggregate_resources: bool,
    /// Whether gRFC A88 is enabled along with the server feature `fail_on_data_errors`. Only then the final state of a
    /// client is independent of its history.
    pub data_errors: bool,
    /// The server feature `resource_timer_is_transient_error` (gRFC A88).
    pub transient_timer: bool,
    /// Whether a response with a bad resource is rejected as a whole (gRFC A40).
    pub whole_response_nacks: bool,
    /// Whether clusters want load reports.
    pub load: bool,
    /// Whether some RPCs belong to sessions.
    pub sessions: bool,
    /// Whether clusters have outlier detection.
    pub outliers: bool,
    /// The idle timeout of the channels, if any.
    pub idle_timeout: Option<Duration>,
    /// The choices of the management server where the protocol leaves it free.
    pub server: ServerHabits,
}

/// The limits on the steps of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// None.
    #[default]
    Chaos,
    /// Every route always leads to a backend that accepts connections, and the control plane may be unreachable in
    /// between: no call may fail or wait long.
    Gentle,
}

/// The choices of a management server.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerHabits {
    /// Does not answer the first request of a stream if the client already has the current version.
    pub trusts_versions: bool,
    /// Sends only changed resources, for the types that allow it.
    pub sends_only_changes: bool,
    /// Sends an empty response if it has none of the requested resources.
    pub answers_with_nothing: bool,
    /// Wraps every resource in the discovery `Resource`.
    pub wraps_all: bool,
    /// Resends a rejected resource as soon as it reads the NACK.
    pub resends_rejected: bool,
}

/// An event and its time.
#[derive(Clone, Debug)]
pub struct Step {
    /// The virtual time.
    pub at: Time,
    /// The event.
    pub action: Action,
}

/// An external event.
#[derive(Clone, Debug)]
pub enum Action {
    /// Starts a channel.
    Start(usize),
    /// Closes a channel.
    Stop(usize),
    /// The control plane adds or changes a resource.
    Set(Change),
    /// The control plane removes a resource. Only for types where absence means deletion.
    Remove(Key),
    /// The control plane serves a resource with a fault from now on.
    Fault(Key, Fault),
    /// The control plane serves a resource correctly again.
    Heal(Key),
    /// The ADS stream breaks.
    CutStream(Loss),
    /// New ADS streams fail until further notice.
    RefuseStreams,
    /// New ADS streams end with UNIMPLEMENTED until further notice.
    NoAdsService,
    /// New ADS streams succeed again.
    AcceptStreams,
    /// The delay of the server's responses from now on.
    ServerDelay(Duration),
    /// The time that new ADS streams take to open.
    OpenDelay(Duration),
    /// The server resends a type.
    SendAgain(ResourceType),
    /// The server resends a type several times in a row.
    Flood(ResourceType, u32),
    /// The time that the server takes to read a request, from now on.
    WriteDelay(Duration),
    /// A channel's driver does not run for this long.
    Stall(usize, Duration),
    /// The process is suspended for this long.
    Suspend(Duration),
    /// The server sends bytes that are not a response.
    SendGarbage,
    /// A backend changes its behaviour. Its connections break if it stops accepting.
    Backend(SocketAddr, Behaviour),
    /// The hosts of a channel's session stop responding: connection attempts to them time out.
    SilenceHosts(usize, u8),
    /// A backend sends GOAWAY on all connections.
    GoAway(SocketAddr),
    /// A backend's connections break.
    Reset(SocketAddr),
    /// A backend sets or removes its limit of concurrent streams per connection.
    StreamLimit(SocketAddr, Option<u32>),
    /// A host name cannot be resolved until further notice.
    BreakDns(String),
    /// A host name can be resolved again.
    HealDns(String),
    /// The percentage of a backend's RPCs that end with an error.
    Failing(SocketAddr, u8),
    /// An RPC begins.
    Call(CallSpec),
    /// Several RPCs follow each other, each as short as possible.
    Burst(CallSpec, u32),
    /// The load reporting server changes its request.
    RequestLoad(LoadReportRequest),
    /// The load reporting server sends bytes that are not a response.
    LoadGarbage,
    /// The load reporting stream breaks: now, or when the next report is written but not yet sent.
    CutLoadStream(CutTime),
    /// Adds or removes the session filter of a channel's listener.
    ToggleSessions(usize),
    /// Enables or disables load reports of a cluster.
    ToggleLoad(String),
    /// New load reporting streams fail until further notice.
    RefuseLoadStreams,
    /// New load reporting streams succeed again.
    AcceptLoadStreams,
    /// The user of a channel asks it to connect.
    ExitIdle(usize),
    /// The user of a channel resets its backoffs, as after a network change.
    ResetBackoff(usize),
}

/// A new or changed resource or DNS record.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // each variant is a name and its new value
pub enum Change {
    Listener(String, Listener),
    Routes(String, Vec<Route>),
    Cluster(String, Cluster),
    Assignment(String, Assignment),
    List(String, Vec<String>),
    Host(String, Vec<SocketAddr>),
}

/// A fault of a served resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is absent.
    Withheld,
    /// It is invalid.
    Bad,
}

/// The fate of messages in transit on a stream that breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Messages to the client are lost.
    Everything,
    /// Messages to the client still arrive if it reads them.
    Nothing,
}

/// The time at which a load reporting stream breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutTime {
    /// At once.
    Now,
    /// With the next report.
    NextReport,
}

/// An RPC.
#[derive(Clone, Debug)]
pub struct CallSpec {
    /// Its channel.
    pub channel: usize,
    /// Its path.
    pub path: String,
    /// Its duration once it has a connection.
    pub takes: Duration,
    /// Whether it is wait-for-ready.
    pub wait_for_ready: bool,
    /// Its session.
    pub session: Option<u8>,
    /// Whether the caller cancels it just before it would end.
    pub gives_up: bool,
}
