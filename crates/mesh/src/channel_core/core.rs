//! The state machine.

use std::collections::VecDeque;
use std::sync::Arc;

use proxyless_balancer::api::{
    ConnectivityState, Endpoints, FailPicker, PickError, PolicyEvent, Update, Wake,
};
use proxyless_balancer::tree::{SubchannelNode, Tree, TreeStats};
use proxyless_sans_io::{Interner, Repeats, Time};
use proxyless_xds::resource::{HttpFilter, HttpFilterConfig};

use super::cluster_claims::ClusterClaims;
use super::idle::IdleTimer;
use super::managed::ManagedClusters;
use super::{Activity, ChannelConfig, ChannelEffect, ChannelInput, DataPlane, TreeView};
use crate::dependency_manager::{DependencyEffect, DependencyManager, DnsName};
use crate::dns::{DnsOutput, DnsScheduler};
use crate::policies::cds::CdsSettings;
use crate::policies::cluster_impl::{LoadChange, LoadRegistry};
use crate::policies::override_host::Sessions;
use crate::route_table::RouteTable;
use crate::security::SecurityRegistry;
use crate::targets;
use crate::xds_config::XdsConfig;

/// One channel.
pub struct ChannelCore {
    listener_name: Arc<str>,
    dependencies: DependencyManager,
    dns: DnsScheduler,
    claims: ClusterClaims,
    tree: Tree,
    settings: Arc<CdsSettings>,
    managed: ManagedClusters,
    phase: Phase,
    idle: IdleTimer,
    config: Config,
    /// Set while the routes of `config` are not published yet.
    routes_changed: bool,
    generation: u64,
    /// The log of rejected configurations.
    rejected: Repeats,
    effects: VecDeque<ChannelEffect>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Running,
    ShutDown,
}

/// Whether the dependency manager requested anything of DNS.
#[derive(PartialEq, Eq)]
enum DnsAsked {
    Yes,
    No,
}

/// The last result of the dependency manager.
enum Config {
    None,
    Good { xds: Arc<XdsConfig>, routes: Arc<RouteTable> },
    Bad(Arc<PickError>),
}

impl ChannelCore {
    /// Creates an IDLE channel, which does nothing until [`ChannelInput::ExitIdle`] (A27-35). `wake` is called from any
    /// thread when [`ChannelInput::Wake`] must follow.
    #[must_use]
    pub fn new(config: ChannelConfig, wake: Arc<dyn Wake>) -> Self {
        let settings = CdsSettings {
            failover_timeout: config.failover_timeout,
            aggregate_backward_compat: config.gates.aggregate_cluster_backward_compat,
            sessions: Sessions::Unused,
            circuits: config.circuits,
            loads: LoadRegistry::default(),
            security: SecurityRegistry::new(config.cluster_tls),
            names: Interner::default(),
        };
        Self {
            listener_name: Arc::clone(&config.listener_name),
            dependencies: DependencyManager::new(config.listener_name, config.authority),
            // The tree uses the seed itself.
            dns: DnsScheduler::new(config.dns, !config.seed),
            claims: ClusterClaims::new(Arc::clone(&wake)),
            tree: Tree::new(config.tree, config.seed, wake).metered(config.meter.clone()),
            settings: Arc::new(settings),
            managed: ManagedClusters::default(),
            phase: Phase::Idle,
            idle: IdleTimer::new(config.idle_timeout),
            config: Config::None,
            routes_changed: false,
            generation: 0,
            rejected: Repeats::default(),
            effects: VecDeque::new(),
        }
    }

    /// Handles an input. The caller must drain the effects before the next input.
    pub fn handle(&mut self, now: Time, input: ChannelInput) {
        if self.phase == Phase::ShutDown {
            return;
        }
        match input {
            ChannelInput::Resources { events } => {
                for (watch, event) in events {
                    self.dependencies.on_resource(watch, event);
                }
            }
            ChannelInput::DnsAnswer { query, result } => self.dns.answer(now, query, result),
            ChannelInput::Connections { events } => self.tree.on_connections(now, events),
            ChannelInput::Wake => {
                self.tree.on_signals(now);
                self.remove_released(now);
            }
            ChannelInput::ExitIdle => self.exit_idle(now),
            ChannelInput::Activity(activity) => self.on_activity(now, activity),
            ChannelInput::ResetBackoff => {
                self.dns.reset_backoff(now);
                self.tree.reset_backoff(now);
            }
            ChannelInput::Shutdown => return self.shut_down(now),
            ChannelInput::Tick => {
                self.dns.tick(now);
                self.tree.on_tick(now);
                if self.idle.take_due(now) {
                    self.effects.push_back(ChannelEffect::CheckActivity);
                }
            }
        }
        self.settle(now);
        self.publish();
    }

    /// Returns the next effect.
    pub fn poll_effect(&mut self) -> Option<ChannelEffect> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            // Releases the memory: most channels are quiet most of the time.
            self.effects = VecDeque::new();
        }
        effect
    }

    /// The time at which [`ChannelInput::Tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if self.phase == Phase::ShutDown {
            return None;
        }
        let deadlines = [self.tree.next_deadline(), self.dns.next_deadline(), self.idle.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// The DNS names in use.
    pub fn dns_names(&self) -> impl Iterator<Item = &DnsName> {
        self.dns.names()
    }

    /// Whether the channel was shut down and all its effects were taken.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.phase == Phase::ShutDown && self.effects.is_empty()
    }

    /// Whether the channel is IDLE: without watches and connections.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// The configuration in use, if any: for diagnosis and tests.
    #[must_use]
    pub fn xds_config(&self) -> Option<&Arc<XdsConfig>> {
        match &self.config {
            Config::Good { xds, .. } => Some(xds),
            Config::None | Config::Bad(_) => None,
        }
    }

    /// Describes routes and policies.
    #[must_use]
    pub fn describe(&self, now: Time) -> TreeView {
        let mut tree = TreeView {
            listener: self.listener_name.as_ref().to_owned(),
            root: self.tree.describe(now),
            calls: self.tree.calls(),
            ..TreeView::default()
        };
        match &self.config {
            Config::Good { xds, .. } => {
                tree.state = self.tree.output().state;
                tree.set_routes(&xds.virtual_host);
            }
            Config::Bad(error) => {
                tree.state = ConnectivityState::TransientFailure;
                tree.error = Some(error.message.clone());
            }
            Config::None if self.phase == Phase::Running => tree.state = ConnectivityState::Connecting,
            Config::None => {}
        }
        tree
    }

    /// The configuration in use, if there is one.
    #[must_use]
    pub fn config(&self) -> Option<&Arc<XdsConfig>> {
        match &self.config {
            Config::Good { xds, .. } => Some(xds),
            Config::None | Config::Bad(_) => None,
        }
    }

    /// The policies' decisions since the last call; only the latest if there are very many.
    pub fn take_events(&mut self) -> impl Iterator<Item = PolicyEvent> + use<> {
        self.tree.take_events()
    }

    /// Describes the subchannels of the policy tree.
    #[must_use]
    pub fn subchannels(&self) -> Vec<SubchannelNode> {
        self.tree.subchannels()
    }

    /// The number of objects in the policy tree: all zero after [`ChannelInput::Shutdown`].
    #[must_use]
    pub fn stats(&self) -> TreeStats {
        self.tree.stats()
    }

    fn exit_idle(&mut self, now: Time) {
        match self.phase {
            // A27-35: nothing is requested from the control plane before the channel is used.
            Phase::Idle => {
                self.phase = Phase::Running;
                self.idle.start(now);
                self.dependencies.start();
            }
            // A running channel can be IDLE too: one whose only policy is a pick_first that lost its connection.
            Phase::Running | Phase::ShutDown => self.tree.exit_idle(now),
        }
    }

    fn on_activity(&mut self, now: Time, activity: Activity) {
        match (self.phase, activity) {
            (Phase::Running, Activity::InUse) => self.idle.start(now),
            (Phase::Running, Activity::Unused) => self.enter_idle(now),
            (Phase::Idle | Phase::ShutDown, _) => {}
        }
    }

    /// Releases everything the channel holds until it is used again. Clusters that RPCs hold anyway (some may have just
    /// started) keep their ids, and are requested again.
    fn enter_idle(&mut self, now: Time) {
        tracing::debug!(target: targets::XDS_RESOLVER, listener = %self.listener_name, "idle");
        self.phase = Phase::Idle;
        // First, so that RPCs do not pick connections that are about to be closed.
        self.effects.push_back(ChannelEffect::EnterIdle);
        self.give_up(now);
    }

    /// Exchanges results between dependencies, tree and DNS until none has any left.
    fn settle(&mut self, now: Time) {
        loop {
            self.take_dns();
            while let Some(update) = self.dependencies.resolve() {
                match update {
                    Ok(xds) => self.use_config(now, xds),
                    Err(why) => self.fail(now, &why),
                }
            }
            // Only names that need no query have addresses at once.
            if self.take_effects(now) == DnsAsked::No {
                return;
            }
        }
    }

    /// A74, A31: routes and clusters change in one step.
    fn use_config(&mut self, now: Time, xds: Arc<XdsConfig>) {
        self.set_sessions(&xds);
        match &self.config {
            Config::Good { xds: last, .. } => self.managed.forget(&xds.changed_since(last)),
            _ => self.managed = ManagedClusters::default(),
        }
        let routes = match &self.config {
            Config::Good { xds: last, routes } if last.has_same_routes(&xds) => Arc::clone(routes),
            _ => {
                self.routes_changed = true;
                self.build_routes(&xds)
            }
        };
        // The old table lives until the new one holds its claims: clusters in both keep their ids.
        self.config = Config::Good { xds, routes };
        self.update_tree(now);
    }

    fn build_routes(&mut self, xds: &XdsConfig) -> Arc<RouteTable> {
        let Self { claims, dependencies, .. } = self;
        // A31: a claim keeps its cluster configured after the routes have dropped it.
        let mut claim = |name: &Arc<str>| claims.claim(name, |name| dependencies.claim_cluster(name));
        let (limit, filters) = (xds.max_stream_duration(), xds.http_filters());
        Arc::new(RouteTable::new(&xds.virtual_host, limit, filters, &mut claim))
    }

    /// A74: without a usable configuration RPCs fail with the reason, and the old one is dropped.
    fn fail(&mut self, now: Time, why: &str) {
        self.config = Config::Bad(PickError::unavailable(why));
        self.routes_changed = true;
        self.update_tree(now);
    }

    /// A31, second step: a cluster that no route names is removed when its last RPC is committed.
    fn remove_released(&mut self, now: Time) {
        let released = self.claims.take_released();
        for name in &released {
            self.dependencies.release_cluster(name);
        }
        if !released.is_empty() && matches!(self.config, Config::Good { .. }) {
            self.update_tree(now);
        }
    }

    fn update_tree(&mut self, now: Time) {
        match &self.config {
            Config::Good { xds, .. } => self.managed.update(&self.claims, xds, &self.settings),
            _ => self.managed = ManagedClusters::default(),
        }
        let update = Update::new(self.managed.config(), Endpoints::none());
        if let Err(error) = self.tree.update(now, &update)
            && let Some(repeated) = self.rejected.note(&error.to_string())
        {
            tracing::warn!(target: targets::XDS_RESOLVER, %error, repeated, "a policy rejected its configuration");
        }
    }

    /// There can be sessions only with a session filter, whether or not routes disable it.
    fn set_sessions(&mut self, xds: &XdsConfig) {
        let knows_sessions =
            |filter: &HttpFilter| matches!(filter.config, HttpFilterConfig::StatefulSession(_));
        let sessions =
            if xds.http_filters().iter().any(knows_sessions) { Sessions::Used } else { Sessions::Unused };
        if self.settings.sessions != sessions {
            self.settings = Arc::new(CdsSettings { sessions, ..CdsSettings::clone(&self.settings) });
        }
    }

    fn take_effects(&mut self, now: Time) -> DnsAsked {
        while let Some(effect) = self.tree.poll_effect() {
            self.effects.push_back(ChannelEffect::Connection(effect));
        }
        if self.tree.take_reresolution_request() {
            self.dependencies.request_reresolution();
        }
        while let Some(change) = self.settings.loads.next_change() {
            self.effects.push_back(match change {
                LoadChange::Register(store) => ChannelEffect::RegisterLoad { store },
                LoadChange::Unregister(store) => ChannelEffect::UnregisterLoad { store },
            });
        }
        let mut asked = DnsAsked::No;
        while let Some(effect) = self.dependencies.poll_effect() {
            match effect {
                DependencyEffect::Watch { id, resource_type, name } => {
                    self.effects.push_back(ChannelEffect::Watch { watch: id, resource_type, name });
                    continue;
                }
                DependencyEffect::Unwatch { id } => {
                    self.effects.push_back(ChannelEffect::Unwatch { watch: id });
                    continue;
                }
                DependencyEffect::DnsStart(name) => self.dns.start(now, name),
                DependencyEffect::DnsStop(name) => self.dns.stop(&name),
                DependencyEffect::DnsResolve => self.dns.request(now),
            }
            asked = DnsAsked::Yes;
        }
        asked
    }

    fn take_dns(&mut self) {
        while let Some(output) = self.dns.poll() {
            match output {
                DnsOutput::Query { query, name: DnsName { host, port } } => {
                    self.effects.push_back(ChannelEffect::DnsQuery { query, host, port });
                }
                DnsOutput::Cancel { query } => self.effects.push_back(ChannelEffect::DnsCancel { query }),
                DnsOutput::Result { name, result } => self.dependencies.on_dns(&name, result),
            }
        }
    }

    fn publish(&mut self) {
        let routes_changed = std::mem::take(&mut self.routes_changed);
        // Changed or only bumped: in either case queued RPCs pick again.
        let tree_changed = self.tree.take_published().is_some();
        let (state, routes, picker) = match &self.config {
            Config::Good { routes, .. } if routes_changed || tree_changed => {
                let output = self.tree.output();
                (output.state, Ok(Arc::clone(routes)), Arc::clone(&output.picker))
            }
            Config::Bad(error) if routes_changed => {
                let picker = FailPicker::new(Arc::clone(error));
                (ConnectivityState::TransientFailure, Err(Arc::clone(error)), picker as Arc<_>)
            }
            _ => return,
        };
        self.generation += 1;
        tracing::debug!(target: targets::XDS_RESOLVER, generation = self.generation, %state, "new data plane");
        let plane = DataPlane { generation: self.generation, state, routes, picker };
        self.effects.push_back(ChannelEffect::Publish(plane));
    }

    fn shut_down(&mut self, now: Time) {
        self.phase = Phase::ShutDown;
        self.give_up(now);
    }

    /// Ends all connections, watches and DNS queries, and drops the configuration.
    fn give_up(&mut self, now: Time) {
        self.idle.stop();
        self.config = Config::None;
        self.routes_changed = false;
        self.managed = ManagedClusters::default();
        self.tree.shutdown(now);
        self.dependencies.stop();
        self.take_effects(now);
        self.take_dns();
    }
}
