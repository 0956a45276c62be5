//! The standard gRPC xDS interop client and server, as gRPC's own tests use them: the programs `xds-interop-client` and
//! `xds-interop-server`, with their parts here for tests.
//!
//! `interop-cases` runs gRPC's standard interop cases through a channel against any implementation's server ([`cases`]).
//!
//! The client sends a steady stream of RPCs and counts their outcomes; the server answers them, and misbehaves if the
//! `rpc-behavior` header of a request says so. `--secure_mode` of the client is xDS credentials with a plaintext fallback;
//! that of the server is TLS by certificate files ([`server`]).

#![forbid(unsafe_code)]

pub mod cases;
pub mod client;
mod compression_flags;
mod flags;
pub mod server;

/// Messages and services, generated from the `.proto` files.
#[allow(missing_docs, unused_qualifications, clippy::all)]
pub mod proto {
    tonic::include_proto!("grpc.testing");
}
