//! A script: everything that happens to a world from outside, as a list of steps that can be shortened.

use std::net::SocketAddr;
use std::time::Duration;

use proxyless_sans_io::Time;
use proxyless_xds::resource::ResourceType;

use crate::clients::endpoints::Behaviour;
use crate::script::config::{Assignment, Cluster, Key, Listener, Mesh, Route};
use crate::servers::load_server::Wish;

pub mod config;
pub(crate) mod generate;

/// What a world is made from.
#[derive(Clone, Debug)]
pub struct Script {
    /// The seed of delays and of the cores.
    pub seed: u64,
    /// How the world is set up.
    pub settings: Settings,
    /// What the control plane knows at the beginning.
    pub mesh: Mesh,
    /// What happens, in order of time.
    pub steps: Vec<Step>,
}

/// What does not change in a world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// What the script may do.
    pub mood: Mood,
    /// Whether gRFC A99 is on; meshes use its resources only then.
    pub aggregate_resources: bool,
    /// Whether gRFC A88 is on, together with the server feature `fail_on_data_errors`: the only way in which what a
    /// client ends up with does not depend on what it had before.
    pub data_errors: bool,
    /// The server feature `resource_timer_is_transient_error` (gRFC A88).
    pub transient_timer: bool,
    /// Whether nothing of a response with a bad resource is used (gRFC A40).
    pub whole_response_nacks: bool,
    /// Whether clusters want their load reported.
    pub load: bool,
    /// Whether RPCs belong to sessions.
    pub sessions: bool,
    /// Whether clusters eject endpoints that fail.
    pub outliers: bool,
    /// After how long without RPCs channels go IDLE, if they do.
    pub idle_timeout: Option<Duration>,
    /// What the management server does where the protocol leaves it the choice.
    pub server: ServerHabits,
}

/// What a script may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// Anything.
    #[default]
    Chaos,
    /// Only changes after which every route still leads to a backend that accepts, and a control plane that may be away
    /// in the middle of them: no call may fail, or wait long.
    Gentle,
}

/// The choices of a management server.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerHabits {
    /// Does not answer the first request of a stream that says that the client has the current version.
    pub trusts_versions: bool,
    /// Sends only what changed, for the types where it may.
    pub sends_only_changes: bool,
    /// Sends an empty response if it has nothing of what was asked for.
    pub answers_with_nothing: bool,
    /// Wraps every resource in the discovery `Resource`.
    pub wraps_all: bool,
    /// Sends what was rejected again as soon as it hears of that.
    pub resends_rejected: bool,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub struct Step {
    /// When.
    pub at: Time,
    /// What.
    pub action: Action,
}

/// What can happen.
#[derive(Clone, Debug)]
pub enum Action {
    /// A channel is made, and used.
    Start(usize),
    /// A channel is closed.
    Stop(usize),
    /// The control plane has something new.
    Set(Change),
    /// The control plane no longer has it. Only for types of which absence is deletion.
    Remove(Key),
    /// The control plane serves a resource badly from now on.
    Fault(Key, Fault),
    /// The control plane serves a resource as it should.
    Heal(Key),
    /// The ADS stream breaks.
    CutStream(Loss),
    /// New ADS streams fail until further notice.
    RefuseStreams,
    /// New ADS streams are ended with UNIMPLEMENTED until further notice.
    NoAdsService,
    /// New ADS streams can be opened.
    AcceptStreams,
    /// The server takes this long to answer, from now on.
    ServerDelay(Duration),
    /// New ADS streams take this long to open.
    OpenDelay(Duration),
    /// The server sends what it has of a type once more.
    SendAgain(ResourceType),
    /// The server sends what it has of a type so many times in a row.
    Flood(ResourceType, u32),
    /// The server takes requests this slowly, from now on.
    WriteDelay(Duration),
    /// Nobody runs a channel's driver for so long.
    Stall(usize, Duration),
    /// The process is suspended for so long.
    Suspend(Duration),
    /// The server sends something that is no response.
    SendGarbage,
    /// A backend behaves differently. Its connections break if it does not accept any more.
    Backend(SocketAddr, Behaviour),
    /// The hosts of a channel's session say nothing any more: attempts to connect to them last as long as they may.
    SilenceHosts(usize, u8),
    /// A backend says GOAWAY on all connections.
    GoAway(SocketAddr),
    /// A backend's connections break.
    Reset(SocketAddr),
    /// A backend limits the streams of each connection from now on, or not any more.
    StreamLimit(SocketAddr, Option<u32>),
    /// A host name cannot be resolved for a while.
    BreakDns(String),
    /// It can again.
    HealDns(String),
    /// RPCs that reach a backend end with an error, so many of a hundred.
    Failing(SocketAddr, u8),
    /// An RPC begins.
    Call(CallSpec),
    /// So many RPCs follow each other, each as short as can be.
    Burst(CallSpec, u32),
    /// The load reporting server wants to hear something else.
    Wish(Wish),
    /// The load reporting server sends something that is no response.
    LoadGarbage,
    /// The load reporting stream breaks: now, or when the next report is written and not pulled yet.
    CutLoadStream(CutTime),
    /// A channel's listener has a filter for sessions from now on, or not any more; nothing else of it changes.
    ToggleSessions(usize),
    /// A cluster wants its load reported from now on, or not any more.
    ToggleLoad(String),
    /// New load reporting streams fail until further notice.
    RefuseLoadStreams,
    /// New load reporting streams can be opened.
    AcceptLoadStreams,
    /// A channel's user asks for connections now.
    ExitIdle(usize),
    /// A channel's user says that the network is back.
    ResetBackoff(usize),
}

/// Something new at the control plane, or in DNS.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // each variant is a name and what is new under it
pub enum Change {
    Listener(String, Listener),
    Routes(String, Vec<Route>),
    Cluster(String, Cluster),
    Assignment(String, Assignment),
    List(String, Vec<String>),
    Host(String, Vec<SocketAddr>),
}

/// What is wrong with how a resource is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not.
    Withheld,
    /// It is invalid.
    Bad,
}

/// What becomes of messages on a stream that breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Those on their way to the client are lost.
    Everything,
    /// They still arrive, where the client reads on.
    Nothing,
}

/// When a load reporting stream breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutTime {
    /// At once.
    Now,
    /// Under the next report.
    NextReport,
}

/// An RPC.
#[derive(Clone, Debug)]
pub struct CallSpec {
    /// On which channel.
    pub channel: usize,
    /// Its path.
    pub path: String,
    /// How long it takes once it has a connection.
    pub takes: Duration,
    /// Whether it waits when the pick fails.
    pub wait_for_ready: bool,
    /// The session that it belongs to.
    pub session: Option<u8>,
    /// Whether the caller gives up just before it would end.
    pub gives_up: bool,
}
