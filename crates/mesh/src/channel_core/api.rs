//! What goes into a [`super::ChannelCore`], and what comes out.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{ConnectivityState, PickError, Picker};
use proxyless_balancer::tree::{ConnectionEvent, ConnectionId, TreeConfig};
use proxyless_xds::Gates;
use proxyless_xds::client::{WatchEvent, WatchId};
use proxyless_xds::lrs::LoadStore;
use proxyless_xds::resource::ResourceType;

use crate::dns::{DnsAnswer, DnsConfig};
use crate::policies::cluster_impl::CircuitRegistry;
use crate::route_table::RouteTable;

/// How a channel is set up.
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    /// The Listener to ask for (A27-36).
    pub listener_name: Arc<str>,
    /// What virtual hosts are chosen by.
    pub authority: Arc<str>,
    /// How the policy tree connects. Its seed is not used: `seed` is.
    pub tree: TreeConfig,
    /// How long a priority may be CONNECTING before the next is tried; 10 s in gRFC A56.
    pub failover_timeout: Duration,
    /// How names are resolved.
    pub dns: DnsConfig,
    /// Gated behaviour.
    pub gates: Gates,
    /// The counters for circuit breaking.
    pub circuits: CircuitRegistry,
    /// How long nobody must have used the channel before it goes IDLE; `None` if it never does.
    pub idle_timeout: Option<Duration>,
    /// The seed of all randomness.
    pub seed: u64,
}

/// What happens to a channel.
#[derive(Debug)]
pub enum ChannelInput {
    /// The xDS client has something to say on a watch.
    Resource {
        /// The watch.
        watch: WatchId,
        /// What.
        event: WatchEvent,
    },
    /// The same for several watches at once: they are taken in together, so that a thousand cost one walk.
    Resources {
        /// Watches and what there is to say, in order.
        events: Vec<(WatchId, WatchEvent)>,
    },
    /// A DNS query ended.
    DnsAnswer {
        /// The number that `ChannelEffect::DnsQuery` named; answers of cancelled queries are ignored.
        query: u64,
        /// The addresses, or why there are none.
        result: Result<DnsAnswer, String>,
    },
    /// Something happened to a connection.
    Connection {
        /// Which one.
        connection: ConnectionId,
        /// The attempt that `ChannelEffect::Connect` named; events of older ones are ignored.
        attempt: u64,
        /// What.
        event: ConnectionEvent,
    },
    /// The same for several connections at once: they are taken in together, so that a thousand cost one new picker.
    Connections {
        /// Connections, attempts and what happened to them, in order.
        events: Vec<(ConnectionId, u64, ConnectionEvent)>,
    },
    /// The channel's `Wake` was called: pickers raised signals, or the last user of a cluster is gone.
    Wake,
    /// Someone wants to use the channel: connect.
    ExitIdle,
    /// The answer to [`ChannelEffect::CheckActivity`].
    Activity(Activity),
    /// Try again now what waits for its backoff.
    ResetBackoff,
    /// The last handle of the channel is gone.
    Shutdown,
    /// Nothing but the passing of time.
    Tick,
}

/// Whether a channel is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// RPCs are in flight, or some have begun since the last answer.
    InUse,
    /// Neither.
    Unused,
}

/// What a channel wants done.
#[derive(Debug)]
pub enum ChannelEffect {
    /// Watch a resource.
    Watch {
        /// The watch's name, unique in this channel.
        watch: WatchId,
        /// The resource's type.
        resource_type: ResourceType,
        /// The resource's name.
        name: Arc<str>,
    },
    /// End a watch.
    Unwatch {
        /// Which one.
        watch: WatchId,
    },
    /// Resolve a host name, once.
    DnsQuery {
        /// The query's number, to be given back with its answer.
        query: u64,
        /// The host.
        host: Arc<str>,
        /// The port that its addresses shall have.
        port: u16,
    },
    /// Give a query up.
    DnsCancel {
        /// Which one.
        query: u64,
    },
    /// Connect.
    Connect {
        /// The connection's name.
        connection: ConnectionId,
        /// The attempt's number, to be given back with its events.
        attempt: u64,
        /// Where to.
        address: SocketAddr,
        /// How long it may take.
        timeout: Duration,
    },
    /// Give up an attempt.
    CancelConnect {
        /// The connection.
        connection: ConnectionId,
        /// The attempt.
        attempt: u64,
    },
    /// Start nothing new on a connection, and close it when what runs has ended.
    CloseGracefully {
        /// The connection.
        connection: ConnectionId,
        /// The attempt that made it.
        attempt: u64,
    },
    /// Report the load that this store counts.
    RegisterLoad {
        /// The store.
        store: Arc<LoadStore>,
    },
    /// No more load comes to this store.
    UnregisterLoad {
        /// The store.
        store: Arc<LoadStore>,
    },
    /// Say, with [`ChannelInput::Activity`], whether the channel was used since this was last asked.
    CheckActivity,
    /// The channel is IDLE: from now on RPCs wait for the next snapshot, and the first one asks for it with
    /// [`ChannelInput::ExitIdle`]. All that the channel had is given up by the effects that follow.
    EnterIdle,
    /// From now on RPCs use this.
    Publish(DataPlane),
}

/// What RPCs use: one consistent snapshot.
#[derive(Clone)]
pub struct DataPlane {
    /// Larger than that of every snapshot before. RPCs that wait pick again when it changes.
    pub generation: u64,
    /// The channel's state.
    pub state: ConnectivityState,
    /// The routes, or why there are none. Every cluster that a route names is known to `picker`.
    pub routes: Result<Arc<RouteTable>, Arc<PickError>>,
    /// The picker of the whole tree.
    pub picker: Arc<dyn Picker>,
}

impl fmt::Debug for DataPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self.routes.as_ref().map(|_| "routes").map_err(|error| &error.message);
        f.debug_struct("DataPlane")
            .field("generation", &self.generation)
            .field("state", &self.state)
            .field("routes", &routes)
            .finish_non_exhaustive()
    }
}
