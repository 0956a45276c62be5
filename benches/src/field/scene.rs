//! The servers that contestants run against: a control plane in this process, and backends in others.

use std::net::{Ipv4Addr, SocketAddr};

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::TransportSocket;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext, UpstreamTlsContext,
};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use proxyless_testkit::resources::{
    EndpointExt, LocalityExt, aggregate_cluster, assignment, eds_cluster, endpoint, listener, locality,
    route, route_config, simple_route_config, virtual_host,
};
use proxyless_testkit::{CDS, ControlPlane, EDS, LDS, RDS, Resource};
use tokio::process::Command;

use super::Process;
use super::certificates::{Certificates, INSTANCE};
use crate::service::BoxError;

/// The name of the service, its routes and its cluster.
pub(crate) const SERVICE: &str = "bench";
/// The IP address of the backends.
pub(crate) const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A control plane, and the addresses for contestants without xDS.
pub(crate) struct Scene {
    pub(crate) control_plane: ControlPlane,
    pub(crate) addresses: Vec<SocketAddr>,
    /// The roots of contestants that connect over TLS.
    pub(super) certificates: Option<Certificates>,
}

impl Scene {
    /// A service whose only cluster has these endpoints.
    pub(crate) async fn with_endpoints(
        addresses: &[SocketAddr],
        endpoints: ClusterLoadAssignment,
    ) -> Result<Self, BoxError> {
        let cluster = [eds_cluster(SERVICE).into(), endpoints.into()];
        Self::with_clusters(addresses, cluster).await
    }

    /// A service that routes to the cluster `SERVICE`, which is among these resources.
    pub(crate) async fn with_clusters(
        addresses: &[SocketAddr],
        clusters: impl IntoIterator<Item = Resource>,
    ) -> Result<Self, BoxError> {
        let routes = simple_route_config(SERVICE, SERVICE).into();
        Self::with_resources(addresses, clusters.into_iter().chain([routes])).await
    }

    /// A service whose only cluster has these endpoints, over TLS.
    pub(crate) async fn with_tls(
        addresses: &[SocketAddr],
        certificates: Certificates,
    ) -> Result<Self, BoxError> {
        let endpoints = live_endpoints(SERVICE, addresses);
        let scene = Self::with_clusters(addresses, [tls_cluster(SERVICE).into(), endpoints.into()]).await?;
        Ok(Self { certificates: Some(certificates), ..scene })
    }

    /// A service that routes to this many clusters, each with a live endpoint and ten spare ones.
    pub(crate) async fn with_many_clusters(addresses: &[SocketAddr], count: usize) -> Result<Self, BoxError> {
        let name = |number| if number == 0 { SERVICE.to_owned() } else { format!("{SERVICE}-{number}") };
        let routes = (1..count).map(|number| {
            let mut route = route(&name(number));
            let path = envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier::Path(format!(
                "/x/{number}"
            ));
            route.r#match.get_or_insert_default().path_specifier = Some(path);
            route
        });
        let host = virtual_host(["*"], routes.chain([route(&name(0))]));
        let clusters = (0..count).flat_map(|number| {
            let spare = spare_endpoints(&name(number), addresses, 10, 1);
            [eds_cluster(&name(number)).into(), Resource::from(spare)]
        });
        let routes: Resource = route_config(SERVICE, [host]).into();
        Self::with_resources(addresses, clusters.chain([routes])).await
    }

    /// A service whose cluster is an aggregate of a live leaf and one whose endpoints never arrive.
    pub(crate) async fn with_slow_last_leaf(addresses: &[SocketAddr]) -> Result<Self, BoxError> {
        let clusters: [Resource; 4] = [
            aggregate_cluster(SERVICE, ["live", "slow"]).into(),
            eds_cluster("live").into(),
            eds_cluster("slow").into(),
            live_endpoints("live", addresses).into(),
        ];
        Self::with_clusters(addresses, clusters).await
    }

    /// The requests that the control plane got from a client that failed.
    pub(crate) fn heard(&self) -> String {
        let requests = self.control_plane.requests();
        let rejected =
            requests.iter().filter_map(|request| request.error()).map(|error| error.message.as_str());
        let rejected: Vec<_> = rejected.collect();
        let asked = [LDS, RDS, CDS, EDS].map(|kind| self.control_plane.subscriptions(kind).len());
        format!("{} ADS requests, asks for {asked:?} resources, rejections: {rejected:?}", requests.len())
    }

    async fn with_resources(
        addresses: &[SocketAddr],
        resources: impl IntoIterator<Item = Resource>,
    ) -> Result<Self, BoxError> {
        let control_plane = ControlPlane::start().await?.with_patience(std::time::Duration::from_secs(60));
        let listener = listener(SERVICE, SERVICE).into();
        control_plane.set_all(resources.into_iter().chain([listener]));
        Ok(Self { control_plane, addresses: addresses.to_vec(), certificates: None })
    }
}

/// A cluster whose servers are verified with the roots of [`INSTANCE`]; any name is accepted.
fn tls_cluster(name: &str) -> Cluster {
    let instance = CertificateProviderPluginInstance { instance_name: INSTANCE.into(), ..Default::default() };
    let validation = CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance),
        ..Default::default()
    };
    let common = CommonTlsContext {
        validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
        ..Default::default()
    };
    let tls = UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
    let any = Any { type_url: UpstreamTlsContext::type_url(), value: tls.encode_to_vec() };
    let socket = TransportSocket {
        name: "envoy.transport_sockets.tls".into(),
        config_type: Some(ConfigType::TypedConfig(any)),
    };
    Cluster { transport_socket: Some(socket), ..eds_cluster(name) }
}

/// One locality with all of these addresses.
pub(crate) fn live_endpoints(cluster: &str, addresses: &[SocketAddr]) -> ClusterLoadAssignment {
    assignment(cluster, [locality("live", addresses.iter().copied())])
}

/// The live addresses in the first priority and, below them in three zones, `count` addresses without a listener, the
/// first of which has this weight.
pub(crate) fn spare_endpoints(
    cluster: &str,
    live: &[SocketAddr],
    count: usize,
    weight: u32,
) -> ClusterLoadAssignment {
    let spare = |zone: usize| {
        let numbers = (0..count).filter(move |number| number % 3 == zone);
        let endpoints = numbers.map(|number| {
            let weight = if number == 0 { weight } else { 1 };
            endpoint(dead_address(number)).weight(weight)
        });
        locality(&format!("zone-{zone}"), endpoints).priority(1)
    };
    let zones = (0..3.min(count)).map(spare);
    assignment(cluster, [locality("live", live.iter().copied())].into_iter().chain(zones))
}

/// Distinct loopback addresses with a port that is never used.
fn dead_address(number: usize) -> SocketAddr {
    let [_, a, b, c] = u32::try_from(number + 1).unwrap_or(1).to_be_bytes();
    SocketAddr::from(([127, a.saturating_add(1), b, c], 1))
}

/// A process of backends.
pub(crate) struct Backends {
    process: Process,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Backends {
    pub(crate) async fn start(name: &str, count: usize) -> Result<Self, BoxError> {
        Self::start_with(name, count, &[]).await
    }

    /// Backends with further arguments.
    pub(crate) async fn start_with(name: &str, count: usize, arguments: &[&str]) -> Result<Self, BoxError> {
        let mut command = Self::command(name, count)?;
        command.args(arguments);
        Self::start_command(command).await
    }

    /// Backends that speak TLS.
    pub(crate) async fn start_tls(
        name: &str,
        count: usize,
        certificates: &Certificates,
    ) -> Result<Self, BoxError> {
        let mut command = Self::command(name, count)?;
        command.args(certificates.backend_arguments());
        Self::start_command(command).await
    }

    fn command(name: &str, count: usize) -> Result<Command, BoxError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["backends", "--name", name, "--count", &count.to_string()]);
        Ok(command)
    }

    async fn start_command(command: Command) -> Result<Self, BoxError> {
        let mut process = Process::start(command)?;
        let addresses = serde_json::from_value(process.hear().await?["addresses"].take())?;
        Ok(Self { process, addresses })
    }

    /// `open`, `close`, `reset` or `goaway`.
    pub(crate) async fn become_(&mut self, mode: &str) -> Result<(), BoxError> {
        self.process.ask(mode).await.map(drop)
    }

    /// The number of open connections.
    pub(crate) async fn connections(&mut self) -> Result<u64, BoxError> {
        self.process.ask("connections").await?["connections"].as_u64().ok_or_else(|| "no count".into())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}
