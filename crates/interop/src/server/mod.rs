//! The server: TestService, which misbehaves on request, and the health services of the maintenance port.

mod behavior;
mod envelope;
mod flags;
mod health;
mod listen;
mod service;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport;

pub use flags::{AddressType, MetricsMode, ServerFlags};
pub use service::Identity;

use crate::proto::test_service_server::TestServiceServer;
use crate::proto::xds_update_health_service_server::XdsUpdateHealthServiceServer;
use envelope::Envelope;
use health::HealthSwitch;
use listen::listen;
use service::TestServer;

/// Starts to listen according to the flags, and returns the future that serves.
///
/// # Errors
/// If a port cannot be bound.
pub async fn start(
    flags: &ServerFlags,
) -> io::Result<impl Future<Output = Result<(), transport::Error>> + use<>> {
    let identity = Identity { server_id: flags.server_id.clone(), hostname: flags.hostname() };
    let test = test_routes(identity);
    let maintenance = maintenance_routes().await;
    let main_listener = listen(flags.address_type, flags.port)?;
    let (test, maintenance) = match flags.maintenance_port.filter(|port| *port != flags.port) {
        Some(port) => (test, Some((listen(flags.address_type, port)?, maintenance))),
        None => (merge(test, maintenance), None),
    };
    Ok(async move {
        let main = serve(main_listener, test);
        match maintenance {
            Some((listener, routes)) => tokio::try_join!(main, serve(listener, routes)).map(|_| ()),
            None => main.await,
        }
    })
}

/// The routes of TestService for a server of this identity.
pub fn test_routes(identity: Identity) -> Routes {
    Routes::new(test_service(identity))
}

fn test_service(identity: Identity) -> Envelope<TestServiceServer<TestServer>> {
    let service = TestServer::new(Arc::new(identity));
    Envelope(TestServiceServer::new(service).max_decoding_message_size(usize::MAX))
}

async fn maintenance_routes() -> Routes {
    let (reporter, health) = tonic_health::server::health_reporter();
    let switch = HealthSwitch::new(reporter).await;
    Routes::new(health).add_service(XdsUpdateHealthServiceServer::new(switch))
}

fn merge(mut routes: Routes, others: Routes) -> Routes {
    let router = std::mem::take(routes.axum_router_mut());
    *routes.axum_router_mut() = router.merge(others.into_axum_router().reset_fallback());
    routes
}

async fn serve(listener: tokio::net::TcpListener, routes: Routes) -> Result<(), transport::Error> {
    transport::Server::builder()
        .add_routes(routes)
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await
}
