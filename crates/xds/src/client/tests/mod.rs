//! Tests of the core: a harness that plays driver and server, and resources to send.

mod data_errors;
mod dump;
mod fallback;
mod federation;
mod flow;
mod limbo;
mod limits;
mod logs;
mod model;
mod nacks;
mod outages;
mod planes;
mod planes_model;
mod streams;
mod telemetry;
mod timers;
mod updates;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3 as envoy_core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use envoy_types::pb::google::protobuf::UInt32Value;
use prost::{Message, Name};
use proxyless_sans_io::Time;

use super::messages::{Any, DiscoveryRequest, DiscoveryResponse, ReportedError};
use super::*;
use crate::bootstrap::{Bootstrap, ServerFeatures};
use crate::resource::{Resource, ResourceType};
use crate::{Gates, StreamId};

/// The watcher of every watch, unless a harness has more.
const WATCHER: WatcherId = WatcherId(0);

const LDS: ResourceType = ResourceType::Listener;
const RDS: ResourceType = ResourceType::RouteConfiguration;
const CDS: ResourceType = ResourceType::Cluster;
const EDS: ResourceType = ResourceType::ClusterLoadAssignment;

fn config() -> XdsCoreConfig {
    config_with(ServerFeatures::default(), Gates::default())
}

fn config_with(features: ServerFeatures, gates: Gates) -> XdsCoreConfig {
    let bootstrap =
        Bootstrap::builder().server_with_features("xds.test:1", features).node_id("node-1").build();
    XdsCoreConfig::new(&bootstrap.unwrap(), gates, 1)
}

fn data_errors_gate() -> Gates {
    Gates { data_error_handling: true, ..Gates::default() }
}

/// Drives a core by hand. Requests count as sent, and tokens as released, at once unless held.
struct Harness {
    core: XdsCore,
    now: Time,
    stream: StreamId,
    opened: usize,
    closed: usize,
    reads: usize,
    /// The number of watchers, which take turns in watching.
    watchers: u64,
    hold_sends: bool,
    hold_tokens: bool,
    unsent: VecDeque<StreamId>,
    tokens: VecDeque<ReadToken>,
    requests: Vec<DiscoveryRequest>,
    events: Vec<(u64, WatchEvent)>,
    /// Every effect, if it is to be kept.
    log: Option<Vec<String>>,
}

impl Harness {
    fn new(config: XdsCoreConfig) -> Self {
        Self {
            core: XdsCore::new(config),
            now: Time::ZERO,
            stream: StreamId::default(),
            opened: 0,
            closed: 0,
            reads: 0,
            watchers: 1,
            hold_sends: false,
            hold_tokens: false,
            unsent: VecDeque::new(),
            tokens: VecDeque::new(),
            requests: Vec::new(),
            events: Vec::new(),
            log: None,
        }
    }

    /// A core with these watches (ids from 1) on a stream that is up; the first requests are not kept.
    fn started(config: XdsCoreConfig, watches: &[(ResourceType, &str)]) -> Self {
        let mut harness = Self::new(config);
        for (i, (resource_type, name)) in watches.iter().enumerate() {
            harness.watch(i as u64 + 1, *resource_type, name);
        }
        harness.up();
        harness.requests.clear();
        harness
    }

    fn input(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.core.handle(self.now, input);
            while let Some(effect) = self.core.poll_effect() {
                inputs.extend(self.effect(effect));
            }
        }
    }

    fn effect(&mut self, effect: Effect) -> Option<Input> {
        if let Some(log) = &mut self.log {
            log.push(format!("{:?} {effect:?}", self.now));
        }
        match effect {
            Effect::OpenStream { stream, .. } => {
                assert!(stream > self.stream, "stream ids are never used twice");
                self.stream = stream;
                self.opened += 1;
            }
            Effect::CloseStream { stream } => {
                assert_eq!(stream, self.stream);
                self.closed += 1;
            }
            Effect::Send { stream, request } => {
                assert_eq!(stream, self.stream);
                assert!(self.unsent.is_empty() || !self.hold_sends, "one request at a time");
                self.requests.push(DiscoveryRequest::decode(request.into_buf()).unwrap());
                if !self.hold_sends {
                    return Some(Input::SendDone { stream });
                }
                self.unsent.push_back(stream);
            }
            Effect::ReadNext { stream } => {
                assert_eq!(stream, self.stream);
                self.reads += 1;
            }
            Effect::Notify { watch, event, token } => {
                self.events.push((watch.watch.0, event));
                if !self.hold_tokens {
                    return Some(Input::TokenReleased { token });
                }
                self.tokens.push_back(token);
            }
            Effect::Disconnect { .. } | Effect::MoveLoad => {}
        }
        None
    }

    fn key(&self, id: u64) -> WatchKey {
        WatchKey { watcher: WatcherId(id % self.watchers), watch: WatchId(id) }
    }

    fn watch(&mut self, id: u64, resource_type: ResourceType, name: &str) {
        self.input(Input::Watch { watch: self.key(id), resource_type, name: name.into() });
    }

    fn unwatch(&mut self, id: u64) {
        self.input(Input::Unwatch { watch: self.key(id) });
    }

    fn up(&mut self) {
        self.input(Input::StreamUp { stream: self.stream });
    }

    fn down(&mut self) {
        self.unsent.clear();
        self.input(Input::StreamDown {
            stream: self.stream,
            code: None,
            reason: "UNAVAILABLE: connection refused".into(),
        });
    }

    /// The stream ends soon after a response, and the next one comes up after the pause.
    fn restart(&mut self) {
        let opened = self.opened;
        self.down();
        self.advance(Duration::from_millis(1200));
        assert_eq!(self.opened, opened + 1, "the pause is the first delay of the backoff");
        self.requests.clear();
        self.up();
    }

    fn send_done(&mut self) {
        let stream = self.unsent.pop_front().expect("a request is on its way");
        self.input(Input::SendDone { stream });
    }

    fn release_token(&mut self) {
        let token = self.tokens.pop_front().expect("a token is held");
        self.input(Input::TokenReleased { token });
    }

    /// A response of version `v` with nonce `n<v>`.
    fn respond(&mut self, resource_type: ResourceType, version: &str, resources: &[Any]) {
        self.message(response(resource_type, version, &format!("n{version}"), resources));
    }

    fn message(&mut self, response: DiscoveryResponse) {
        self.input(Input::Message { stream: self.stream, bytes: response.encode_to_vec().into() });
    }

    /// Moves time on, with a tick at each deadline on the way.
    fn advance(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(deadline) = self.core.next_deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.input(Input::Tick);
        }
        self.now = end;
    }

    fn take_requests(&mut self) -> Vec<DiscoveryRequest> {
        std::mem::take(&mut self.requests)
    }

    /// The only request since the last look.
    fn request(&mut self) -> DiscoveryRequest {
        let requests = self.take_requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.into_iter().next().unwrap()
    }

    /// What watchers were told since the last look: `1: ok`, `1: err ...`, `1: ambient ...`, `1: fine`.
    fn told(&mut self) -> Vec<String> {
        let describe = |(id, event): (u64, WatchEvent)| match event {
            WatchEvent::Changed(Ok(_)) => format!("{id}: ok"),
            WatchEvent::Changed(Err(error)) => format!("{id}: err {error}"),
            WatchEvent::Ambient(Some(error)) => format!("{id}: ambient {error}"),
            WatchEvent::Ambient(None) => format!("{id}: fine"),
        };
        std::mem::take(&mut self.events).into_iter().map(describe).collect()
    }

    /// Asserts what watchers were told: each text must contain the pieces given, separated by `*`.
    #[track_caller]
    fn expect_told(&mut self, expected: &[&str]) {
        let told = self.told();
        let fits = |(text, pattern): (&String, &&str)| {
            text.starts_with(pattern.split('*').next().unwrap())
                && pattern.split('*').all(|part| text.contains(part))
        };
        let all = told.len() == expected.len() && told.iter().zip(expected).all(fits);
        assert!(all, "told {told:#?}, expected {expected:#?}");
    }

    fn dump_of(&self, name: &str) -> ResourceDump {
        self.core.dump().into_iter().find(|dump| &*dump.name == name).expect("is in the dump")
    }
}

fn response(resource_type: ResourceType, version: &str, nonce: &str, resources: &[Any]) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: version.into(),
        resources: resources.to_vec(),
        type_url: resource_type.type_url().into(),
        nonce: nonce.into(),
        resource_errors: Vec::new(),
    }
}

fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url().into(), value: message.encode_to_vec().into() }
}

/// The same resource inside the discovery `Resource`.
fn wrapped(name: &str, any: &Any) -> Any {
    let inner =
        envoy_types::pb::google::protobuf::Any { type_url: any.type_url().into(), value: any.value.to_vec() };
    self::any(&discovery::Resource { name: name.into(), resource: Some(inner), ..Default::default() })
}

fn ads() -> Option<envoy_core::ConfigSource> {
    use envoy_core::config_source::ConfigSourceSpecifier::Ads;
    let specifier = Some(Ads(envoy_core::AggregatedConfigSource::default()));
    Some(envoy_core::ConfigSource { config_source_specifier: specifier, ..Default::default() })
}

/// A good Cluster; `eds` tells versions apart.
fn cluster(name: &str, eds: &str) -> Any {
    any(&Cluster {
        name: name.into(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds.into())),
        eds_cluster_config: Some(cluster::EdsClusterConfig { eds_config: ads(), service_name: eds.into() }),
        ..Default::default()
    })
}

/// A Cluster that has its name and lacks the rest.
fn bad_cluster(name: &str) -> Any {
    any(&Cluster {
        name: name.into(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds.into())),
        ..Default::default()
    })
}

/// A good ClusterLoadAssignment; `port` tells versions apart.
fn assignment(name: &str, port: u16) -> Any {
    assignment_at(name, port, 0)
}

/// A ClusterLoadAssignment whose only priority is 3.
fn bad_assignment(name: &str) -> Any {
    assignment_at(name, 80, 3)
}

fn assignment_at(name: &str, port: u16, priority: u32) -> Any {
    let address = envoy_core::SocketAddress {
        address: "127.0.0.1".into(),
        port_specifier: Some(envoy_core::socket_address::PortSpecifier::PortValue(port.into())),
        ..Default::default()
    };
    let address = envoy_core::Address { address: Some(envoy_core::address::Address::SocketAddress(address)) };
    let host = endpoint::Endpoint { address: Some(address), ..Default::default() };
    let lb_endpoint = endpoint::LbEndpoint {
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(host)),
        ..Default::default()
    };
    let locality = endpoint::LocalityLbEndpoints {
        locality: Some(envoy_core::Locality { region: "r".into(), ..Default::default() }),
        lb_endpoints: vec![lb_endpoint],
        load_balancing_weight: Some(UInt32Value { value: 1 }),
        priority,
        ..Default::default()
    };
    any(&endpoint::ClusterLoadAssignment {
        cluster_name: name.into(),
        endpoints: vec![locality],
        ..Default::default()
    })
}

fn route(name: &str) -> Any {
    any(&RouteConfiguration { name: name.into(), ..Default::default() })
}

/// A resource of the type that is not valid protobuf.
fn garbage(resource_type: ResourceType) -> Any {
    Any { type_url: resource_type.type_url().into(), value: Bytes::from_static(b"\xff\xff\xff\xff") }
}
