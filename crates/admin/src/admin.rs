//! All admin services combined (gRFC A38).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::{fmt, io};

use axum::Router;
use proxyless::ClientPool;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::channelz::Channelz;
use crate::controls::Controls;
use crate::csds::Csds;
use crate::history::{self, History, Sampling};
use crate::metrics::{self, MetricStore};
use crate::{controls, guard, page};

/// Serves the admin services of the process on a loopback port; 0 chooses a free one.
///
/// # Errors
/// If the port cannot be bound.
pub async fn serve(port: u16) -> io::Result<AdminServer> {
    Admin::default().serve(port).await
}

/// Adds the admin services of the process to the routes of a server.
#[must_use]
pub fn add_to(routes: Routes) -> Routes {
    Admin::default().add_to(routes)
}

/// The admin services, with options.
#[derive(Clone)]
#[must_use]
pub struct Admin {
    clients: ClientPool,
    health: Health,
    controls: Option<Arc<dyn Controls>>,
    /// The metrics to serve; by default those of the process.
    metrics: Option<MetricStore>,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("clients", &self.clients)
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Served,
    LeftOut,
}

impl Default for Admin {
    /// Covers all clients and channels of the process.
    fn default() -> Self {
        Self { clients: ClientPool::global(), health: Health::Served, controls: None, metrics: None }
    }
}

impl Admin {
    /// Covers the clients and channels of this pool instead of the process's.
    pub fn client_pool(mut self, pool: ClientPool) -> Self {
        self.clients = pool;
        self
    }

    /// Omits the health service, for servers that have their own.
    pub fn without_health(mut self) -> Self {
        self.health = Health::LeftOut;
        self
    }

    /// Serves the metrics of this store at `/metrics` instead of the process's. The channels that record in it are built
    /// with [`XdsChannelBuilder::recorder`](proxyless::XdsChannelBuilder::recorder).
    pub fn metrics(mut self, store: MetricStore) -> Self {
        self.metrics = Some(store);
        self
    }

    /// Adds buttons to the page, for demos. Whoever can reach the port can press them.
    #[doc(hidden)]
    pub fn controls(mut self, controls: Arc<dyn Controls>) -> Self {
        self.controls = Some(controls);
        self
    }

    /// Adds the services to the routes of a server.
    #[must_use]
    pub fn add_to(self, routes: Routes) -> Routes {
        let history = self.history();
        self.add_with(history, routes)
    }

    fn add_with(self, history: History, mut routes: Routes) -> Routes {
        let router = routes.axum_router_mut();
        *router = std::mem::take(router).merge(self.router(history));
        routes
    }

    /// Serves the services on a loopback port; 0 chooses a free one.
    ///
    /// # Errors
    /// If the port cannot be bound.
    pub async fn serve(self, port: u16) -> io::Result<AdminServer> {
        self.serve_on((Ipv4Addr::LOCALHOST, port).into()).await
    }

    /// Serves the services on this address. They have no authentication: every client of the address can read the
    /// configuration of the mesh.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn serve_on(self, address: SocketAddr) -> io::Result<AdminServer> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        if address.ip().is_loopback() {
            tracing::info!(%address, "admin services, for this machine only");
        } else {
            tracing::warn!(%address, "admin services, without authentication, beyond this machine");
        }
        // Another server may have its own `/metrics`.
        let metrics = metrics::router("/metrics", self.store());
        let history = self.history();
        let sampling = history.start();
        let mut router = self.add_with(history, Routes::default());
        let root = page::root().merge(metrics).route_layer(axum::middleware::from_fn(guard::local_only));
        *router.axum_router_mut() = std::mem::take(router.axum_router_mut()).merge(root);
        // Browsers use HTTP/1 with servers without TLS.
        let server = Server::builder().accept_http1(true).add_routes(router);
        let serving = server.serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "admin services ended");
            }
        });
        Ok(AdminServer { address, task: task.abort_handle(), _sampling: sampling })
    }

    fn store(&self) -> MetricStore {
        self.metrics.clone().unwrap_or_else(|| {
            metrics::collect_metrics();
            metrics::store()
        })
    }

    fn history(&self) -> History {
        History::new(self.clients.clone(), self.store())
    }

    fn router(self, history: History) -> Router {
        let mut router = page::router(&self.clients);
        router = router.merge(history::router(history));
        router = router.merge(metrics::router("/proxyless/metrics", self.store()));
        router = route(router, Csds::new(self.clients.clone()).into_service());
        router = route(router, Channelz::new(self.clients).into_service());
        if self.health == Health::Served {
            router = route(router, tonic_health::server::health_reporter().1);
        }
        if let Some(controls) = self.controls {
            router = router.merge(controls::router(controls));
        }
        // Only our own routes, not those of the server that they are added to.
        router.route_layer(axum::middleware::from_fn(guard::local_only))
    }
}

/// Adds a gRPC service.
fn route<S>(router: Router, service: S) -> Router
where
    S: Service<
            http::Request<axum::body::Body>,
            Response = http::Response<Body>,
            Error = std::convert::Infallible,
        > + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    router.route_service(&format!("/{}/{{*rest}}", S::NAME), service)
}

/// Running admin services; dropping this stops them.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    task: AbortHandle,
    /// Ends with the server.
    _sampling: Sampling,
}

impl AdminServer {
    /// The address that they listen on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
