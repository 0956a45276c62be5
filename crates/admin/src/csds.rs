//! The client status discovery service, v3 (gRFC A40): every resource of every xDS client of the process.

use std::pin::Pin;

use envoy_types::pb::envoy::admin::v3::{ClientResourceStatus, UpdateFailureState};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::{
    ClientStatusDiscoveryService, ClientStatusDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::status::v3::{ClientConfig, ClientStatusRequest, ClientStatusResponse};
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use proxyless::ClientPool;
use proxyless::inspect::{ClientView, RawResource, ResourceStatus, ResourceView};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use crate::timestamp::timestamp;

/// `envoy.service.status.v3.ClientStatusDiscoveryService` (A40-01). Calls to the v2 service fail with UNIMPLEMENTED
/// (A40-32).
#[derive(Clone, Debug)]
pub struct Csds {
    clients: ClientPool,
}

impl Csds {
    /// Covers the clients of a pool: [`ClientPool::global`] is that of the process (A40-25).
    #[must_use]
    pub fn new(clients: ClientPool) -> Self {
        Self { clients }
    }

    /// A service for any tonic server (A40-24).
    #[must_use]
    pub fn into_service(self) -> ClientStatusDiscoveryServiceServer<Self> {
        ClientStatusDiscoveryServiceServer::new(self)
    }

    /// A40-04: the answer to a request by either method.
    async fn answer(&self, request: &ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
        // A40-36: node matchers are for control planes.
        if !request.node_matchers.is_empty() {
            return Err(Status::invalid_argument("node_matchers: this client does not match nodes"));
        }
        let contents = if request.exclude_resource_contents { Contents::Left } else { Contents::Shown };
        let clients = self.clients.clients().await;
        Ok(ClientStatusResponse {
            config: clients.into_iter().map(|client| client_config(client, contents)).collect(),
        })
    }
}

#[tonic::async_trait]
impl ClientStatusDiscoveryService for Csds {
    type StreamClientStatusStream = Pin<Box<dyn Stream<Item = Result<ClientStatusResponse, Status>> + Send>>;

    /// A40-03, A40-05: one answer per request, and no others.
    async fn stream_client_status(
        &self,
        request: Request<Streaming<ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, Status> {
        let csds = self.clone();
        let answers = request.into_inner().then(move |request| {
            let csds = csds.clone();
            async move { csds.answer(&request?).await }
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn fetch_client_status(
        &self,
        request: Request<ClientStatusRequest>,
    ) -> Result<Response<ClientStatusResponse>, Status> {
        Ok(Response::new(self.answer(request.get_ref()).await?))
    }
}

/// Whether resources are included with their contents.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Shown,
    Left,
}

// A40-38, A40-39: one flat list; the deprecated per-type field is empty.
fn client_config(client: ClientView, contents: Contents) -> ClientConfig {
    ClientConfig {
        // We encoded these bytes ourselves for the management server.
        node: Node::decode(client.node).ok(),
        generic_xds_configs: client
            .resources
            .into_iter()
            .map(|resource| generic(resource, contents))
            .collect(),
        client_scope: client.scope.as_deref().unwrap_or_default().to_owned(),
        ..Default::default()
    }
}

fn generic(resource: ResourceView, contents: Contents) -> GenericXdsConfig {
    GenericXdsConfig {
        type_url: resource.type_url.to_owned(),
        client_status: status(resource.status).into(),
        name: resource.name.as_ref().to_owned(),
        version_info: resource.version.to_string(),
        last_updated: resource.updated.map(timestamp),
        // A40-34: the bytes as received.
        xds_config: resource.raw.filter(|_| contents == Contents::Shown).map(any),
        error_state: resource.error.map(|error| UpdateFailureState {
            last_update_attempt: Some(timestamp(error.time)),
            details: error.reason,
            version_info: error.version.to_string(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn any(raw: RawResource) -> Any {
    Any { type_url: raw.type_url, value: raw.value.into() }
}

// A40-40: the status from the client's point of view.
pub(crate) fn status(status: ResourceStatus) -> ClientResourceStatus {
    match status {
        ResourceStatus::Requested => ClientResourceStatus::Requested,
        ResourceStatus::DoesNotExist => ClientResourceStatus::DoesNotExist,
        ResourceStatus::Acked => ClientResourceStatus::Acked,
        ResourceStatus::Nacked => ClientResourceStatus::Nacked,
        ResourceStatus::ReceivedError => ClientResourceStatus::ReceivedError,
        ResourceStatus::Timeout => ClientResourceStatus::Timeout,
        _ => ClientResourceStatus::Unknown,
    }
}
