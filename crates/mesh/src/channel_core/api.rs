//! The inputs and outputs of a [`super::ChannelCore`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{ConnectivityState, PickError, Picker};
use proxyless_balancer::tree::{AttemptId, ConnectionEvent, SubchannelId, TreeConfig, TreeEffect};
use proxyless_sans_io::metrics::Meter;
use proxyless_xds::Gates;
use proxyless_xds::client::{WatchEvent, WatchId};
use proxyless_xds::lrs::LoadStore;
use proxyless_xds::resource::ResourceType;

use crate::dns::{DnsAnswer, DnsConfig, QueryId};
use crate::policies::cluster_impl::CircuitRegistry;
use crate::route_table::RouteTable;
use crate::security::ClusterTls;

/// The configuration of a channel.
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    /// The name of the Listener to request (A27-36).
    pub listener_name: Arc<str>,
    /// The authority by which the virtual host is chosen.
    pub authority: Arc<str>,
    /// The connection settings of the policy tree.
    pub tree: TreeConfig,
    /// The time for a priority to connect before the next is tried; 10 s in gRFC A56.
    pub failover_timeout: Duration,
    /// The DNS settings.
    pub dns: DnsConfig,
    /// Feature gates.
    pub gates: Gates,
    /// The counters of circuit breaking.
    pub circuits: CircuitRegistry,
    /// Whether the TLS settings of clusters are used.
    pub cluster_tls: ClusterTls,
    /// The time without use after which the channel goes IDLE; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// The channel's metrics.
    pub meter: Meter,
    /// The seed of all randomness.
    pub seed: u64,
}

/// An input of the channel.
#[derive(Debug)]
pub enum ChannelInput {
    /// Events of watches, handled together, so that a thousand of them cost one walk.
    Resources {
        /// Watches and their events, in order.
        events: Vec<(WatchId, WatchEvent)>,
    },
    /// A DNS query ended.
    DnsAnswer {
        /// The id from [`ChannelEffect::DnsQuery`]; answers of cancelled queries are ignored.
        query: QueryId,
        /// The addresses, or the error.
        result: Result<DnsAnswer, String>,
    },
    /// Events of connections, handled together, so that a thousand of them cost one new picker.
    Connections {
        /// Connections, attempts (of [`TreeEffect::Connect`]; events of older ones are ignored) and events, in order.
        events: Vec<(SubchannelId, AttemptId, ConnectionEvent)>,
    },
    /// The channel's `Wake` was called: pickers raised signals, or the last user of a cluster is gone.
    Wake,
    /// The channel is used: connect.
    ExitIdle,
    /// The answer to [`ChannelEffect::CheckActivity`].
    Activity(Activity),
    /// Retry now, instead of waiting for backoffs.
    ResetBackoff,
    /// The last handle of the channel was dropped.
    Shutdown,
    /// Time has passed.
    Tick,
}

/// The activity of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// RPCs are in flight, or some have started since the last answer.
    InUse,
    /// No RPCs since the last answer.
    Unused,
}

/// An action for the driver.
#[derive(Debug)]
pub enum ChannelEffect {
    /// Watch a resource.
    Watch {
        /// The id of the watch, unique in this channel.
        watch: WatchId,
        /// The resource's type.
        resource_type: ResourceType,
        /// The resource's name.
        name: Arc<str>,
    },
    /// End a watch.
    Unwatch {
        /// The watch.
        watch: WatchId,
    },
    /// Resolve a host name, once.
    DnsQuery {
        /// The id of the query, to be returned with the answer.
        query: QueryId,
        /// The host.
        host: Arc<str>,
        /// The port for the addresses.
        port: u16,
    },
    /// Cancel a query.
    DnsCancel {
        /// The query.
        query: QueryId,
    },
    /// Open or close a connection.
    Connection(TreeEffect),
    /// Report the load counted in this store.
    RegisterLoad {
        /// The store.
        store: Arc<LoadStore>,
    },
    /// No more load is counted in this store.
    UnregisterLoad {
        /// The store.
        store: Arc<LoadStore>,
    },
    /// Answer with [`ChannelInput::Activity`] whether the channel was used since the last check.
    CheckActivity,
    /// The channel is IDLE: from now on RPCs wait for the next snapshot, and the first one requests it with
    /// [`ChannelInput::ExitIdle`]. The effects that follow release everything the channel held.
    EnterIdle,
    /// RPCs use this snapshot from now on.
    Publish(DataPlane),
}

/// A consistent snapshot for RPCs.
#[derive(Clone)]
pub struct DataPlane {
    /// Larger than that of all previous snapshots. Queued RPCs pick again when it changes.
    pub generation: u64,
    /// The channel's state.
    pub state: ConnectivityState,
    /// The routes, or the error of RPCs. Every cluster in a route is known to `picker`.
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
