//! gRPC's xDS client for Rust: an `xds:///` channel for tonic, with no sidecar.
//!
//! An [`XdsChannel`] finds its service through an xDS control plane, as gRPC's own libraries do in C++, Java and Go:
//! routes, clusters, localities, priorities with failover, and load balancing policies all follow the configuration
//! while RPCs run. Any client that tonic generates takes it as its channel.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let channel = proxyless::XdsChannel::connect("xds:///greeter.example:50051")?;
//! // Optional: connects now instead of with the first RPC, and fails early where that cannot be done.
//! channel.ready_within(std::time::Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The management server comes from a bootstrap: a file named by `GRPC_XDS_BOOTSTRAP`, inline JSON in
//! `GRPC_XDS_BOOTSTRAP_CONFIG`, or [`XdsChannelBuilder::bootstrap`].
//!
//! # What an RPC sees
//! Failures that no server caused are gRPC statuses like any other, with a text that says what is missing: the
//! resource, the management server and the node id, or the address and why it could not be connected to. RPCs fail fast
//! unless they carry [`WaitForReady`]; deadlines cover waiting, headers and body; requests that no server has begun to
//! process are sent again without the caller noticing. A response tells which backend it came from: [`PeerAddress`].
#![forbid(unsafe_code)]

mod activity;
mod bootstrap;
mod builder;
mod call;
mod channel;
mod client_pool;
mod clock;
mod drive;
mod error;
mod filters;
pub mod inspect;
mod server;
mod snapshot;
mod state;
mod user_agent;

pub use bootstrap::bootstrap_from_env;
pub use builder::XdsChannelBuilder;
pub use call::{PeerAddress, WaitForReady, XdsBody};
pub use channel::XdsChannel;
pub use client_pool::{ClientPool, ClientSharing};
pub use error::ConnectError;
pub use proxyless_balancer::api::ConnectivityState;
pub use proxyless_mesh::dns::DnsRefresh;
pub use proxyless_transport::dns::{
    Answer, Resolve, ResolveError, ResolveErrorKind, Resolving, SystemResolver,
};
pub use proxyless_transport::{Address, BoxedIo, Connecting, Connector, Io, TcpConnector};
pub use proxyless_xds::Gates;
pub use proxyless_xds::bootstrap::{
    Bootstrap, BootstrapBuilder, BootstrapError, BootstrapProblem, ServerFeatures,
};
pub use proxyless_xds::client::NackMode;
pub use proxyless_xds::resource::Locality;
pub use state::ChannelState;
