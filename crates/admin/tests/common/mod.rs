//! A mesh whose admin port is looked at.
#![allow(dead_code)] // each test binary uses a part

use std::time::Duration;

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use envoy_types::pb::envoy::service::status::v3::{ClientStatusRequest, ClientStatusResponse};
use envoy_types::pb::google::protobuf::Any;
use proxyless::{Bootstrap, ClientPool, XdsChannel, XdsChannelBuilder};
use proxyless_admin::{Admin, AdminServer};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tonic::transport::{Channel, Endpoint};

pub(crate) const SERVICE: &str = "greeter.example:50051";
/// Far beyond anything a healthy test needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A control plane, one backend, and an admin port that shows the clients of one pool.
pub(crate) struct Rig {
    pub(crate) plane: ControlPlane,
    pub(crate) backend: Backend,
    pub(crate) pool: ClientPool,
    pub(crate) admin: AdminServer,
}

impl Rig {
    /// [`SERVICE`] has one cluster, `cluster`, with one backend.
    pub(crate) async fn start() -> Self {
        let backend = Backend::start("a").await.unwrap();
        let plane = ControlPlane::start().await.unwrap();
        plane.set_all([
            listener(SERVICE, "route").into(),
            simple_route_config("route", "cluster").into(),
            eds_cluster("cluster").into(),
            priorities("cluster", [[&backend]]).into(),
        ]);
        let pool = ClientPool::new();
        let admin = Admin::default().client_pool(pool.clone()).serve(0).await.unwrap();
        Self { plane, backend, pool, admin }
    }

    pub(crate) fn builder(&self, target: &str) -> XdsChannelBuilder {
        let bootstrap = Bootstrap::from_json(&self.plane.bootstrap_json()).unwrap();
        XdsChannel::builder(target).bootstrap(bootstrap).client_pool(self.pool.clone())
    }

    pub(crate) fn channel(&self) -> XdsChannel {
        self.builder(&format!("xds:///{SERVICE}")).build().unwrap()
    }

    /// A channel that has sent an RPC.
    pub(crate) async fn connected(&self) -> XdsChannel {
        let channel = self.channel();
        ask(&channel).await.unwrap();
        channel
    }

    pub(crate) fn admin_channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.admin.address())).unwrap().connect_lazy()
    }

    pub(crate) fn csds(&self) -> ClientStatusDiscoveryServiceClient<Channel> {
        ClientStatusDiscoveryServiceClient::new(self.admin_channel())
    }

    pub(crate) async fn fetch(&self) -> ClientStatusResponse {
        self.csds().fetch_client_status(ClientStatusRequest::default()).await.unwrap().into_inner()
    }

    /// One resource of any client.
    pub(crate) async fn resource(&self, type_url: &str, name: &str) -> Option<GenericXdsConfig> {
        let all = self.fetch().await.config.into_iter().flat_map(|config| config.generic_xds_configs);
        all.into_iter().find(|resource| resource.type_url == type_url && resource.name == name)
    }

    /// The resource as soon as it passes.
    pub(crate) async fn wait_for(
        &self,
        type_url: &str,
        name: &str,
        what: &str,
        passes: impl Fn(&GenericXdsConfig) -> bool,
    ) -> GenericXdsConfig {
        let mut last = None;
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                last = self.resource(type_url, name).await;
                if let Some(resource) = last.clone().filter(|resource| passes(resource)) {
                    return resource;
                }
            }
        });
        let found = found.await;
        found.unwrap_or_else(|_| panic!("{name} never got {what}; it is {last:?}"))
    }

    pub(crate) async fn wait_status(
        &self,
        type_url: &str,
        name: &str,
        status: ClientResourceStatus,
    ) -> GenericXdsConfig {
        self.wait_for(type_url, name, status.as_str_name(), |r| r.client_status() == status).await
    }
}

/// One RPC.
pub(crate) async fn ask(channel: &XdsChannel) -> Result<String, tonic::Status> {
    let mut request = tonic::Request::new(EchoRequest::new("hello"));
    request.set_timeout(PATIENCE);
    Ok(EchoClient::new(channel.clone()).unary(request).await?.into_inner().backend)
}

/// An RPC in the background. The channel lives on when it has ended.
pub(crate) fn start_rpc(channel: &XdsChannel) -> tokio::task::JoinHandle<Result<String, tonic::Status>> {
    let channel = channel.clone();
    tokio::spawn(async move { ask(&channel).await })
}

pub(crate) fn any<M: prost::Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

pub(crate) fn response(type_url: &str, version: &str, resources: Vec<Any>) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: version.into(),
        nonce: format!("nonce-{version}"),
        type_url: type_url.into(),
        resources,
        ..Default::default()
    }
}
