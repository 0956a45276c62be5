//! An xDS control plane and gRPC backends that run inside a test.
//!
//! Tests set resources on a [`ControlPlane`], connect a client to it by its [bootstrap](ControlPlane::bootstrap_json),
//! and then inject failures: backends are killed, hang or send GOAWAY, the control plane withholds resources, sends
//! garbage or goes away. Everything runs on loopback ports that are reserved for the test, every wait observes state
//! and has a time limit, and everything stops when dropped.
//!
//! ```
//! use proxyless::{Bootstrap, XdsChannel};
//! use proxyless_testkit::echo::{EchoClient, EchoRequest};
//! use proxyless_testkit::{Backend, ControlPlane, EDS, resources::*};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
//! let control_plane = ControlPlane::start().await?;
//! control_plane.set_all([
//!     listener("greeter", "greeter-route").into(),
//!     simple_route_config("greeter-route", "greeter-cluster").into(),
//!     eds_cluster("greeter-cluster").into(),
//!     priorities("greeter-cluster", [[&near], [&far]]).into(),
//! ]);
//!
//! let channel = XdsChannel::builder("xds:///greeter")
//!     .bootstrap(Bootstrap::from_json(&control_plane.bootstrap_json())?)
//!     .build()?;
//! let mut client = EchoClient::new(channel); // or the generated client of your own service, see `Backend::serve`
//! let answer = client.unary(EchoRequest::new("hello")).await?;
//! assert_eq!(answer.into_inner().backend, "near");
//!
//! near.kill().await; // RPCs go to `far` from now on, until the endpoints change:
//! control_plane.set(priorities("greeter-cluster", [[&far]]));
//! assert_eq!(control_plane.version(EDS), "2");
//! # Ok(())
//! # }
//! ```
//!
//! The functions in [`resources`] create the xDS messages that tests need most. They return plain messages of
//! [`envoy_types`], which this crate re-exports: set everything else on the message itself.

#![forbid(unsafe_code)]

pub use envoy_types;

mod backend;
mod control_plane;
pub mod echo;
mod log_text;
mod observed;
mod proxy;
pub mod reflection;
pub mod resources;
mod server;
mod sinks;
#[cfg(feature = "tls")]
pub mod tls;

pub use backend::{Backend, Call};
pub use control_plane::{
    AGGREGATE, Batch, CDS, ControlPlane, EDS, LDS, Load, LoadReport, RDS, Request, Resource, Selector,
};
pub use log_text::LogText;
pub use observed::TimedOut;
pub use proxy::Proxy;
pub use sinks::{BlackHole, DeadAddress, dead_address};
