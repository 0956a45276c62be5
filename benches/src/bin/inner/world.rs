//! An `XdsCore` and a `ChannelCore`, connected as the drivers connect them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proxyless_balancer::api::ConnectivityState;
use proxyless_balancer::testing::NoWake;
use proxyless_balancer::tree::{AttemptId, ConnectionEvent, SubchannelId, TreeConfig, TreeEffect};
use proxyless_mesh::channel_core::{ChannelConfig, ChannelCore, ChannelEffect, ChannelInput, DataPlane};
use proxyless_mesh::dns::DnsConfig;
use proxyless_mesh::policies::cluster_impl::CircuitRegistry;
use proxyless_mesh::security::ClusterTls;
use proxyless_sans_io::Time;
use proxyless_sans_io::metrics::Meter;
use proxyless_xds::StreamId;
use proxyless_xds::bootstrap::ServerFeatures;
use proxyless_xds::client::{
    Effect, Input, NackMode, ReadToken, ServerId, WatchEvent, WatchId, WatchKey, WatcherId, XdsCore,
    XdsCoreConfig, XdsServer,
};
use proxyless_xds::{Gates, Limits};

use crate::alloc::allocations;
use crate::clock::cpu;
use crate::mesh::{Mesh, Moved, SERVICE};

/// The cost of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// The CPU time of the xDS client.
    pub(crate) xds: Duration,
    /// The CPU time of the channel.
    pub(crate) mesh: Duration,
    /// The number of snapshots that the channel published.
    pub(crate) publishes: usize,
    /// Allocations of both.
    pub(crate) allocations: u64,
}

/// A client with one channel.
pub(crate) struct World {
    pub(crate) xds: Option<XdsCore>,
    pub(crate) channel: ChannelCore,
    pub(crate) plane: Option<DataPlane>,
    now: Time,
    stream: StreamId,
    /// Connection attempts without a result.
    attempts: Vec<(SubchannelId, AttemptId)>,
    publishes: usize,
}

impl World {
    /// A channel with its complete configuration and no connections yet.
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let mut world = Self {
            xds: Some(XdsCore::new(xds_config())),
            channel: ChannelCore::new(channel_config(), Arc::new(NoWake)),
            plane: None,
            now: Time::ZERO,
            stream: StreamId::default(),
            attempts: Vec::new(),
            publishes: 0,
        };
        world.tell_channel(ChannelInput::ExitIdle);
        world.deliver(mesh.listener());
        world.deliver(mesh.routes());
        // Twice: the clusters below an aggregate are requested when it arrives.
        world.deliver(mesh.clusters());
        world.deliver(mesh.clusters());
        world.deliver(mesh.all_endpoints(Moved::None));
        assert!(world.plane.is_some(), "the configuration is complete");
        world
    }

    /// The same with every connection made.
    pub(crate) fn serving(mesh: &Mesh) -> Self {
        let mut world = Self::new(mesh);
        world.connect(usize::MAX);
        let state = world.plane.as_ref().map(|plane| plane.state);
        assert_eq!(state, Some(ConnectivityState::Ready), "it serves");
        world
    }

    /// Hands a response to the client, and its events to the channel.
    pub(crate) fn deliver(&mut self, bytes: Bytes) -> Cost {
        let (publishes, allocated) = (self.publishes, allocations());
        let mut cost = Cost::default();
        let mut inputs = vec![Input::Message { stream: self.stream, bytes }];
        loop {
            let start = cpu();
            let (events, tokens) = self.tell_xds(inputs);
            let told = cpu();
            cost.xds += told - start;
            if events.is_empty() {
                break;
            }
            inputs = self.handle(ChannelInput::Resources { events });
            cost.mesh += cpu() - told;
            inputs.extend(tokens.into_iter().map(|token| Input::TokenReleased { token }));
        }
        cost.publishes = self.publishes - publishes;
        cost.allocations = allocations() - allocated;
        cost
    }

    /// Makes every connection that the channel waits for, in steps. Returns their number and the CPU time.
    pub(crate) fn connect(&mut self, at_a_time: usize) -> (usize, Duration) {
        let start = cpu();
        let mut made = 0;
        while !self.attempts.is_empty() {
            let attempts = std::mem::take(&mut self.attempts);
            made += attempts.len();
            for batch in attempts.chunks(at_a_time) {
                let ready = |&(connection, attempt): &(_, _)| {
                    (connection, attempt, ConnectionEvent::Ready(Arc::new(())))
                };
                self.tell_channel(ChannelInput::Connections { events: batch.iter().map(ready).collect() });
            }
        }
        (made, cpu() - start)
    }

    /// Forgets the pending connection attempts.
    pub(crate) fn forget_attempts(&mut self) {
        self.attempts = Vec::new();
    }

    /// Advances the time, so that unused connections are closed.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.tell_channel(ChannelInput::Tick);
    }

    fn tell_channel(&mut self, input: ChannelInput) {
        let mut inputs = self.handle(input);
        while !inputs.is_empty() {
            let (events, tokens) = self.tell_xds(inputs);
            inputs =
                if events.is_empty() { Vec::new() } else { self.handle(ChannelInput::Resources { events }) };
            inputs.extend(tokens.into_iter().map(|token| Input::TokenReleased { token }));
        }
    }

    /// Hands the channel an input; returns its inputs for the client.
    fn handle(&mut self, input: ChannelInput) -> Vec<Input> {
        self.channel.handle(self.now, input);
        let mut inputs = Vec::new();
        while let Some(effect) = self.channel.poll_effect() {
            match effect {
                ChannelEffect::Watch { watch, resource_type, name } => {
                    inputs.push(Input::Watch { watch: key(watch), resource_type, name });
                }
                ChannelEffect::Unwatch { watch } => inputs.push(Input::Unwatch { watch: key(watch) }),
                ChannelEffect::Connection(TreeEffect::Connect {
                    subchannel: connection, attempt, ..
                }) => {
                    self.attempts.push((connection, attempt));
                }
                ChannelEffect::Connection(TreeEffect::CancelConnect { attempt, .. }) => {
                    self.attempts.retain(|(_, open)| *open != attempt);
                }
                ChannelEffect::Publish(plane) => {
                    self.publishes += 1;
                    self.plane = Some(plane);
                }
                _ => {}
            }
        }
        inputs
    }

    /// Hands the client inputs; returns its events for the channel, and their tokens.
    fn tell_xds(&mut self, inputs: Vec<Input>) -> (Vec<(WatchId, WatchEvent)>, Vec<ReadToken>) {
        let (mut events, mut tokens) = (Vec::new(), Vec::new());
        let Some(xds) = &mut self.xds else { return (events, tokens) };
        for input in inputs {
            xds.handle(self.now, input);
        }
        while let Some(effect) = xds.poll_effect() {
            match effect {
                Effect::OpenStream { stream, .. } => {
                    self.stream = stream;
                    xds.handle(self.now, Input::StreamUp { stream });
                }
                Effect::Send { stream, .. } => xds.handle(self.now, Input::SendDone { stream }),
                Effect::Notify { watch, event, token } => {
                    events.push((watch.watch, event));
                    tokens.push(token);
                }
                Effect::ReadNext { .. }
                | Effect::CloseStream { .. }
                | Effect::Disconnect { .. }
                | Effect::MoveLoad => {}
            }
        }
        (events, tokens)
    }
}

/// The client's name of a watch of the only channel.
fn key(watch: WatchId) -> WatchKey {
    WatchKey { watcher: WatcherId(0), watch }
}

fn xds_config() -> XdsCoreConfig {
    XdsCoreConfig {
        servers: vec![XdsServer { uri: "bench:///server".into(), features: ServerFeatures::default() }],
        default_servers: vec![ServerId(0)],
        authorities: BTreeMap::new(),
        node: Bytes::new(),
        node_id: "bench".into(),
        nack_mode: NackMode::default(),
        gates: Gates::default(),
        limits: Limits::default(),
        certificate_providers: None,
        policies: None,
        resource_timeout: Some(Duration::from_secs(15)),
        seed: 1,
    }
}

fn channel_config() -> ChannelConfig {
    ChannelConfig {
        meter: Meter::default(),
        listener_name: SERVICE.into(),
        authority: SERVICE.into(),
        tree: TreeConfig::default(),
        failover_timeout: Duration::from_secs(10),
        dns: DnsConfig::default(),
        gates: Gates::default(),
        circuits: CircuitRegistry::default(),
        cluster_tls: ClusterTls::default(),
        idle_timeout: None,
        seed: 1,
    }
}
