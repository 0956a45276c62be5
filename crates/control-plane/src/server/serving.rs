//! The gRPC server: ADS in both variants, LRS, and CSDS about the connected clients.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::{
    LoadReportingService, LoadReportingServiceServer,
};
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::{
    ClientStatusDiscoveryService, ClientStatusDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::status::v3::{ClientStatusRequest, ClientStatusResponse};
use envoy_types::pb::google::protobuf::Duration as WireDuration;
use proxyless_testkit::CDS;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status, Streaming};

use super::delta::Delta;
use super::plane::Plane;
use super::secured::{Secured, TlsFiles};
use super::sotw::Sotw;
use super::streams::{Protocol, run};

/// The feature of clients that know `send_all_clusters`.
const SENDS_ALL: &str = "envoy.lrs.supports_send_all_clusters";
/// The maximum size of a request: reports and subscriptions of large meshes.
const MAX_REQUEST: usize = 64 << 20;

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    task: JoinHandle<()>,
    secured: Option<Arc<Secured>>,
}

impl Serving {
    /// Serves a plane at this address; port 0 is any free port.
    ///
    /// # Errors
    /// If the address cannot be bound, or the certificates cannot be used.
    pub async fn start(plane: Plane, address: SocketAddr, tls: Option<TlsFiles>) -> io::Result<Self> {
        let secured = tls.map(Secured::new).transpose().map_err(io::Error::other)?.map(Arc::new);
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let router = router(plane);
        let task = match &secured {
            None => {
                // Small responses do not wait for the ACK of the one before; a socket that refuses is about to end anyway.
                let incoming = TcpListenerStream::new(listener)
                    .map(|stream| stream.inspect(|stream| drop(stream.set_nodelay(true))));
                tokio::spawn(async move { ended(router.serve_with_incoming(incoming).await) })
            }
            Some(secured) => {
                let (sender, connections) = mpsc::channel(1);
                let accept = Arc::clone(secured).accept(listener, sender);
                tokio::spawn(async move {
                    tokio::select! {
                        result = router.serve_with_incoming(ReceiverStream::new(connections)) => ended(result),
                        () = accept => {}
                    }
                })
            }
        };
        Ok(Self { address, task, secured })
    }

    /// Reads the TLS files again, for the connections from now on.
    ///
    /// # Errors
    /// If the files cannot be used; the previous content stays in use then. The message names the file.
    pub fn reload_tls(&self) -> Result<(), String> {
        self.secured.as_ref().map_or(Ok(()), |secured| secured.reload())
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn router(plane: Plane) -> Router {
    let services = Services { plane };
    Server::builder()
        .add_service(
            AggregatedDiscoveryServiceServer::new(services.clone())
                .max_decoding_message_size(MAX_REQUEST)
                .max_encoding_message_size(usize::MAX),
        )
        .add_service(LoadReportingServiceServer::new(services.clone()).max_decoding_message_size(MAX_REQUEST))
        .add_service(ClientStatusDiscoveryServiceServer::new(services).max_encoding_message_size(usize::MAX))
}

fn ended(result: Result<(), tonic::transport::Error>) {
    if let Err(error) = result {
        tracing::error!(%error, "the control plane ended");
    }
}

#[derive(Clone, Debug)]
struct Services {
    plane: Plane,
}

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Services {
    fn ads<P: Protocol>(&self, request: Request<Streaming<P::Request>>) -> Response<Responses<P::Response>> {
        let stream = self.plane.open::<P>(request.remote_addr());
        let (outbox, responses) = mpsc::channel(1);
        tokio::spawn(run::<P>(self.plane.clone(), stream, request.into_inner(), outbox));
        Response::new(Box::pin(ReceiverStream::new(responses)))
    }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Services {
    type StreamAggregatedResourcesStream = Responses<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Responses<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Ok(self.ads::<Sotw>(request))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Ok(self.ads::<Delta>(request))
    }
}

#[tonic::async_trait]
impl LoadReportingService for Services {
    type StreamLoadStatsStream = Responses<LoadStatsResponse>;

    async fn stream_load_stats(
        &self,
        request: Request<Streaming<LoadStatsRequest>>,
    ) -> Result<Response<Self::StreamLoadStatsStream>, Status> {
        let (outbox, responses) = mpsc::channel(1);
        tokio::spawn(loads(self.plane.clone(), request.into_inner(), outbox));
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }
}

/// Requests load once per stream, and records the reports.
async fn loads(
    plane: Plane,
    mut requests: Streaming<LoadStatsRequest>,
    outbox: mpsc::Sender<Result<LoadStatsResponse, Status>>,
) {
    let mut node = None;
    while let Ok(Some(request)) = requests.message().await {
        if node.is_none() {
            let of = request.node.clone().unwrap_or_default();
            if outbox.send(Ok(load_request(&plane, &of))).await.is_err() {
                return;
            }
            node = Some(of.id);
        }
        for stats in &request.cluster_stats {
            plane.reported(node.as_deref().unwrap_or_default(), stats);
        }
    }
}

fn load_request(plane: &Plane, node: &Node) -> LoadStatsResponse {
    let interval = plane.load_interval();
    let send_all_clusters = node.client_features.iter().any(|feature| feature == SENDS_ALL);
    let clusters = match plane.current().borrow().of_type(CDS) {
        Some(clusters) if !send_all_clusters => clusters.resources.keys().cloned().collect(),
        _ => Vec::new(),
    };
    LoadStatsResponse {
        clusters,
        send_all_clusters,
        load_reporting_interval: Some(WireDuration {
            seconds: i64::try_from(interval.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(interval.subsec_nanos()).unwrap_or(0),
        }),
        ..Default::default()
    }
}

#[tonic::async_trait]
impl ClientStatusDiscoveryService for Services {
    type StreamClientStatusStream = Responses<ClientStatusResponse>;

    async fn stream_client_status(
        &self,
        request: Request<Streaming<ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, Status> {
        let plane = self.plane.clone();
        let answers = request.into_inner().map(move |request| request.map(|_| status(&plane)));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn fetch_client_status(
        &self,
        _: Request<ClientStatusRequest>,
    ) -> Result<Response<ClientStatusResponse>, Status> {
        Ok(Response::new(status(&self.plane)))
    }
}

fn status(plane: &Plane) -> ClientStatusResponse {
    let config = plane.clients().iter().map(super::clients::ClientView::csds).collect();
    ClientStatusResponse { config }
}
