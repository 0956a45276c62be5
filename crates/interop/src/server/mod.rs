//! The server: TestService, which misbehaves on request, with server reflection, and the health services of the maintenance
//! port.
//!
//! With `--secure_mode=true` TestService has TLS, and the maintenance port, which must be another one, stays plaintext.
//! gRPC's own servers get their TLS settings from a Listener resource; this one has no xDS, and takes the certificates of a
//! `file_watcher` among the `certificate_providers` of the bootstrap (`GRPC_XDS_BOOTSTRAP`, as for clients): of the
//! instance that `--certificate_provider` names, otherwise of the only one with a certificate. `--certificate_file`,
//! `--private_key_file` and `--ca_certificate_file` do without a bootstrap. Clients need a certificate if there is a CA.
//! Files are read again every `refresh_interval` (600 s by default); content that cannot be used leaves the previous one in
//! use.

mod behavior;
mod envelope;
mod flags;
mod health;
mod listen;
mod reflection;
mod secured;
mod security;
mod service;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::sync::Arc;

use proxyless::Bootstrap;
use proxyless_testkit::reflection::{ReflectionV1, ReflectionV1Alpha};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic::transport;

pub use flags::{AddressType, MetricsMode, ServerFlags};
pub use security::SecurityError;
pub use service::Identity;

use crate::proto::test_service_server::TestServiceServer;
use crate::proto::xds_update_health_service_server::XdsUpdateHealthServiceServer;
use envelope::Envelope;
use health::HealthSwitch;
use listen::listen;
use security::Security;
use service::TestServer;

/// The reason why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// TLS is not configured correctly.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// A port cannot be bound.
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
}

/// Starts to listen according to the flags, and returns the future that serves.
///
/// # Errors
/// If TLS is not configured correctly, or a port cannot be bound.
pub async fn start(
    flags: &ServerFlags,
) -> Result<impl Future<Output = Result<(), transport::Error>> + use<>, StartError> {
    let security = Security::from_flags(flags, Bootstrap::from_env)?;
    let identity = Identity { server_id: flags.server_id.clone(), hostname: flags.hostname() };
    let test = test_routes(identity);
    let maintenance = maintenance_routes().await;
    let main_listener = listen(flags.address_type, flags.port)?;
    let (test, maintenance) = match flags.maintenance_port.filter(|port| *port != flags.port) {
        Some(port) => (test, Some((listen(flags.address_type, port)?, maintenance))),
        None => (merge(test, maintenance), None),
    };
    Ok(async move {
        let main = serve_with(security, main_listener, test);
        match maintenance {
            Some((listener, routes)) => tokio::try_join!(main, serve(listener, routes)).map(|_| ()),
            None => main.await,
        }
    })
}

/// The routes of TestService for a server of this identity, with server reflection.
pub fn test_routes(identity: Identity) -> Routes {
    Routes::new(test_service(identity))
        .add_service(ReflectionV1::new(reflection::files()))
        .add_service(ReflectionV1Alpha::new(reflection::files()))
}

fn test_service(identity: Identity) -> Envelope<TestServiceServer<TestServer>> {
    let service = TestServer::new(Arc::new(identity));
    let service = TestServiceServer::new(service)
        .max_decoding_message_size(usize::MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    Envelope(service)
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

async fn serve(listener: TcpListener, routes: Routes) -> Result<(), transport::Error> {
    transport::Server::builder()
        .add_routes(routes)
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await
}

async fn serve_with(
    security: Security,
    listener: TcpListener,
    routes: Routes,
) -> Result<(), transport::Error> {
    let certificates = match security {
        Security::Plaintext => return serve(listener, routes).await,
        Security::Tls(certificates) => certificates,
    };
    let (sender, connections) = mpsc::channel(1);
    let server =
        transport::Server::builder().add_routes(routes).serve_with_incoming(ReceiverStream::new(connections));
    tokio::select! {
        served = server => served,
        () = secured::accept(listener, certificates, sender) => Ok(()),
    }
}
