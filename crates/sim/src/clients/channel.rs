//! One channel: the real core, and the state of its driver.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proxyless_balancer::api::Wake;
use proxyless_balancer::policies::priority::DEFAULT_FAILOVER_TIMEOUT;
use proxyless_balancer::tree::{LoadStreamId, StreamDemand, SubchannelId, TreeConfig};
use proxyless_mesh::channel_core::{ChannelConfig, ChannelCore, DataPlane};
use proxyless_mesh::dns::{DnsConfig, DnsRefresh};
use proxyless_mesh::policies::cluster_impl::CircuitRegistry;
use proxyless_mesh::security::ClusterTls;
use proxyless_sans_io::metrics::Meter;
use proxyless_sans_io::{BackoffConfig, Time};
use proxyless_xds::client::{ResourceErrorKind, WatchEvent, WatchId};
use proxyless_xds::lrs::LoadStore;
use proxyless_xds::resource::{EndpointHealth, LbEndpoint, Resource, ResourceType};

use crate::clients::endpoints::Connections;
use crate::laws::keepalive::{INTERVAL, Keepalive};
use crate::script::Settings;
use crate::servers::resolver::Resolver;
use crate::world::gates;

/// A running channel.
pub struct SimChannel {
    /// Its index in the world.
    pub(crate) index: usize,
    /// Its unique id: a restarted channel has a different one.
    pub(crate) epoch: u64,
    /// The core.
    pub(crate) core: ChannelCore,
    /// The latest snapshot.
    pub plane: Option<DataPlane>,
    /// Its watches, with the latest event of each.
    pub(crate) watches: BTreeMap<WatchId, Watched>,
    /// Its connections.
    pub(crate) connections: Connections,
    pub(crate) keepalive: Keepalive,
    /// The DNS answers that it got, by name.
    pub(crate) resolved: BTreeMap<Arc<str>, Vec<SocketAddr>>,
    pub(crate) resolver: Resolver,
    /// Every address that it ever got.
    pub(crate) told: BTreeSet<SocketAddr>,
    /// The time of the last failed connection attempt, by address.
    pub(crate) failed: BTreeMap<SocketAddr, Time>,
    /// The clusters whose configuration was once able to serve.
    pub(crate) served: BTreeSet<Arc<str>>,
    /// The load stores that it registered.
    pub(crate) loads: Vec<Arc<LoadStore>>,
    /// The streams of out-of-band load reports that it opened.
    pub(crate) load_streams: BTreeMap<SubchannelId, LoadStreamId>,
    /// Snapshots published.
    pub publishes: u64,
    /// Connection attempts.
    pub connects: u64,
    /// Times that it went IDLE.
    pub idles: u64,
    /// Whether an RPC used it since its last activity check.
    pub(crate) used: bool,
    /// The time of its last input or effect.
    pub(crate) heard: Time,
    /// The time at which its driver last resumed after a stall.
    pub(crate) resumed: Time,
    /// The time at which it last got routes after it had none.
    pub(crate) routed_since: Time,
    /// Whether it was asked to leave IDLE since it last became IDLE.
    pub(crate) asked: bool,
    /// Where to report the calls that wait for a stream of a subchannel (gRFC A105).
    pub(crate) demands: BTreeMap<SubchannelId, Arc<StreamDemand>>,
    /// The largest limit of connections that any Cluster has had, at least 1 and at most the cap.
    pub(crate) max_connections: u32,
    woken: Arc<Flag>,
}

/// A watch.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The resource's type.
    pub(crate) resource_type: ResourceType,
    /// The resource's name.
    pub(crate) name: Arc<str>,
    /// The state that the channel must have; `None` before the first event.
    pub(crate) answer: Option<Result<Resource, String>>,
    /// Whether the only answer is that the control plane is unreachable.
    pub(crate) unreachable: bool,
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SimChannel {
    /// The channel of the listener `l<index>`, not used yet.
    pub(crate) fn new(
        index: usize,
        epoch: u64,
        settings: &Settings,
        circuits: CircuitRegistry,
        seed: u64,
    ) -> Self {
        let woken = Arc::new(Flag::default());
        let name: Arc<str> = format!("l{index}").into();
        let config = ChannelConfig {
            meter: Meter::default(),
            listener_name: Arc::clone(&name),
            authority: name,
            tree: TreeConfig { keepalive_interval: Some(INTERVAL), ..TreeConfig::default() },
            failover_timeout: DEFAULT_FAILOVER_TIMEOUT,
            dns: dns(),
            gates: gates(settings),
            circuits,
            cluster_tls: ClusterTls::default(),
            idle_timeout: settings.idle_timeout,
            seed,
        };
        Self {
            index,
            epoch,
            core: ChannelCore::new(config, Arc::clone(&woken) as Arc<dyn Wake>),
            plane: None,
            watches: BTreeMap::new(),
            connections: Connections::default(),
            keepalive: Keepalive::default(),
            resolved: BTreeMap::new(),
            resolver: Resolver::default(),
            told: BTreeSet::new(),
            failed: BTreeMap::new(),
            served: BTreeSet::new(),
            loads: Vec::new(),
            load_streams: BTreeMap::new(),
            publishes: 0,
            connects: 0,
            idles: 0,
            used: false,
            heard: Time::ZERO,
            resumed: Time::ZERO,
            routed_since: Time::ZERO,
            asked: false,
            demands: BTreeMap::new(),
            max_connections: 1,
            woken,
        }
    }

    /// Whether the core requested a wake-up since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.0.swap(false, Ordering::Relaxed)
    }

    /// Records the event of a watch.
    pub(crate) fn note(&mut self, watch: WatchId, event: &WatchEvent) {
        let Some(watched) = self.watches.get_mut(&watch) else { return };
        match event {
            WatchEvent::Changed(Ok(resource)) => {
                self.told.extend(addresses_of(resource, |_| true));
                if let Resource::Cluster(cluster) = resource {
                    let limit = cluster.circuit_breakers.max_connections_per_host.unwrap_or(1);
                    let cap = TreeConfig::default().connections_per_subchannel_cap;
                    self.max_connections = self.max_connections.max(limit.min(cap));
                }
                watched.answer = Some(Ok(resource.clone()));
                watched.unreachable = false;
            }
            WatchEvent::Changed(Err(error)) => {
                watched.answer = Some(Err(error.to_string()));
                watched.unreachable = matches!(error.kind, ResourceErrorKind::Transient(_));
            }
            WatchEvent::Ambient(Some(error)) if !matches!(watched.answer, Some(Ok(_))) => {
                watched.answer = Some(Err(error.to_string()));
            }
            WatchEvent::Ambient(_) => {}
        }
    }

    /// Records a DNS answer.
    pub(crate) fn note_dns(&mut self, host: Arc<str>, addresses: &[SocketAddr]) {
        self.told.extend(addresses.iter().copied());
        self.resolved.insert(host, addresses.to_vec());
    }

    /// Forgets the names that the core no longer resolves.
    pub(crate) fn forget_names(&mut self) {
        // Runs after every input, so it does not allocate.
        let is_known = |host: &str| self.core.dns_names().any(|name| *name.host == *host);
        self.resolver.retain(is_known);
        self.resolved.retain(|host, _| is_known(host));
    }

    /// Whether its snapshot has routes.
    pub(crate) fn has_routes(&self) -> bool {
        self.plane.as_ref().is_some_and(|plane| plane.routes.is_ok())
    }

    /// Whether it waits for a resource or for DNS.
    pub(crate) fn waits_for_data(&self) -> bool {
        let waits = |watched: &Watched| watched.answer.is_none() || watched.unreachable;
        self.watches.values().any(waits) || self.waits_for_dns()
    }

    fn waits_for_dns(&self) -> bool {
        self.core.dns_names().any(|name| !self.resolver.has_answered(&name.host))
    }

    /// Every address in the watched assignments and DNS answers.
    pub(crate) fn addresses(&self) -> BTreeSet<SocketAddr> {
        self.addresses_where(|_| true)
    }

    /// The same without DRAINING endpoints.
    pub(crate) fn addresses_not_draining(&self) -> BTreeSet<SocketAddr> {
        self.addresses_where(|endpoint| endpoint.health != EndpointHealth::Draining)
    }

    fn addresses_where(&self, which: impl Fn(&LbEndpoint) -> bool) -> BTreeSet<SocketAddr> {
        let resources = self.watches.values().filter_map(|watched| watched.answer.as_ref()?.as_ref().ok());
        let resolved = self.resolved.values().flatten().copied();
        resources.flat_map(|resource| addresses_of(resource, &which)).chain(resolved).collect()
    }
}

/// Records change often here, so channels refresh them often.
fn dns() -> DnsConfig {
    DnsConfig {
        min_resolution_interval: Duration::from_secs(5),
        backoff: BackoffConfig { max: Duration::from_secs(15), ..BackoffConfig::default() },
        refresh: DnsRefresh::Every(Duration::from_secs(20)),
        ..DnsConfig::default()
    }
}

fn addresses_of(resource: &Resource, which: impl Fn(&LbEndpoint) -> bool) -> Vec<SocketAddr> {
    let Resource::ClusterLoadAssignment(assignment) = resource else { return Vec::new() };
    let endpoints = assignment.priorities.iter().flatten().flat_map(|locality| &locality.endpoints);
    let endpoints = endpoints.filter(|endpoint| which(endpoint));
    endpoints.flat_map(|endpoint| endpoint.addresses.iter().copied()).collect()
}
