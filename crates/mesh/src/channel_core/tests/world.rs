//! A control plane, a resolver, and backends that accept, refuse or stay silent, around one [`ChannelCore`].

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderMap;
use proxyless_balancer::api::{CallAttributes, ConnectivityState, Pick, PickArgs, PickResult, Wake};
use proxyless_balancer::testing::address;
use proxyless_balancer::tree::{AttemptId, ConnectionEvent, SubchannelId, TreeConfig, TreeEffect};
use proxyless_sans_io::metrics::Meter;
use proxyless_sans_io::{Rng, Time};
use proxyless_xds::Gates;
use proxyless_xds::client::{ResourceError, ResourceErrorKind, WatchEvent, WatchId};
use proxyless_xds::lrs::LoadStore;
use proxyless_xds::resource::{
    Cluster, ClusterLoadAssignment, ClusterSpecifier, FilterOverrides, HttpConnectionManager, HttpFilter,
    Listener, ListenerKind, PathMatcher, Resource, ResourceType, Route, RouteAction, RouteConfiguration,
    RouteMatch, RouteSource, VirtualHost,
};

use crate::channel_core::{Activity, ChannelConfig, ChannelCore, ChannelEffect, ChannelInput, DataPlane};
use crate::cluster_claim::{ClusterClaim, RpcClaim};
use crate::dns::{DnsAnswer, DnsConfig, QueryId};
use crate::policies::cluster_impl::CircuitRegistry;
use crate::security::ClusterTls;

/// A backend's reaction to a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    Accepts,
    Refuses,
    /// The attempt ends at its timeout.
    Silent,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    attempt: AttemptId,
    address: SocketAddr,
    ready: bool,
    deadline: Time,
}

/// The result of routing and picking an RPC.
#[derive(Debug)]
pub(super) enum Rpc {
    To(SocketAddr),
    Waits,
    Fails(String),
    Dropped(String),
}

impl PartialEq<u16> for Rpc {
    fn eq(&self, n: &u16) -> bool {
        matches!(self, Self::To(to) if *to == address(*n))
    }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) struct World {
    pub(super) core: ChannelCore,
    pub(super) now: Time,
    pub(super) plane: Option<DataPlane>,
    pub(super) publishes: usize,
    pub(super) circuits: CircuitRegistry,
    /// Addresses of Connect effects since the last [`World::take_connects`].
    pub(super) connects: Vec<SocketAddr>,
    /// Addresses of connections that were closed or whose attempts were cancelled.
    pub(super) closes: Vec<SocketAddr>,
    /// The stores whose load is reported.
    pub(super) loads: Vec<Arc<LoadStore>>,
    /// Queries that wait for an answer.
    pub(super) queries: BTreeMap<QueryId, Arc<str>>,
    /// Hosts of all queries so far.
    pub(super) queried: Vec<Arc<str>>,
    /// The answers to the channel's requests.
    pub(super) activity: Activity,
    /// How often it asked.
    pub(super) checks: usize,
    /// How many connections were closed when the channel last said that it is IDLE.
    pub(super) closed_before_idle: usize,
    woken: Arc<Flag>,
    resources: BTreeMap<(ResourceType, Arc<str>), Resource>,
    watches: BTreeMap<WatchId, (ResourceType, Arc<str>)>,
    backends: BTreeMap<SocketAddr, Backend>,
    connections: BTreeMap<SubchannelId, Connection>,
    inputs: VecDeque<ChannelInput>,
    rng: Rng,
}

impl World {
    /// A channel for the listener `service`, still IDLE.
    pub(super) fn new() -> Self {
        Self::with_dns(DnsConfig::default())
    }

    /// The same with other DNS options.
    pub(super) fn with_dns(dns: DnsConfig) -> Self {
        Self::with_options(dns, Some(Duration::from_secs(1800)))
    }

    /// The same with another idle timeout.
    pub(super) fn with_idle_timeout(timeout: Option<Duration>) -> Self {
        Self::with_options(DnsConfig::default(), timeout)
    }

    fn with_options(dns: DnsConfig, idle_timeout: Option<Duration>) -> Self {
        let (woken, circuits) = (Arc::new(Flag::default()), CircuitRegistry::default());
        let config = ChannelConfig {
            meter: Meter::default(),
            listener_name: "service".into(),
            authority: "service".into(),
            tree: TreeConfig::default(),
            failover_timeout: Duration::from_secs(10),
            dns,
            gates: Gates::default(),
            circuits: circuits.clone(),
            cluster_tls: ClusterTls::default(),
            idle_timeout,
            seed: 1,
        };
        Self {
            core: ChannelCore::new(config, Arc::clone(&woken) as Arc<dyn Wake>),
            now: Time::ZERO,
            plane: None,
            publishes: 0,
            circuits,
            connects: Vec::new(),
            closes: Vec::new(),
            loads: Vec::new(),
            queries: BTreeMap::new(),
            queried: Vec::new(),
            activity: Activity::InUse,
            checks: 0,
            closed_before_idle: 0,
            woken,
            resources: BTreeMap::new(),
            watches: BTreeMap::new(),
            backends: BTreeMap::new(),
            connections: BTreeMap::new(),
            inputs: VecDeque::new(),
            rng: Rng::new(1),
        }
    }

    /// A channel in use, with routes from paths to clusters.
    pub(super) fn with_routes(routes: &[(&str, &str)]) -> Self {
        let mut world = Self::new();
        world.set_routes(routes);
        world.input(ChannelInput::ExitIdle);
        world
    }

    /// The control plane has a new listener with these routes: path prefix to cluster.
    pub(super) fn set_routes(&mut self, routes: &[(&str, &str)]) {
        self.set("service", Resource::Listener(Arc::new(listener(routes))));
    }

    /// The same, with these filters.
    pub(super) fn set_filters(
        &mut self,
        routes: &[(&str, &str)],
        filters: impl IntoIterator<Item = HttpFilter>,
    ) {
        let mut listener = listener(routes);
        if let ListenerKind::Api(manager) = &mut listener.kind {
            manager.filters = filters.into_iter().collect();
        }
        self.set("service", Resource::Listener(Arc::new(listener)));
    }

    pub(super) fn set_cluster(&mut self, name: &str, cluster: Cluster) {
        self.set(name, Resource::Cluster(Arc::new(cluster)));
    }

    pub(super) fn set_endpoints(&mut self, name: &str, assignment: ClusterLoadAssignment) {
        self.set(name, Resource::ClusterLoadAssignment(Arc::new(assignment)));
    }

    pub(super) fn set(&mut self, name: &str, resource: Resource) {
        let key = (resource.resource_type(), Arc::from(name));
        self.resources.insert(key.clone(), resource.clone());
        self.notify(&key, &WatchEvent::Changed(Ok(resource)));
    }

    /// The control plane says that a resource does not exist.
    pub(super) fn remove(&mut self, resource_type: ResourceType, name: &str) {
        let key = (resource_type, Arc::from(name));
        self.resources.remove(&key);
        let error = ResourceError {
            resource_type,
            name: name.into(),
            server: "server".into(),
            node: "node".into(),
            kind: ResourceErrorKind::DoesNotExist("gone".into()),
        };
        self.notify(&key, &WatchEvent::Changed(Err(Arc::new(error))));
    }

    pub(super) fn set_backend(&mut self, n: u16, backend: Backend) {
        self.backends.insert(address(n), backend);
    }

    /// A backend dies: its connection breaks, and new ones are refused.
    pub(super) fn kill(&mut self, n: u16) {
        self.set_backend(n, Backend::Refuses);
        let address = address(n);
        let live = self.connections.iter().find(|(_, found)| found.address == address && found.ready);
        if let Some((&connection, &Connection { attempt, .. })) = live {
            self.connections.remove(&connection);
            let event = ConnectionEvent::Closed("connection reset".into());
            self.input(ChannelInput::Connections { events: vec![(connection, attempt, event)] });
        }
    }

    /// The resolver answers a host's query: with backends, or with an error.
    #[track_caller]
    pub(super) fn answer_dns(&mut self, host: &str, answer: Result<&[u16], &str>) {
        let found = self.queries.iter().find(|(_, asked)| &***asked == host);
        let query = *found.unwrap_or_else(|| panic!("no query for {host}: {:?}", self.queries)).0;
        self.queries.remove(&query);
        let addresses = |numbers: &[u16]| numbers.iter().map(|&n| address(n)).collect();
        let answer = answer.map(|numbers| DnsAnswer { addresses: addresses(numbers), ttl: None });
        self.input(ChannelInput::DnsAnswer { query, result: answer.map_err(str::to_owned) });
    }

    /// Hands in an input, and all that follows from it.
    pub(super) fn input(&mut self, input: ChannelInput) {
        self.inputs.push_back(input);
        self.run();
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let timeouts = self.connections.values().filter(|found| !found.ready).map(|found| found.deadline);
            let Some(at) = timeouts.chain(self.core.next_deadline()).min().filter(|&at| at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            let late: Vec<_> =
                self.connections.iter().filter(|(_, c)| !c.ready && c.deadline <= self.now).collect();
            let late: Vec<_> = late.into_iter().map(|(&id, found)| (id, found.attempt)).collect();
            for (connection, attempt) in late {
                self.connections.remove(&connection);
                let event = ConnectionEvent::Failed("timed out".into());
                self.inputs
                    .push_back(ChannelInput::Connections { events: vec![(connection, attempt, event)] });
            }
            self.input(ChannelInput::Tick);
        }
        self.now = end;
    }

    /// An RPC: route, pick. The cluster's claim is dropped at once.
    pub(super) fn rpc(&mut self, path: &str) -> Rpc {
        match self.begin(path) {
            (_, PickResult::Complete(pick)) => Rpc::To(pick.target.address),
            (_, PickResult::Queue) => Rpc::Waits,
            (_, PickResult::Fail(error)) => Rpc::Fails(error.message.clone()),
            (_, PickResult::Drop(error)) => Rpc::Dropped(error.message.clone()),
        }
    }

    /// An RPC that stays in flight: holds its cluster and its pick.
    #[track_caller]
    pub(super) fn hold(&mut self, path: &str) -> (RpcClaim, Pick) {
        match self.begin(path) {
            (Some(cluster), PickResult::Complete(pick)) => (cluster, pick),
            other => panic!("{other:?}"),
        }
    }

    fn begin(&mut self, path: &str) -> (Option<RpcClaim>, PickResult) {
        let Some(plane) = self.plane.clone() else { return (None, PickResult::Queue) };
        let headers = HeaderMap::new();
        let table = match &plane.routes {
            Ok(table) => Arc::clone(table),
            Err(error) => return (None, PickResult::Fail(Arc::clone(error))),
        };
        let selection = table.select(path, &headers, &mut self.rng).expect("a route");
        let cluster = selection.cluster.hold();
        let result = self.pick_on(&cluster);
        (Some(cluster), result)
    }

    /// A pick on a cluster that an RPC holds, with the newest picker.
    pub(super) fn pick_on(&mut self, cluster: &ClusterClaim) -> PickResult {
        let Some(plane) = self.plane.clone() else { return PickResult::Queue };
        let headers = HeaderMap::new();
        let attributes = CallAttributes { cluster: cluster.id(), ..CallAttributes::default() };
        let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut self.rng };
        let result = plane.picker.pick(&mut args);
        drop(plane);
        self.run();
        result
    }

    pub(super) fn state(&self) -> Option<ConnectivityState> {
        self.plane.as_ref().map(|plane| plane.state)
    }

    pub(super) fn take_connects(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.connects)
    }

    pub(super) fn take_closes(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.closes)
    }

    pub(super) fn connected(&self) -> usize {
        self.connections.values().filter(|found| found.ready).count()
    }

    /// Names of watched resources of a type.
    pub(super) fn watched(&self, resource_type: ResourceType) -> Vec<&str> {
        let mut names: Vec<_> =
            self.watches.values().filter(|(t, _)| *t == resource_type).map(|(_, n)| &**n).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn run(&mut self) {
        loop {
            if self.woken.0.swap(false, Ordering::Relaxed) {
                self.inputs.push_back(ChannelInput::Wake);
            }
            let Some(input) = self.inputs.pop_front() else { break };
            self.core.handle(self.now, input);
            let before = self.publishes;
            while let Some(effect) = self.core.poll_effect() {
                self.act(effect);
            }
            assert!(self.publishes - before <= 1, "more than one snapshot for one input");
        }
    }

    fn act(&mut self, effect: ChannelEffect) {
        match effect {
            ChannelEffect::Watch { watch, resource_type, name } => {
                let known = self.resources.get(&(resource_type, Arc::clone(&name))).cloned();
                assert!(self.watches.insert(watch, (resource_type, name)).is_none(), "{watch:?} twice");
                if let Some(resource) = known {
                    let events = vec![(watch, WatchEvent::Changed(Ok(resource)))];
                    self.inputs.push_back(ChannelInput::Resources { events });
                }
            }
            ChannelEffect::Unwatch { watch } => {
                assert!(self.watches.remove(&watch).is_some(), "{watch:?} unknown")
            }
            ChannelEffect::DnsQuery { query, host, .. } => {
                self.queried.push(Arc::clone(&host));
                assert!(self.queries.values().all(|other| *other != host), "{host} twice at once");
                assert!(self.queries.insert(query, host).is_none(), "{query:?} twice");
            }
            ChannelEffect::DnsCancel { query } => {
                assert!(self.queries.remove(&query).is_some(), "{query:?} unknown");
            }
            ChannelEffect::Connection(TreeEffect::Connect {
                subchannel: connection,
                attempt,
                address,
                timeout,
                ..
            }) => {
                self.connects.push(address);
                let answer = match self.backends.get(&address).copied().unwrap_or(Backend::Accepts) {
                    Backend::Accepts => Some(ConnectionEvent::Ready(Arc::new(address))),
                    Backend::Refuses => Some(ConnectionEvent::Failed("connection refused".into())),
                    Backend::Silent => None,
                };
                let ready = matches!(answer, Some(ConnectionEvent::Ready(_)));
                if ready || answer.is_none() {
                    let deadline = self.now + timeout;
                    self.connections.insert(connection, Connection { attempt, address, ready, deadline });
                }
                self.inputs.extend(
                    answer.map(|event| ChannelInput::Connections {
                        events: vec![(connection, attempt, event)],
                    }),
                );
            }
            ChannelEffect::Connection(
                TreeEffect::CancelConnect { subchannel: connection, .. }
                | TreeEffect::CloseGracefully { subchannel: connection, .. },
            ) => {
                self.closes.extend(self.connections.remove(&connection).map(|found| found.address));
            }
            ChannelEffect::Connection(
                TreeEffect::OpenLoadStream { .. }
                | TreeEffect::CloseLoadStream { .. }
                | TreeEffect::ReportDemand { .. },
            ) => {}
            ChannelEffect::RegisterLoad { store } => self.loads.push(store),
            ChannelEffect::UnregisterLoad { store } => {
                let at = self.loads.iter().position(|known| Arc::ptr_eq(known, &store));
                self.loads.remove(at.expect("a store that was registered"));
            }
            ChannelEffect::CheckActivity => {
                self.checks += 1;
                self.inputs.push_back(ChannelInput::Activity(self.activity));
            }
            ChannelEffect::EnterIdle => {
                self.closed_before_idle = self.closes.len();
                self.plane = None;
            }
            ChannelEffect::Publish(plane) => {
                let newest = self.plane.as_ref().map_or(0, |plane| plane.generation);
                assert!(plane.generation > newest);
                self.publishes += 1;
                self.plane = Some(plane);
                self.check_snapshot();
            }
        }
    }

    /// A31, A74: every cluster that a route names has a picker in the same snapshot.
    fn check_snapshot(&mut self) {
        let Some(DataPlane { routes: Ok(routes), picker, .. }) = self.plane.clone() else { return };
        let headers = HeaderMap::new();
        for cluster in routes.clusters() {
            let attributes = CallAttributes { cluster: cluster.id(), ..CallAttributes::default() };
            let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut self.rng };
            if let PickResult::Fail(error) = picker.pick(&mut args) {
                assert!(!error.message.contains("no longer configured"), "{} has no picker", cluster.name());
            }
        }
    }

    fn notify(&mut self, key: &(ResourceType, Arc<str>), event: &WatchEvent) {
        let watches = self.watches.iter().filter(|(_, watched)| *watched == key).map(|(&watch, _)| watch);
        self.inputs
            .extend(watches.map(|watch| ChannelInput::Resources { events: vec![(watch, event.clone())] }));
        self.run();
    }
}

pub(super) fn listener(routes: &[(&str, &str)]) -> Listener {
    let routes = routes.iter().map(|&(path, cluster)| Route {
        name: path.into(),
        matcher: RouteMatch {
            path: PathMatcher::Prefix { prefix: path.into(), case_sensitive: true },
            headers: Vec::new(),
            fraction_per_million: None,
        },
        action: Some(RouteAction {
            cluster: ClusterSpecifier::Cluster(cluster.into()),
            max_stream_duration: None,
            hash_policies: Vec::new(),
            retry_policy: None,
            auto_host_rewrite: false,
        }),
        filter_overrides: FilterOverrides::default(),
    });
    let virtual_host = VirtualHost {
        name: "v".into(),
        domains: vec!["*".into()],
        routes: routes.collect(),
        retry_policy: None,
        filter_overrides: FilterOverrides::default(),
    };
    let config = RouteConfiguration { virtual_hosts: vec![Arc::new(virtual_host)] };
    let manager = HttpConnectionManager {
        routes: RouteSource::Inline(Arc::new(config)),
        max_stream_duration: None,
        filters: Arc::new([]),
    };
    Listener { kind: ListenerKind::Api(manager) }
}
