//! A channel with its control plane and backends, in one runtime with paused time.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use proxyless::{Bootstrap, XdsChannel, XdsChannelBuilder, simulation};
use proxyless_testkit::resources::{ClusterExt, eds_cluster, listener, priorities, simple_route_config};
use tokio::time::{Instant, sleep, timeout};

use crate::backend::Backend;
use crate::fault::{Fault, Role};
use crate::load::Load;
use crate::network::Network;
use crate::plane::Plane;

const SERVICE: &str = "greeter.example:50051";
const BACKENDS: u8 = 3;
/// The time limit of a test without its own bound.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Runs a simulation to its end. A failure prints the seed.
pub(crate) fn simulate<T>(seed: u64, run: impl Future<Output = T>) -> T {
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the seed is {}: DRIVER_SEED={} DRIVER_RUNS=1 repeats it", self.0, self.0);
            }
        }
    }
    let _printed = Seed(seed);
    // First: the clock of the cores begins before that of the runtime.
    simulation::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}

pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) plane: Plane,
    pub(crate) backends: Vec<Backend>,
    /// Only used to show that new configuration arrives.
    pub(crate) canary: Backend,
    pub(crate) channel: XdsChannel,
    /// Clusters of the same name share a circuit breaker in the whole process.
    cluster: String,
}

/// A server of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Plane,
    Backend(usize),
}

impl Host {
    pub(crate) fn role(self) -> Role {
        match self {
            Self::Plane => Role::Plane,
            Self::Backend(_) => Role::Backend,
        }
    }
}

fn address(net: u8, host: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, net, host), 80).into()
}

impl World {
    /// Healthy servers, and a READY channel.
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_with(name, |builder| builder).await
    }

    pub(crate) async fn start_with(
        name: &str,
        options: impl FnOnce(XdsChannelBuilder) -> XdsChannelBuilder,
    ) -> Self {
        let world = Self::cold(name, options);
        timeout(PATIENCE, world.channel.ready()).await.expect("READY in time").expect("READY");
        world
    }

    /// Healthy servers, and an unused channel.
    pub(crate) fn cold(name: &str, options: impl FnOnce(XdsChannelBuilder) -> XdsChannelBuilder) -> Self {
        let network = Network::new();
        let plane = Plane::start(&network, address(0, 1));
        let backends = (1..=BACKENDS).map(|n| Backend::start(&network, address(1, n), &format!("b{n}")));
        let backends: Vec<_> = backends.collect();
        let canary = Backend::start(&network, address(2, 1), "canary");
        let bootstrap = format!(
            r#"{{"xds_servers": [{{"server_uri": "{}", "channel_creds": [{{"type": "insecure"}}]}}],
                "node": {{"id": "driver"}}}}"#,
            plane.address
        );
        let builder = XdsChannel::builder(&format!("xds:///{SERVICE}"))
            .bootstrap(Bootstrap::from_json(&bootstrap).expect("a bootstrap"))
            .connector(network.clone())
            .client_pool(simulation::client_pool(Arc::new(network.clone())));
        let channel = options(builder).build().expect("a channel");
        let cluster = format!("cluster-{name}");
        let world = Self { network, plane, backends, canary, channel, cluster };
        world.plane.set([
            listener(SERVICE, "route").into(),
            simple_route_config("route", &world.cluster).into(),
            eds_cluster(&world.cluster).report_load().into(),
        ]);
        world.set_endpoints(world.all());
        world
    }

    /// The addresses of the backends.
    pub(crate) fn all(&self) -> Vec<SocketAddr> {
        self.backends.iter().map(|backend| backend.address).collect()
    }

    pub(crate) fn set_endpoints(&self, addresses: Vec<SocketAddr>) {
        self.plane.set([priorities(&self.cluster, [addresses]).into()]);
    }

    pub(crate) fn address_of(&self, host: Host) -> SocketAddr {
        match host {
            Host::Plane => self.plane.address,
            Host::Backend(number) => self.backends[number].address,
        }
    }

    /// Starts a fault.
    pub(crate) async fn begin(&self, host: Host, fault: Fault) {
        fault.begin(&self.network, self.address_of(host));
        match (fault, host) {
            (Fault::Plane(manner), Host::Plane) => self.plane.set_manner(manner),
            (Fault::Backend(manner), Host::Backend(number)) => self.backends[number].set_manner(manner),
            (Fault::DiesWithResponses, Host::Plane) => {
                self.die_with_responses(200, Duration::from_millis(1)).await;
            }
            _ => {}
        }
    }

    /// The control plane sends this many responses, and ends this long afterwards.
    pub(crate) async fn die_with_responses(&self, responses: usize, after: Duration) {
        self.plane.burst(responses);
        sleep(after).await;
        self.network.kill(self.plane.address);
    }

    /// Ends a fault.
    pub(crate) fn end(&self, host: Host, fault: Fault) {
        let good = match host {
            Host::Plane => {
                self.plane.set_manner(crate::plane::Manner::Good);
                self.plane.server()
            }
            Host::Backend(number) => {
                self.backends[number].set_manner(crate::backend::Manner::Good);
                self.backends[number].server()
            }
        };
        fault.end(&self.network, self.address_of(host), good);
    }

    /// The state of the channel, for failures.
    pub(crate) async fn describe(&self, load: &Load) -> String {
        let why = self.channel.why_not_ready().await;
        let tree = self.channel.tree().await.map(|tree| tree.to_string());
        let failure = load.failure_since(Instant::now() - Duration::from_secs(2));
        format!("{why:?}; last failure {failure:?}; {}", tree.unwrap_or_default())
    }
}

/// Waits for a condition under virtual time; returns false on timeout.
pub(crate) async fn eventually(deadline: Instant, mut condition: impl FnMut() -> bool) -> bool {
    const STEP: Duration = Duration::from_millis(20);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(STEP).await;
    }
    true
}
